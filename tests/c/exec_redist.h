/* Redistribution executed by threads, like exec_cases.h, and the layouts of tests. */
#ifndef PLAIT_TESTS_EXEC_REDIST_H
#define PLAIT_TESTS_EXEC_REDIST_H

#include "check.h"
#include "parts.h"
#include "plait/redist.h"
#include "redist/blocks.h"
#include "team.h"

#include <string.h>

static const plait_direct_t directs[] = {PLAIT_DIRECT_POINTER, PLAIT_DIRECT_READ,
                                         PLAIT_DIRECT_NONE};

/* Whether case i goes by directs[d]. Devices have only one way of access, so each case runs once there. */
static inline bool goes_by(int i, int d)
{
    return team_devices[0] == NULL || i % 3 == d;
}

static bool is_alike(const plait_layout_t *a, const plait_layout_t *b, int rank)
{
    int64_t shape_a[PLAIT_MAX_NDIM];
    int64_t shape_b[PLAIT_MAX_NDIM];

    plait_layout_stored_shape(a, rank, shape_a);
    plait_layout_stored_shape(b, rank, shape_b);
    return memcmp(shape_a, shape_b, (size_t)a->ndim * sizeof(shape_a[0])) == 0;
}

/* Index along an axis of a rank's local one (no cyclic axes); -1: padding. */
static int64_t global_along(const plait_layout_t *layout, int rank, int axis,
                            int64_t index)
{
    const int64_t n_intervals = plait_layout_n_intervals(layout, rank, axis);
    int64_t at = -1;

    for (int64_t k = 0; k < n_intervals && at < 0; k++) {
        int64_t local = 0;
        plait_interval_t v = plait_layout_interval(layout, rank, axis, k, &local);
        if (index >= local && index < local + v.hi - v.lo) {
            at = v.lo + index - local;
        }
    }
    return at;
}

/* Global row-major indices of a rank's local elements; -1: padding. The caller frees them. */
static int64_t *globals_of(const plait_layout_t *layout, int rank)
{
    int64_t shape[PLAIT_MAX_NDIM];
    const int64_t n = n_local(layout, rank);
    int64_t *at = plait_alloc(n + 1, sizeof(*at));
    int64_t n_inner = 1;
    int64_t stride = 1;

    plait_layout_stored_shape(layout, rank, shape);
    at[0] = 0;
    for (int a = layout->ndim - 1; a >= 0 && n > 0; a--) {
        for (int64_t i = shape[a] - 1; i >= 0; i--) { /* the last one in place */
            const int64_t along = global_along(layout, rank, a, i);
            for (int64_t j = 0; j < n_inner; j++) {
                at[i * n_inner + j] =
                    (along < 0 || at[j] < 0) ? -1 : along * stride + at[j];
            }
        }
        n_inner *= shape[a];
        stride *= layout->shape[a];
    }
    return at;
}

typedef struct {
    plait_layout_t from, to;
    bool is_turned;
    plait_dtype_t dtype;
    const char *text;
} redist_t;

/* Index in `from` of the element that has index `at` in `to`. */
static int64_t source_of(const redist_t *t, int64_t at)
{
    int64_t n = t->to.shape[t->to.ndim - 1];
    int64_t n_rows = (t->to.ndim > 1) ? t->to.shape[t->to.ndim - 2] : 1;
    int64_t plane = at / (n * n_rows) * (n * n_rows);

    return !t->is_turned ? at : plane + at % n * n_rows + (at - plane) / n;
}

static void fill_index(char *data, int64_t item, int64_t i, int64_t value)
{
    const uint32_t word = (uint32_t)((uint64_t)(value + 1) * 2654435761U);
    const uint32_t words[] = {word, word, word, word}; /* of complex128 */

    memcpy(data + i * item, words, (size_t)item);
}

static void redist_rank(plait_comm_t *comm, void *context)
{
    const redist_t *t = context;
    int rank = plait_comm_rank(comm);
    int64_t item = plait_dtype_bytes(t->dtype);
    int64_t n_x = n_local(&t->from, rank);
    int64_t n_y = n_local(&t->to, rank);
    char *x = plait_alloc(n_x + 1, item);
    char *y = plait_alloc(n_y + 1, item);
    char *want = plait_alloc(n_y + 1, item);
    int64_t *from = globals_of(&t->from, rank);
    int64_t *to = globals_of(&t->to, rank);
    plait_plan_t *plan = NULL;

    for (int64_t i = 0; i < n_x; i++) {
        fill_index(x, item, i, from[i]);
    }
    for (int64_t i = 0; i < n_y; i++) {
        if (to[i] >= 0) {
            fill_index(want, item, i, source_of(t, to[i]));
        } else {
            memset(want + i * item, 0, (size_t)item);
        }
    }
    CHECK((t->is_turned ? plait_redist_turn_plan : plait_redist_plan)(
              comm, t->dtype, &t->from, &t->to, &plan) == PLAIT_OK,
          "%s", t->text);
    for (int round = 0; round < 2 && plan != NULL; round++) {
        memset(y, 0x5a, (size_t)(n_y + 1) * (size_t)item);
        CHECK(plait_plan_execute(plan, comm, (const void *[]){x}, (void *[]){y}) ==
                  PLAIT_OK,
              "%s", t->text);
        CHECK(memcmp(y, want, (size_t)n_y * (size_t)item) == 0, "%s rank %d", t->text,
              rank);
        CHECK(y[n_y * item] == 0x5a, "%s rank %d wrote beyond the result", t->text,
              rank);
    }
    plait_plan_destroy(&plan);
    plait_free(x);
    plait_free(y);
    plait_free(want);
    plait_free(from);
    plait_free(to);
}

static const plait_split_t splits[] = {PLAIT_SPLIT_EVEN, PLAIT_SPLIT_CEIL,
                                       PLAIT_SPLIT_CYCLIC};

/* Which grid axis splits which array axis, by digits: 0 whole, 1 + g over grid axis g. */
static bool layout_of(int code, int ndim, const int64_t shape[], int grid_ndim,
                      const int grid[], plait_split_t split, bool is_stored,
                      plait_layout_t *layout)
{
    int over[PLAIT_MAX_NDIM] = {0};
    int digits = code;

    for (int a = 0; a < ndim; a++) {
        over[a] = digits % (grid_ndim + 1) - 1;
        digits /= grid_ndim + 1;
    }
    bool is_good = plait_layout_pencil(ndim, shape, grid_ndim, grid, over, split,
                                       layout) == PLAIT_OK;
    if (is_good && is_stored) {
        int64_t most[PLAIT_MAX_NDIM];
        plait_layout_local_shape(layout, 0, most);
        for (int a = 0; a < ndim; a++) {
            layout->stored[a] = most[a] + (code + a) % 2;
            if (layout->axis[a].split == PLAIT_SPLIT_CEIL) {
                layout->axis[a].block = layout->stored[a];
            }
        }
    }
    return is_good;
}

static void check_redist(int n_ranks, int ndim, const int64_t shape[], int grid_ndim,
                         const int grid[])
{
    int n_codes = 1;

    for (int a = 0; a < ndim; a++) {
        n_codes *= grid_ndim + 1;
    }
    for (int f = 0; f < n_codes; f++) {
        for (int t = 0; t < n_codes; t++) {
            redist_t test = {
                .dtype = plait_dtype_at((f * n_codes + t) % plait_dtype_count()),
                .text = "redist"};
            if (is_quick() && (f + t + n_ranks) % 2 != 0) {
                continue;
            }
            if (layout_of(f, ndim, shape, grid_ndim, grid, splits[f % 3],
                          (f + 2 * t) % 3 == 1, &test.from) &&
                layout_of(t, ndim, shape, grid_ndim, grid, splits[t % 3],
                          (f + t) % 3 == 1, &test.to)) {
                team_run(n_ranks, directs[(f + t) % 3], redist_rank, &test);
                if (ndim > 1) {
                    test.from = plait_layout_turned(&test.from);
                    test.is_turned = true;
                    test.text = "redist turned";
                    team_run(n_ranks, directs[(f + 2 * t + 1) % 3], redist_rank, &test);
                }
            }
        }
    }
}

/* Transposed boxes, larger than what is read or put at a time, by all ways of reaching them. */
static void check_turned_large(int n_ranks, plait_dtype_t dtype)
{
    const int64_t shapes[][3] = {{3, 253, 431}, {2, 1003, 601}};
    const int grid[] = {n_ranks};

    for (int i = 0; i < 6; i++) { /* each axis split */
        const int64_t *shape = shapes[is_quick() ? 0 : i % 2];
        redist_t test = {.is_turned = true, .dtype = dtype, .text = "large turned"};
        CHECK(layout_of(1 << i / 2, 3, shape, 1, grid, PLAIT_SPLIT_CYCLIC, false,
                        &test.to) &&
                  layout_of(4, 3, shape, 1, grid, PLAIT_SPLIT_CEIL, true, &test.from),
              "layouts");
        test.from = plait_layout_turned(&test.from);
        for (int direct = 0; direct < 3; direct++) {
            if (is_quick() ? i % 3 == direct : goes_by(i, direct)) {
                team_run(n_ranks, directs[direct], redist_rank, &test);
            }
        }
    }
}

#endif
