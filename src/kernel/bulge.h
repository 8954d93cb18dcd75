/* Steps of chasing a bulge down a band (dense/chase.h), on blocks of PLAIT_BULGE_ROWS rows of real numbers.
 * Several updates are made in one pass; at this size a BLAS call takes longer than its work. */
#ifndef PLAIT_KERNEL_BULGE_H
#define PLAIT_KERNEL_BULGE_H

#include "plait/dtype.h"

enum { PLAIT_BULGE_ROWS = 32 };

/* Blocks are column-major, ld elements from column to column; H = 1 - tau v v^T, v[0] = 1. */
typedef struct {
    /* w = tau A v, and the first column of A H. */
    void (*right)(void *a, int64_t ld, const void *v, const void *tau, void *w);
    /* The other columns of H^T (A - w before^T). */
    void (*left)(void *a, int64_t ld, const void *w, const void *before, const void *v,
                 const void *tau);
    /* H^T A H of a symmetric block, of which the lower triangle is there; w: room for a column. What is
     * above the diagonal is read, and stays as it is. */
    void (*both)(void *a, int64_t ld, const void *v, const void *tau, void *w);
} plait_bulge_t;

/* The fastest for this processor; NULL for complex numbers. */
const plait_bulge_t *plait_bulge(plait_dtype_t dtype);

/* For each instruction set, of float32 and float64. */
extern const plait_bulge_t plait_bulge_generic[2];
extern const plait_bulge_t plait_bulge_avx2[2];
extern const plait_bulge_t plait_bulge_avx512[2];

#endif
