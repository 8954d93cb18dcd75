/* The cell that a ghost copies, found slowly: one step towards the axis after the other. */
#ifndef PLAIT_TESTS_GHOSTS_H
#define PLAIT_TESTS_GHOSTS_H

#include "plait/halo.h"

/* The cell of an axis of n cells that this index copies; -1: none. */
static inline int64_t ghost_cell(plait_boundary_t boundary, int64_t n, int64_t index)
{
    while (n > 0 && (index < 0 || index >= n)) {
        bool is_before = index < 0;

        if (boundary == PLAIT_BOUNDARY_ZERO) {
            return -1;
        }
        if (boundary == PLAIT_BOUNDARY_PERIODIC) {
            index += is_before ? n : -n;
        } else if (boundary == PLAIT_BOUNDARY_EDGE || n == 1) {
            index += is_before ? 1 : -1;
        } else {
            index = (is_before ? 0 : 2 * (n - 1)) - index;
        }
    }
    return (n > 0) ? index : -1;
}

#endif
