/* Eigenvalues of a real symmetric tridiagonal matrix that all ranks have, and each rank's share of the
 * eigenvectors: contiguous columns.
 *
 * The method is divide and conquer (merge.h). All ranks walk up the same tree of merges, at the cost of n^2,
 * and keep each merge's data, not its vectors. Then each rank walks down the tree with its own columns,
 * starting with columns of the identity: at most 2 n^2 operations per column, no messages, and no memory
 * except a few panels. LAPACK's stedc would take n^3 operations and 2 n^2 numbers on every rank. With stemr
 * the ranks' shares would not be orthogonal where close eigenvalues belong to two ranks.
 * Source: Gu, Eisenstat, SIAM J. Matrix Anal. Appl. 16, 1995; going down, own. */
#ifndef PLAIT_DENSE_TRIDIAGONAL_H
#define PLAIT_DENSE_TRIDIAGONAL_H

#include "dense/hetrd.h"

typedef struct {
    plait_hetrd_t h;  /* d and e are in its panel */
    int w, v, info;   /* slots of results */
    int tree;         /* work slot of plait_tridiagonal_bytes() */
    bool has_vectors; /* vectors have the dtype of A */
    /* this rank's vectors: the first one, how many, and columns of its array */
    int64_t first;
    int64_t n_columns, n_stored;
} plait_tridiagonal_t;

/* Bytes of the tree. */
int64_t plait_tridiagonal_bytes(const plait_tridiagonal_t *t);

/* Adds the steps; eigenvalues are those of A. If there are none, because A is not finite or a solver failed, w
 * and v are NaN, and from then on plait_hetrd_has_failed returns true. */
plait_status_t plait_tridiagonal_add(plait_plan_t *plan, const plait_tridiagonal_t *t);

#endif
