/* The parts of global arrays that ranks store. */
#ifndef PLAIT_TESTS_PARTS_H
#define PLAIT_TESTS_PARTS_H

#include "check.h"
#include "plait/layout.h"

/* Elements that a rank stores. */
static inline int64_t n_local(const plait_layout_t *layout, int rank)
{
    int64_t shape[PLAIT_MAX_NDIM];
    int64_t n = 1;

    plait_layout_stored_shape(layout, rank, shape);
    for (int a = 0; a < layout->ndim; a++) {
        n *= shape[a];
    }
    return n;
}

/* An array of three axes, one of them split over all ranks. */
static inline plait_layout_t split_along(int axis, const int64_t shape[3], int n_ranks)
{
    int split_over[] = {-1, -1, -1};
    plait_layout_t layout;

    split_over[axis] = 0;
    check_good(plait_layout_pencil(3, shape, 1, &n_ranks, split_over, PLAIT_SPLIT_EVEN,
                                   &layout));
    return layout;
}

#endif
