#include "redist/fold.h"

#include "base/checked.h"
#include "base/status.h"
#include "layout/coords.h"
#include "redist/blocks.h"

/* Rows [row, row + n_rows) by columns [column, column + n_columns). */
typedef struct {
    int64_t row, n_rows, column, n_columns;
} patch_t;

plait_layout_t plait_fold_layout(const plait_layout_t *flat, int axis, int64_t n_rows,
                                 int64_t n_columns)
{
    plait_layout_t matrix = *flat;

    for (int a = flat->ndim; a > axis + 1; a--) {
        matrix.shape[a] = flat->shape[a - 1];
        matrix.axis[a] = flat->axis[a - 1];
        matrix.stored[a] = flat->stored[a - 1];
    }
    for (int a = axis; a <= axis + 1; a++) {
        matrix.axis[a] = (plait_axis_t){.split = PLAIT_SPLIT_WHOLE};
        matrix.stored[a] = 0;
    }
    matrix.shape[axis] = n_rows;
    matrix.shape[axis + 1] = n_columns;
    matrix.ndim = flat->ndim + 1;
    return matrix;
}

/* [lo, hi) as the end of a row, whole rows, the beginning of a row: at most 3 patches. */
static int cut(int64_t lo, int64_t hi, int64_t n_columns, patch_t patches[])
{
    int n = 0;

    if (lo < hi && lo % n_columns != 0) {
        int64_t row = lo / n_columns;
        int64_t end = plait_min(hi, (row + 1) * n_columns);
        patches[n++] = (patch_t){row, 1, lo % n_columns, end - lo};
        lo = end;
    }
    if (hi - lo >= n_columns) {
        int64_t n_rows = (hi - lo) / n_columns;
        patches[n++] = (patch_t){lo / n_columns, n_rows, 0, n_columns};
        lo += n_rows * n_columns;
    }
    if (lo < hi) {
        patches[n++] = (patch_t){lo / n_columns, 1, 0, hi - lo};
    }
    return n;
}

/* The overlap of [at, at + n) of an axis of the matrix with a rank's part of this axis. The index on the flat
 * side is the global index. */
static plait_overlap_t meet(const plait_fold_t *fold, int rank, int axis, int64_t at,
                            int64_t n)
{
    plait_overlap_t overlap = {0};

    if (plait_layout_n_intervals(fold->matrix, rank, axis) > 0) {
        plait_interval_t own = plait_layout_interval(fold->matrix, rank, axis, 0, NULL);
        int64_t lo = plait_max(own.lo, at);
        int64_t hi = plait_min(own.hi, at + n);
        overlap.n = plait_max(hi - lo, 0);
        overlap.src = fold->to_matrix ? lo : lo - own.lo;
        overlap.dst = fold->to_matrix ? lo - own.lo : lo;
    }
    return overlap;
}

static void strides_of(const plait_fold_t *fold, int flat_rank, int matrix_rank,
                       int64_t flat_stride[], int64_t matrix_stride[])
{
    const int t = fold->axis;
    int64_t shape[PLAIT_MAX_NDIM];
    int64_t stride[PLAIT_MAX_NDIM];

    plait_layout_stored_shape(fold->matrix, matrix_rank, shape);
    plait_row_major_strides(fold->matrix->ndim, shape, fold->item_bytes, matrix_stride);
    plait_layout_stored_shape(fold->flat, flat_rank, shape);
    plait_row_major_strides(fold->flat->ndim, shape, fold->item_bytes, stride);
    for (int a = 0; a < fold->matrix->ndim; a++) {
        flat_stride[a] = stride[(a <= t) ? a : a - 1];
    }
    flat_stride[t] *= fold->matrix->shape[t + 1];
}

/* Blocks of the interval [own.lo, own.hi) of the axis, at local index `at` of the flat side. `overlaps` has the
 * overlaps of the other axes. */
static plait_status_t add_interval(plait_move_t *move, bool is_out,
                                   const plait_block_t *block, const plait_fold_t *fold,
                                   int flat_rank, int matrix_rank, plait_interval_t own,
                                   int64_t at, plait_overlaps_t overlaps[])
{
    plait_status_t status = PLAIT_OK;
    const int t = fold->axis;
    const plait_pair_t pair = {.ndim = fold->matrix->ndim,
                               .item_bytes = fold->item_bytes};
    int64_t flat[PLAIT_MAX_NDIM];
    int64_t matrix[PLAIT_MAX_NDIM];
    plait_overlap_t row, column;
    patch_t patches[3];
    int n_patches = cut(own.lo, own.hi, fold->matrix->shape[t + 1], patches);
    plait_block_t b = *block;

    strides_of(fold, flat_rank, matrix_rank, flat, matrix);
    *(fold->to_matrix ? &b.src_offset : &b.dst_offset) += (at - own.lo) * flat[t + 1];
    for (int i = 0; i < n_patches; i++) {
        const patch_t *p = &patches[i];
        row = meet(fold, matrix_rank, t, p->row, p->n_rows);
        column = meet(fold, matrix_rank, t + 1, p->column, p->n_columns);
        overlaps[t] = (plait_overlaps_t){.n = row.n > 0, .items = &row};
        overlaps[t + 1] = (plait_overlaps_t){.n = column.n > 0, .items = &column};
        PLAIT_TRY(plait_blocks_add_strided(move, is_out, &b, &pair,
                                           fold->to_matrix ? flat : matrix,
                                           fold->to_matrix ? matrix : flat, overlaps));
    }
done:
    overlaps[t] = (plait_overlaps_t){0}; /* never allocated */
    overlaps[t + 1] = (plait_overlaps_t){0};
    return status;
}

/* Blocks from src_rank to dst_rank. Both sides call this and get the same order. */
static plait_status_t add_pair(plait_move_t *move, bool is_out,
                               const plait_block_t *block, const plait_fold_t *fold,
                               int src_rank, int dst_rank)
{
    plait_status_t status = PLAIT_OK;
    const int t = fold->axis;
    const int flat_rank = fold->to_matrix ? src_rank : dst_rank;
    const int matrix_rank = fold->to_matrix ? dst_rank : src_rank;
    /* the flat array, its axes numbered as in the matrix */
    const plait_layout_t wide = plait_fold_layout(fold->flat, t, 1, 1);
    const plait_layout_t *from = fold->to_matrix ? &wide : fold->matrix;
    const plait_layout_t *to = fold->to_matrix ? fold->matrix : &wide;
    plait_overlaps_t overlaps[PLAIT_MAX_NDIM] = {{0}};
    bool is_empty = false;

    for (int a = 0; a < wide.ndim && !is_empty; a++) {
        if (a != t && a != t + 1) {
            PLAIT_TRY(plait_overlaps_of(from, src_rank, to, dst_rank, a, &overlaps[a]));
            is_empty = overlaps[a].n == 0;
        }
    }
    int64_t n = is_empty ? 0 : plait_layout_n_intervals(fold->flat, flat_rank, t);
    for (int64_t k = 0; k < n; k++) {
        int64_t at = 0;
        plait_interval_t own = plait_layout_interval(fold->flat, flat_rank, t, k, &at);
        PLAIT_TRY(add_interval(move, is_out, block, fold, flat_rank, matrix_rank, own,
                               at, overlaps));
    }
done:
    for (int a = 0; a < wide.ndim; a++) {
        plait_overlaps_clear(&overlaps[a]);
    }
    return status;
}

plait_status_t plait_fold_move(const plait_plan_t *plan, const plait_fold_t *fold,
                               plait_move_t *move_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_layout_t *from = fold->to_matrix ? fold->flat : fold->matrix;
    plait_move_t move = {0};
    int replica = plait_layout_replica(from, plan->rank);
    bool has_messages = plan->direct == PLAIT_DIRECT_NONE;

    for (int i = 0; i < plan->n_ranks; i++) {
        /* start with the next rank, so that not all ranks read rank 0 at once */
        int peer = (plan->rank + i) % plan->n_ranks;
        const plait_block_t block = {.peer = peer,
                                     .kind = PLAIT_BLOCK_COPY,
                                     .src_slot = fold->src_slot,
                                     .dst_slot = fold->dst_slot};
        if (plait_layout_replica(from, peer) != replica) {
            continue;
        }
        PLAIT_TRY(add_pair(&move, false, &block, fold, peer, plan->rank));
        if (has_messages && peer != plan->rank) {
            PLAIT_TRY(add_pair(&move, true, &block, fold, plan->rank, peer));
        }
    }
    *move_p = move;
    move = (plait_move_t){0};
done:
    plait_move_clear(&move);
    return status;
}
