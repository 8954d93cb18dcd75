/* From eigenvectors of the tridiagonal matrix to eigenvectors of the matrix it was reduced from: Z to Q Z.
 * Each rank works on its own columns. Panels of reflectors go to all ranks, the last one first; nothing else
 * is exchanged.
 * Source: Schreiber, Van Loan, SIAM J. Sci. Stat. Comput. 10, 1989 (compact WY form). */
#ifndef PLAIT_DENSE_BACK_H
#define PLAIT_DENSE_BACK_H

#include "dense/hetrd.h"

typedef struct {
    plait_hetrd_t h;
    int z;             /* slot of this rank's columns, leading dimension n */
    int64_t n_columns; /* columns in z */
    int reflectors;    /* work slot of plait_back_bytes() */
} plait_back_t;

/* Bytes of a work slot for a panel of reflectors. */
int64_t plait_back_bytes(const plait_hetrd_t *h);

plait_status_t plait_back_add(plait_plan_t *plan, const plait_back_t *b);

#endif
