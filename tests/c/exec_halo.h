/* Halo exchange executed by threads, like exec_cases.h. */
#ifndef PLAIT_TESTS_EXEC_HALO_H
#define PLAIT_TESTS_EXEC_HALO_H

#include "exec_cases.h"
#include "ghosts.h"

typedef struct {
    plait_layout_t cells;
    int64_t before[3], after[3];
    plait_boundary_t boundary[3];
    bool in_place;
    double *sums; /* by rank: <y, A x> and <A' y, x>, of exchange and of pad */
    char text[200];
} halo_test_t;

typedef enum { CELL, GHOST, BEHIND } place_t;

/* The place of element i of a rank's array, and its value if every cell's value is its index. */
static place_t halo_place(const halo_test_t *t, int rank, bool is_padded, int64_t i,
                          double *value_p)
{
    int64_t stored[3];
    int64_t owned[3];
    int64_t at = 0;
    int64_t stride = 1;
    place_t place = CELL;
    bool is_copy = true;

    plait_layout_stored_shape(&t->cells, rank, stored);
    plait_layout_local_shape(&t->cells, rank, owned);
    for (int a = t->cells.ndim - 1; a >= 0; a--) {
        int64_t before = is_padded ? t->before[a] : 0;
        int64_t after = is_padded ? t->after[a] : 0;
        int64_t n = t->cells.shape[a];
        int64_t index = i % (stored[a] + before + after);
        plait_interval_t own = plait_layout_interval(&t->cells, rank, a, 0, NULL);
        int64_t cell = ghost_cell(t->boundary[a], n, own.lo - before + index);
        i /= stored[a] + before + after;
        if (index >= before + owned[a] + after || owned[a] == 0) {
            place = BEHIND;
        } else if (index < before || index >= before + owned[a]) {
            place = (place == CELL) ? GHOST : place;
        }
        is_copy = is_copy && cell >= 0;
        at += cell * stride;
        stride *= n;
    }
    *value_p = (is_copy && place != BEHIND) ? sample(7, (uint64_t)at) : 0;
    return place;
}

static int64_t halo_size(const halo_test_t *t, int rank, bool is_padded)
{
    int64_t shape[3];
    int64_t n = 1;

    plait_layout_stored_shape(&t->cells, rank, shape);
    for (int a = 0; a < t->cells.ndim; a++) {
        n *= shape[a] + (is_padded ? t->before[a] + t->after[a] : 0);
    }
    return n;
}

typedef plait_status_t (*halo_plan_fn_t)(const plait_comm_t *comm,
                                         const plait_halo_problem_t *problem,
                                         plait_plan_t **plan_p);

/* Runs a plan; the result is y, or x in place. */
static void halo_run(const halo_test_t *t, plait_comm_t *comm, halo_plan_fn_t fn,
                     const double *x, double *y)
{
    const plait_halo_problem_t problem = {.dtype = PLAIT_F64,
                                          .cells = &t->cells,
                                          .before = t->before,
                                          .after = t->after,
                                          .boundary = t->boundary};
    plait_plan_t *plan = NULL;

    CHECK(fn(comm, &problem, &plan) == PLAIT_OK, "%s", t->text);
    CHECK(plait_plan_execute(plan, comm, (const void *[]){x}, (void *[]){y}) ==
              PLAIT_OK,
          "%s", t->text);
    plait_plan_destroy(&plan);
}

/* Elements that no operation may read are NaN. */
static double *halo_operand(const halo_test_t *t, int rank, bool is_padded)
{
    int64_t n = halo_size(t, rank, is_padded);
    double *x = plait_alloc(n, sizeof(double));

    for (int64_t i = 0; i < n; i++) {
        if (halo_place(t, rank, is_padded, i, &x[i]) != CELL) {
            x[i] = (double)NAN;
        }
    }
    return x;
}

static void halo_forward(halo_test_t *t, plait_comm_t *comm, bool is_bare,
                         const double *weight, double *sum_p)
{
    int rank = plait_comm_rank(comm);
    int64_t n = halo_size(t, rank, true);
    double *x = halo_operand(t, rank, !is_bare);
    double *y = (t->in_place && !is_bare) ? x : plait_alloc(n, sizeof(double));
    int64_t n_wrong = 0;

    halo_run(t, comm, is_bare ? plait_halo_pad_plan : plait_halo_exchange_plan, x, y);
    *sum_p = 0;
    for (int64_t i = 0; i < n; i++) {
        double value = 0;
        place_t place = halo_place(t, rank, true, i, &value);
        n_wrong += !(y[i] == value);
        *sum_p += (place == BEHIND) ? 0 : weight[i] * value;
    }
    CHECK(n_wrong == 0, "%s%s rank %d: %lld cells", t->text, is_bare ? " pad" : "",
          rank, (long long)n_wrong);
    if (y != x) {
        plait_free(y);
    }
    plait_free(x);
}

static void halo_backward(halo_test_t *t, plait_comm_t *comm, bool is_bare,
                          const double *weight, double *sum_p)
{
    int rank = plait_comm_rank(comm);
    int64_t n_x = halo_size(t, rank, true);
    int64_t n_y = halo_size(t, rank, !is_bare);
    double *x = plait_alloc(n_x, sizeof(double));
    double *y = (t->in_place && !is_bare) ? x : plait_alloc(n_y, sizeof(double));
    int64_t n_wrong = 0;

    for (int64_t i = 0; i < n_x; i++) {
        x[i] = weight[i];
    }
    halo_run(t, comm, is_bare ? plait_halo_fold_plan : plait_halo_reduce_plan, x, y);
    *sum_p = 0;
    for (int64_t i = 0; i < n_y; i++) {
        double value = 0;
        bool is_cell = halo_place(t, rank, !is_bare, i, &value) == CELL;
        n_wrong += !is_cell && !(y[i] == 0);
        *sum_p += is_cell ? y[i] * value : 0;
    }
    CHECK(n_wrong == 0, "%s%s rank %d: %lld not zero", t->text,
          is_bare ? " fold" : " reduce", rank, (long long)n_wrong);
    if (y != x) {
        plait_free(y);
    }
    plait_free(x);
}

static void halo_rank(plait_comm_t *comm, void *context)
{
    halo_test_t *t = context;
    int rank = plait_comm_rank(comm);
    int64_t n = halo_size(t, rank, true);
    double *weight = plait_alloc(n, sizeof(double));

    for (int64_t i = 0; i < n; i++) {
        double value = 0;
        place_t place = halo_place(t, rank, true, i, &value);
        weight[i] = (place == BEHIND) ? (double)NAN
                                      : sample((uint64_t)(rank + 10), (uint64_t)i);
    }
    for (int is_bare = 0; is_bare < 2; is_bare++) {
        double *sums = t->sums + 4 * rank + 2 * is_bare;
        halo_forward(t, comm, is_bare != 0, weight, &sums[0]);
        halo_backward(t, comm, is_bare != 0, weight, &sums[1]);
    }
    plait_free(weight);
}

static void check_halo(int n_ranks, int ndim, const int64_t shape[], int grid_ndim,
                       const int grid[], int code, int seed, plait_direct_t direct)
{
    static const int64_t widths[] = {0, 1, 2, 3, 4, 1, 9};
    halo_test_t t = {0};
    double sums[4 * TEAM_MAX] = {0};
    double total[4] = {0};
    char text[64];
    int n = 0;

    if (!layout_of(code, ndim, shape, grid_ndim, grid, splits[code % 2], seed % 3 == 0,
                   &t.cells)) {
        return;
    }
    t.in_place = seed % 2;
    t.sums = sums;
    plait_layout_print(&t.cells, text, sizeof(text));
    n = snprintf(t.text, sizeof(t.text), "halo %s seed %d direct %d", text, seed,
                 (int)direct);
    for (int a = 0; a < ndim; a++) {
        bool is_wide = a == seed % ndim; /* only one axis is wide: arrays stay small */
        t.before[a] = widths[(seed + 2 * a) % (is_wide ? 7 : 3)];
        t.after[a] = widths[(2 * seed + a) % (is_wide ? 7 : 4)];
        t.boundary[a] = (plait_boundary_t)((seed / 2 + a) % 4);
        n += snprintf(t.text + n, sizeof(t.text) - (size_t)n, " %d:%d+%d",
                      (int)t.boundary[a], (int)t.before[a], (int)t.after[a]);
    }
    team_run(n_ranks, direct, halo_rank, &t);
    for (int i = 0; i < 4 * n_ranks; i++) {
        total[i % 4] += sums[i];
    }
    for (int i = 0; i < 4; i += 2) {
        CHECK(fabs(total[i] - total[i + 1]) <= 1e-12 * (1 + fabs(total[i])),
              "%s: %g against %g", t.text, total[i], total[i + 1]);
    }
}

/* Members that a problem may leave out, and invalid problems. */
static void halo_defaults(plait_comm_t *comm, void *context)
{
    const int64_t shape[] = {6};
    const int64_t none[] = {-1};
    const int64_t one[] = {1};
    const plait_boundary_t unknown[] = {(plait_boundary_t)4};
    const int grid[] = {plait_comm_size(comm)};
    plait_layout_t cells;
    plait_halo_problem_t problem = {.dtype = PLAIT_F64, .cells = &cells, .before = one};
    plait_plan_t *plan = NULL;
    double x[] = {1, 2};
    double y[4] = {0};

    (void)context;
    (void)layout_of(1, 1, shape, 1, grid, PLAIT_SPLIT_EVEN, false, &cells);
    CHECK(plait_halo_pad_plan(comm, &problem, &plan) == PLAIT_OK, "defaults");
    CHECK(plait_plan_execute(plan, comm, (const void *[]){x}, (void *[]){y}) ==
              PLAIT_OK,
          "defaults");
    CHECK(y[0] == 2 && y[1] == 1 && y[2] == 2 && y[3] == 1, "periodic on both sides");
    plait_plan_destroy(&plan);
    problem.after = none;
    CHECK(plait_halo_pad_plan(comm, &problem, &plan) == PLAIT_ERR_INVALID, "after");
    problem.after = NULL;
    problem.boundary = unknown;
    CHECK(plait_halo_exchange_plan(comm, &problem, &plan) == PLAIT_ERR_INVALID,
          "boundary");
    problem.boundary = NULL;
    problem.before = NULL;
    CHECK(plait_halo_fold_plan(comm, &problem, &plan) == PLAIT_ERR_INVALID, "before");
    problem.before = one;
    problem.dtype = PLAIT_BOOL;
    CHECK(plait_halo_reduce_plan(comm, &problem, &plan) == PLAIT_ERR_INVALID, "bool");
    cells.axis[0].split = PLAIT_SPLIT_CYCLIC;
    cells.axis[0].block = 1;
    problem.dtype = PLAIT_F64;
    CHECK(plait_halo_reduce_plan(comm, &problem, &plan) == PLAIT_ERR_INVALID, "cyclic");
    CHECK(plan == NULL, "no plan");
}

static void exec_halo_cases(int n_ranks)
{
    static const int64_t shapes[][3] = {{4, 6, 5}, {7, 3, 2}, {2, 1, 9}};
    const int line[] = {n_ranks};

    for (int seed = 0; seed < 28; seed++) {
        for (int d = 0; d < 3; d++) {
            if (goes_by(seed / 4, d)) {
                check_halo(n_ranks, 1 + seed % 3, shapes[seed % 3], 1, line, seed % 4,
                           seed, directs[d]);
            }
        }
    }
    for (int seed = 0; seed < 27 && n_ranks % 2 == 0 && n_ranks > 2; seed++) {
        const int grid[] = {2, n_ranks / 2};
        check_halo(n_ranks, 3, shapes[seed % 3], 2, grid, seed, seed + 3,
                   directs[seed % 3]);
    }
}

#endif
