/* The boxes that two local arrays have in common, as blocks of a move. */
#ifndef PLAIT_REDIST_BLOCKS_H
#define PLAIT_REDIST_BLOCKS_H

#include "plait/layout.h"
#include "plan/plan.h"

/* How local indices go on from the first one. */
typedef enum {
    PLAIT_RUN_FORWARD = 0,
    PLAIT_RUN_BACKWARD,
    PLAIT_RUN_REPEATED, /* the first one again and again */
} plait_run_t;

/* Along one axis: n indices from src (local index at the source) go to dst. */
typedef struct {
    int64_t n, src, dst;
    plait_run_t src_run, dst_run;
} plait_overlap_t;

/* A growing list of them. */
typedef struct {
    int64_t n, room;
    plait_overlap_t *items;
} plait_overlaps_t;

plait_status_t plait_overlaps_add(plait_overlaps_t *list, plait_overlap_t overlap);
void plait_overlaps_clear(plait_overlaps_t *list);

/* Overlaps of what src_rank owns in `from` with what dst_rank owns in `to`, along `axis`. */
plait_status_t plait_overlaps_of(const plait_layout_t *from, int src_rank,
                                 const plait_layout_t *to, int dst_rank, int axis,
                                 plait_overlaps_t *list);

/* Local arrays of a pair, row-major: what the boxes' strides come from. */
typedef struct {
    int ndim;
    int64_t item_bytes;
    int64_t src_shape[PLAIT_MAX_NDIM];
    int64_t dst_shape[PLAIT_MAX_NDIM];
} plait_pair_t;

/* Appends to `move` one block for each element of the product of the axes' overlaps; `block`
 * gives peer, kind and slots. is_out: append to the outgoing list. */
plait_status_t plait_blocks_add(plait_move_t *move, bool is_out,
                                const plait_block_t *block, const plait_pair_t *pair,
                                const plait_overlaps_t overlaps[]);

/* The same with the strides of all axes in bytes on both sides, which the box need not have from
 * shapes: pair's shapes are not used. */
plait_status_t plait_blocks_add_strided(plait_move_t *move, bool is_out,
                                        const plait_block_t *block,
                                        const plait_pair_t *pair,
                                        const int64_t src_stride[],
                                        const int64_t dst_stride[],
                                        const plait_overlaps_t overlaps[]);

/* Appends zeroing of the cells [0, before) and [n - after, n) along each axis of pair's dst. The
 * parts do not overlap: the slab of axis a leaves out those of the axes before it. */
plait_status_t plait_blocks_zero(const plait_block_t *block, const plait_pair_t *pair,
                                 const int64_t before[], const int64_t after[],
                                 plait_move_t *move);

/* Appends zeroing of what a rank's array stores beyond what the rank owns. */
plait_status_t plait_redist_zero(const plait_layout_t *layout, int rank, int slot,
                                 int64_t item_bytes, plait_move_t *move);

/* Which replica of a layout's data a rank holds: it takes data from ranks of the same
 * replica, so that own data stay and replicas share the load. */
int plait_layout_replica(const plait_layout_t *layout, int rank);

/* The layout of the same array with its last two axes exchanged. */
plait_layout_t plait_layout_turned(const plait_layout_t *layout);

/* An array that changes its layout, from slot to slot. */
typedef struct {
    const plait_layout_t *from, *to;
    int src_slot, dst_slot;
    int64_t item_bytes;
    bool is_turned; /* the last two axes are exchanged on the way: `to` has them so */
    bool may_put;   /* see plait_redist_put, which comes after it then */
    int src_first,
        dst_first; /* the axis that is the slowest in memory; the others are in order */
} plait_change_t;

/* All blocks that bring `to` about on plan->rank (and outgoing ones where moves are messages, or
 * those that it puts to peers). */
plait_status_t plait_redist_move(const plait_plan_t *plan, const plait_change_t *change,
                                 plait_move_t *move_p);

#endif
