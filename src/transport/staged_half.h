/* One half of a matched transfer through pinned memory, chunk after chunk: while the transport has one chunk,
 * others come down from the device or go up to it. */
#ifndef PLAIT_TRANSPORT_STAGED_HALF_H
#define PLAIT_TRANSPORT_STAGED_HALF_H

#include "transport/device_link.h"
#include "transport/staged.h"

/* One call, of two halves at most. */
typedef struct {
    plait_device_run_t *run;
    int64_t room;             /* for a chunk of either half */
    plait_staging_t *staging; /* NULL: nobody has needed it yet */
} plait_staged_call_t;

typedef struct {
    plait_staged_call_t *call;
    bool is_send;
    char *data; /* on the device */
    int64_t n_bytes;
    int64_t at, chunk; /* of the chunk that the transport has, or had last */
    int64_t lower_at;  /* of the next chunk to come down */
    int n_given, n_lowered;
    void *spare; /* for chunks that come to a rank that has failed */
} plait_staged_half_t;

/* Before the transport's call; later only the device can fail. */
plait_status_t plait_staged_half_begin(plait_staged_half_t *half);

/* Host memory with the next chunk, or for it. A failure is the run's, too. After a failure, a sending half has
 * nothing, and a receiving half gets memory that nobody looks at. */
plait_status_t plait_staged_half_next(plait_staged_half_t *half, void **data_p);

/* The last chunk has come; the run's stream goes on when all chunks are on the device. */
plait_status_t plait_staged_half_bring(plait_staged_half_t *half);

/* Gives back all that was taken, whatever has happened. */
void plait_staged_half_finish(plait_staged_half_t *half);
void plait_staged_call_finish(plait_staged_call_t *call);

#endif
