/* Substitution for right-hand sides that all ranks have whole, and that are too few to give each rank
 * columns. The ranks share the matrix instead: rank r multiplies with its own block columns only. Nothing of
 * the matrix travels; of x and of partial sums at most n x n_rhs numbers per rank and direction. */
#ifndef PLAIT_DENSE_FEW_H
#define PLAIT_DENSE_FEW_H

#include "dense/dealt.h"

typedef struct {
    plait_dealt_t a;
    int64_t n_rhs;
    int rank;
    char uplo, trans, diag; /* as BLAS has them */
    bool stays; /* 'N': each rank gets only the rows of its own blocks of x */
    int a_slot, b_slot, x_slot;
    int sums, pieces; /* work slots, see plait_few_add */
} plait_few_t;

/* Adds the steps of x = op(a)^-1 b for several ranks. x may have the memory of b. Makes the work slots. */
plait_status_t plait_few_add(plait_plan_t *plan, const plait_few_t *given);

#endif
