/* Cholesky factorization A = L L^H on a grid of ranks (grid.h), right-looking with look-ahead.
 *
 * Panel k, block column k from the diagonal on, is in one column of the grid. The owner of the diagonal
 * block factors it; it goes down that column, whose ranks solve with it for their rows of the
 * panel. A rank updates its blocks C_ij by L_ik L_jk^H: its rows of the panel come along its row of the
 * grid, and the rows that are its columns from where they are, by messages along its column of the
 * grid from ranks that have just got them as rows.
 *
 * Look-ahead: the ranks that have panel k + 1 bring it up to date first, and its diagonal block is
 * factored before the rest is updated. All others have half of that to do while the diagonal block is
 * made, and half while the panel is. A panel stays as it is until the final fence.
 * Source: Choi et al., "Design and implementation of the ScaLAPACK LU, QR, and Cholesky
 * factorization routines", Scientific Programming 5, 1996. */
#include "base/checked.h"
#include "base/status.h"
#include "dense/fan.h"
#include "dense/potrf.h"
#include "dense/scalar.h"
#include "kernel/blas.h"

#include <inttypes.h>
#include <string.h>

/* What kernels and steps work on. */
typedef struct {
    plait_grid_t g;
    int rank, row, column;
    int info_slot;
    int local_slot;                             /* the rank's blocks */
    int diagonal_slot, rows_slot, columns_slot; /* what it gets of a panel, densely */
    int64_t k;                                  /* the panel */
    int64_t first, end;     /* own block columns among these are updated */
    plait_panel_t diagonal; /* where block (k, k) is */
    plait_panel_t rows;     /* and the own rows below it */
} grid_factor_t;

static int64_t item_of(const grid_factor_t *f)
{
    return plait_dealt_item(&f->g.d);
}

static int64_t width_of(const grid_factor_t *f)
{
    return plait_dealt_width(&f->g.d, f->k);
}

/* The row and the column of the grid that have block (k, k). */
static int row_of(const grid_factor_t *f)
{
    return plait_dealt_owner(&f->g.rows, f->k);
}

static int column_of(const grid_factor_t *f)
{
    return plait_dealt_owner(&f->g.columns, f->k);
}

static bool is_diagonal(const grid_factor_t *f)
{
    return f->row == row_of(f) && f->column == column_of(f);
}

/* Rows of panel k below block k that are a row's of the grid. */
static int64_t rows_below(const grid_factor_t *f, int row)
{
    return plait_grid_behind(&f->g.rows, row, f->k + 1);
}

/* Those that are the own columns. */
static int64_t columns_below(const grid_factor_t *f)
{
    return plait_grid_behind(&f->g.columns, f->column, f->k + 1);
}

static char *local_at(const grid_factor_t *f, const plait_exec_t *exec, int64_t i,
                      int64_t j)
{
    return exec->slot[f->local_slot] + plait_grid_at(&f->g, f->row, i, j);
}

static int32_t *info_of(const grid_factor_t *f, const plait_exec_t *exec)
{
    return (int32_t *)(void *)exec->slot[f->info_slot];
}

static void touch_info(const grid_factor_t *f, bool is_written, plait_touch_fn_t touch,
                       void *context)
{
    const plait_box_copy_t word = {.row_bytes = sizeof(int32_t)};

    touch(context, is_written, f->rank, f->info_slot, 0, &word);
}

/* n_rows own rows from block i on, in block column j. */
static void touch_local(const grid_factor_t *f, bool is_written, int64_t i, int64_t j,
                        int64_t n_rows, plait_touch_fn_t touch, void *context)
{
    const plait_box_copy_t box =
        plait_columns_box(n_rows, plait_dealt_width(&f->g.d, j),
                          plait_grid_ld(&f->g, f->row), item_of(f));

    touch(context, is_written, f->rank, f->local_slot,
          plait_grid_at(&f->g, f->row, i, j), &box);
}

static void touch_panel(const grid_factor_t *f, const plait_panel_t *panel,
                        plait_touch_fn_t touch, void *context)
{
    const plait_box_copy_t box = plait_panel_box(panel, item_of(f));

    touch(context, false, panel->peer, panel->slot, panel->offset, &box);
}

/* ---- Kernels ---- */

/* Of the own diagonal blocks only the lower triangle counts, and no imaginary part of the diagonal. */
static plait_status_t start_run(const void *params, plait_exec_t *exec)
{
    const grid_factor_t *f = params;
    const int64_t item = item_of(f);
    const int64_t ld = plait_grid_ld(&f->g, f->row);

    *info_of(f, exec) = 0;
    for (int64_t k = plait_grid_common(&f->g, f->row, f->column, 0);
         k < plait_dealt_n_blocks(&f->g.d); k += plait_grid_step(&f->g)) {
        for (int64_t j = 0; j < plait_dealt_width(&f->g.d, k); j++) {
            char *column = local_at(f, exec, k, k) + j * ld * item;
            memset(column, 0, (size_t)(j * item));
            if (plait_is_complex(f->g.d.dtype)) {
                memset(column + j * item + item / 2, 0, (size_t)item / 2);
            }
        }
    }
    return PLAIT_OK;
}

static void start_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const grid_factor_t *f = params;

    touch_info(f, true, touch, context);
    for (int64_t k = plait_grid_common(&f->g, f->row, f->column, 0);
         k < plait_dealt_n_blocks(&f->g.d); k += plait_grid_step(&f->g)) {
        touch_local(f, true, k, k, plait_dealt_width(&f->g.d, k), touch, context);
    }
}

static plait_status_t diagonal_run(const void *params, plait_exec_t *exec)
{
    const grid_factor_t *f = params;

    plait_potrf_block(f->g.d.dtype, plait_dealt_column(&f->g.d, f->k), width_of(f),
                      local_at(f, exec, f->k, f->k), plait_grid_ld(&f->g, f->row),
                      info_of(f, exec));
    return PLAIT_OK;
}

static void diagonal_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const grid_factor_t *f = params;

    touch_info(f, false, touch, context);
    touch_local(f, false, f->k, f->k, width_of(f), touch, context);
    touch_info(f, true, touch, context);
    touch_local(f, true, f->k, f->k, width_of(f), touch, context);
}

/* The block of the first own rows below the diagonal block. */
static int64_t first_below(const grid_factor_t *f)
{
    return plait_dealt_next(&f->g.rows, f->row, f->k + 1);
}

static plait_status_t solve_run(const void *params, plait_exec_t *exec)
{
    const grid_factor_t *f = params;

    if (*info_of(f, exec) == 0 && rows_below(f, f->row) > 0) {
        plait_blas_trsm(f->g.d.dtype, 'R', 'L', 'C', 'N', rows_below(f, f->row),
                        width_of(f), 1, plait_panel_address(exec, &f->diagonal),
                        f->diagonal.ld, local_at(f, exec, first_below(f), f->k),
                        plait_grid_ld(&f->g, f->row));
    }
    return PLAIT_OK;
}

static void solve_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const grid_factor_t *f = params;
    const int64_t n_rows = rows_below(f, f->row);

    touch_info(f, false, touch, context);
    if (n_rows > 0) {
        touch_panel(f, &f->diagonal, touch, context);
        touch_local(f, false, first_below(f), f->k, n_rows, touch, context);
        touch_local(f, true, first_below(f), f->k, n_rows, touch, context);
    }
}

/* What is updated of an own block column j: rows from block `row` on; and where what it is updated
 * by begins, in bytes from the first own row and the first own column of the panel. */
typedef struct {
    int64_t row, n_rows;
    int64_t rows_at, columns_at;
} target_t;

static target_t target_of(const grid_factor_t *f, int64_t j)
{
    const plait_grid_t *g = &f->g;
    const int64_t row = plait_dealt_next(&g->rows, f->row, j);

    return (target_t){
        .row = row,
        .n_rows = plait_grid_behind(&g->rows, f->row, j),
        .rows_at = plait_grid_between(&g->rows, f->row, f->k + 1, row) * item_of(f),
        .columns_at =
            plait_grid_between(&g->columns, f->column, f->k + 1, j) * item_of(f)};
}

/* C_ij -= L_ik L_jk^H for i >= j in one own block column. */
static void update_column(const grid_factor_t *f, plait_exec_t *exec, int64_t j)
{
    const plait_dtype_t dtype = f->g.d.dtype;
    const target_t t = target_of(f, j);
    const int64_t width = plait_dealt_width(&f->g.d, j);
    const int64_t ld = plait_grid_ld(&f->g, f->row);
    const char *facing = exec->slot[f->columns_slot] + t.columns_at;
    const char *rows = plait_panel_address(exec, &f->rows) + t.rows_at;
    const int64_t n_square = (t.row == j) ? width : 0;
    char *c = (t.n_rows > 0) ? local_at(f, exec, t.row, j) : NULL;

    if (n_square > 0) {
        plait_blas_herk(dtype, 'L', 'N', width, width_of(f), -1, rows, f->rows.ld, 1, c,
                        ld);
    }
    if (t.n_rows > n_square) {
        plait_blas_gemm(dtype, 'N', 'C', t.n_rows - n_square, width, width_of(f), -1,
                        rows + n_square * item_of(f), f->rows.ld, facing,
                        columns_below(f), 1, c + n_square * item_of(f), ld);
    }
}

static plait_status_t update_run(const void *params, plait_exec_t *exec)
{
    const grid_factor_t *f = params;

    if (*info_of(f, exec) == 0) {
        for (int64_t j = plait_dealt_next(&f->g.columns, f->column, f->first);
             j < f->end; j += f->g.columns.n_ranks) {
            update_column(f, exec, j);
        }
    }
    return PLAIT_OK;
}

static void touch_targets(const grid_factor_t *f, bool is_written,
                          plait_touch_fn_t touch, void *context)
{
    for (int64_t j = plait_dealt_next(&f->g.columns, f->column, f->first); j < f->end;
         j += f->g.columns.n_ranks) {
        target_t t = target_of(f, j);
        if (t.n_rows > 0) {
            touch_local(f, is_written, t.row, j, t.n_rows, touch, context);
        }
    }
}

static void update_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const grid_factor_t *f = params;
    const int64_t next = plait_dealt_next(&f->g.columns, f->column, f->first);
    const plait_box_copy_t facing = {.row_bytes =
                                         columns_below(f) * width_of(f) * item_of(f)};

    touch_info(f, false, touch, context);
    if (next < f->end && target_of(f, next).n_rows > 0) {
        touch_panel(f, &f->rows, touch, context);
        touch(context, false, f->rank, f->columns_slot, 0, &facing);
    }
    touch_targets(f, false, touch, context);
    touch_targets(f, true, touch, context);
}

static void print(const void *params, FILE *file)
{
    const grid_factor_t *f = params;

    (void)fprintf(file, "block %" PRId64 " of %" PRId64, f->k + 1,
                  plait_dealt_n_blocks(&f->g.d));
    if (f->end > f->first) {
        (void)fprintf(file, ", to own ones from %" PRId64 " on below %" PRId64,
                      f->first + 1, f->end + 1);
    }
}

static const plait_kernel_t start_kernel = {.name = "potrf: lower triangle",
                                            .run = start_run,
                                            .touch = start_touch,
                                            .print = print};
static const plait_kernel_t diagonal_kernel = {.name = "potrf: factor diagonal block",
                                               .run = diagonal_run,
                                               .touch = diagonal_touch,
                                               .print = print};
static const plait_kernel_t solve_kernel = {.name = "potrf: solve for rows below",
                                            .run = solve_run,
                                            .touch = solve_touch,
                                            .print = print};
static const plait_kernel_t update_kernel = {.name = "potrf: update by",
                                             .run = update_run,
                                             .touch = update_touch,
                                             .print = print};

/* ---- Steps ---- */

static plait_status_t add(plait_plan_t *plan, const plait_kernel_t *kernel,
                          const grid_factor_t *f)
{
    return plait_plan_kernel_copy(plan, kernel, f, sizeof(*f));
}

static plait_status_t update(plait_plan_t *plan, const grid_factor_t *f, int64_t first,
                             int64_t end)
{
    grid_factor_t own = *f;

    own.first = first;
    own.end = end;
    return add(plan, &update_kernel, &own);
}

/* Block (k, k) goes down its column of the grid, and how it went. */
static plait_status_t fetch_diagonal(plait_plan_t *plan, grid_factor_t *f)
{
    plait_status_t status = PLAIT_OK;
    const int owner = plait_grid_rank(&f->g, row_of(f), column_of(f));
    const plait_group_t group = {
        .first = column_of(f), .stride = f->g.columns.n_ranks, .n = f->g.rows.n_ranks};
    const int64_t item = item_of(f);
    const int64_t width = width_of(f);
    plait_move_t what = {0};

    f->diagonal = (plait_panel_t){.peer = owner,
                                  .slot = f->local_slot,
                                  .offset = plait_grid_at(&f->g, row_of(f), f->k, f->k),
                                  .ld = plait_grid_ld(&f->g, row_of(f)),
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

/* Where the rank in this row and column of the grid has the row's part of panel k. */
static plait_panel_t rows_of(const grid_factor_t *f, int row, int column)
{
    const int64_t n_rows = rows_below(f, row);
    const int64_t below = plait_dealt_next(&f->g.rows, row, f->k + 1);
    const bool is_there = column == column_of(f);

    return (plait_panel_t){
        .peer = plait_grid_rank(&f->g, row, column),
        .slot = is_there ? f->local_slot : f->rows_slot,
        .offset = is_there ? plait_grid_at(&f->g, row, below, f->k) : 0,
        .ld = is_there ? plait_grid_ld(&f->g, row) : plait_max(1, n_rows),
        .n_rows = n_rows,
        .width = width_of(f)};
}

/* The own rows of panel k, from the rank of the same row that has them. */
static plait_status_t fetch_rows(plait_plan_t *plan, grid_factor_t *f)
{
    plait_status_t status = PLAIT_OK;
    const plait_group_t group = {.first = plait_grid_rank(&f->g, f->row, 0),
                                 .stride = 1,
                                 .n = f->g.columns.n_ranks};
    const plait_panel_t there = rows_of(f, f->row, column_of(f));
    plait_block_t block = {.peer = there.peer,
                           .kind = PLAIT_BLOCK_COPY,
                           .src_slot = there.slot,
                           .dst_slot = f->rows_slot,
                           .src_offset = there.offset,
                           .box = plait_panel_box(&there, item_of(f))};
    plait_move_t what = {0};

    PLAIT_TRY(plait_dealt_share(there.peer, f->info_slot, 0, sizeof(int32_t), &what));
    if (there.n_rows > 0) {
        block.box.dst_stride[0] = there.n_rows * item_of(f);
        plait_box_simplify(&block.box);
        PLAIT_TRY(plait_move_add_in(&what, &block));
    }
    PLAIT_TRY(plait_fan_out(plan, &group, false, &what));
    f->rows = rows_of(f, f->row, f->column);
done:
    plait_move_clear(&what);
    return status;
}

/* Those of a row's part of panel k that are the own columns. A rank of the own column of the grid
 * passes them on that has them as rows; one that can be read is asked where they were made, so as not to
 * wait for that. */
static plait_status_t add_columns_of(const plait_plan_t *plan, const grid_factor_t *f,
                                     int row, plait_move_t *what)
{
    const plait_grid_t *g = &f->g;
    const int64_t first = plait_grid_common(g, row, f->column, f->k + 1);
    const bool is_passed_on = plan->direct == PLAIT_DIRECT_NONE || row == f->row;
    const plait_panel_t from = rows_of(f, row, is_passed_on ? f->column : column_of(f));
    const int64_t step = plait_grid_step(g);
    const plait_strip_t strip = {.first = first,
                                 .step = step,
                                 .width = width_of(f),
                                 .src_ld = from.ld,
                                 .dst_ld = columns_below(f),
                                 .src_stride = step / g->rows.n_ranks * g->d.block,
                                 .dst_stride = step / g->columns.n_ranks * g->d.block};
    const plait_block_t block = {
        .peer = from.peer,
        .kind = PLAIT_BLOCK_COPY,
        .src_slot = from.slot,
        .dst_slot = f->columns_slot,
        .src_offset = from.offset +
                      plait_grid_between(&g->rows, row, f->k + 1, first) * item_of(f),
        .dst_offset =
            plait_grid_between(&g->columns, f->column, f->k + 1, first) * item_of(f)};

    return plait_strip_add(&g->rows, &strip, false, &block, what);
}

static plait_status_t fetch_columns(plait_plan_t *plan, const grid_factor_t *f)
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

/* Makes panel k while the block columns behind it are updated by the one before. f->k: k - 1. */
static plait_status_t panel(plait_plan_t *plan, const grid_factor_t *f, int64_t k)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n_blocks = plait_dealt_n_blocks(&f->g.d);
    /* half of a triangle's area; messages wait for nobody but who sends them */
    const int64_t middle = (plan->direct == PLAIT_DIRECT_NONE)
                               ? k + 1
                               : k + 1 + (n_blocks - k - 1) * 3 / 10;
    grid_factor_t next = *f;

    next.k = k;
    if (k > 0 && f->column == column_of(&next)) {
        PLAIT_TRY(update(plan, f, k, k + 1));
    }
    if (is_diagonal(&next)) {
        PLAIT_TRY(add(plan, &diagonal_kernel, &next));
    }
    PLAIT_TRY(plait_plan_arrive(plan));
    if (k > 0 && middle > k + 1) {
        PLAIT_TRY(update(plan, f, k + 1, middle));
    }
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(fetch_diagonal(plan, &next));
    if (f->column == column_of(&next)) {
        PLAIT_TRY(add(plan, &solve_kernel, &next));
    }
    PLAIT_TRY(plait_plan_arrive(plan));
    if (k > 0) {
        PLAIT_TRY(update(plan, f, middle, n_blocks));
    }
    PLAIT_TRY(plait_plan_fence(plan));
done:
    return status;
}

/* One array for the rank's blocks, one for what it gets of each kind. */
static plait_status_t add_work(plait_plan_t *plan, grid_factor_t *f)
{
    plait_status_t status = PLAIT_OK;
    const plait_grid_t *g = &f->g;
    const int64_t width = plait_min(g->d.block, g->d.n) * item_of(f);

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
    grid_factor_t f = {.g = *g,
                       .rank = plan->rank,
                       .row = plait_grid_row(g, plan->rank),
                       .column = plait_grid_column(g, plan->rank),
                       .info_slot = given->info_slot};

    plan->uses_blas = true;
    dealt.slot = plait_slot_ret(plan, 0);
    dealt.room = plan->slot_bytes[dealt.slot];
    dealt.k = n_blocks;
    plait_dealt_agree(plan, &g->d);
    plait_plan_agree(plan, (uint64_t)g->rows.n_ranks);
    PLAIT_TRY(add_work(plan, &f));
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(plait_grid_deal(plan, g, plait_slot_arg(plan, 0), f.local_slot, false));
    PLAIT_TRY(add(plan, &start_kernel, &f));
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
