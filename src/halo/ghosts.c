/* The line of indices is tiled by images of [0, n): image 0 is the axis itself, and the others are
 *
 *   periodic  [q n, (q + 1) n): index g is cell g - q n
 *   reflect   n - 1 indices each, from [0, n) outwards, the cells in turns backwards and
 *             forwards: g is the cell at the distance of g from the nearest multiple of
 *             2 (n - 1)
 *   edge      everything before 0 is cell 0, everything from n on is cell n - 1
 *   zero      no cells
 *
 * so that ghosts wider than the axis come from several images. One cell alone is its own
 * reflection, as in numpy.pad, and its own period: an edge.  Source: own. */
#include "halo/ghosts.h"

#include "base/checked.h"

/* Indices [lo, hi) are copies of cell, cell + step, ... */
typedef struct {
    int64_t lo, hi, cell;
    int step; /* 1, 0 or -1 */
} image_t;

static const int64_t far = INT64_MAX / 4;

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static plait_boundary_t kind_of(const plait_halo_axis_t *axis)
{
    bool is_alone = axis->n == 1 && axis->boundary != PLAIT_BOUNDARY_ZERO;

    return is_alone ? PLAIT_BOUNDARY_EDGE : axis->boundary;
}

/* Number of the image that contains index g. */
static int64_t image_number(const plait_halo_axis_t *axis, int64_t g)
{
    bool is_before = g < 0;
    bool is_after = g >= axis->n;
    int64_t number = is_after - is_before;

    if (kind_of(axis) == PLAIT_BOUNDARY_PERIODIC) {
        number = floor_div(g, axis->n);
    } else if (kind_of(axis) == PLAIT_BOUNDARY_REFLECT && is_before) {
        number = floor_div(g, axis->n - 1);
    } else if (kind_of(axis) == PLAIT_BOUNDARY_REFLECT && is_after) {
        number = (g - axis->n) / (axis->n - 1) + 1;
    }
    return number;
}

static image_t reflection(int64_t n, int64_t q)
{
    int64_t m = n - 1;
    bool is_backward = q % 2 != 0;
    image_t image = {.step = is_backward ? -1 : 1};

    if (q > 0) {
        image.lo = n + (q - 1) * m;
        image.cell = is_backward ? n - 2 : 1;
    } else {
        image.lo = q * m;
        image.cell = is_backward ? m : 0;
    }
    image.hi = image.lo + m;
    return image;
}

/* The q-th image; empty if it has no cells. */
static image_t image_of(const plait_halo_axis_t *axis, int64_t q)
{
    int64_t n = axis->n;
    image_t image = {.lo = 0, .hi = n, .cell = 0, .step = 1};

    if (q != 0) {
        switch (kind_of(axis)) {
        case PLAIT_BOUNDARY_PERIODIC:
            image = (image_t){.lo = q * n, .hi = (q + 1) * n, .cell = 0, .step = 1};
            break;
        case PLAIT_BOUNDARY_REFLECT:
            image = reflection(n, q);
            break;
        case PLAIT_BOUNDARY_EDGE:
            image = (q < 0) ? (image_t){.lo = -far, .hi = 0, .cell = 0}
                            : (image_t){.lo = n, .hi = far, .cell = n - 1};
            break;
        case PLAIT_BOUNDARY_ZERO:
            image = (image_t){0};
            break;
        }
    }
    return image;
}

/* The part of an image that lies in `ghosts` and whose cells lie in `owned`. */
static image_t clip(image_t image, plait_interval_t ghosts, plait_interval_t owned)
{
    int64_t skip = plait_max(ghosts.lo - image.lo, 0);
    int64_t last = owned.hi - 1;

    image.lo += skip;
    image.cell += image.step * skip;
    image.hi = plait_min(image.hi, ghosts.hi);
    if (image.step == 0) {
        bool is_owned = image.cell >= owned.lo && image.cell <= last;
        image.hi = is_owned ? image.hi : image.lo;
    } else {
        bool is_forward = image.step > 0;
        skip = plait_max(is_forward ? owned.lo - image.cell : image.cell - last, 0);
        image.lo += skip;
        image.cell += image.step * skip;
        int64_t n_left = is_forward ? owned.hi - image.cell : image.cell - owned.lo + 1;
        image.hi = plait_min(image.hi, image.lo + plait_max(n_left, 0));
    }
    return image;
}

plait_status_t plait_ghosts_add(const plait_halo_axis_t *axis, plait_interval_t owned,
                                int64_t src_start, plait_interval_t ghosts,
                                int64_t dst_start, plait_overlaps_t *list)
{
    plait_status_t status = PLAIT_OK;

    if (owned.lo >= owned.hi || ghosts.lo >= ghosts.hi) {
        goto done;
    }
    int64_t last = image_number(axis, ghosts.hi - 1);
    for (int64_t q = image_number(axis, ghosts.lo); q <= last; q++) {
        image_t image = clip(image_of(axis, q), ghosts, owned);
        plait_overlap_t overlap = {.n = image.hi - image.lo,
                                   .src = src_start + image.cell - owned.lo,
                                   .dst = dst_start + image.lo - ghosts.lo};
        overlap.src_run = (image.step > 0)   ? PLAIT_RUN_FORWARD
                          : (image.step < 0) ? PLAIT_RUN_BACKWARD
                                             : PLAIT_RUN_REPEATED;
        if (overlap.n > 0) {
            PLAIT_TRY(plait_overlaps_add(list, overlap));
        }
    }
done:
    return status;
}
