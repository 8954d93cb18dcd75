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

/* Between n real numbers along one axis and n / 2 + 1 complex numbers along it. This axis comes first on the
 * way to complex numbers and last on the way back, and is whole at that time. */
typedef struct {
    int axis; /* -1: all numbers are complex */
    int64_t n;
    bool to_complex;
    bool is_fused; /* an exchange that transforms its axis t can also do this axis */
} plait_fft_half_t;

/* How the array's axis `folded` is seen: flat on both sides of a stage, or as the two axes of a matrix. */
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
        axes; /* local transforms, bit per axis; at most one beside the half axis */
    bool has_half; /* of the half axis, too */
    bool is_real;  /* the result has real numbers */
    bool
        is_put; /* an exchange with a transform whose results go on to path->to, without a further stage */
    plait_layout_t layout;
    int slot; /* where its result goes, and there the axis that is not in its place, -1 for none: next */
    int moved; /* to the last one, or on a device the first. Chosen by whoever runs the path */
} plait_fft_stage_t;

enum { PLAIT_FFT_MAX_STAGES = 5 * PLAIT_MAX_NDIM + 6 };

typedef struct {
    plait_layout_t from, to; /* without splits into one part */
    plait_fft_half_t half;
    int n_stages;
    plait_fft_stage_t stages[PLAIT_FFT_MAX_STAGES];
    /* Exchanges can be in place. No axis is done in two transforms (fft/four_step.h), since there is no kernel
     * for the step between them. */
    bool is_on_device;
    bool is_undivided; /* nor in host memory: only Fourier transforms have factors */
    int n_four_step;   /* axes that were done in two transforms */
    int gathered;      /* an axis that every rank gathers; -1: none */
} plait_fft_path_t;

/* Whether two axes are split over the same axes of the grid. */
bool plait_fft_same_split(const plait_axis_t *a, const plait_axis_t *b);

/* Adds an empty stage. */
plait_fft_stage_t *plait_fft_path_add(plait_fft_path_t *path);

/* Finds the stages that transform `axes` (bit per axis, including the half axis) of an array from layout `from`
 * to `to`. A plane between columns and rows has at most max_plane elements. path->is_on_device and
 * path->is_undivided are set by the caller. */
void plait_fft_path_find(const plait_layout_t *from, const plait_layout_t *to,
                         unsigned axes, const plait_fft_half_t *half, int64_t max_plane,
                         plait_fft_path_t *path);

#endif
