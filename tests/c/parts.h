/* The parts of global arrays that ranks have. */
#ifndef PLAIT_TESTS_PARTS_H
#define PLAIT_TESTS_PARTS_H

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

#endif
