/* The stages of a distributed transform: which axes are transformed where, and how the array
 * is split in between.
 *
 * Axes that every rank has whole are transformed locally; then, while a split axis is left,
 * its split moves to an axis that is done (or not asked for), and it is transformed as it
 * arrives. For three axes split over one grid axis that is the slab algorithm, over two the
 * pencil algorithm; the inverse along the reversed layouts walks the same path back.
 * Source: slab and pencil decompositions, e.g. Pekurovsky, SIAM J. Sci. Comput. 34(4), 2012. */
#ifndef PLAIT_FFT_PATH_H
#define PLAIT_FFT_PATH_H

#include "plait/layout.h"

#include <stdbool.h>

/* A local transform of some axes, or a move to `layout` with the transform of axis t. */
typedef struct {
    bool is_exchange;
    int t;         /* -1: a move alone */
    unsigned axes; /* local transforms, bit per axis */
    plait_layout_t layout;
    int slot; /* where its result goes: chosen by whoever runs the path */
} plait_fft_stage_t;

enum { PLAIT_FFT_MAX_STAGES = 2 * PLAIT_MAX_NDIM + 2 };

typedef struct {
    plait_layout_t from, to; /* splits into one part left out */
    int n_stages;
    plait_fft_stage_t stages[PLAIT_FFT_MAX_STAGES];
} plait_fft_path_t;

/* Transforms `axes` (bit per axis) of an array in layout `from`; the result is in `to`. */
void plait_fft_path_find(const plait_layout_t *from, const plait_layout_t *to,
                         unsigned axes, plait_fft_path_t *path);

#endif
