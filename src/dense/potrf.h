/* Shared by the three ways of Cholesky factorization: by block columns (potrf.c), on a grid of ranks
 * (potrf_grid.c), and by the library of several devices (potrf_joint.c). */
#ifndef PLAIT_DENSE_POTRF_H
#define PLAIT_DENSE_POTRF_H

#include "dense/factor.h"
#include "dense/grid.h"
#include "dense/joint.h"

/* Factors the diagonal block that begins at `row` of the matrix. *info_p, which is 0 so far, becomes the order
 * of the leading minor that fails in this block. */
void plait_potrf_block(plait_dtype_t dtype, int64_t row, int64_t width, void *block,
                       int64_t ld, int32_t *info_p);

/* The same as a tile: the width x width block there. */
plait_tile_t plait_potrf_tile(plait_dtype_t dtype, int64_t row, int64_t width,
                              plait_spot_t block, int64_t ld, plait_spot_t info);

/* C -= L_i L_j^H as tiles, for a block column of `width` columns. The first n_square rows (0 or width) are a
 * square of which the lower triangle is updated; n_rows includes these rows. `rows` are the panel's rows that
 * face the rows of c; `facing` are the panel's rows that face its columns. */
typedef struct {
    plait_dtype_t dtype;
    int64_t n_rows, n_square, width, depth;
    plait_spot_t rows, facing, c;
    int64_t rows_ld, facing_ld, ld;
} plait_potrf_update_t;

plait_status_t plait_potrf_update_tiles(const plait_potrf_update_t *u,
                                        const plait_tiles_t *tiles);

/* Tiles that copy the lower triangle of the own columns of src_slot to slot, with zeros above it and behind the
 * columns. diag: 'R' takes the real part of the diagonal, 'N' all of it. And the memory that these tiles
 * touch. */
plait_status_t plait_potrf_trim_tiles(const plait_factor_t *f, char diag,
                                      const plait_tiles_t *tiles);
void plait_potrf_trim_touch(const plait_factor_t *f, plait_touch_fn_t touch,
                            void *context);

/* Kernels with plait_factor_t as params. start: the same with 'R', or for potri with 'N', and info = 0. finish:
 * NaN to the own columns if the factorization failed. zero: zeros above the own diagonal blocks and behind the
 * columns. */
extern const plait_kernel_t plait_potrf_start_kernel;
extern const plait_kernel_t plait_potri_start_kernel;
extern const plait_kernel_t plait_potrf_finish_kernel;
extern const plait_kernel_t plait_potrf_zero_kernel;

/* Adds all steps of the factorization on a grid. given: as for plait_factor_steps. */
plait_status_t plait_potrf_grid_steps(plait_plan_t *plan, const plait_grid_t *g,
                                      const plait_factor_t *given);

/* The same by all devices at once; and the inverse, made from the factor: NaN if a diagonal element is 0. */
plait_status_t plait_potrf_joint_steps(plait_plan_t *plan, const plait_joint_t *joint,
                                       const plait_factor_t *given);
plait_status_t plait_potri_joint_steps(plait_plan_t *plan, const plait_joint_t *joint,
                                       const plait_factor_t *given);

#endif
