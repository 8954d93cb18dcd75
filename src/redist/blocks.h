/* The boxes that two local arrays have in common, as blocks of a move. */
#ifndef PLAIT_REDIST_BLOCKS_H
#define PLAIT_REDIST_BLOCKS_H

#include "plait/layout.h"
#include "plan/plan.h"

/* How local indices go on from the first index. */
typedef enum {
    PLAIT_RUN_FORWARD = 0,
    PLAIT_RUN_BACKWARD,
    PLAIT_RUN_REPEATED, /* the first index again and again */
} plait_run_t;

/* Along one axis: n indices from src (local index at the source) go to dst. */
typedef struct {
    int64_t n, src, dst;
    plait_run_t src_run, dst_run;
} plait_overlap_t;

/* A growing list of overlaps. */
typedef struct {
    int64_t n, room;
    plait_overlap_t *items;
} plait_overlaps_t;

plait_status_t plait_overlaps_add(plait_overlaps_t *list, plait_overlap_t overlap);
void plait_overlaps_clear(plait_overlaps_t *list);

/* Overlaps, along `axis`, of what src_rank owns in `from` and what dst_rank owns in `to`. */
plait_status_t plait_overlaps_of(const plait_layout_t *from, int src_rank,
                                 const plait_layout_t *to, int dst_rank, int axis,
                                 plait_overlaps_t *list);

/* The local arrays of a pair of ranks, row-major. The boxes' strides come from their shapes. */
typedef struct {
    int ndim;
    int64_t item_bytes;
    int64_t src_shape[PLAIT_MAX_NDIM];
    int64_t dst_shape[PLAIT_MAX_NDIM];
} plait_pair_t;

/* Appends to `move` one block for each element of the product of the axes' overlaps. `block` gives peer, kind
 * and slots. is_out: append to the outgoing list. */
plait_status_t plait_blocks_add(plait_move_t *move, bool is_out,
                                const plait_block_t *block, const plait_pair_t *pair,
                                const plait_overlaps_t overlaps[]);

/* The same with given strides, in bytes, of all axes on both sides. They need not follow from shapes: pair's
 * shapes are not used. */
plait_status_t plait_blocks_add_strided(plait_move_t *move, bool is_out,
                                        const plait_block_t *block,
                                        const plait_pair_t *pair,
                                        const int64_t src_stride[],
                                        const int64_t dst_stride[],
                                        const plait_overlaps_t overlaps[]);

/* Appends zeroing of the cells [0, before) and [n - after, n) along each axis of pair's dst. The parts do not
 * overlap: the slab of axis a leaves out the slabs of the axes before it. */
plait_status_t plait_blocks_zero(const plait_block_t *block, const plait_pair_t *pair,
                                 const int64_t before[], const int64_t after[],
                                 plait_move_t *move);

/* Appends zeroing of what a rank's array stores beyond the elements that the rank owns. */
plait_status_t plait_redist_zero(const plait_layout_t *layout, int rank, int slot,
                                 int64_t item_bytes, plait_move_t *move);

/* Number of the replica of a layout's data that a rank holds. A rank takes data from ranks of the same replica,
 * so that its own data stay and replicas share the load. */
int plait_layout_replica(const plait_layout_t *layout, int rank);

/* The layout of the same array with its last two axes exchanged. */
plait_layout_t plait_layout_turned(const plait_layout_t *layout);

/* A change of an array's layout, from slot to slot. */
typedef struct {
    const plait_layout_t *from, *to;
    int src_slot, dst_slot;
    int64_t item_bytes;
    bool is_turned; /* the last two axes are exchanged on the way: so `to` has them */
    bool may_put;   /* plait_redist_put comes afterwards, see there */
    int src_first, dst_first; /* the slowest axis in memory; the others are in order */
} plait_change_t;

/* All blocks that make `to` on plan->rank. Also outgoing blocks where moves are messages, and blocks that this
 * rank puts to peers. */
plait_status_t plait_redist_move(const plait_plan_t *plan, const plait_change_t *change,
                                 plait_move_t *move_p);

#endif
