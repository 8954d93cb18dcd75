#include "dense/grid.h"

#include "base/checked.h"
#include "base/status.h"

#include <math.h>

plait_grid_t plait_grid_make(const plait_dealt_t *d, int n_rows)
{
    plait_grid_t g = {.d = *d, .rows = *d, .columns = *d};

    g.rows.n_ranks = n_rows;
    g.columns.n_ranks = d->n_ranks / n_rows;
    return g;
}

static int log2_up(int n)
{
    int log = 0;

    while ((1 << log) < n) {
        log++;
    }
    return log;
}

/* Bytes that a rank receives on average. Each message that a rank waits for counts as the bytes that a link
 * carries meanwhile (2 us, 8 GB/s). A rank needs of each panel its own rows, and the rows that match its
 * columns. The triangle goes to the grid and back. One row: block columns, and a rank needs all of them. */
static double cost_of(const plait_dealt_t *d, int n_rows)
{
    const double message_bytes = 16 << 10;
    const double n = (double)d->n;
    const double rows = n_rows;
    const double columns = (double)d->n_ranks / n_rows;
    const bool is_grid = n_rows > 1;
    const double by_rows = n * n / (2 * rows) * (1 - 1 / columns);
    const double by_columns = n * n / (2 * columns) * (1 - 1 / rows);
    const double diagonals = n * (double)d->block / columns * (1 - 1 / rows);
    const double there_and_back = n * n / (rows * columns) * (1 - 1 / rows);
    const double n_messages = (double)plait_dealt_n_blocks(d) *
                              (2 * log2_up(n_rows) + log2_up(d->n_ranks / n_rows));

    return (by_rows + (is_grid ? by_columns + diagonals + there_and_back : 0)) *
               (double)plait_dealt_item(d) +
           n_messages * message_bytes;
}

/* Where memory is shared, panels are read in place, and a grid saves nothing. With up to 8 ranks a grid saves
 * less than a third of n^2 / 2, and the ranks have to wait for each other twice per panel instead of once: for
 * the diagonal block and for the rows below it. */
int plait_grid_choose(const plait_dealt_t *d, plait_direct_t direct)
{
    enum { FEW_RANKS = 8 };
    int best = 1;

    if (direct == PLAIT_DIRECT_POINTER || d->n_ranks <= FEW_RANKS) {
        return 1;
    }
    for (int n_rows = 2; n_rows <= d->n_ranks; n_rows++) {
        if (d->n_ranks % n_rows == 0 && cost_of(d, n_rows) < cost_of(d, best)) {
            best = n_rows;
        }
    }
    return best;
}

int plait_grid_rank(const plait_grid_t *g, int row, int column)
{
    return row * g->columns.n_ranks + column;
}

int plait_grid_row(const plait_grid_t *g, int rank)
{
    return rank / g->columns.n_ranks;
}

int plait_grid_column(const plait_grid_t *g, int rank)
{
    return rank % g->columns.n_ranks;
}

int64_t plait_grid_behind(const plait_dealt_t *axis, int place, int64_t k)
{
    const int64_t before = plait_dealt_local(axis, plait_dealt_next(axis, place, k));

    return plait_max(0, plait_dealt_owned(axis, place) - before);
}

int64_t plait_grid_between(const plait_dealt_t *axis, int place, int64_t from,
                           int64_t k)
{
    return plait_dealt_local(axis, plait_dealt_next(axis, place, k)) -
           plait_dealt_local(axis, plait_dealt_next(axis, place, from));
}

int64_t plait_grid_step(const plait_grid_t *g)
{
    int64_t step = g->rows.n_ranks;

    while (step % g->columns.n_ranks != 0) {
        step += g->rows.n_ranks;
    }
    return step;
}

int64_t plait_grid_common(const plait_grid_t *g, int row, int column, int64_t k)
{
    const int64_t n_blocks = plait_dealt_n_blocks(&g->d);
    int64_t j = plait_dealt_next(&g->columns, column, k);

    while (j < n_blocks && plait_dealt_owner(&g->rows, j) != row) {
        j += g->columns.n_ranks;
    }
    return j;
}

int64_t plait_grid_ld(const plait_grid_t *g, int row)
{
    return plait_max(1, plait_dealt_owned(&g->rows, row));
}

int64_t plait_grid_bytes(const plait_grid_t *g, int rank)
{
    return plait_dealt_owned(&g->rows, plait_grid_row(g, rank)) *
           plait_dealt_owned(&g->columns, plait_grid_column(g, rank)) *
           plait_dealt_item(&g->d);
}

int64_t plait_grid_at(const plait_grid_t *g, int row, int64_t i, int64_t j)
{
    return (plait_dealt_local(&g->columns, j) * plait_grid_ld(g, row) +
            plait_dealt_local(&g->rows, i)) *
           plait_dealt_item(&g->d);
}

static plait_status_t add_block(bool is_out, const plait_block_t *block,
                                plait_move_t *move)
{
    plait_block_t b = *block;

    plait_box_simplify(&b.box);
    return is_out ? plait_move_add_out(move, &b) : plait_move_add_in(move, &b);
}

plait_status_t plait_strip_add(const plait_dealt_t *axis, const plait_strip_t *strip,
                               bool is_out, const plait_block_t *block,
                               plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    const int64_t item = plait_dealt_item(axis);
    const int64_t last = plait_dealt_n_blocks(axis) - 1;
    const int64_t n =
        (strip->first <= last) ? (last - strip->first) / strip->step + 1 : 0;
    const bool has_short = n > 0 && (last - strip->first) % strip->step == 0 &&
                           plait_dealt_width(axis, last) < axis->block;
    const int64_t n_whole = n - has_short;
    plait_block_t b = *block;

    b.box = (plait_box_copy_t){
        .n_dims = 2,
        .count = {strip->width, n_whole},
        .src_stride = {strip->src_ld * item, strip->src_stride * item},
        .dst_stride = {strip->dst_ld * item, strip->dst_stride * item},
        .row_bytes = axis->block * item};
    if (n_whole > 0) {
        PLAIT_TRY(add_block(is_out, &b, move));
    }
    if (has_short) {
        b.src_offset += n_whole * strip->src_stride * item;
        b.dst_offset += n_whole * strip->dst_stride * item;
        b.box.n_dims = 1;
        b.box.row_bytes = plait_dealt_width(axis, last) * item;
        PLAIT_TRY(add_block(is_out, &b, move));
    }
done:
    return status;
}

/* The part of block column j that one row of the grid has, to the grid or back. */
static plait_status_t deal_part(const plait_plan_t *plan, const plait_grid_t *g,
                                int row, int64_t j, const plait_block_t *slots,
                                bool is_back, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    const int64_t first = plait_dealt_next(&g->rows, row, j);
    const int stores = plait_dealt_owner(&g->d, j);
    const int holds = plait_grid_rank(g, row, (int)plait_dealt_owner(&g->columns, j));
    const int src = is_back ? holds : stores;
    const int dst = is_back ? stores : holds;
    const int64_t dealt_at = plait_dealt_at(&g->d, j, plait_dealt_column(&g->d, first));
    const int64_t grid_at = plait_grid_at(g, row, first, j);
    const int64_t dealt_stride = g->rows.n_ranks * g->d.block;
    const plait_strip_t strip = {.first = first,
                                 .step = g->rows.n_ranks,
                                 .width = plait_dealt_width(&g->d, j),
                                 .src_ld = is_back ? plait_grid_ld(g, row) : g->d.m,
                                 .dst_ld = is_back ? g->d.m : plait_grid_ld(g, row),
                                 .src_stride = is_back ? g->d.block : dealt_stride,
                                 .dst_stride = is_back ? dealt_stride : g->d.block};
    plait_block_t block = *slots;

    block.src_offset = is_back ? grid_at : dealt_at;
    block.dst_offset = is_back ? dealt_at : grid_at;
    if (dst == plan->rank) {
        block.peer = src;
        PLAIT_TRY(plait_strip_add(&g->rows, &strip, false, &block, move));
    } else if (src == plan->rank && plan->direct == PLAIT_DIRECT_NONE) {
        block.peer = dst;
        PLAIT_TRY(plait_strip_add(&g->rows, &strip, true, &block, move));
    }
done:
    return status;
}

plait_status_t plait_grid_deal(plait_plan_t *plan, const plait_grid_t *g,
                               int dealt_slot, int grid_slot, bool is_back)
{
    plait_status_t status = PLAIT_OK;
    const int column = plait_grid_column(g, plan->rank);
    const plait_block_t slots = {.kind = PLAIT_BLOCK_COPY,
                                 .src_slot = is_back ? grid_slot : dealt_slot,
                                 .dst_slot = is_back ? dealt_slot : grid_slot};
    plait_move_t move = {0};

    for (int64_t j = plait_dealt_next(&g->columns, column, 0);
         j < plait_dealt_n_blocks(&g->d); j += g->columns.n_ranks) {
        for (int row = 0; row < g->rows.n_ranks; row++) {
            PLAIT_TRY(deal_part(plan, g, row, j, &slots, is_back, &move));
        }
    }
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}
