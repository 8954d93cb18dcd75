/* Which communicator has which part of NVSHMEM's pool in this process. Each rank takes its own part, at any
 * place, and tells its peers where the part is: offsets need not be the same. */
#ifndef PLAIT_TRANSPORT_NVSHMEM_POOL_H
#define PLAIT_TRANSPORT_NVSHMEM_POOL_H

#include "device/device.h"

/* Most PEs of one job. */
enum { PLAIT_MAX_PES = 1024, PLAIT_PART_GRAIN = 256 };

typedef struct {
    uint64_t bits[PLAIT_MAX_PES / 64];
} plait_pes_t;

static inline void plait_pes_add(plait_pes_t *pes, int pe)
{
    pes->bits[pe / 64] |= UINT64_C(1) << (pe % 64);
}

typedef struct {
    int64_t offset, n_bytes;
} plait_part_t;

/* PLAIT_NVSHMEM_BYTES, or its default. */
plait_status_t plait_nvshmem_bytes(int64_t *n_bytes_p);

/* Takes half of the longest free piece, so that more communicators find some; `least` if that is more.
 * UNSUPPORTED: there is not enough. */
plait_status_t plait_part_take(plait_nvshmem_job_t *job, int64_t least,
                               plait_part_t *part_p);

/* Nobody writes to the part any more. n_bytes 0: there is no part. */
void plait_part_give(plait_nvshmem_job_t *job, const plait_part_t *part);

/* Peers, which are these PEs, may still write there, until each has ended the work on its stream. NULL: this
 * rank has not ended its work, and its peers' parts, too, must never be used again. */
void plait_part_retire(plait_nvshmem_job_t *job, const plait_part_t *part,
                       const plait_pes_t *pes);

/* Whether this rank has ended its work for every part that it ever retired. */
bool plait_part_is_clean(const plait_nvshmem_job_t *job);

/* These PEs have ended their work: parts that wait for them alone are free. */
void plait_part_reclaim(plait_nvshmem_job_t *job, const plait_pes_t *pes);

#endif
