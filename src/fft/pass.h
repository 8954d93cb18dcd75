/* One pass over an array. For every outer index it gathers the n_t rows of a plane from one or several ranks,
 * transforms the rows (along the fast axis w), the columns (along t), or both, and writes the plane once, to
 * this rank or to several. With direct access to peers an exchange needs no pass of its own: the gather, or
 * the scatter, is the exchange. */
#ifndef PLAIT_FFT_PASS_H
#define PLAIT_FFT_PASS_H

#include "kernel/fft.h"
#include "kernel/rfft.h"
#include "plait/layout.h"
#include "plan/plan.h"

/* Rows [t_lo, t_lo + n_t) of every plane, in one rank's buffer. Strides in bytes. */
typedef struct {
    int peer, slot;
    int64_t t_lo, n_t;
    int64_t offset, t_stride;
    int64_t outer_stride[PLAIT_MAX_NDIM];
} plait_piece_t;

/* Destination, in one rank's buffer, of rows [t_lo, t_lo + n_t) of the planes of a range of outer indices. The
 * offset is that of row 0 and indices 0, wherever this would be. */
typedef struct {
    int peer;
    int64_t t_lo, n_t;
    int64_t outer_lo[PLAIT_MAX_NDIM], n_outer[PLAIT_MAX_NDIM];
    int64_t offset, t_stride;
    int64_t outer_stride[PLAIT_MAX_NDIM];
    int64_t box_row; /* of row t_lo, among those that go to a peer through scratch */
} plait_target_t;

typedef struct {
    int n_outer;
    int64_t outer_count[PLAIT_MAX_NDIM];
    int64_t n_t, n_w, item_bytes; /* of a plane of the result */
    int64_t src_n_t, src_n_w,
        src_bytes; /* of planes that are read; different only between real and complex numbers */
    int n_pieces;
    plait_piece_t *pieces;
    int dst_slot, n_targets;
    plait_target_t *targets; /* every row of every plane is in one of them */
    int64_t n_box_rows;      /* rows of a plane for peers; set by plait_pass_add */
    plait_fft1_t
        *rows; /* NULL: rows are not transformed; else there is one piece, mine */
    plait_fft1_t *columns; /* NULL: columns are not transformed */
    plait_rfft1_t
        *real; /* NULL: none; to complex it comes before columns, to real after */
    bool is_real_columns; /* it goes along t, nothing else is transformed, one piece */
    plait_fft_store_t store;
    int64_t n_staged; /* rows that are staged in scratch; see plait_pass_add */
} plait_pass_t;

/* Adds the pass as a kernel step. Takes *pass_p and what it owns, also on failure. Results that should go past
 * the cache are staged if the transform cannot write them so: they end in scratch, and are streamed from there
 * row by row. This is the case for columns whose rows begin within lines, since a store of part of a line does
 * not stream, and for every pass that ends with rows, which are written a few bytes here and there. */
plait_status_t plait_pass_add(plait_plan_t *plan, plait_pass_t **pass_p);

/* Most elements of a plane that may go through scratch. */
int64_t plait_pass_max_plane(int64_t item_bytes);

void plait_pass_destroy(plait_pass_t **pass_p);

#endif
