/* Sums and maxima over ranks of the data that each rank has in a work slot, with the same bits on all ranks.
 * For algorithms that have many such steps. */
#ifndef PLAIT_DENSE_PIECES_H
#define PLAIT_DENSE_PIECES_H

#include "plan/plan.h"

/* Adds a fence, and the steps that bring the sum over all ranks of n elements to dst on all ranks. If each rank
 * sums a part, there are two fences. A rank's own elements are at src_offset. is_collected, which messages
 * need: rank r's elements are at src_offset + r * piece_stride, and the other ranks' elements come beside the
 * own ones. Of `reduce`, only op, dtype, n, slots, offsets and piece_stride count. */
plait_status_t plait_pieces_reduce(plait_plan_t *plan, bool is_collected,
                                   const plait_reduce_step_t *reduce);

#endif
