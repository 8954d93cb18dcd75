/* Small matrices as a whole on one rank, which alone is faster than all ranks together. Its steps are those of
 * a single rank, on a work slot. All other ranks take their parts of its results. So all results are one
 * rank's, and no sum or pivot differs from rank to rank. */
#ifndef PLAIT_DENSE_WHOLE_H
#define PLAIT_DENSE_WHOLE_H

#include "dense/dealt.h"

/* The rank that has the matrix. */
enum { PLAIT_WHOLE_ROOT = 0 };

/* For tests: sets the largest extent of a matrix that goes to one rank; negative: where that is cheaper.
 * Applies to plans that are made afterwards; to be called on all ranks. */
PLAIT_EXPORT void plait_dense_choose_whole(int64_t n);

/* Whether an m x n matrix goes to one rank, in a plan of its ranks. */
bool plait_dense_is_whole(int64_t m, int64_t n, bool is_cheaper);

/* Whether one rank factors a matrix faster, by the number of real operations. */
bool plait_whole_is_cheaper(const plait_dealt_t *d, double n_flops);

/* A work slot for the matrix, without bytes on other ranks. */
plait_status_t plait_whole_slot(plait_plan_t *plan, const plait_dealt_t *d,
                                int *slot_p);

/* Brings all ranks' columns to the one rank's slot; is_lower: of each block, rows from its first diagonal
 * element on. Needs a fence before and after it. */
plait_status_t plait_whole_collect(plait_plan_t *plan, const plait_dealt_t *d,
                                   bool is_lower, int slot, int whole_slot);

/* Appends to a move that the one rank's slot goes, as a whole, to the same slot on all other ranks. */
plait_status_t plait_whole_share(const plait_plan_t *plan, int slot,
                                 plait_move_t *move);

/* Brings every rank's columns from the one rank's slot, where column `first` is the first one. Zeroes what is
 * above blocks of a lower matrix and behind the columns. Also brings `n_shared` slots of the one rank, as a
 * whole. Needs a fence before and after it. */
plait_status_t plait_whole_deal(plait_plan_t *plan, const plait_dealt_t *d,
                                bool is_lower, int whole_slot, int64_t first, int slot,
                                int n_shared, const int shared_slots[]);

#endif
