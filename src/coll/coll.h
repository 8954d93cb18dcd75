/* Parameters of the collectives, and steps that several of them share. */
#ifndef PLAIT_COLL_COLL_H
#define PLAIT_COLL_COLL_H

#include "plan/op.h"

typedef struct {
    int64_t reduce; /* plait_reduce_t */
} plait_allreduce_params_t;

typedef struct {
    int64_t root;
} plait_bcast_params_t;

typedef struct {
    int64_t reduce;
    int64_t root;
} plait_reduce_params_t;

typedef struct {
    int64_t unused; /* C has no empty structs */
} plait_barrier_params_t;

typedef struct {
    int64_t source; /* a rank, PLAIT_ANY, or PLAIT_NO_RANK */
    int64_t dest;   /* a rank, or PLAIT_NO_RANK            */
    int64_t sendtag;
    int64_t recvtag; /* or PLAIT_ANY */
    int64_t status;  /* id from plait_matched_keep, or 0 */
} plait_sendrecv_params_t;

/* Up to here a native collective beats direct access where a fence is a collective of MPI
 * (no shared segment); measured with two ranks on one node, where the curves cross between
 * 16 and 64 KiB. */
enum { PLAIT_NATIVE_BYTES = 32 << 10 };

/* Whether all ranks' operands, at most n_bytes each, go along with a fence: one meeting
 * instead of two and no reads of peers' memory. Every rank reads all of them, so their sum
 * is bounded as well. */
bool plait_coll_publishes(const plait_problem_t *problem, int64_t n_bytes);

/* INVALID unless operand and result have the same dtype and shape. */
plait_status_t plait_coll_same(const char *name, const plait_array_t *x,
                               const plait_array_t *y);

/* Copies slot to slot on this rank. */
plait_status_t plait_coll_copy(plait_plan_t *plan, int src_slot, int dst_slot,
                               int64_t n_bytes);

/* Steps of a reduction from operand 0 to result 0 of the root, or of all ranks (root -1);
 * the results of the others are undefined. */
plait_status_t plait_coll_allreduce(plait_plan_t *plan, const plait_problem_t *problem,
                                    plait_reduce_t op, int root);

#endif
