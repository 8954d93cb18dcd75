/* Moves between an array and the same array with one axis seen as a matrix: index
 * row * n_columns + column of the axis. */
#ifndef PLAIT_REDIST_FOLD_H
#define PLAIT_REDIST_FOLD_H

#include "plait/layout.h"
#include "plan/plan.h"

typedef struct {
    const plait_layout_t *flat;
    const plait_layout_t
        *matrix; /* `axis` and axis + 1: rows and columns; not cyclic */
    int axis;
    bool to_matrix;
    int src_slot, dst_slot;
    int64_t item_bytes;
} plait_fold_t;

/* Replaces `axis` by two whole axes, rows and columns; all other axes stay. The array has fewer than
 * PLAIT_MAX_NDIM axes. */
plait_layout_t plait_fold_layout(const plait_layout_t *flat, int axis, int64_t n_rows,
                                 int64_t n_columns);

/* All blocks of the move on plan->rank, and outgoing ones where moves are messages. */
plait_status_t plait_fold_move(const plait_plan_t *plan, const plait_fold_t *fold,
                               plait_move_t *move_p);

#endif
