/* Random boxes for the tests, and the slow copy that defines what a box means. */
#ifndef PLAIT_TESTS_BOXES_H
#define PLAIT_TESTS_BOXES_H

#include "device/host.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    uint64_t state;
} random_t;

/* In [low, high]. */
static inline int64_t draw(random_t *r, int64_t low, int64_t high)
{
    r->state = r->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return low + (int64_t)((r->state >> 33) % (uint64_t)(high - low + 1));
}

/* Strides of one side: dimensions in a random order, gaps that are multiples of `unit`.
 * Returns the bytes from the base to the end of the last row. */
static inline int64_t draw_strides(random_t *r, const plait_box_copy_t *box,
                                   int64_t unit, int64_t stride[])
{
    int order[PLAIT_BOX_MAX_DIMS] = {0};
    int64_t extent = box->row_bytes;

    for (int d = 0; d < box->n_dims; d++) {
        int at = (int)draw(r, 0, d);

        order[d] = order[at];
        order[at] = d;
    }
    for (int d = 0; d < box->n_dims; d++) {
        int64_t gap = (draw(r, 0, 1) == 0) ? 0 : unit * draw(r, 0, 5);
        int64_t count = box->count[order[d]];

        stride[order[d]] = extent + gap;
        extent = (count > 0) ? (extent + gap) * (count - 1) + extent : extent;
    }
    return extent;
}

/* Turns some dimensions of one side backwards; with may_repeat, some get a stride of 0. Returns the bytes from
 * the lowest row to row (0, 0, ...). */
static inline int64_t turn_strides(random_t *r, const plait_box_copy_t *box,
                                   bool may_repeat, int64_t stride[])
{
    int64_t base = 0;

    for (int d = 0; d < box->n_dims; d++) {
        int64_t turn = draw(r, 0, may_repeat ? 3 : 2);

        if (turn == 2) {
            base += (box->count[d] > 0) ? stride[d] * (box->count[d] - 1) : 0;
            stride[d] = -stride[d];
        } else if (turn == 3) {
            stride[d] = 0;
        }
    }
    return base;
}

/* At most about max_rows rows, now and then a count of 0. */
static inline plait_box_copy_t draw_box(random_t *r, int64_t row_bytes,
                                        int64_t max_rows)
{
    plait_box_copy_t box = {.n_dims = (int)draw(r, 0, PLAIT_BOX_MAX_DIMS)};

    box.row_bytes = row_bytes;
    for (int d = 0; d < box.n_dims; d++) {
        int64_t high = (draw(r, 0, 2) == 0) ? max_rows : (max_rows < 4) ? max_rows : 4;

        box.count[d] = draw(r, 1, high);
        max_rows /= box.count[d];
    }
    if ((box.n_dims > 0) && (draw(r, 0, 19) == 0)) {
        box.count[draw(r, 0, box.n_dims - 1)] = 0;
    }
    return box;
}

/* Byte offsets of the row with a given number, on each side. */
static inline void row_offsets(const plait_box_copy_t *box, int64_t number,
                               int64_t *src_p, int64_t *dst_p)
{
    *src_p = 0;
    *dst_p = 0;
    for (int d = box->n_dims - 1; d >= 0; d--) {
        *src_p += number % box->count[d] * box->src_stride[d];
        *dst_p += number % box->count[d] * box->dst_stride[d];
        number /= box->count[d];
    }
}

static inline int64_t n_rows_of(const plait_box_copy_t *box)
{
    int64_t n = 1;

    for (int d = 0; d < box->n_dims; d++) {
        n *= box->count[d];
    }
    return n;
}

static inline void slow_copy_from(const plait_box_copy_t *box, int d, const char *src,
                                  char *dst)
{
    if (d == box->n_dims) {
        if (box->row_bytes == 1) {
            *dst = *src; /* sanitizers make each memcpy a call */
        } else {
            memcpy(dst, src, (size_t)box->row_bytes);
        }
        return;
    }
    for (int64_t i = 0; i < box->count[d]; i++) {
        slow_copy_from(box, d + 1, src + i * box->src_stride[d],
                       dst + i * box->dst_stride[d]);
    }
}

static inline void slow_copy(const plait_box_copy_t *box, const char *src, char *dst)
{
    slow_copy_from(box, 0, src, dst);
}

static inline const char *box_text(const plait_box_copy_t *box)
{
    static _Thread_local char text[512];
    int n = snprintf(text, sizeof(text), "row %lld", (long long)box->row_bytes);

    for (int d = 0; d < box->n_dims; d++) {
        n += snprintf(text + n, sizeof(text) - (size_t)n, " %lld*(%lld,%lld)",
                      (long long)box->count[d], (long long)box->src_stride[d],
                      (long long)box->dst_stride[d]);
    }
    return text;
}

#endif
