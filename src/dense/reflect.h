/* Products with block reflectors H = I - V T V^H. V is a panel of columns with a diagonal of 1; neither the
 * diagonal nor the elements above it are read. */
#ifndef PLAIT_DENSE_REFLECT_H
#define PLAIT_DENSE_REFLECT_H

#include "dense/dealt.h"
#include "kernel/blas.h"
#include "plan/tiles.h"

/* Rows [row, row + panel.n_rows) of n_columns columns at an offset of `slot` are multiplied by H, or by H^H. */
typedef struct {
    plait_dtype_t dtype;
    plait_panel_t panel; /* from its diagonal on */
    int64_t n;           /* reflectors: the first columns of the panel */
    int tau_slot;
    int64_t tau_offset; /* bytes */
    int slot;
    int64_t offset, ld, n_columns;
    bool is_adjoint;
} plait_reflect_t;

/* INVALID unless the array has the scalar factors of the reflectors of this matrix. */
plait_status_t plait_reflect_tau_fits(const plait_dealt_t *d,
                                      const plait_array_t *array, const char *what);

/* LAPACK's geqrf of a rank's rows: R, and the reflectors below it. The rows are scaled into range for the call
 * (kernel/range.h). */
void plait_reflect_factor(plait_dtype_t dtype, int64_t m, int64_t n, void *a,
                          int64_t ld, void *tau, plait_blas_work_t *work);

/* Bytes of scratch: the triangle T and the product V^H C. */
int64_t plait_reflect_scratch(plait_dtype_t dtype, int64_t n, int64_t n_columns);

void plait_reflect_run(const plait_reflect_t *r, const plait_exec_t *exec);

plait_status_t plait_reflect_tiles(const plait_reflect_t *r,
                                   const plait_tiles_t *tiles);

/* Touches what is read, and what is also written: the columns. */
void plait_reflect_touch(const plait_reflect_t *r, int rank, plait_touch_fn_t touch,
                         void *context);

#endif
