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

/* What a reduction works on. Small, since each step has a copy. */
typedef struct {
    plait_dealt_t a;
    int rank;
    int width; /* vectors of a product that is summed: 1, or a panel's number (band.h) */
    int n_pieces; /* pieces of a maximum on this rank: all ranks' if moves are messages */
    bool is_native; /* the transport makes sums; not maxima: its NaN are not ours */
    int src;        /* slot of the operand */
    int copy;       /* slot of the matrix that is reduced; in the end reflectors */
    int panel;      /* slot of what all ranks have, see plait_hetrd_room_t */
} plait_hetrd_t;

/* Byte offsets in the slot `panel`. Pairs and sums have the same rows as the matrix. */
typedef struct {
    int64_t pairs, ld; /* v0 w0 v1 w1 ..., ld elements apart */
    int64_t pieces,
        stride; /* this rank's part of a sum, or all ranks' parts, `stride` bytes apart */
    int64_t sum;
    int64_t d, e;  /* diagonals of T, n real numbers each */
    int64_t tau;   /* n elements */
    int64_t state; /* plait_hetrd_state_t */
    int64_t norms; /* doubles: pieces of a maximum */
    int64_t head;  /* of a reduction to a band: a panel's part of the band */
    int64_t n_bytes;
} plait_hetrd_room_t;

typedef struct {
    double norm;  /* largest element of all ranks; infinite: A has NaN or Inf */
    double scale; /* factor of the copy */
} plait_hetrd_state_t;

plait_hetrd_room_t plait_hetrd_room(const plait_hetrd_t *h);

/* The state, while a kernel runs. */
static inline plait_hetrd_state_t *plait_hetrd_state(const plait_hetrd_t *h,
                                                     const plait_exec_t *exec)
{
    return (plait_hetrd_state_t *)(void *)(exec->slot[h->panel] +
                                           plait_hetrd_room(h).state);
}

/* Whether the matrix cannot be computed with. */
static inline bool plait_hetrd_has_failed(const plait_hetrd_t *h,
                                          const plait_exec_t *exec)
{
    return !(plait_hetrd_state(h, exec)->norm <= 0x1.fffffffffffffp1023);
}

/* Adds the steps that copy the operand and scale the copy. The largest element of all ranks decides on the
 * scale. */
plait_status_t plait_hetrd_copy_add(plait_plan_t *plan, const plait_hetrd_t *h);

/* Adds the steps that sum the ranks' parts of a product. */
plait_status_t plait_hetrd_sum_add(plait_plan_t *plan, const plait_hetrd_t *h,
                                   const plait_reduce_step_t *r);

/* Adds the steps. Afterwards d, e and tau are in `panel` on all ranks. Column j of `copy` has the j-th
 * reflector below the diagonal, including its leading 1. T belongs to A times state.scale. */
plait_status_t plait_hetrd_add(plait_plan_t *plan, const plait_hetrd_t *h);

#endif
