/* Reduction of a Hermitian matrix that is dealt out to tridiagonal form, T = Q^H A Q.
 *
 * One stage, in panels of PLAIT_HETRD_WIDTH columns. A column's owner applies the panel's reflectors so far to
 * the column and makes the next reflector, v. Every rank multiplies its own part of the trailing matrix with
 * v, and the parts are summed, with the same bits on all ranks. All ranks have the vectors v and w of the
 * panel, so that w and the update of the trailing matrix need no more messages. This makes two fences per
 * column, or three if each rank sums a part. Where moves are messages the sum is the transport's own, with
 * about 2 log P messages one after the other, or otherwise P.
 * Source: Dongarra, Sorensen, Hammarling, J. Comput. Appl. Math. 27, 1989 (LAPACK's latrd). */
#ifndef PLAIT_DENSE_HETRD_H
#define PLAIT_DENSE_HETRD_H

#include "dense/dealt.h"
#include "kernel/blas.h"

enum { PLAIT_HETRD_WIDTH = 32 };

/* What a reduction works on; small, since each step has one. */
typedef struct {
    plait_dealt_t a;
    int rank;
    int width; /* vectors of a product that is summed: 1, or those of a panel (band.h) */
    int n_pieces; /* of a maximum that are kept here: all ranks' where moves are messages */
    bool is_native; /* sums are the transport's own; its NaN in maxima are not ours */
    int src;        /* slot of the operand */
    int copy;       /* slot of the matrix that is reduced; reflectors in the end */
    int panel;      /* slot of what is on all ranks, see plait_hetrd_room_t */
} plait_hetrd_t;

/* Byte offsets in the slot `panel`. Rows of pairs and sums are those of the matrix. */
typedef struct {
    int64_t pairs, ld; /* v0 w0 v1 w1 ..., ld elements apart */
    int64_t pieces,
        stride; /* this rank's part of a sum, or all ranks', stride bytes apart */
    int64_t sum;
    int64_t d, e;  /* diagonals of T, n real numbers each */
    int64_t tau;   /* n elements */
    int64_t state; /* plait_hetrd_state_t */
    int64_t norms; /* doubles: the parts of a reduction, as above */
    int64_t head;  /* of a band: what a panel has of it */
    int64_t n_bytes;
} plait_hetrd_room_t;

typedef struct {
    double norm;  /* largest element of all ranks; infinite: A has NaN or Inf */
    double scale; /* of the copy */
} plait_hetrd_state_t;

plait_hetrd_room_t plait_hetrd_room(const plait_hetrd_t *h);

/* The state, while a kernel runs. */
static inline plait_hetrd_state_t *plait_hetrd_state(const plait_hetrd_t *h,
                                                     const plait_exec_t *exec)
{
    return (plait_hetrd_state_t *)(void *)(exec->slot[h->panel] +
                                           plait_hetrd_room(h).state);
}

/* Whether there is nothing to compute with. */
static inline bool plait_hetrd_has_failed(const plait_hetrd_t *h,
                                          const plait_exec_t *exec)
{
    return !(plait_hetrd_state(h, exec)->norm <= 0x1.fffffffffffffp1023);
}

/* Adds the steps that bring the operand to the copy and scale it: the largest element of all ranks
 * decides. */
plait_status_t plait_hetrd_copy_add(plait_plan_t *plan, const plait_hetrd_t *h);

/* Adds those that sum the ranks' parts of a product. */
plait_status_t plait_hetrd_sum_add(plait_plan_t *plan, const plait_hetrd_t *h,
                                   const plait_reduce_step_t *r);

/* Adds the steps. Afterwards d, e and tau are in `panel` on all ranks; column j of `copy` has the
 * j-th reflector below the diagonal, its leading 1 included; T is that of A times state.scale. */
plait_status_t plait_hetrd_add(plait_plan_t *plan, const plait_hetrd_t *h);

#endif
