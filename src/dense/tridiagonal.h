/* Eigenvalues of a real symmetric tridiagonal matrix that is on all ranks, and each rank's share
 * of the eigenvectors: contiguous columns. */
#ifndef PLAIT_DENSE_TRIDIAGONAL_H
#define PLAIT_DENSE_TRIDIAGONAL_H

#include "dense/hetrd.h"

typedef struct {
    plait_hetrd_t h;  /* d and e are in its panel */
    int w, v, info;   /* slots of results */
    bool has_vectors; /* of the dtype of A */
    int64_t
        first; /* vectors of this rank: the first one, how many, and columns of its array */
    int64_t n_columns, n_stored;
} plait_tridiagonal_t;

/* Adds the steps; eigenvalues are those of A. Where there are none, because A is not finite or a
 * solver failed, w and v are NaN, and plait_hetrd_has_failed says so from then on. */
plait_status_t plait_tridiagonal_add(plait_plan_t *plan, const plait_tridiagonal_t *t);

#endif
