/* Bytes in host memory: strided box copies, streaming stores, first touch of results. */
#ifndef PLAIT_DEVICE_HOST_H
#define PLAIT_DEVICE_HOST_H

#include "plait/dtype.h"

#include <stdbool.h>
#include <stdint.h>

enum { PLAIT_BOX_MAX_DIMS = 8 };

/* A set of rows: row (i0, i1, ...) of row_bytes is at sum_d i_d * stride[d] from a base; each side has its own
 * strides (bytes). n_dims may be 0: one row. Any count may be 0. */
typedef struct {
    int n_dims;
    int64_t count[PLAIT_BOX_MAX_DIMS];
    int64_t src_stride[PLAIT_BOX_MAX_DIMS];
    int64_t dst_stride[PLAIT_BOX_MAX_DIMS];
    int64_t row_bytes;
} plait_box_copy_t;

/* Merges dimensions that are contiguous on both sides; the copied bytes stay the same. */
void plait_box_simplify(plait_box_copy_t *box);

int64_t plait_box_bytes(const plait_box_copy_t *box);

/* How many bytes of a box are contiguous on one of its sides. */
int64_t plait_box_run(const plait_box_copy_t *box, bool at_source);

/* The axis of a simple box along which its short rows are contiguous at the source, while they are contiguous
 * along the last axis at the destination; -1: there is no such pair of axes, or rows are not short. */
int plait_box_turn_axis(const plait_box_copy_t *box);

/* src and dst are the addresses of row (0, 0, ...) and do not overlap. Stores go past the cache if the box is
 * larger than the last-level cache, and with long rows from 2 MiB on. The caller need not fence. */
void plait_host_copy_box(const plait_box_copy_t *box, const void *src, void *dst);

/* The same for one of several boxes that are written together, n_total bytes in all. If these exceed the
 * cache, short rows go past it: otherwise lines would be read only to be overwritten. */
void plait_host_copy_part(const plait_box_copy_t *box, const void *src, void *dst,
                          int64_t n_total);

/* Zeroes the box's destination side. */
void plait_host_zero_box(const plait_box_copy_t *box, void *dst);

/* Called before a fresh result of XLA is written. Asks for huge pages from 4 MiB on: without them the first
 * touch costs more than the communication. */
void plait_host_prepare_result(void *p, int64_t n_bytes);

/* Orders streaming stores before what follows. */
void plait_host_stream_fence(void);

/* Bytes of the last-level cache that a rank may count on, between 1 and 32 MiB. */
int64_t plait_host_cache_bytes(void);

#endif
