/* Rows of a box: the one place where strides become offsets. */
#ifndef PLAIT_DEVICE_BOX_H
#define PLAIT_DEVICE_BOX_H

#include "device/host.h"

#include <stdbool.h>
#include <stdint.h>

/* The position of a walk; starts as {0}, at row (0, 0, ...). */
typedef struct {
    int64_t index[PLAIT_BOX_MAX_DIMS];
    int64_t src; /* bytes from the base, on each side */
    int64_t dst;
} plait_box_walk_t;

/* Moves to the next row over dimensions [0, n_dims), the last dimension fastest; false after the last row. No
 * count may be 0. */
static inline bool plait_box_next(const plait_box_copy_t *box, int n_dims,
                                  plait_box_walk_t *walk)
{
    for (int d = n_dims - 1; d >= 0; d--) {
        walk->src += box->src_stride[d];
        walk->dst += box->dst_stride[d];
        walk->index[d]++;
        if (walk->index[d] < box->count[d]) {
            return true;
        }
        walk->src -= box->src_stride[d] * box->count[d];
        walk->dst -= box->dst_stride[d] * box->count[d];
        walk->index[d] = 0;
    }
    return false;
}

/* Strides of one side of a box whose rows are contiguous there. */
static inline void plait_box_set_dense(const plait_box_copy_t *box, int64_t stride[])
{
    int64_t bytes = box->row_bytes;

    for (int d = box->n_dims - 1; d >= 0; d--) {
        stride[d] = bytes;
        bytes *= box->count[d];
    }
}

/* Whether the rows are contiguous on one side of a box. */
static inline bool plait_box_is_dense(const plait_box_copy_t *box,
                                      const int64_t stride[])
{
    int64_t bytes = box->row_bytes;
    bool is_dense = true;

    for (int d = box->n_dims - 1; d >= 0 && is_dense; d--) {
        is_dense = stride[d] == bytes;
        bytes *= box->count[d];
    }
    return is_dense;
}

#endif
