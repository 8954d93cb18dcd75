#include "dense/dealt.h"

#include "base/checked.h"
#include "base/status.h"
#include "dense/fan.h"
#include "kernel/blas.h"

/* Most rows, columns and blocks: their sums, and products with the number of ranks, do not overflow. */
#define MAX_EXTENT (INT64_C(1) << 40)

int64_t plait_dealt_item(const plait_dealt_t *d)
{
    return plait_dtype_bytes(d->dtype);
}

int64_t plait_dealt_ld_bytes(const plait_dealt_t *d)
{
    return d->m * plait_dealt_item(d);
}

int64_t plait_dealt_n_blocks(const plait_dealt_t *d)
{
    return (d->n + d->block - 1) / d->block;
}

int64_t plait_dealt_column(const plait_dealt_t *d, int64_t k)
{
    return k * d->block;
}

int64_t plait_dealt_width(const plait_dealt_t *d, int64_t k)
{
    return plait_min(d->block, d->n - k * d->block);
}

int plait_dealt_owner(const plait_dealt_t *d, int64_t k)
{
    return (int)(k % d->n_ranks);
}

int64_t plait_dealt_local(const plait_dealt_t *d, int64_t k)
{
    return k / d->n_ranks * d->block;
}

int64_t plait_dealt_next(const plait_dealt_t *d, int rank, int64_t k)
{
    return k + (rank - k % d->n_ranks + d->n_ranks) % d->n_ranks;
}

int64_t plait_dealt_owned(const plait_dealt_t *d, int rank)
{
    const int64_t n_blocks = plait_dealt_n_blocks(d);
    const int64_t own = n_blocks / d->n_ranks + (n_blocks % d->n_ranks > rank);
    const bool has_last = n_blocks > 0 && plait_dealt_owner(d, n_blocks - 1) == rank;

    return own * d->block - (has_last ? n_blocks * d->block - d->n : 0);
}

int64_t plait_dealt_stored(const plait_dealt_t *d)
{
    return (plait_dealt_n_blocks(d) + d->n_ranks - 1) / d->n_ranks * d->block;
}

int64_t plait_dealt_bytes(const plait_dealt_t *d)
{
    return plait_dealt_stored(d) * plait_dealt_ld_bytes(d);
}

int64_t plait_dealt_at(const plait_dealt_t *d, int64_t k, int64_t row)
{
    return (plait_dealt_local(d, k) * d->m + row) * plait_dealt_item(d);
}

static bool is_matrix_dtype(plait_dtype_t dtype)
{
    return dtype == PLAIT_F32 || dtype == PLAIT_F64 || dtype == PLAIT_C64 ||
           dtype == PLAIT_C128;
}

plait_status_t plait_dealt_check(const plait_dealt_t *d, const char *what)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(d->m >= 0 && d->n >= 0, PLAIT_ERR_INVALID, "%s has shape %lld x %lld",
                what, (long long)d->m, (long long)d->n);
    PLAIT_CHECK(d->block >= 1, PLAIT_ERR_INVALID,
                "%s: blocks of %lld columns; expected 1 or more", what,
                (long long)d->block);
    PLAIT_CHECK(plait_max(d->m, plait_max(d->n, d->block)) <= MAX_EXTENT,
                PLAIT_ERR_OVERFLOW, "%s: %lld x %lld in blocks of %lld is too large",
                what, (long long)d->m, (long long)d->n, (long long)d->block);
done:
    return status;
}

plait_status_t plait_dealt_fits(const plait_dealt_t *d, const plait_array_t *array,
                                const char *what)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(is_matrix_dtype(d->dtype) && array->dtype == d->dtype,
                PLAIT_ERR_INVALID,
                "%s is %s; expected float32, float64, complex64 or complex128, all "
                "matrices alike",
                what, plait_dtype_name(array->dtype));
    PLAIT_TRY(plait_dealt_check(d, what));
    PLAIT_TRY(plait_blas_fits(plait_max(d->m, d->n)));
    PLAIT_CHECK(
        array->ndim == 2 && array->dims[0] == plait_dealt_stored(d) &&
            array->dims[1] == d->m,
        PLAIT_ERR_INVALID,
        "%s: the part of a %lld x %lld matrix dealt out in blocks of %lld to %d ranks "
        "is %lld x %lld (its columns are rows); got %d axes, the last of %lld",
        what, (long long)d->m, (long long)d->n, (long long)d->block, d->n_ranks,
        (long long)plait_dealt_stored(d), (long long)d->m, array->ndim,
        (long long)((array->ndim > 0) ? array->dims[array->ndim - 1] : 0));
done:
    return status;
}

plait_status_t plait_dense_require(const plait_problem_t *problem)
{
    return (problem->caps.device != NULL) ? PLAIT_OK : plait_blas_require();
}

plait_status_t plait_dense_info_fits(const plait_array_t *array, const char *what)
{
    plait_status_t status = PLAIT_OK;
    int64_t n = 0;
    int64_t n_bytes = 0;

    PLAIT_TRY(plait_array_size(array, &n, &n_bytes));
    PLAIT_CHECK(array->dtype == PLAIT_S32 && n == 1, PLAIT_ERR_INVALID,
                "%s: the status is %lld of %s; expected one int32", what, (long long)n,
                plait_dtype_name(array->dtype));
done:
    return status;
}

void plait_dealt_agree(plait_plan_t *plan, const plait_dealt_t *d)
{
    plait_plan_agree(plan, (uint64_t)d->m);
    plait_plan_agree(plan, (uint64_t)d->n);
    plait_plan_agree(plan, (uint64_t)d->block);
    plait_plan_agree(plan, (uint64_t)d->dtype);
}

plait_box_copy_t plait_columns_box(int64_t n_rows, int64_t n_columns, int64_t ld,
                                   int64_t item_bytes)
{
    return (plait_box_copy_t){.n_dims = 1,
                              .count = {n_columns},
                              .src_stride = {ld * item_bytes},
                              .dst_stride = {ld * item_bytes},
                              .row_bytes = n_rows * item_bytes};
}

plait_box_copy_t plait_panel_box(const plait_panel_t *panel, int64_t item_bytes)
{
    return plait_columns_box(panel->n_rows, panel->width, panel->ld, item_bytes);
}

plait_status_t plait_dealt_share(int owner, int slot, int64_t offset, int64_t n_bytes,
                                 plait_move_t *what)
{
    const plait_block_t block = {.peer = owner,
                                 .kind = PLAIT_BLOCK_COPY,
                                 .src_slot = slot,
                                 .dst_slot = slot,
                                 .src_offset = offset,
                                 .dst_offset = offset,
                                 .box = {.row_bytes = n_bytes}};

    return (n_bytes > 0) ? plait_move_add_in(what, &block) : PLAIT_OK;
}

/* The ranks that read, and the owner. */
static plait_group_t readers_of(const plait_plan_t *plan, const plait_dealt_t *d,
                                int owner)
{
    const int n = (d->n_readers > 0) ? d->n_readers : plan->n_ranks;

    return (plait_group_t){
        .stride = 1, .n = n, .has_guest = owner >= n, .guest = owner};
}

plait_status_t plait_dealt_between(const plait_plan_t *plan, int owner, int reader,
                                   const plait_block_t *block, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    plait_block_t b = *block;

    plait_box_simplify(&b.box);
    if (plait_box_bytes(&b.box) == 0) {
        goto done;
    }
    if (plan->rank == reader) {
        b.peer = owner;
        PLAIT_TRY(plait_move_add_in(move, &b));
    } else if (plan->rank == owner && plan->direct == PLAIT_DIRECT_NONE) {
        b.peer = reader;
        PLAIT_TRY(plait_move_add_out(move, &b));
    }
done:
    return status;
}

static bool stays(const plait_plan_t *plan)
{
    return plan->n_ranks == 1 || plan->direct == PLAIT_DIRECT_POINTER;
}

int64_t plait_dealt_panel_bytes(const plait_plan_t *plan, const plait_dealt_t *d,
                                int64_t n_rows)
{
    return stays(plan) ? 0 : n_rows * plait_min(d->block, d->n) * plait_dealt_item(d);
}

plait_status_t plait_dealt_fetch(plait_plan_t *plan, const plait_dealt_t *d, int slot,
                                 int64_t k, int64_t row, int64_t n_rows, int work_slot,
                                 plait_move_t *extra, plait_panel_t *panel_p)
{
    plait_status_t status = PLAIT_OK;
    const int owner = plait_dealt_owner(d, k);
    const plait_group_t readers = readers_of(plan, d, owner);
    const int64_t item = plait_dealt_item(d);
    const bool is_here = plan->rank == owner || stays(plan);
    plait_move_t what = {0};
    plait_panel_t panel = {.peer = owner,
                           .slot = slot,
                           .offset = plait_dealt_at(d, k, row),
                           .ld = d->m,
                           .n_rows = n_rows,
                           .width = plait_dealt_width(d, k)};

    if (extra != NULL) {
        what = *extra;
        *extra = (plait_move_t){0};
    }
    if (!stays(plan) && n_rows > 0) {
        plait_block_t block = {.peer = owner,
                               .kind = PLAIT_BLOCK_COPY,
                               .src_slot = slot,
                               .dst_slot = work_slot,
                               .src_offset = panel.offset,
                               .box = plait_panel_box(&panel, item)};
        block.box.dst_stride[0] = n_rows * item;
        plait_box_simplify(&block.box);
        PLAIT_TRY(plait_move_add_in(&what, &block));
    }
    PLAIT_TRY(plait_fan_out(plan, &readers, false, &what));
    if (!is_here) {
        panel.peer = plan->rank;
        panel.slot = work_slot;
        panel.offset = 0;
        panel.ld = plait_max(1, n_rows);
    }
    *panel_p = panel;
done:
    plait_move_clear(&what);
    return status;
}
