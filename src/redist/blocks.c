#include "redist/blocks.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "layout/coords.h"
#include "redist/put.h"

#include <string.h>

plait_status_t plait_overlaps_add(plait_overlaps_t *list, plait_overlap_t overlap)
{
    plait_status_t status = PLAIT_OK;

    if (list->n == list->room) {
        int64_t room = plait_max(4, 2 * list->room);
        plait_overlap_t *items = plait_alloc(room, sizeof(*items));
        PLAIT_CHECK(items != NULL, PLAIT_ERR_NO_MEMORY, "no memory for %lld overlaps",
                    (long long)room);
        if (list->n > 0) {
            memcpy(items, list->items, (size_t)list->n * sizeof(*items));
        }
        plait_free(list->items);
        list->items = items;
        list->room = room;
    }
    list->items[list->n++] = overlap;
done:
    return status;
}

void plait_overlaps_clear(plait_overlaps_t *list)
{
    plait_free(list->items);
    *list = (plait_overlaps_t){0};
}

plait_status_t plait_overlaps_of(const plait_layout_t *from, int src_rank,
                                 const plait_layout_t *to, int dst_rank, int axis,
                                 plait_overlaps_t *list)
{
    plait_status_t status = PLAIT_OK;
    int64_t n_src = plait_layout_n_intervals(from, src_rank, axis);
    int64_t n_dst = plait_layout_n_intervals(to, dst_rank, axis);
    int64_t s = 0;
    int64_t d = 0;

    list->n = 0;
    while (s < n_src && d < n_dst) { /* both lists are ascending: merge */
        int64_t src_at = 0;
        int64_t dst_at = 0;
        plait_interval_t src = plait_layout_interval(from, src_rank, axis, s, &src_at);
        plait_interval_t dst = plait_layout_interval(to, dst_rank, axis, d, &dst_at);
        int64_t lo = plait_max(src.lo, dst.lo);
        int64_t hi = plait_min(src.hi, dst.hi);
        if (lo < hi) {
            PLAIT_TRY(plait_overlaps_add(
                list, (plait_overlap_t){.n = hi - lo,
                                        .src = src_at + lo - src.lo,
                                        .dst = dst_at + lo - dst.lo}));
        }
        if (src.hi < dst.hi) {
            s++;
        } else {
            d++;
        }
    }
done:
    return status;
}

static int64_t along(plait_run_t run, int64_t stride)
{
    return (run == PLAIT_RUN_FORWARD)    ? stride
           : (run == PLAIT_RUN_BACKWARD) ? -stride
                                         : 0;
}

plait_status_t plait_blocks_add(plait_move_t *move, bool is_out,
                                const plait_block_t *block, const plait_pair_t *pair,
                                const plait_overlaps_t overlaps[])
{
    int64_t src_stride[PLAIT_MAX_NDIM];
    int64_t dst_stride[PLAIT_MAX_NDIM];

    plait_row_major_strides(pair->ndim, pair->src_shape, pair->item_bytes, src_stride);
    plait_row_major_strides(pair->ndim, pair->dst_shape, pair->item_bytes, dst_stride);
    return plait_blocks_add_strided(move, is_out, block, pair, src_stride, dst_stride,
                                    overlaps);
}

plait_status_t plait_blocks_add_strided(plait_move_t *move, bool is_out,
                                        const plait_block_t *block,
                                        const plait_pair_t *pair,
                                        const int64_t src_stride[],
                                        const int64_t dst_stride[],
                                        const plait_overlaps_t overlaps[])
{
    plait_status_t status = PLAIT_OK;
    const int ndim = pair->ndim;
    int64_t n_blocks = 1;

    for (int a = 0; a < ndim; a++) {
        if (overlaps[a].n == 0) {
            goto done;
        }
        n_blocks *= overlaps[a].n;
    }
    for (int64_t i = 0; i < n_blocks; i++) {
        plait_block_t b = *block;
        int64_t rest = i;
        b.box.n_dims = ndim;
        b.box.row_bytes = pair->item_bytes;
        for (int d = 0; d < ndim; d++) {
            int a = ndim - 1 - d; /* the last axis runs fastest */
            const plait_overlap_t *o = &overlaps[a].items[rest % overlaps[a].n];
            rest /= overlaps[a].n;
            b.src_offset += o->src * src_stride[a];
            b.dst_offset += o->dst * dst_stride[a];
            b.box.count[a] = o->n;
            b.box.src_stride[a] = along(o->src_run, src_stride[a]);
            b.box.dst_stride[a] = along(o->dst_run, dst_stride[a]);
        }
        plait_box_simplify(&b.box);
        PLAIT_TRY(is_out ? plait_move_add_out(move, &b) : plait_move_add_in(move, &b));
    }
done:
    return status;
}

plait_status_t plait_blocks_zero(const plait_block_t *block, const plait_pair_t *pair,
                                 const int64_t before[], const int64_t after[],
                                 plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    plait_overlaps_t overlaps[PLAIT_MAX_NDIM] = {{0}};
    plait_overlap_t items[PLAIT_MAX_NDIM][2];

    for (int a = 0; a < pair->ndim; a++) { /* at first all of every axis */
        items[a][0] = (plait_overlap_t){.n = pair->dst_shape[a]};
        overlaps[a] = (plait_overlaps_t){.n = 1, .items = items[a]};
    }
    for (int a = 0; a < pair->ndim; a++) {
        int64_t n = pair->dst_shape[a];
        int64_t first = plait_min(before[a], n);
        int64_t last = plait_max(n - after[a], first);
        int n_parts = 0;
        if (first > 0) {
            items[a][n_parts++] = (plait_overlap_t){.n = first};
        }
        if (last < n) {
            items[a][n_parts++] =
                (plait_overlap_t){.n = n - last, .src = last, .dst = last};
        }
        overlaps[a].n = n_parts;
        if (n_parts > 0) {
            PLAIT_TRY(plait_blocks_add(move, false, block, pair, overlaps));
        }
        items[a][0] = (plait_overlap_t){.n = last - first, .src = first, .dst = first};
        overlaps[a].n = (last > first);
        if (last == first) {
            break; /* nothing is left */
        }
    }
done:
    return status;
}

plait_status_t plait_redist_zero(const plait_layout_t *layout, int rank, int slot,
                                 int64_t item_bytes, plait_move_t *move)
{
    static const int64_t none[PLAIT_MAX_NDIM];
    const plait_block_t block = {
        .peer = rank, .kind = PLAIT_BLOCK_ZERO, .src_slot = slot, .dst_slot = slot};
    plait_pair_t pair = {.ndim = layout->ndim, .item_bytes = item_bytes};
    int64_t local[PLAIT_MAX_NDIM];
    int64_t after[PLAIT_MAX_NDIM] = {0};

    plait_layout_local_shape(layout, rank, local);
    plait_layout_stored_shape(layout, rank, pair.dst_shape);
    for (int a = 0; a < layout->ndim; a++) {
        pair.src_shape[a] = pair.dst_shape[a];
        after[a] = pair.dst_shape[a] - local[a];
    }
    return plait_blocks_zero(&block, &pair, none, after, move);
}

int plait_layout_replica(const plait_layout_t *layout, int rank)
{
    int coords[PLAIT_MAX_GRID];
    int replica = 0;
    unsigned used = 0;

    plait_layout_coords(layout, rank, coords);
    for (int a = 0; a < layout->ndim; a++) {
        for (int i = 0; i < layout->axis[a].n_grid; i++) {
            used |= 1U << layout->axis[a].grid_axis[i];
        }
    }
    for (int g = 0; g < layout->grid_ndim; g++) {
        if ((used & (1U << g)) == 0) {
            replica = replica * layout->grid[g] + coords[g];
        }
    }
    return replica;
}

plait_layout_t plait_layout_turned(const plait_layout_t *layout)
{
    const int a = layout->ndim - 2;
    plait_layout_t turned = *layout;

    for (int i = 0; i < 2; i++) {
        turned.shape[a + i] = layout->shape[a + 1 - i];
        turned.axis[a + i] = layout->axis[a + 1 - i];
        turned.stored[a + i] = layout->stored[a + 1 - i];
    }
    return turned;
}

/* Strides of an array whose slowest axis is `slowest`; the other axes are in order. */
static void strides_of(const plait_layout_t *layout, int rank, int64_t item_bytes,
                       bool is_turned, int slowest, int64_t stride[])
{
    const int a = layout->ndim - 2;
    int64_t shape[PLAIT_MAX_NDIM];
    int64_t n_bytes = item_bytes;

    plait_layout_stored_shape(layout, rank, shape);
    for (int b = layout->ndim - 1; b >= 0; b--) {
        if (b != slowest) {
            stride[b] = n_bytes;
            n_bytes *= shape[b];
        }
    }
    stride[slowest] = n_bytes;
    if (is_turned) {
        int64_t first = stride[a];
        stride[a] = stride[a + 1];
        stride[a + 1] = first;
    }
}

/* Blocks from src_rank to dst_rank. Both sides call this and get the same order. seen: change->from with its
 * axes in the order of the axes of change->to. */
static plait_status_t add_pair(plait_move_t *move, bool is_out,
                               const plait_block_t *block, const plait_change_t *change,
                               const plait_layout_t *seen, int src_rank, int dst_rank)
{
    plait_status_t status = PLAIT_OK;
    const int ndim = change->to->ndim;
    const int64_t item = change->item_bytes;
    const plait_pair_t pair = {.ndim = ndim, .item_bytes = item};
    plait_overlaps_t overlaps[PLAIT_MAX_NDIM] = {{0}};
    int64_t src[PLAIT_MAX_NDIM];
    int64_t dst[PLAIT_MAX_NDIM];
    bool is_empty = false;

    strides_of(change->from, src_rank, item, change->is_turned, change->src_first, src);
    strides_of(change->to, dst_rank, item, false, change->dst_first, dst);
    for (int a = 0; a < ndim && !is_empty; a++) {
        PLAIT_TRY(
            plait_overlaps_of(seen, src_rank, change->to, dst_rank, a, &overlaps[a]));
        is_empty = overlaps[a].n == 0;
    }
    if (!is_empty) {
        PLAIT_TRY(
            plait_blocks_add_strided(move, is_out, block, &pair, src, dst, overlaps));
    }
done:
    for (int a = 0; a < ndim; a++) {
        plait_overlaps_clear(&overlaps[a]);
    }
    return status;
}

/* Of the blocks with other ranks, keeps only those that their sources put, or only the others. */
static void keep(plait_block_t blocks[], int64_t *n_p, int rank, bool is_put)
{
    int64_t n = 0;

    for (int64_t i = 0; i < *n_p; i++) {
        if (blocks[i].peer == rank || plait_redist_is_put(&blocks[i]) == is_put) {
            blocks[n++] = blocks[i];
        }
    }
    *n_p = n;
}

plait_status_t plait_redist_move(const plait_plan_t *plan, const plait_change_t *change,
                                 plait_move_t *move_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_layout_t seen =
        change->is_turned ? plait_layout_turned(change->from) : *change->from;
    const int replica = plait_layout_replica(change->from, plan->rank);
    const bool has_messages = plan->direct == PLAIT_DIRECT_NONE;
    const bool has_puts =
        change->may_put && plan->direct == PLAIT_DIRECT_READ && plan->can_write;
    plait_move_t move = {0};

    for (int i = 0; i < plan->n_ranks; i++) {
        /* start with the next rank, so that not all ranks read rank 0 at once */
        int peer = (plan->rank + i) % plan->n_ranks;
        plait_block_t block = {.peer = peer,
                               .kind = PLAIT_BLOCK_COPY,
                               .src_slot = change->src_slot,
                               .dst_slot = change->dst_slot};
        if (plait_layout_replica(change->from, peer) != replica) {
            continue;
        }
        PLAIT_TRY(add_pair(&move, false, &block, change, &seen, peer, plan->rank));
        if ((has_messages || has_puts) && peer != plan->rank) {
            PLAIT_TRY(add_pair(&move, true, &block, change, &seen, plan->rank, peer));
        }
    }
    if (has_puts) {
        keep(move.in, &move.n_in, plan->rank, false);
        keep(move.out, &move.n_out, plan->rank, true);
    }
    *move_p = move;
    move = (plait_move_t){0};
done:
    plait_move_clear(&move);
    return status;
}
