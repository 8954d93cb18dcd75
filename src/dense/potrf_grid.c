/* Cholesky factorization A = L L^H on a grid of ranks (grid.h), right-looking with look-ahead.
 *
 * Panel k is block column k from the diagonal on; it lies in one column of the grid. The owner of the
 * diagonal block factors it. The factor goes down this column of the grid, whose ranks solve with it for their
 * rows of the panel. A rank updates its blocks C_ij by L_ik L_jk^H. The rows L_ik come along its row of the
 * grid. The rows L_jk, which match its columns, are read where they are; with messages they come along its
 * column of the grid, from ranks that have just received them as rows.
 *
 * Look-ahead: the ranks that have panel k + 1 update it first, and its diagonal block is factored before the
 * rest is updated. All other ranks do half of their update while the diagonal block is made, and half while
 * the panel is made. A panel stays unchanged until the final fence.
 * Source: Choi et al., "Design and implementation of the ScaLAPACK LU, QR, and Cholesky
 * factorization routines", Scientific Programming 5, 1996. */
#include "dense/potrf_grid.h"

#include "base/checked.h"
#include "base/status.h"
#include "dense/fan.h"

static plait_status_t add(plait_plan_t *plan, const plait_kernel_t *kernel,
                          const plait_grid_factor_t *f)
{
    return plait_plan_kernel_copy(plan, kernel, f, sizeof(*f));
}

static plait_status_t update(plait_plan_t *plan, const plait_grid_factor_t *f,
                             int64_t first, int64_t end)
{
    plait_grid_factor_t own = *f;

    own.first = first;
    own.end = end;
    return add(plan, &plait_on_grid_update_kernel, &own);
}

/* Sends block (k, k) and info down the block's column of the grid. */
static plait_status_t fetch_diagonal(plait_plan_t *plan, plait_grid_factor_t *f)
{
    plait_status_t status = PLAIT_OK;
    const int owner =
        plait_grid_rank(&f->g, plait_on_grid_row(f), plait_on_grid_column(f));
    const plait_group_t group = {.first = plait_on_grid_column(f),
                                 .stride = f->g.columns.n_ranks,
                                 .n = f->g.rows.n_ranks};
    const int64_t item = plait_on_grid_item(f);
    const int64_t width = plait_on_grid_width(f);
    plait_move_t what = {0};

    f->diagonal = (plait_panel_t){
        .peer = owner,
        .slot = f->local_slot,
        .offset = plait_grid_at(&f->g, plait_on_grid_row(f), f->k, f->k),
        .ld = plait_grid_ld(&f->g, plait_on_grid_row(f)),
        .n_rows = width,
        .width = width};
    plait_block_t block = {.peer = owner,
                           .kind = PLAIT_BLOCK_COPY,
                           .src_slot = f->local_slot,
                           .dst_slot = f->diagonal_slot,
                           .src_offset = f->diagonal.offset,
                           .box = plait_panel_box(&f->diagonal, item)};
    block.box.dst_stride[0] = width * item;
    plait_box_simplify(&block.box);
    PLAIT_TRY(plait_dealt_share(owner, f->info_slot, 0, sizeof(int32_t), &what));
    if (f->k + 1 < plait_dealt_n_blocks(&f->g.d)) {
        PLAIT_TRY(plait_move_add_in(&what, &block));
    }
    PLAIT_TRY(plait_fan_out(plan, &group, false, &what));
    if (f->rank != owner) {
        f->diagonal.peer = f->rank;
        f->diagonal.slot = f->diagonal_slot;
        f->diagonal.offset = 0;
        f->diagonal.ld = width;
    }
done:
    plait_move_clear(&what);
    return status;
}

/* Where the rank in this row and column of the grid has its row's part of panel k. */
static plait_panel_t rows_of(const plait_grid_factor_t *f, int row, int column)
{
    const int64_t n_rows = plait_on_grid_rows_below(f, row);
    const int64_t below = plait_dealt_next(&f->g.rows, row, f->k + 1);
    const bool is_there = column == plait_on_grid_column(f);

    return (plait_panel_t){
        .peer = plait_grid_rank(&f->g, row, column),
        .slot = is_there ? f->local_slot : f->rows_slot,
        .offset = is_there ? plait_grid_at(&f->g, row, below, f->k) : 0,
        .ld = is_there ? plait_grid_ld(&f->g, row) : plait_max(1, n_rows),
        .n_rows = n_rows,
        .width = plait_on_grid_width(f)};
}

/* Fetches the own rows of panel k from the rank in the same row of the grid that made them. */
static plait_status_t fetch_rows(plait_plan_t *plan, plait_grid_factor_t *f)
{
    plait_status_t status = PLAIT_OK;
    const plait_group_t group = {.first = plait_grid_rank(&f->g, f->row, 0),
                                 .stride = 1,
                                 .n = f->g.columns.n_ranks};
    const plait_panel_t there = rows_of(f, f->row, plait_on_grid_column(f));
    plait_block_t block = {.peer = there.peer,
                           .kind = PLAIT_BLOCK_COPY,
                           .src_slot = there.slot,
                           .dst_slot = f->rows_slot,
                           .src_offset = there.offset,
                           .box = plait_panel_box(&there, plait_on_grid_item(f))};
    plait_move_t what = {0};

    PLAIT_TRY(plait_dealt_share(there.peer, f->info_slot, 0, sizeof(int32_t), &what));
    if (there.n_rows > 0) {
        block.box.dst_stride[0] = there.n_rows * plait_on_grid_item(f);
        plait_box_simplify(&block.box);
        PLAIT_TRY(plait_move_add_in(&what, &block));
    }
    PLAIT_TRY(plait_fan_out(plan, &group, false, &what));
    f->rows = rows_of(f, f->row, f->column);
done:
    plait_move_clear(&what);
    return status;
}

/* Appends the rows of panel k that lie in `row` and match the own columns. A rank of the own column of the grid
 * that has them as rows passes them on. If ranks can be read, the rank that made them is read instead, so that
 * nobody waits for another rank's copy. */
static plait_status_t add_columns_of(const plait_plan_t *plan,
                                     const plait_grid_factor_t *f, int row,
                                     plait_move_t *what)
{
    const plait_grid_t *g = &f->g;
    const int64_t first = plait_grid_common(g, row, f->column, f->k + 1);
    const bool is_passed_on = plan->direct == PLAIT_DIRECT_NONE || row == f->row;
    const plait_panel_t from =
        rows_of(f, row, is_passed_on ? f->column : plait_on_grid_column(f));
    const int64_t step = plait_grid_step(g);
    const plait_strip_t strip = {.first = first,
                                 .step = step,
                                 .width = plait_on_grid_width(f),
                                 .src_ld = from.ld,
                                 .dst_ld = plait_on_grid_columns_below(f),
                                 .src_stride = step / g->rows.n_ranks * g->d.block,
                                 .dst_stride = step / g->columns.n_ranks * g->d.block};
    const plait_block_t block = {
        .peer = from.peer,
        .kind = PLAIT_BLOCK_COPY,
        .src_slot = from.slot,
        .dst_slot = f->columns_slot,
        .src_offset = from.offset + plait_grid_between(&g->rows, row, f->k + 1, first) *
                                        plait_on_grid_item(f),
        .dst_offset = plait_grid_between(&g->columns, f->column, f->k + 1, first) *
                      plait_on_grid_item(f)};

    return plait_strip_add(&g->rows, &strip, false, &block, what);
}

static plait_status_t fetch_columns(plait_plan_t *plan, const plait_grid_factor_t *f)
{
    plait_status_t status = PLAIT_OK;
    const plait_group_t group = {
        .first = f->column, .stride = f->g.columns.n_ranks, .n = f->g.rows.n_ranks};
    plait_move_t what = {0};

    for (int row = 0; row < f->g.rows.n_ranks; row++) {
        PLAIT_TRY(add_columns_of(plan, f, row, &what));
    }
    PLAIT_TRY(plait_fan_out(plan, &group, true, &what));
done:
    plait_move_clear(&what);
    return status;
}

/* Makes panel k while panel k - 1 updates the block columns behind it. f->k: k - 1. */
static plait_status_t panel(plait_plan_t *plan, const plait_grid_factor_t *f, int64_t k)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n_blocks = plait_dealt_n_blocks(&f->g.d);
    /* half of a triangle's area; with messages ranks wait only for senders */
    const int64_t middle = (plan->direct == PLAIT_DIRECT_NONE)
                               ? k + 1
                               : k + 1 + (n_blocks - k - 1) * 3 / 10;
    plait_grid_factor_t next = *f;

    next.k = k;
    if (k > 0 && f->column == plait_on_grid_column(&next)) {
        PLAIT_TRY(update(plan, f, k, k + 1));
    }
    if (plait_on_grid_is_diagonal(&next)) {
        PLAIT_TRY(add(plan, &plait_on_grid_diagonal_kernel, &next));
    }
    PLAIT_TRY(plait_plan_arrive(plan));
    if (k > 0 && middle > k + 1) {
        PLAIT_TRY(update(plan, f, k + 1, middle));
    }
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(fetch_diagonal(plan, &next));
    if (f->column == plait_on_grid_column(&next)) {
        PLAIT_TRY(add(plan, &plait_on_grid_solve_kernel, &next));
    }
    PLAIT_TRY(plait_plan_arrive(plan));
    if (k > 0) {
        PLAIT_TRY(update(plan, f, middle, n_blocks));
    }
    PLAIT_TRY(plait_plan_fence(plan));
done:
    return status;
}

/* One array for the rank's blocks, and one for each kind of data that it gets. */
static plait_status_t add_work(plait_plan_t *plan, plait_grid_factor_t *f)
{
    plait_status_t status = PLAIT_OK;
    const plait_grid_t *g = &f->g;
    const int64_t width = plait_min(g->d.block, g->d.n) * plait_on_grid_item(f);

    PLAIT_TRY(plait_plan_add_work(plan, plait_grid_bytes(g, f->rank), &f->local_slot));
    PLAIT_TRY(plait_plan_add_work(plan, plait_min(g->d.block, g->d.n) * width,
                                  &f->diagonal_slot));
    PLAIT_TRY(plait_plan_add_work(plan, plait_dealt_owned(&g->rows, f->row) * width,
                                  &f->rows_slot));
    PLAIT_TRY(plait_plan_add_work(
        plan, plait_dealt_owned(&g->columns, f->column) * width, &f->columns_slot));
done:
    return status;
}

plait_status_t plait_potrf_grid_steps(plait_plan_t *plan, const plait_grid_t *g,
                                      const plait_factor_t *given)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n_blocks = plait_dealt_n_blocks(&g->d);
    plait_factor_t dealt = *given;
    plait_grid_factor_t f = {.g = *g,
                             .rank = plan->rank,
                             .row = plait_grid_row(g, plan->rank),
                             .column = plait_grid_column(g, plan->rank),
                             .info_slot = given->info_slot};

    plan->uses_blas = plan->device == NULL;
    dealt.slot = plait_slot_ret(plan, 0);
    dealt.room = plan->slot_bytes[dealt.slot];
    dealt.k = n_blocks;
    plait_dealt_agree(plan, &g->d);
    plait_plan_agree(plan, (uint64_t)g->rows.n_ranks);
    PLAIT_TRY(add_work(plan, &f));
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(plait_grid_deal(plan, g, plait_slot_arg(plan, 0), f.local_slot, false));
    PLAIT_TRY(add(plan, &plait_on_grid_start_kernel, &f));
    for (int64_t k = 0; k < n_blocks; k++) {
        PLAIT_TRY(panel(plan, &f, k));
        f.k = k;
        PLAIT_TRY(fetch_rows(plan, &f));
        PLAIT_TRY(fetch_columns(plan, &f));
    }
    PLAIT_TRY(plait_grid_deal(plan, g, dealt.slot, f.local_slot, true));
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(
        plait_plan_kernel_copy(plan, &plait_potrf_zero_kernel, &dealt, sizeof(dealt)));
    PLAIT_TRY(plait_plan_kernel_copy(plan, &plait_potrf_finish_kernel, &dealt,
                                     sizeof(dealt)));
done:
    return status;
}
