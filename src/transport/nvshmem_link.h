/* Shared by the two files of the link `nvshmem`: nvshmem_open.c opens it, link_nvshmem.c moves messages and
 * ends it.
 *
 * Every rank has a part of its process' pool:
 *   signals   for each rank SLOTS words: the latest piece that it has put into a slot here; and SLOTS
 *             more words: the latest piece that it has taken from a slot there
 *   inbox     SLOTS slots for each other rank, for its pieces in turn
 *   outbox    data that are being put */
#ifndef PLAIT_TRANSPORT_NVSHMEM_LINK_H
#define PLAIT_TRANSPORT_NVSHMEM_LINK_H

#include "transport/device_link.h"
#include "transport/nvshmem_pool.h"

enum { PLAIT_NVSHMEM_SLOTS = 2 };

typedef struct {
    int pe;
    int64_t offset;              /* of its part in its own pool */
    int64_t slot_bytes;          /* in its part */
    int64_t piece;               /* largest piece of a message to or from it */
    uint64_t n_sent, n_received; /* pieces so far */
} plait_nvshmem_peer_t;

typedef struct {
    const plait_device_nvshmem_t *call;
    plait_nvshmem_job_t *job;
    int rank, n_ranks;
    plait_nvshmem_peer_t *peers; /* including this rank */
    plait_part_t part;
    plait_stream_t stream; /* of the last exchange */
    plait_event_t *latest; /* behind the last exchange */
    plait_stream_t aside;  /* for signals that the host reads and writes */
    plait_event_t *apart;  /* behind the work on `aside` */
    uint64_t *pinned;      /* room for all signals */
    uint64_t *released;    /* signals with which nothing waits; pinned, too */
    bool is_used;          /* peers know where to write */
} plait_nvshmem_link_t;

/* More than any count, also in a comparison by difference. */
#define PLAIT_NVSHMEM_RELEASED (UINT64_C(1) << 62)

/* Words that are signals: first those of pieces that were put, then those of pieces that were taken. */
static inline int64_t plait_nvshmem_n_signals(int n_ranks)
{
    return (int64_t)2 * PLAIT_NVSHMEM_SLOTS * n_ranks;
}

/* The index of the signal for piece g of a rank. */
static inline int64_t plait_nvshmem_signal(int n_ranks, int rank, uint64_t g,
                                           bool is_taken)
{
    const int64_t first = is_taken ? plait_nvshmem_n_signals(n_ranks) / 2 : 0;

    return first + (int64_t)rank * PLAIT_NVSHMEM_SLOTS +
           (int64_t)(g % PLAIT_NVSHMEM_SLOTS);
}

static inline int64_t plait_nvshmem_signal_bytes(int n_ranks)
{
    return plait_nvshmem_n_signals(n_ranks) * (int64_t)sizeof(uint64_t);
}

/* Bytes from the begin of a part to its inbox. */
static inline int64_t plait_nvshmem_inbox_at(int n_ranks)
{
    return (plait_nvshmem_signal_bytes(n_ranks) + PLAIT_PART_GRAIN - 1) /
           PLAIT_PART_GRAIN * PLAIT_PART_GRAIN;
}

/* Slots of a part, including the outbox. */
static inline int64_t plait_nvshmem_n_slots(int n_ranks)
{
    return (int64_t)PLAIT_NVSHMEM_SLOTS * (n_ranks - 1) + 1;
}

/* Like the functions of the link's table. */
plait_status_t plait_nvshmem_open(plait_device_run_t *run, void **state_p);
plait_status_t plait_nvshmem_exchange(plait_device_run_t *run,
                                      plait_nvshmem_link_t *link, int n_sends,
                                      const plait_message_t sends[], int n_recvs,
                                      const plait_message_t recvs[]);

/* After a failure: this rank's stream stops waiting. The link no longer exists afterwards. */
void plait_nvshmem_abandon(plait_device_run_t *run, plait_nvshmem_link_t *link);

/* Waits until the host's reads and writes on `aside` are over. They may have to wait for the work of other
 * streams, if the device takes all work in one order (CUDA_DEVICE_MAX_CONNECTIONS). */
plait_status_t plait_nvshmem_await_aside(plait_device_t *device,
                                         plait_nvshmem_link_t *link);

/* Frees what the link has of the device, except its part. */
void plait_nvshmem_free(plait_device_t *device, plait_nvshmem_link_t *link);

#endif
