/* The stages of a distributed transform: which axes are transformed where, and how the array
 * is split in between.
 *
 * Axes that every rank has whole are transformed locally. Then, while a split axis is left, its split moves to
 * an axis that is done (or not asked for), and the axis is transformed as it arrives. For three axes split
 * over one grid axis this is the slab algorithm, over two the pencil algorithm. The inverse with the layouts
 * reversed walks the same path back. If no axis can take the split, or only one that is too short for it, the
 * axis stays split (fft/four_step.h).
 * Source: slab and pencil decompositions, e.g. Pekurovsky, SIAM J. Sci. Comput. 34(4), 2012. */
#ifndef PLAIT_FFT_PATH_H
#define PLAIT_FFT_PATH_H

#include "plait/layout.h"

#include <stdbool.h>

/* Between real numbers, n along one axis, and complex ones, n / 2 + 1 along it. That axis comes
 * first on the way to complex numbers and last on the way back, and is whole then. */
typedef struct {
    int axis; /* -1: all numbers are complex */
    int64_t n;
    bool to_complex;
    bool is_fused; /* an exchange that transforms its axis t can go on with this one */
} plait_fft_half_t;

/* The axis `folded` of the array: is flat on both sides of a stage, or two axes of its matrix. */
typedef enum {
    PLAIT_FFT_SAME = 0,
    PLAIT_FFT_FOLD,
    PLAIT_FFT_TURN, /* local, out of place: neither exchange nor transform */
    PLAIT_FFT_UNFOLD
} plait_fft_view_t;

/* A local transform of some axes, or a move to `layout` with the transform of axis t. */
typedef struct {
    bool is_exchange;
    plait_fft_view_t view;
    int folded; /* where the view changes */
    int t;      /* -1: a move alone */
    unsigned
        axes; /* local transforms, bit per axis; one at most beside the half axis */
    bool has_half; /* the half axis, too */
    bool is_real;  /* the result is real numbers */
    bool
        is_put; /* of an exchange with a transform: it goes on to path->to, without a stage */
    plait_layout_t layout;
    int slot; /* where its result goes, and there the axis that is not in its place, -1 for none: next */
    int moved; /* to the last one, or on a device the first. Chosen by whoever runs the path */
} plait_fft_stage_t;

enum { PLAIT_FFT_MAX_STAGES = 5 * PLAIT_MAX_NDIM + 6 };

typedef struct {
    plait_layout_t from, to; /* splits into one part left out */
    plait_fft_half_t half;
    int n_stages;
    plait_fft_stage_t stages[PLAIT_FFT_MAX_STAGES];
    /* Exchanges can be in place; no axis is done in two transforms (fft/four_step.h), for want of
     * a kernel for what stands between them. */
    bool is_on_device;
    bool
        is_undivided; /* nor in host memory: what is no Fourier transform has no factors */
    int n_four_step; /* axes that were done so */
    int gathered;    /* an axis that every rank gathers; -1: none */
} plait_fft_path_t;

/* Whether two axes are split over the same axes of the grid. */
bool plait_fft_same_split(const plait_axis_t *a, const plait_axis_t *b);

/* One more stage, without anything. */
plait_fft_stage_t *plait_fft_path_add(plait_fft_path_t *path);

/* Transforms `axes` (bit per axis, the half axis among them) of an array in layout `from`; the
 * result is in `to`. A plane of max_plane elements at most may be between columns and rows.
 * path->is_on_device and path->is_undivided are the caller's. */
void plait_fft_path_find(const plait_layout_t *from, const plait_layout_t *to,
                         unsigned axes, const plait_fft_half_t *half, int64_t max_plane,
                         plait_fft_path_t *path);

#endif
