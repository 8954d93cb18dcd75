/* Steps of chasing a bulge down a band (dense/chase.h), on blocks of PLAIT_BULGE_ROWS rows of real numbers.
 * Several updates are made in one pass; at this size a BLAS call takes longer than its work. */
#ifndef PLAIT_KERNEL_BULGE_H
#define PLAIT_KERNEL_BULGE_H

#include "plait/dtype.h"

enum { PLAIT_BULGE_ROWS = 32 };

/* Blocks are column-major, columns ld elements apart. H = 1 - tau v v^T, v[0] = 1. */
typedef struct {
    /* w = tau A v, and the first column of A H. */
    void (*right)(void *a, int64_t ld, const void *v, const void *tau, void *w);
    /* The other columns of H^T (A - w before^T). */
    void (*left)(void *a, int64_t ld, const void *w, const void *before, const void *v,
                 const void *tau);
    /* H^T A H of a symmetric block, given by its lower triangle; w: room for a column. Elements above the
     * diagonal are read, and stay as they are. */
    void (*both)(void *a, int64_t ld, const void *v, const void *tau, void *w);
} plait_bulge_t;

/* The fastest kernels for this processor; NULL for complex numbers. */
const plait_bulge_t *plait_bulge(plait_dtype_t dtype);

/* Kernels of each instruction set, for float32 and float64. */
extern const plait_bulge_t plait_bulge_generic[2];
extern const plait_bulge_t plait_bulge_avx2[2];
extern const plait_bulge_t plait_bulge_avx512[2];

#endif
