/* Cholesky factorization of dealt matrices, by block columns and on grids of ranks: plans proven for up
 * to 17 ranks, and executed by threads in every way of reaching a peer's memory, against backward
 * errors; what plans cost against counts by the definition, for up to 64 ranks. */
#include "dense/grid.h"
#include "dense/whole.h"
#include "dense_factor.h"
#include "device/pool.h"
#include "kernel/blas.h"
#include "on_device.h"

enum { SKIPPED = 77, MAX_COUNTED = 64 };

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

/* The lower triangle is NaN, what is above zero. */
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

/* The minors at the beginning, in the middle and at the end, not positive or not finite: the i-th of
 * six cases. */
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

/* Rows of grids that are tried: block columns, one column, and what is between. */
static bool is_tried(int n_ranks, int n_rows)
{
    return n_ranks % n_rows == 0 && (n_rows <= 4 || n_rows == n_ranks || n_ranks <= 12);
}

/* All dtypes and failures in small teams; in large ones they take turns. */
static void run_shape(case_t c, int *turn_p)
{
    enum { SMALL_TEAM = 4 };
    const bool has_all = c.n_ranks <= SMALL_TEAM && !is_quick();
    const int turn = (*turn_p)++;

    c.donates = turn % 2 == 0;
    for (int d = 0; d < 4; d++) {
        c.dtype = dealt_dtypes[d];
        if (has_all || turn % 4 == d) {
            run_case(&c);
        }
    }
    for (int i = 0; i < 6; i++) {
        if (has_all || (turn % 3 == 0 && turn / 3 % 6 == i)) {
            run_failure(c, i);
        }
    }
}

/* Grids of up to so many rows. */
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

static void prove_potrf(int max_rows)
{
    static const shape_t shapes[] = {
        {0, 0, 4}, {1, 1, 2}, {6, 6, 1}, {11, 11, 2}, {20, 20, 3}};

    const int step = (is_quick() || team_devices[0] != NULL) ? 5 : 1;

    for (int n_ranks = 1; n_ranks <= DEALT_MAX_RANKS; n_ranks += step) {
        for (int grid = 0; grid <= plait_min(n_ranks, max_rows); grid++) {
            for (int i = 0; i < 3 * 5 && (grid == 0 || n_ranks % grid == 0); i++) {
                const shape_t *s = &shapes[i / 3];
                const plait_potrf_params_t params = {s->n, s->block, grid};
                dealt_run_t t = potrf_run(PLAIT_F32, s, n_ranks, dealt_directs[i % 3],
                                          -1, 0, &params);
                (void)dealt_prove(&t);
                dealt_clear(&t);
            }
        }
    }
}

/* ---------------------------------------------------------------- costs */

/* A rank's place in a grid, and its matrix in blocks. */
typedef struct {
    int64_t n, block, n_blocks;
    int n_rows, n_columns;
    int rank, row, column;
    bool has_messages;
} view_t;

static int64_t width_of(const view_t *v, int64_t k)
{
    return plait_min(v->block, v->n - k * v->block);
}

/* Counts what comes from a rank in one move. */
typedef struct {
    int64_t words, n_messages;
    bool is_from[MAX_COUNTED];
} count_t;

static void count_from(count_t *c, const view_t *v, int peer, int64_t words)
{
    if (peer != v->rank && words > 0) {
        c->words += words;
        c->n_messages += !c->is_from[peer];
        c->is_from[peer] = true;
    }
}

static void count_next_move(count_t *c)
{
    memset(c->is_from, 0, sizeof(c->is_from));
}

static void count_deal(count_t *c, const view_t *v, bool is_back)
{
    count_next_move(c);
    for (int64_t j = 0; j < v->n_blocks; j++) {
        for (int64_t i = j; i < v->n_blocks; i++) {
            int stores = (int)(j % (v->n_rows * v->n_columns));
            int holds = (int)(i % v->n_rows * v->n_columns + j % v->n_columns);
            if ((is_back ? stores : holds) == v->rank) {
                count_from(c, v, is_back ? holds : stores,
                           width_of(v, i) * width_of(v, j));
            }
        }
    }
}

/* Rows of the own columns that a row of the grid has: what a rank gets of panel k from there. */
static int64_t columns_from(const view_t *v, int64_t k, int row)
{
    int64_t words = 0;

    for (int64_t j = k + 1; j < v->n_blocks; j++) {
        if (j % v->n_columns == v->column && j % v->n_rows == row) {
            words += width_of(v, j) * width_of(v, k);
        }
    }
    return words;
}

static void count_columns(count_t *c, const view_t *v, int64_t k)
{
    const int owners = (int)(k % v->n_columns);

    for (int reach = 1; reach < v->n_rows; reach *= 2) {
        count_next_move(c); /* all that a tree's step brings is one message */
        for (int i = reach; i < 2 * reach && i < v->n_rows; i++) {
            int row = (v->row - i + v->n_rows) % v->n_rows;
            int peer = v->has_messages
                           ? (v->row - reach + v->n_rows) % v->n_rows * v->n_columns
                           : row * v->n_columns + owners;
            peer += v->has_messages ? v->column : 0;
            count_from(c, v, peer, columns_from(v, k, row));
        }
    }
}

/* By the definition: blocks of others that a rank needs, each once. *dealt_p: of the redistributions. */
static count_t count_grid(const view_t *v, int64_t *dealt_p, int64_t *n_infos_p)
{
    count_t c = {0};

    count_deal(&c, v, false);
    count_deal(&c, v, true);
    *dealt_p = c.words;
    *n_infos_p = 0;
    for (int64_t k = 0; k < v->n_blocks; k++) {
        const bool has_panel = k % v->n_columns == v->column;
        const bool has_diagonal = has_panel && k % v->n_rows == v->row;
        *n_infos_p += !has_diagonal;
        c.n_messages += !has_diagonal;
        for (int64_t i = k; i < v->n_blocks; i++) {
            bool is_own = i % v->n_rows == v->row;
            bool is_wanted = (i == k)
                                 ? has_panel && !has_diagonal && k + 1 < v->n_blocks
                                 : !has_panel && is_own;
            c.words += is_wanted ? width_of(v, i) * width_of(v, k) : 0;
        }
        count_columns(&c, v, k);
    }
    return c;
}

static dealt_run_t counted_run(const shape_t *s, int n_ranks, plait_direct_t direct,
                               const plait_potrf_params_t *params)
{
    return (dealt_run_t){
        .op = &plait_op_potrf,
        .params = params,
        .n_ranks = n_ranks,
        .direct = direct,
        .n_args = 1,
        .n_rets = 2,
        .args = {matrix_of(PLAIT_C64, s, n_ranks)},
        .rets = {matrix_of(PLAIT_C64, s, n_ranks), vector_of(PLAIT_S32, 1)},
        .text = "potrf"};
}

static void check_grid_cost(const shape_t *s, int n_ranks, int n_rows,
                            plait_direct_t direct)
{
    const int64_t item = 8;
    const plait_potrf_params_t params = {s->n, s->block, n_rows};
    dealt_run_t t = counted_run(s, n_ranks, direct, &params);
    const int n_columns = n_ranks / n_rows;
    const int64_t leading = s->n * s->n / (2 * n_rows) + s->n * s->n / (2 * n_columns);

    for (int r = 0; r < n_ranks; r++) {
        const view_t v = {.n = s->n,
                          .block = s->block,
                          .n_blocks = (s->n + s->block - 1) / s->block,
                          .n_rows = n_rows,
                          .n_columns = n_columns,
                          .rank = r,
                          .row = r / n_columns,
                          .column = r % n_columns,
                          .has_messages = direct == PLAIT_DIRECT_NONE};
        int64_t dealt = 0;
        int64_t n_infos = 0;
        const count_t want = count_grid(&v, &dealt, &n_infos);
        const plait_plan_cost_t cost = dealt_cost(&t, r);
        CHECK(
            cost.message_bytes == want.words * item + 4 * n_infos &&
                cost.n_messages == want.n_messages,
            "rank %d of %d x %d, access %d: %lld messages, %lld bytes; expected %lld, "
            "%lld",
            r, n_rows, n_columns, (int)direct, (long long)cost.n_messages,
            (long long)cost.message_bytes, (long long)want.n_messages,
            (long long)(want.words * item + 4 * n_infos));
        CHECK(want.words - dealt <= leading + 3 * s->n * s->block,
              "rank %d of %d x %d: %lld words of panels", r, n_rows, n_columns,
              (long long)(want.words - dealt));
        CHECK(dealt <= s->n * s->n / n_ranks + 4 * s->n * s->block,
              "rank %d of %d x %d: %lld words there and back", r, n_rows, n_columns,
              (long long)dealt);
        CHECK(cost.work_bytes <= item * (s->n + n_rows * s->block) *
                                         (s->n + n_columns * s->block) / n_ranks +
                                     item * 3 * s->block * s->n,
              "rank %d of %d x %d: %lld bytes of work", r, n_rows, n_columns,
              (long long)cost.work_bytes);
    }
    dealt_clear(&t);
}

static void check_grid_costs(void)
{
    const shape_t shape = {100, 100, 3};

    for (int n_ranks = 1; n_ranks <= MAX_COUNTED; n_ranks += is_quick() ? 5 : 1) {
        for (int n_rows = 2; n_rows <= n_ranks; n_rows++) {
            for (int a = 1; a < 3 && n_ranks % n_rows == 0; a++) {
                check_grid_cost(&shape, n_ranks, n_rows, dealt_directs[a]);
            }
        }
    }
}

/* What is chosen: a grid near a square where there are many ranks and words count. */
static void check_choice(void)
{
    static const struct {
        int n_ranks;
        int64_t n, block;
        plait_direct_t direct;
        int n_rows;
    } chosen[] = {
        {1, 8192, 128, PLAIT_DIRECT_NONE, 1},     {4, 8192, 128, PLAIT_DIRECT_NONE, 1},
        {8, 8192, 128, PLAIT_DIRECT_READ, 1},     {9, 8192, 128, PLAIT_DIRECT_READ, 3},
        {16, 8192, 128, PLAIT_DIRECT_NONE, 4},    {16, 8192, 128, PLAIT_DIRECT_READ, 4},
        {16, 8192, 128, PLAIT_DIRECT_POINTER, 1}, {13, 8192, 128, PLAIT_DIRECT_NONE, 1},
        {64, 32768, 128, PLAIT_DIRECT_NONE, 8},   {16, 64, 1, PLAIT_DIRECT_NONE, 1},
        {16, 0, 1, PLAIT_DIRECT_NONE, 1}};

    for (size_t i = 0; i < sizeof(chosen) / sizeof(*chosen); i++) {
        const plait_dealt_t d = {.m = chosen[i].n,
                                 .n = chosen[i].n,
                                 .block = chosen[i].block,
                                 .n_ranks = chosen[i].n_ranks,
                                 .dtype = PLAIT_F64};
        int n_rows = plait_grid_choose(&d, chosen[i].direct);
        CHECK(n_rows == chosen[i].n_rows, "n %lld, %d ranks, access %d: %d rows",
              (long long)chosen[i].n, chosen[i].n_ranks, (int)chosen[i].direct, n_rows);
    }
}

/* Where a grid is chosen a rank gets fewer bytes than by block columns, and the plan has it. */
static void check_automatic(void)
{
    static const int teams_of[] = {9, 12, 16, 17, 36, 64};
    const shape_t shape = {4096, 4096, 128};

    for (size_t i = 0; i < sizeof(teams_of) / sizeof(*teams_of); i++) {
        for (int a = 0; a < 3; a++) {
            const int n_ranks = teams_of[i];
            plait_potrf_params_t params = {shape.n, shape.block, 0};
            dealt_run_t t = {.op = &plait_op_potrf, .params = &params, .n_args = 1};
            t.n_ranks = n_ranks;
            t.direct = dealt_directs[a];
            t.n_rets = 2;
            t.args[0] = (dealt_array_t){.d = {.m = shape.n,
                                              .n = shape.n,
                                              .block = shape.block,
                                              .n_ranks = n_ranks,
                                              .dtype = PLAIT_F64}};
            t.rets[0] = t.args[0];
            t.rets[1] = (dealt_array_t){
                .d = {.n = 1}, .is_replicated = true, .dtype = PLAIT_S32};
            t.text = "potrf automatic";
            const plait_plan_cost_t chosen = dealt_cost(&t, n_ranks - 1);
            params.grid = 1;
            const plait_plan_cost_t by_columns = dealt_cost(&t, n_ranks - 1);
            const bool has_grid = a > 0 && n_ranks != 17;
            CHECK(has_grid ? chosen.message_bytes < by_columns.message_bytes * 3 / 4
                           : chosen.message_bytes == by_columns.message_bytes,
                  "%d ranks, access %d: %lld bytes, by columns %lld", n_ranks,
                  (int)t.direct, (long long)chosen.message_bytes,
                  (long long)by_columns.message_bytes);
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

/* Ranks that ask for different grids: a text of both. */
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

/* One call of one rank's device fails while the plan runs. */
typedef struct {
    int rank;
    int64_t n; /* the call; 0: none */
    bool is_dead;
    int64_t n_calls; /* out: of that device */
    plait_status_t status[TEAM_MAX];
    char text[TEAM_MAX][100];
} failing_t;

static void failing_rank(plait_comm_t *comm, void *context)
{
    failing_t *f = context;
    const int me = comm->end.rank;
    plait_device_t *device = comm->end.caps.device;
    const plait_potrf_problem_t p = {.dtype = PLAIT_F64, .n = 12, .block = 2};
    const int64_t n = plait_dense_columns(p.n, p.block, comm->end.size) * p.n;
    double *a = plait_alloc(n, sizeof(*a)), *l = plait_alloc(n, sizeof(*l));
    int32_t info = 0;
    plait_plan_t *plan = NULL;

    for (int64_t i = 0; i < n; i++) {
        const int64_t local = i / p.n;
        const int64_t column =
            (local / p.block * comm->end.size + me) * p.block + local % p.block;
        a[i] = creal(definite(PLAIT_F64, p.n, i % p.n, column));
    }
    CHECK(plait_potrf_plan(comm, &p, &plan) == PLAIT_OK, "plan");
    const int64_t before = check_device_counts(device).n_calls;
    if (me == f->rank) {
        check_device_fail_at(device, f->n, f->is_dead);
    }
    f->status[me] =
        plait_plan_execute(plan, comm, (const void *[]){a}, (void *[]){l, &info});
    (void)snprintf(f->text[me], sizeof(f->text[me]), "%s",
                   (f->status[me] != PLAIT_OK) ? plait_error_text() : "");
    if (me == f->rank) {
        f->n_calls = check_device_counts(device).n_calls - before;
        check_device_fail_at(device, 0, false);
    }
    plait_plan_destroy(&plan);
    plait_free(a);
    plait_free(l);
}

/* Every call of a device in its turn: all ranks end, and know of it. */
static void check_failing(int n_ranks)
{
    failing_t f = {.rank = n_ranks / 2};

    team_run(n_ranks, PLAIT_DIRECT_POINTER, failing_rank, &f);
    const int64_t n_calls = f.n_calls;
    for (int64_t i = 2; i < 2 * (n_calls + 1); i += is_quick() ? 7 : 1) {
        f.n = i / 2;
        f.is_dead = i % 2 != 0;
        team_run(n_ranks, PLAIT_DIRECT_POINTER, failing_rank, &f);
        for (int r = 0; r < n_ranks; r++) {
            CHECK(f.status[r] ==
                          ((r == f.rank) ? PLAIT_ERR_INTERNAL : PLAIT_ERR_PEER) &&
                      strstr(f.text[r], "check device") != NULL,
                  "%d ranks, call %lld of %lld: rank %d has %d, %s", n_ranks,
                  (long long)f.n, (long long)n_calls, r, (int)f.status[r], f.text[r]);
        }
    }
}

/* A device that fails while a plan is made: its name, and nothing is left of the plan. */
static void plan_failing_rank(plait_comm_t *comm, void *unused)
{
    plait_device_t *device = comm->end.caps.device;
    const plait_potrf_problem_t p = {.dtype = PLAIT_F64, .n = 12, .block = 2};
    plait_plan_t *plan = NULL;
    plait_status_t status = PLAIT_ERR_INTERNAL;
    int64_t n = 0;

    (void)unused;
    while (status != PLAIT_OK) {
        check_device_fail_at(device, ++n, false);
        status = plait_potrf_plan(comm, &p, &plan);
        CHECK((status == PLAIT_OK) == (plan != NULL) &&
                  (status == PLAIT_OK || (status == PLAIT_ERR_INTERNAL &&
                                          strstr(plait_error_text(), "fails") != NULL)),
              "call %lld: %d, %s", (long long)n, (int)status, plait_error_text());
    }
    check_device_fail_at(device, 0, false);
    CHECK(n > 4, "%lld calls", (long long)n); /* three kernels at least, each entered */
    plait_plan_destroy(&plan);
}

/* One rank waits for nothing, not for the outcome either. */
static void check_no_wait(void)
{
    const shape_t shape = {40, 40, 8};
    const int64_t n_before = check_device_counts(team_devices[0]).n_waits;
    const case_t c = {.dtype = PLAIT_F64, .shape = shape, .n_ranks = 1, .grid = 1};

    run_case(&c); /* fails at its first column */
    CHECK(check_device_counts(team_devices[0]).n_waits == n_before, "%lld waits",
          (long long)(check_device_counts(team_devices[0]).n_waits - n_before));
}

/* Block columns, grids, and one rank that has all of it. */
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
        if (counts[r] == 1) {
            check_no_wait();
            team_run(1, PLAIT_DIRECT_POINTER, plan_failing_rank, NULL);
        }
        if (counts[r] <= 3) {
            check_failing(counts[r]);
        }
        on_device_end(counts[r]);
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
    if (plait_blas_require() != PLAIT_OK) {
        printf("test_potrf: skipped: %s\n", plait_error_text());
        return SKIPPED;
    }
    if (on_device_is_asked(n_arguments, arguments)) {
        check_on_devices();
    } else {
        check_on_host();
    }
    (void)plait_pool_trim();
    return report("test_potrf");
}
