/* What the two ways of Cholesky factorization share: by block columns (potrf.c) and on a grid of
 * ranks (potrf_grid.c). */
#ifndef PLAIT_DENSE_POTRF_H
#define PLAIT_DENSE_POTRF_H

#include "dense/factor.h"
#include "dense/grid.h"

/* Factors the diagonal block that begins at `row` of the matrix. *info_p, 0 so far: the order of the
 * leading minor that fails there. */
void plait_potrf_block(plait_dtype_t dtype, int64_t row, int64_t width, void *block,
                       int64_t ld, int32_t *info_p);

/* NaN to the own columns where it failed; zero above their diagonal blocks and behind them. Both
 * have plait_factor_t as params. */
extern const plait_kernel_t plait_potrf_finish_kernel;
extern const plait_kernel_t plait_potrf_zero_kernel;

/* Adds all steps of the factorization on a grid. given: as for plait_factor_steps. */
plait_status_t plait_potrf_grid_steps(plait_plan_t *plan, const plait_grid_t *g,
                                      const plait_factor_t *given);

#endif
