/* Cholesky factorization of dealt matrices, by block columns and on grids of ranks: plans proven for up
 * to 17 ranks, and executed by threads in every way of reaching a peer's memory, against backward
 * errors; what plans cost against counts by the definition, for up to 64 ranks. */
#include "dense/whole.h"
#include "dense_factor.h"
#include "dense_failing.h"
#include "dense_main.h"
#include "plait/config.h"
#include "potrf_cost.h"

static plait_status_t potrf_plan_of(const plait_comm_t *comm, const void *problem,
                                    plait_plan_t **plan_p)
{
    return plait_potrf_plan(comm, problem, plan_p);
}

static void check_potrf(const dealt_run_t *t, int64_t n, plait_dtype_t dtype)
{
    const double complex *l = t->rets[0].whole;
    double worst = 0;

    CHECK(creal(t->rets[1].whole[0]) == 0, "%s: info %g", t->text,
          creal(t->rets[1].whole[0]));
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < j; i++) {
            worst = (l[j * n + i] == 0) ? worst : INFINITY;
        }
        for (int64_t i = j; i < n; i++) {
            double complex sum = -definite(dtype, n, i, j);
            for (int64_t k = 0; k <= j; k++) {
                sum += l[k * n + i] * conj(l[k * n + j]);
            }
            worst = (cabs(sum) > worst || isnan(cabs(sum))) ? cabs(sum) : worst;
        }
    }
    CHECK(worst <= 10 * (double)n * (double)n * element_unit(dtype), "%s: error %g",
          t->text, worst);
}

/* The lower triangle is NaN, elements above it are zero. */
static void check_nan(const dealt_run_t *t, int64_t n)
{
    const double complex *l = t->rets[0].whole;
    bool is = true;

    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < n; i++) {
            is = is && ((i < j) ? l[j * n + i] == 0 : isnan(creal(l[j * n + i])));
        }
    }
    CHECK(is, "%s: not NaN below, or not zero above the diagonal", t->text);
}

/* bad: index of a diagonal element that makes the matrix indefinite by `value`; -1: none. */
typedef struct {
    plait_dtype_t dtype;
    shape_t shape;
    int n_ranks;
    int64_t grid;
    plait_direct_t direct;
    bool donates;
    int64_t bad;
    double complex value;
} case_t;

static void run_case(const case_t *c)
{
    const shape_t *s = &c->shape;
    const plait_potrf_params_t params = {s->n, s->block, c->grid};
    dealt_run_t t =
        potrf_run(c->dtype, s, c->n_ranks, c->direct, c->bad, c->value, &params);
    char text[160];

    (void)snprintf(text, sizeof(text), "%s, %lld rows of ranks", t.text,
                   (long long)c->grid);
    t.text = text;
    t.donates = c->donates;
    t.plan = potrf_plan_of;
    t.problem = &(plait_potrf_problem_t){
        .dtype = c->dtype, .n = s->n, .block = s->block, .grid = c->grid};
    dealt_run(&t);
    if (c->bad < 0) {
        check_potrf(&t, s->n, c->dtype);
    } else {
        CHECK(creal(t.rets[1].whole[0]) == (double)(c->bad + 1),
              "%s: info %g, expected %lld", t.text, creal(t.rets[1].whole[0]),
              (long long)c->bad + 1);
        check_nan(&t, s->n);
    }
    dealt_clear(&t);
}

/* Leading minors at the beginning, middle and end are not positive or not finite: case i of six. */
static void run_failure(case_t c, int i)
{
    const int64_t n = c.shape.n;
    const int64_t bad[] = {0, n / 2, n - 1};

    c.bad = bad[i / 2];
    c.dtype = (i % 2 == 0) ? PLAIT_F64 : PLAIT_C64;
    c.value = (i % 2 == 0) ? -1 : (i == 3) ? NAN : INFINITY;
    if (n > 0) {
        run_case(&c);
    }
}

static const shape_t squares[] = {
    {0, 0, 4},   {1, 1, 1},   {2, 2, 1},   {5, 5, 2},     {7, 7, 64},    {12, 12, 2},
    {33, 33, 3}, {33, 33, 5}, {64, 64, 8}, {100, 100, 7}, {100, 100, 32}};
static const int teams[] = {1, 2, 3, 4, 6, 7, 9, 12, 16};

/* Grid rows that are tried: block columns, one column, and grids between. */
static bool is_tried(int n_ranks, int n_rows)
{
    return n_ranks % n_rows == 0 && (n_rows <= 4 || n_rows == n_ranks || n_ranks <= 12);
}

/* All dtypes and failures in the smallest teams, half of them in small teams, in turns in large teams. */
static void run_shape(case_t c, int *turn_p)
{
    const bool has_all = c.n_ranks <= 2 && !is_quick();
    const bool has_half = c.n_ranks <= 4 && !is_quick();
    const int turn = (*turn_p)++;

    c.donates = turn % 2 == 0;
    for (int d = 0; d < 4; d++) {
        c.dtype = dealt_dtypes[d];
        if (has_all || (has_half && (turn + d) % 2 == 0) || turn % 4 == d) {
            run_case(&c);
        }
    }
    for (int i = 0; i < 6; i++) {
        if (has_all || (has_half && (turn + i) % 3 == 0) ||
            (turn % 3 == 0 && turn / 3 % 6 == i)) {
            run_failure(c, i);
        }
    }
}

/* Grids of up to max_rows rows. */
static void check_potrf_all(int max_rows)
{
    const int n_shapes = sizeof(squares) / sizeof(*squares);
    int turn = 0;

    for (size_t r = 0; r < sizeof(teams) / sizeof(*teams); r++) {
        for (int grid = 1; grid <= plait_min(teams[r], max_rows); grid++) {
            for (int i = 0; i < 3 * n_shapes && is_tried(teams[r], grid);
                 i += is_quick() ? 4 : 1) {
                const case_t c = {.shape = squares[i / 3],
                                  .n_ranks = teams[r],
                                  .grid = grid,
                                  .direct = dealt_directs[i % 3],
                                  .bad = -1};
                run_shape(c, &turn);
            }
        }
    }
}

static void prove_one(const shape_t *s, int n_ranks, int64_t grid,
                      plait_direct_t direct)
{
    const plait_potrf_params_t params = {s->n, s->block, grid};
    dealt_run_t t = potrf_run(PLAIT_F32, s, n_ranks, direct, -1, 0, &params);

    (void)dealt_prove(&t);
    dealt_clear(&t);
}

static void prove_potrf(int max_rows)
{
    static const shape_t shapes[] = {
        {0, 0, 4}, {1, 1, 2}, {6, 6, 1}, {11, 11, 2}, {20, 20, 3}};

    const int step = (is_quick() || team_devices[0] != NULL) ? 5 : 1;

    for (int n_ranks = 1; n_ranks <= DEALT_MAX_RANKS; n_ranks += step) {
        for (int grid = 0; grid <= plait_min(n_ranks, max_rows); grid++) {
            for (int i = 0; i < 3 * 5 && (grid == 0 || n_ranks % grid == 0); i++) {
                prove_one(&shapes[i / 3], n_ranks, grid, dealt_directs[i % 3]);
            }
        }
    }
}

/* ---------------------------------------------------------------- wrong input */

static void check_refusals(plait_comm_t *comm, void *unused)
{
    static const int64_t wrong[] = {-1, 4, 7};
    plait_plan_t *plan = NULL;

    (void)unused;
    for (int i = 0; i < 3; i++) {
        const plait_potrf_problem_t p = {
            .dtype = PLAIT_F64, .n = 4, .block = 2, .grid = wrong[i]};
        check_refused(plait_potrf_plan(comm, &p, &plan), PLAIT_ERR_INVALID,
                      "expected 0, or a divisor");
    }
}

/* Ranks ask for different grids: the error names both. */
static void check_mismatch(plait_comm_t *comm, void *unused)
{
    const plait_potrf_problem_t p = {
        .dtype = PLAIT_F64, .n = 6, .block = 1, .grid = (comm->end.rank == 0) ? 2 : 3};
    double a[36] = {0};
    double l[36] = {0};
    int32_t info = 0;
    const void *args[] = {a};
    void *rets[] = {l, &info};
    plait_plan_t *plan = NULL;

    (void)unused;
    CHECK(plait_potrf_plan(comm, &p, &plan) == PLAIT_OK, "plan");
    check_refused(plait_plan_execute(plan, comm, args, rets), PLAIT_ERR_MISMATCH,
                  "on a grid of 2x3");
    plait_plan_destroy(&plan);
}

/* ---------------------------------------------------------------- on devices */

/* With one rank nothing waits, not even for the outcome. */
static void check_no_wait(void)
{
    const shape_t shape = {40, 40, 8};
    const int64_t n_before = check_device_counts(team_devices[0]).n_waits;
    const case_t c = {.dtype = PLAIT_F64, .shape = shape, .n_ranks = 1, .grid = 1};

    run_case(&c); /* fails at its first column */
    CHECK(check_device_counts(team_devices[0]).n_waits == n_before, "%lld waits",
          (long long)(check_device_counts(team_devices[0]).n_waits - n_before));
}

/* ---- By a library that takes all devices for one ---- */

static void choose(const char *backend)
{
    CHECK(plait_config_set("dense_backend", backend) == PLAIT_OK, "%s",
          plait_error_text());
}

/* A plan names the chosen library and uses it, except if a rank has no block or a grid of ranks was asked for.
 * If the library is missing, the choice is an error. */
static void check_chosen(plait_comm_t *comm, void *unused)
{
    const plait_potrf_problem_t problems[] = {
        {.dtype = PLAIT_F64, .n = 64, .block = 2},
        {.dtype = PLAIT_F64, .n = comm->end.size - 1, .block = 2},
        {.dtype = PLAIT_F64, .n = 64, .block = 2, .grid = comm->end.size}};
    plait_device_t *const *devices = comm->end.caps.devices;
    plait_plan_t *plan = NULL;

    (void)unused;
    for (int i = 0; i < 3; i++) {
        char *text = NULL;
        size_t n = 0;
        FILE *file = open_memstream(&text, &n);
        CHECK(plait_potrf_plan(comm, &problems[i], &plan) == PLAIT_OK, "%s",
              plait_error_text());
        plait_plan_print(plan, file);
        (void)fclose(file);
        CHECK((strstr(text, "by all devices at once: 64 x 64") != NULL) == (i == 0) &&
                  strstr(text, "potrf (dense_backend cuSolverMg) float64") != NULL,
              "%d: %s", i, text);
        free(text);
        plait_plan_destroy(&plan);
    }
    comm->end.caps.devices = NULL;
    check_refused(plait_potrf_plan(comm, &problems[0], &plan), PLAIT_ERR_UNSUPPORTED,
                  "dense_backend is cuSolverMg: the ranks' devices belong to several");
    comm->end.caps.devices = devices;
}

/* All ranks have the failure that the library reports. */
static void check_ordered(int n_ranks)
{
    const shape_t shape = {12, 12, 2};
    case_t c = {.dtype = PLAIT_F64, .shape = shape, .n_ranks = n_ranks, .bad = 6};

    check_device_order_joint(7);
    c.value = definite(PLAIT_F64, 12, 6, 6); /* it has not */
    run_case(&c);
    check_device_order_joint(0);
}

/* Blocks stay as they are, or move to other blocks. */
static void check_at_once(int n_ranks)
{
    const shape_t kept = {33 * n_ranks + 5, 33 * n_ranks + 5, 33};
    const shape_t moved = {2200, 2200, 1030};
    const int n_shapes = sizeof(squares) / sizeof(*squares);
    int turn = 0;

    on_device_begin(n_ranks);
    team_knows_devices = true;
    choose("cuSolverMg");
    prove_one(&moved, n_ranks, 0, PLAIT_DIRECT_NONE);
    for (int i = 0; i < n_shapes + 1; i++) {
        const case_t c = {
            .shape = (i < n_shapes) ? squares[i] : kept, .n_ranks = n_ranks, .bad = -1};
        prove_one(&c.shape, n_ranks, 0, PLAIT_DIRECT_NONE);
        run_shape(c, &turn);
    }
    check_ordered(n_ranks);
    check_failing(n_ranks, failing_potrf);
    team_run(n_ranks, PLAIT_DIRECT_POINTER, check_chosen, NULL);
    choose("auto");
    team_knows_devices = false;
    on_device_end(n_ranks);
}

/* Block columns, grids, and one rank with the whole matrix. */
static void check_on_devices(void)
{
    static const int counts[] = {1, 2, 3, 4, 6};
    const int n_shapes = sizeof(squares) / sizeof(*squares);
    int turn = 0;

    on_device_begin(1);
    plait_dense_choose_whole(0);
    prove_potrf(DEALT_MAX_RANKS);
    plait_dense_choose_whole(INT64_MAX);
    prove_potrf(1);
    on_device_end(1);
    for (size_t r = 0; r < sizeof(counts) / sizeof(*counts); r++) {
        on_device_begin(counts[r]);
        for (int i = 0; i < 3 * n_shapes; i++) {
            const int grid = i / n_shapes + 1;
            case_t c = {.shape = squares[i % n_shapes],
                        .n_ranks = counts[r],
                        .grid = (counts[r] % grid == 0) ? grid : 1,
                        .bad = -1};
            plait_dense_choose_whole((c.grid == 1 && i % 5 == 0) ? INT64_MAX : 0);
            run_shape(c, &turn);
        }
        plait_dense_choose_whole(0);
        if (counts[r] == 1 && on_device_n_cuda == 0) {
            check_no_wait();
            failing_plan_t plan = failing_potrf;
            team_run(1, PLAIT_DIRECT_POINTER, plan_failing_rank, &plan);
        }
        if (counts[r] <= 3 && on_device_n_cuda == 0) {
            check_failing(counts[r], failing_potrf);
        }
        on_device_end(counts[r]);
    }
    on_device_pretend();
    for (int n_ranks = 2; n_ranks <= (is_quick() ? 3 : 4) && on_device_n_cuda == 0;
         n_ranks++) {
        check_at_once(n_ranks);
    }
}

static void check_on_host(void)
{
    plait_dense_choose_whole(0);
    prove_potrf(DEALT_MAX_RANKS);
    check_grid_costs();
    check_choice();
    check_automatic();
    check_potrf_all(DEALT_MAX_RANKS);
    plait_dense_choose_whole(INT64_MAX);
    prove_potrf(1);
    check_potrf_all(1);
    plait_dense_choose_whole(0);
    team_run(6, PLAIT_DIRECT_POINTER, check_refusals, NULL);
    team_run(6, PLAIT_DIRECT_READ, check_mismatch, NULL);
}

int main(int n_arguments, char **arguments)
{
    return dense_main("test_potrf", n_arguments, arguments, check_on_devices,
                      check_on_host);
}
