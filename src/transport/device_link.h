/* How arrays in a device's memory go between ranks: a const table, beside the transport's own,
 * which the host's messages go through. Copies staged in host memory are the one way so far;
 * whatever reaches a peer's device without the host has its place here. */
#ifndef PLAIT_TRANSPORT_DEVICE_LINK_H
#define PLAIT_TRANSPORT_DEVICE_LINK_H

#include "device/device.h"
#include "transport/transport.h"

/* One execution on a device, between its enter and leave. Work that is enqueued on the stream
 * before a call is seen by it, and work enqueued after it sees what it has brought.
 *
 * `failure` is this rank's, of before the call or in it; from then on nothing is done on the
 * device, and what messages bring and take has no meaning. But they go their way, so
 * that no peer waits for them, until all ranks learn of it at a fence. */
typedef struct {
    plait_device_t *device;
    plait_stream_t stream;
    plait_session_t *session;
    plait_status_t failure;
    char why[240];
    bool is_lost;   /* peers may wait for what does not come */
    bool is_inside; /* the device was entered */
} plait_device_run_t;

typedef struct {
    const char *name;
    bool is_blocking; /* the calling thread waits for the device and for peers */

    /* At most one message to and one from each peer, none to this rank, addresses of the
     * device. Returns run->failure. */
    plait_status_t (*exchange)(plait_device_run_t *run, int n_sends,
                               const plait_message_t sends[], int n_recvs,
                               const plait_message_t recvs[]);

    /* As the transport's sendrecv, or as its send, on addresses of the device. A rank that has
     * failed sends what its partner refuses, and refuses what it is sent. */
    plait_status_t (*sendrecv)(plait_device_run_t *run, bool is_buffered,
                               const plait_half_t *send, const plait_half_t *recv,
                               plait_matched_t *matched_p);
} plait_device_link_t;

const plait_device_link_t *plait_device_link(const plait_device_t *device);

/* Keeps the first failure with its text; returns it. */
plait_status_t plait_device_failed(plait_device_run_t *run, plait_status_t status);

/* Gives the device back what is kept for copies between its memory and the host's. */
void plait_staged_trim(plait_device_t *device);

#endif
