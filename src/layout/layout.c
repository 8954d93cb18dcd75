#include "plait/layout.h"

#include "base/checked.h"
#include "base/status.h"
#include "layout/coords.h"

#include <stdio.h>
#include <string.h>

/* Number of parts that an axis is split into, and the part that a rank has. */
typedef struct {
    int64_t n_parts;
    int64_t part;
} share_t;

void plait_layout_coords(const plait_layout_t *layout, int rank, int coords[])
{
    for (int g = layout->grid_ndim - 1; g >= 0; g--) {
        coords[g] = rank % layout->grid[g];
        rank /= layout->grid[g];
    }
}

int plait_layout_rank(const plait_layout_t *layout, const int coords[])
{
    int rank = 0;

    for (int g = 0; g < layout->grid_ndim; g++) {
        rank = rank * layout->grid[g] + coords[g];
    }
    return rank;
}

void plait_row_major_strides(int ndim, const int64_t shape[], int64_t item_bytes,
                             int64_t stride[])
{
    int64_t bytes = item_bytes;

    for (int a = ndim - 1; a >= 0; a--) {
        stride[a] = bytes;
        bytes *= shape[a];
    }
}

static share_t share_of(const plait_layout_t *layout, int rank, int axis)
{
    const plait_axis_t *a = &layout->axis[axis];
    share_t share = {.n_parts = 1, .part = 0};
    int coords[PLAIT_MAX_GRID];

    plait_layout_coords(layout, rank, coords);
    for (int i = 0; i < a->n_grid; i++) {
        share.n_parts *= layout->grid[a->grid_axis[i]];
        share.part =
            share.part * layout->grid[a->grid_axis[i]] + coords[a->grid_axis[i]];
    }
    return share;
}

int plait_layout_n_ranks(const plait_layout_t *layout)
{
    int n_ranks = 1;

    for (int g = 0; g < layout->grid_ndim; g++) {
        n_ranks *= layout->grid[g];
    }
    return n_ranks;
}

static plait_status_t check_axis(const plait_layout_t *layout, int axis,
                                 unsigned *used_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_axis_t *a = &layout->axis[axis];
    bool is_whole = (a->split == PLAIT_SPLIT_WHOLE);

    PLAIT_CHECK((int)a->split >= PLAIT_SPLIT_WHOLE && a->split <= PLAIT_SPLIT_CYCLIC,
                PLAIT_ERR_INVALID,
                "layout: axis %d has split rule %d, known are 0 to 3", axis,
                (int)a->split);
    PLAIT_CHECK(layout->shape[axis] >= 0, PLAIT_ERR_INVALID,
                "layout: axis %d has extent %lld, expected 0 or more", axis,
                (long long)layout->shape[axis]);
    PLAIT_CHECK(is_whole ? a->n_grid == 0
                         : (a->n_grid >= 1 && a->n_grid <= PLAIT_MAX_GRID),
                PLAIT_ERR_INVALID,
                "layout: axis %d is split over %d grid axes, which its split rule does "
                "not take",
                axis, a->n_grid);
    PLAIT_CHECK(a->split != PLAIT_SPLIT_CYCLIC || a->block >= 1, PLAIT_ERR_INVALID,
                "layout: axis %d has block %lld, expected 1 or more", axis,
                (long long)a->block);
    PLAIT_CHECK(a->split != PLAIT_SPLIT_CEIL || a->block >= 0, PLAIT_ERR_INVALID,
                "layout: axis %d has %lld for each rank, expected 0 or more", axis,
                (long long)a->block);
    for (int i = 0; i < a->n_grid; i++) {
        int g = a->grid_axis[i];
        PLAIT_CHECK(g >= 0 && g < layout->grid_ndim, PLAIT_ERR_INVALID,
                    "layout: axis %d is split over grid axis %d of %d", axis, g,
                    layout->grid_ndim);
        PLAIT_CHECK((*used_p & (1U << g)) == 0, PLAIT_ERR_INVALID,
                    "layout: grid axis %d splits two array axes", g);
        *used_p |= 1U << g;
    }
done:
    return status;
}

/* Along every axis no rank owns more than rank 0. */
static plait_status_t check_stored(const plait_layout_t *layout)
{
    plait_status_t status = PLAIT_OK;
    int64_t local[PLAIT_MAX_NDIM];
    int64_t n_elements = 1;

    plait_layout_local_shape(layout, 0, local);
    for (int a = 0; a < layout->ndim; a++) {
        int64_t stored = layout->stored[a];
        int64_t n_parts = share_of(layout, 0, a).n_parts;
        int64_t block =
            (layout->axis[a].split == PLAIT_SPLIT_CEIL) ? layout->axis[a].block : 0;
        PLAIT_CHECK(block == 0 || block >= layout->shape[a] / n_parts +
                                               (layout->shape[a] % n_parts != 0),
                    PLAIT_ERR_INVALID,
                    "layout: %lld for each of %lld ranks along axis %d do not hold its "
                    "extent, %lld",
                    (long long)block, (long long)n_parts, a,
                    (long long)layout->shape[a]);
        PLAIT_CHECK(stored == 0 || stored >= local[a], PLAIT_ERR_INVALID,
                    "layout: %lld are stored along axis %d, but rank 0 owns %lld; "
                    "expected 0 or at least as many",
                    (long long)stored, a, (long long)local[a]);
        PLAIT_CHECK(plait_mul(n_elements, plait_max(plait_max(stored, local[a]), 1),
                              &n_elements) &&
                        n_elements <= INT64_MAX / 64,
                    PLAIT_ERR_OVERFLOW, "layout: more than 2^57 elements are stored");
    }
done:
    return status;
}

plait_status_t plait_layout_check(const plait_layout_t *layout)
{
    plait_status_t status = PLAIT_OK;
    int64_t n_ranks = 1;
    int64_t n_elements = 1;
    unsigned used = 0;

    PLAIT_CHECK(layout != NULL, PLAIT_ERR_INVALID, "layout is NULL");
    PLAIT_CHECK(layout->ndim >= 1 && layout->ndim <= PLAIT_MAX_NDIM, PLAIT_ERR_INVALID,
                "layout: ndim is %d, expected 1 to %d", layout->ndim, PLAIT_MAX_NDIM);
    PLAIT_CHECK(layout->grid_ndim >= 1 && layout->grid_ndim <= PLAIT_MAX_GRID,
                PLAIT_ERR_INVALID, "layout: the grid has %d axes, expected 1 to %d",
                layout->grid_ndim, PLAIT_MAX_GRID);
    for (int g = 0; g < layout->grid_ndim; g++) {
        PLAIT_CHECK(layout->grid[g] >= 1, PLAIT_ERR_INVALID,
                    "layout: grid axis %d has extent %d, expected 1 or more", g,
                    layout->grid[g]);
        PLAIT_CHECK(
            plait_mul(n_ranks, layout->grid[g], &n_ranks) && n_ranks <= INT32_MAX,
            PLAIT_ERR_OVERFLOW, "layout: the grid has more than 2^31 - 1 ranks");
    }
    for (int a = 0; a < layout->ndim; a++) {
        PLAIT_TRY(check_axis(layout, a, &used));
        PLAIT_CHECK(
            plait_mul(n_elements, plait_max(layout->shape[a], 1), &n_elements) &&
                n_elements <= INT64_MAX / 64,
            PLAIT_ERR_OVERFLOW, "layout: more than 2^57 elements");
    }
    PLAIT_TRY(check_stored(layout));
done:
    return status;
}

plait_status_t plait_layout_pencil(int ndim, const int64_t shape[], int grid_ndim,
                                   const int grid[], const int split_over[],
                                   plait_split_t split, plait_layout_t *layout_p)
{
    plait_status_t status = PLAIT_OK;
    plait_layout_t layout = {.ndim = ndim, .grid_ndim = grid_ndim};

    PLAIT_CHECK(ndim >= 1 && ndim <= PLAIT_MAX_NDIM && grid_ndim >= 1 &&
                    grid_ndim <= PLAIT_MAX_GRID,
                PLAIT_ERR_INVALID, "layout: %d axes over a grid of %d axes", ndim,
                grid_ndim);
    PLAIT_CHECK(shape != NULL && grid != NULL && split_over != NULL && layout_p != NULL,
                PLAIT_ERR_INVALID,
                "layout: shape, grid, split_over or layout_p is NULL");
    memcpy(layout.grid, grid, (size_t)grid_ndim * sizeof(*grid));
    memcpy(layout.shape, shape, (size_t)ndim * sizeof(*shape));
    for (int a = 0; a < ndim; a++) {
        PLAIT_CHECK(
            split_over[a] >= -1, PLAIT_ERR_INVALID,
            "layout: axis %d is split over grid axis %d, expected -1 (whole) or "
            "a grid axis",
            a, split_over[a]);
        if (split_over[a] >= 0) {
            layout.axis[a] = (plait_axis_t){.split = split,
                                            .n_grid = 1,
                                            .grid_axis = {split_over[a]},
                                            .block = (split == PLAIT_SPLIT_CYCLIC)};
        }
    }
    PLAIT_TRY(plait_layout_check(&layout));
    *layout_p = layout;
done:
    return status;
}

int64_t plait_layout_n_intervals(const plait_layout_t *layout, int rank, int axis)
{
    const plait_axis_t *a = &layout->axis[axis];
    int64_t n = layout->shape[axis];
    share_t share = share_of(layout, rank, axis);

    if (a->split == PLAIT_SPLIT_CYCLIC) {
        int64_t n_blocks = n / a->block + (n % a->block != 0);
        return n_blocks / share.n_parts + (share.part < n_blocks % share.n_parts);
    }
    plait_interval_t only = plait_layout_interval(layout, rank, axis, 0, NULL);
    return only.hi > only.lo;
}

/* Where block i begins, or the end of the axis: a block may be longer than the axis. */
static int64_t begin_of(int64_t i, int64_t block, int64_t n)
{
    return (block > 0 && i > n / block) ? n : plait_min(i * block, n);
}

plait_interval_t plait_layout_interval(const plait_layout_t *layout, int rank, int axis,
                                       int64_t k, int64_t *local_p)
{
    const plait_axis_t *a = &layout->axis[axis];
    int64_t n = layout->shape[axis];
    share_t share = share_of(layout, rank, axis);
    int64_t each = n / share.n_parts;
    int64_t more = n % share.n_parts;
    plait_interval_t at = {0, n};
    int64_t local = 0;

    if (a->split == PLAIT_SPLIT_EVEN) {
        at.lo = share.part * each + plait_min(share.part, more);
        at.hi = at.lo + each + (share.part < more);
    } else if (a->split == PLAIT_SPLIT_CEIL) {
        each = (a->block > 0) ? a->block : each + (more != 0);
        at.lo = begin_of(share.part, each, n);
        at.hi = at.lo + plait_min(each, n - at.lo);
    } else if (a->split == PLAIT_SPLIT_CYCLIC) {
        at.lo = begin_of(k * share.n_parts + share.part, a->block, n);
        at.hi = at.lo + plait_min(a->block, n - at.lo);
        local = k * a->block;
    }
    if (local_p != NULL) {
        *local_p = local;
    }
    return at;
}

void plait_layout_local_shape(const plait_layout_t *layout, int rank,
                              int64_t local_shape[])
{
    for (int axis = 0; axis < layout->ndim; axis++) {
        int64_t n_intervals = plait_layout_n_intervals(layout, rank, axis);

        local_shape[axis] = 0;
        if (n_intervals > 0) { /* only the last interval may be short */
            int64_t local = 0;
            plait_interval_t last =
                plait_layout_interval(layout, rank, axis, n_intervals - 1, &local);
            local_shape[axis] = local + last.hi - last.lo;
        }
    }
}

void plait_layout_stored_shape(const plait_layout_t *layout, int rank,
                               int64_t stored_shape[])
{
    plait_layout_local_shape(layout, rank, stored_shape);
    for (int a = 0; a < layout->ndim; a++) {
        stored_shape[a] = (layout->stored[a] > 0) ? layout->stored[a] : stored_shape[a];
    }
}

bool plait_layout_equal(const plait_layout_t *a, const plait_layout_t *b)
{
    int64_t words_a[PLAIT_LAYOUT_WORDS];
    int64_t words_b[PLAIT_LAYOUT_WORDS];
    int n_a = plait_layout_pack(a, words_a);
    int n_b = plait_layout_pack(b, words_b);

    return n_a == n_b &&
           memcmp(words_a, words_b, (size_t)n_a * sizeof(words_a[0])) == 0;
}

int plait_layout_pack(const plait_layout_t *layout, int64_t words[])
{
    int n = 0;

    words[n++] = layout->ndim;
    for (int a = 0; a < layout->ndim; a++) {
        words[n++] = layout->shape[a];
    }
    words[n++] = layout->grid_ndim;
    for (int g = 0; g < layout->grid_ndim; g++) {
        words[n++] = layout->grid[g];
    }
    for (int a = 0; a < layout->ndim; a++) {
        const plait_axis_t *axis = &layout->axis[a];
        words[n++] = axis->split;
        words[n++] = (axis->split >= PLAIT_SPLIT_CEIL) ? axis->block : 0;
        words[n++] = axis->n_grid;
        for (int i = 0; i < axis->n_grid; i++) {
            words[n++] = axis->grid_axis[i];
        }
        words[n++] = layout->stored[a];
    }
    return n;
}

/* Takes the next word. False if there is none, or if it is not an int in [0, most]. */
static bool next_int(const int64_t words[], int64_t n_words, int64_t *at_p,
                     int64_t most, int *value_p)
{
    bool is_good = (*at_p < n_words) && (words[*at_p] >= 0) && (words[*at_p] <= most);

    if (is_good) {
        *value_p = (int)words[*at_p];
        *at_p += 1;
    }
    return is_good;
}

static bool next_axis(const int64_t words[], int64_t n_words, int64_t *at_p,
                      plait_axis_t *axis, int64_t *stored_p)
{
    int split = 0;
    bool is_good = next_int(words, n_words, at_p, PLAIT_SPLIT_CYCLIC, &split);

    is_good = is_good && (*at_p < n_words);
    if (is_good) {
        axis->split = (plait_split_t)split;
        axis->block = words[*at_p];
        *at_p += 1;
        is_good = next_int(words, n_words, at_p, PLAIT_MAX_GRID, &axis->n_grid);
    }
    for (int i = 0; is_good && i < axis->n_grid; i++) {
        is_good = next_int(words, n_words, at_p, PLAIT_MAX_GRID, &axis->grid_axis[i]);
    }
    is_good = is_good && (*at_p < n_words);
    if (is_good) {
        *stored_p = words[*at_p];
        *at_p += 1;
    }
    return is_good;
}

plait_status_t plait_layout_unpack(const int64_t words[], int64_t n_words,
                                   plait_layout_t *layout_p)
{
    plait_status_t status = PLAIT_OK;
    plait_layout_t layout = {0};
    int64_t at = 0;

    PLAIT_CHECK(words != NULL && layout_p != NULL, PLAIT_ERR_INVALID,
                "layout: the %s NULL", (words == NULL) ? "words are" : "result is");
    bool is_good = next_int(words, n_words, &at, PLAIT_MAX_NDIM, &layout.ndim);
    for (int a = 0; is_good && a < layout.ndim; a++) {
        is_good = at < n_words;
        if (is_good) {
            layout.shape[a] = words[at++];
        }
    }
    is_good =
        is_good && next_int(words, n_words, &at, PLAIT_MAX_GRID, &layout.grid_ndim);
    for (int g = 0; is_good && g < layout.grid_ndim; g++) {
        is_good = next_int(words, n_words, &at, INT32_MAX, &layout.grid[g]);
    }
    for (int a = 0; is_good && a < layout.ndim; a++) {
        is_good = next_axis(words, n_words, &at, &layout.axis[a], &layout.stored[a]);
    }
    PLAIT_CHECK(is_good && at == n_words, PLAIT_ERR_INVALID,
                "layout: word %lld of %lld is wrong or missing", (long long)at,
                (long long)n_words);
    PLAIT_TRY(plait_layout_check(&layout));
    *layout_p = layout;
done:
    return status;
}

void plait_layout_print(const plait_layout_t *layout, char *text, int n_bytes)
{
    static const char rule[] = {' ', '/', '|', '%'}; /* even, JAX's, cyclic */
    int n = 0;

    if (n_bytes <= 0) {
        return;
    }

#define PUT(...)                                                            \
    do {                                                                    \
        int _more = snprintf(text + n, (size_t)(n_bytes - n), __VA_ARGS__); \
        n = (_more < 0 || _more >= n_bytes - n) ? n_bytes - 1 : n + _more;  \
    } while (0)
    for (int a = 0; a < layout->ndim; a++) {
        PUT("%s%lld", (a > 0) ? "x" : "", (long long)layout->shape[a]);
    }
    for (int g = 0; g < layout->grid_ndim; g++) {
        PUT("%s%d", (g > 0) ? "x" : " over ", layout->grid[g]);
    }
    for (int a = 0; a < layout->ndim; a++) {
        const plait_axis_t *axis = &layout->axis[a];
        PUT("%s", (a > 0) ? " " : ": ");
        if (axis->split == PLAIT_SPLIT_WHOLE) {
            PUT("whole");
        }
        for (int i = 0; i < axis->n_grid; i++) {
            PUT("%c%d", rule[axis->split], axis->grid_axis[i]);
        }
        if (axis->split == PLAIT_SPLIT_CYCLIC && axis->block > 1) {
            PUT("b%lld", (long long)axis->block);
        }
    }
#undef PUT
}
