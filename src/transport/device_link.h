/* Links: the ways in which arrays in a device's memory go between ranks. Each link is a const table. The
 * host's messages go through the transport's own table.
 *
 * The link of a communicator is found once, at the first operation on devices. It is the first link, in the
 * order of device_way.c, that all ranks say they can take and that opens on all ranks. Until then copies are
 * staged in host memory.
 *
 * Matched transfers of more than PLAIT_MATCHED_STAGED_BYTES take a link that has a way for them
 * (plait_matched_link_t):
 *   - `peer` at once;
 *   - `ipc` after a collective has opened it, as a transfer of two ranks cannot open it for all;
 *   - `mpi`, of which each rank knows for itself whether it has it.
 * Other transfers are staged. A partner that does not have the way, for instance because its array is on the
 * host, is sent the bytes. */
#ifndef PLAIT_TRANSPORT_DEVICE_LINK_H
#define PLAIT_TRANSPORT_DEVICE_LINK_H

#include "device/device.h"
#include "transport/transport.h"

typedef struct plait_device_link plait_device_link_t;

/* One execution on a device, between its enter and leave. A call sees work that was enqueued on the stream
 * before it; work enqueued after the call sees what the call has brought.
 *
 * `failure` is this rank's, from before the call or in it. From then on nothing is done on the device, and the
 * data of messages have no meaning. But messages still go their way, so that no peer waits for them, until all
 * ranks learn of the failure at a fence. */
typedef struct {
    plait_device_t *device;
    plait_stream_t stream;
    plait_session_t *session;
    const plait_device_link_t *link; /* the link by which it reaches peers */
    void *state;                     /* the link's own */
    plait_reach_t reach;             /* which links matched transfers may take */
    plait_status_t failure;
    char why[240];
    bool is_held;    /* the stream waits for what peers' streams do */
    bool is_lost;    /* peers may wait for something that does not come */
    bool is_inside;  /* the device was entered */
    bool is_in_grid; /* in a call with its peers (process_grid.h), or failed there */
} plait_device_run_t;

/* Up to this size a matched transfer is staged: a send of this size must not wait for its receiver, and a copy
 * down and one up take no longer than what two ranks have to tell each other (chosen, not measured on a
 * GPU). */
enum { PLAIT_MATCHED_STAGED_BYTES = PLAIT_SEND_BYTES };

/* The sending half of a matched transfer that goes by a link. */
typedef struct {
    plait_device_run_t *run;
    void *state;           /* of the matched link */
    plait_message_t sent;  /* with addresses of the device */
    plait_event_t *filled; /* the link's own */
    void *copy;
} plait_sending_t;

/* How messages of matched transfers go from device to device. Several messages go at once, each on the stream
 * of its run. Of two messages between the same ranks in the same direction, the second begins when the first
 * has been received, since they keep their order.
 *
 * Either a source offers its message, and the receiver takes it; or each partner by itself gives addresses of
 * the device to the transport's library, which moves the message like any other (`place`). */
typedef struct {
    /* Needs no other rank; then the next two are NULL. */
    bool (*can)(const plait_endpoint_t *end, const plait_device_t *device);
    /* Called on each rank by itself, after the link of the same name was opened; link: its state. */
    plait_status_t (*create)(const plait_endpoint_t *end, const void *link,
                             void **state_p);
    void (*destroy)(plait_device_t *device, void *state);

    /* Describes the message, and enqueues the event that says that it is there. */
    plait_status_t (*offer)(plait_sending_t *sending, plait_offer_t *offer);

    /* Enqueues the copy of a message that a source has offered. Not OK: some of the copy may be on the
     * stream. */
    plait_status_t (*take)(plait_device_run_t *run, void *state, int source,
                           const plait_offer_t *offer, void *dst, int64_t n_bytes,
                           plait_receipt_t *receipt);

    /* Lets the stream go on when the message has been taken; receipt NULL: it was not taken, and will not be.
     * Also called after a failure, since a peer may be about to read this rank's memory, and to give back
     * resources. */
    plait_status_t (*settle)(plait_sending_t *sending, const plait_receipt_t *receipt);

    /* These two replace the three above. `place` says where the library finds the message, or puts it, when all
     * work on the stream is done; not at the half's own place: memory that was taken. `displace` is called when
     * the message has moved, or has not: it brings the data to their place if is_brought. */
    plait_status_t (*place)(plait_device_run_t *run, const plait_half_t *half,
                            bool is_send, void **data_p);
    plait_status_t (*displace)(plait_device_run_t *run, const plait_half_t *half,
                               void *data, bool is_brought);
} plait_matched_link_t;

struct plait_device_link {
    const char *name;
    bool is_blocking; /* the calling thread waits for the device and for peers */
    bool is_known; /* `can` says the same on all ranks: they need not ask each other */

    /* Whether this rank could take the link. UNSUPPORTED: why not. NULL: it always can. */
    plait_status_t (*can)(const plait_endpoint_t *end, const plait_device_t *device);

    /* Prepares exchanges with all ranks. All call it together, and keep nobody waiting when they fail; not OK
     * on one rank is a refusal on all. NULL: nothing to prepare. */
    plait_status_t (*open)(plait_device_run_t *run, void **state_p);
    /* is_whole false: an operation of the communicator was given up, and peers may never do what they have not
     * done yet. */
    void (*close)(plait_device_t *device, void *state, bool is_whole);

    /* Replaces close when an operation has failed on all ranks: all that still waits for a peer ends, and ranks
     * open the link anew before the next operation. NULL: nothing waits. */
    void (*abandon)(plait_device_run_t *run, void *state);

    /* At most one message to and one from each peer, none to this rank, with addresses of the device. Returns
     * run->failure.
     *
     * One operation of a communicator at a time makes exchanges, all of them on one stream, and ends with a
     * fence of all ranks. The next operation may be on another stream while work is left on the stream before.
     * Started operations do so; they take links that can cope with it (PLAIT_REACH_BESIDE). */
    plait_status_t (*exchange)(plait_device_run_t *run, int n_sends,
                               const plait_message_t sends[], int n_recvs,
                               const plait_message_t recvs[]);

    /* Waits until all work on the stream is done. NULL: the device's own wait, since peers cannot hold it
     * up. */
    plait_status_t (*wait)(plait_device_run_t *run);

    const plait_matched_link_t *matched; /* NULL: matched transfers are staged */
};

extern const plait_device_link_t plait_link_peer, plait_link_ipc, plait_link_nccl,
    plait_link_nvshmem, plait_link_mpi, plait_link_staged;

/* Name of the i-th link in the order in which they are taken; NULL: there are no more. */
PLAIT_EXPORT const char *plait_device_link_name(int i);

/* Sets link and state of the run. may_ask: the session is collective and all ranks are at this place of it. The
 * same status on all ranks: UNSUPPORTED if the requested link is not available, with the reason of the rank
 * that cannot take it; TRANSPORT and other failures of the transport, with which the run is_lost. */
plait_status_t plait_device_find_way(plait_device_run_t *run, plait_reach_t reach,
                                     bool may_ask);

/* The link by which matched transfers of the run go now, and its state for them. NULL: they are staged. Any
 * thread. */
const plait_matched_link_t *plait_device_matched_way(const plait_device_run_t *run,
                                                     void **state_p);

/* Whether each rank is an MPI process with one device. */
bool plait_device_is_of_process(const plait_endpoint_t *end);

/* Limit for waits on devices that may be gone: longer than it takes to copy all their memory from one to
 * another. */
#define PLAIT_DEVICE_DRAIN_NS (INT64_C(10) * 1000000000)

/* Waits until the event has come, or the clock has passed latest_ns (INT64_MAX: never). Peers may never do
 * their part for that: each turn asks about them. what: static, for whoever reports. */
plait_status_t plait_device_await(plait_device_t *device, plait_event_t *event,
                                  const char *what, int64_t latest_ns);

/* Waits until all work that the run has put on its stream is done. */
plait_status_t plait_device_wait(plait_device_run_t *run);

/* For an operation that has ended with a failure that all ranks know of, or that this rank could not tell
 * them. */
void plait_device_abandon(plait_device_run_t *run);

/* Collects n_bytes of each rank, one after the other. Not OK: the run is_lost. */
plait_status_t plait_device_share(plait_device_run_t *run, const void *mine,
                                  int64_t n_bytes, void *all);

/* Before the endpoint is closed; no operation is under way. is_whole: none was given up. */
void plait_device_close_ways(plait_endpoint_t *end, bool is_whole);

/* Like the transport's sendrecv, or its send, with addresses of the device. A rank that has failed sends a
 * message that its partner refuses, and refuses what it is sent. By a link nobody waits for a stream (except by
 * `ipc`, for the first message from a rank); a staged transfer waits for this rank's own copies. */
plait_status_t plait_device_sendrecv(plait_device_run_t *run, bool is_buffered,
                                     const plait_half_t *send, const plait_half_t *recv,
                                     plait_matched_t *matched_p);

/* Keeps the first failure with its text; returns it. */
plait_status_t plait_device_failed(plait_device_run_t *run, plait_status_t status);

/* Gives the device back the memory kept for copies between it and the host. */
void plait_staged_trim(plait_device_t *device);

/* For tests: only this link from now on, on all ranks alike; called before any link was asked for. */
plait_status_t plait_device_force_link(plait_endpoint_t *end,
                                       const plait_device_link_t *link);

#endif
