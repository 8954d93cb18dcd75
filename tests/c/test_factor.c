/* Factorizations of dealt matrices: plans proven for up to 17 ranks, and executed by threads in
 * every way of reaching a peer's memory, against backward errors. */
#include "dense/whole.h"
#include "dense_factor.h"
#include "device/pool.h"
#include "kernel/blas.h"

enum { SKIPPED = 77, MAX_TREES = 64 };

/* The same plans as a C program makes them. */
static plait_status_t getrf_plan_of(const plait_comm_t *comm, const void *problem,
                                    plait_plan_t **plan_p)
{
    return plait_getrf_plan(comm, problem, plan_p);
}

static plait_status_t geqrf_plan_of(const plait_comm_t *comm, const void *problem,
                                    plait_plan_t **plan_p)
{
    return plait_geqrf_plan(comm, problem, plan_p);
}

static plait_status_t ormqr_plan_of(const plait_comm_t *comm, const void *problem,
                                    plait_plan_t **plan_p)
{
    return plait_ormqr_plan(comm, problem, plan_p);
}

/* ---------------------------------------------------------------- getrf */

static const int teams[] = {1, 2, 3, 4, 7};

/* bad: a column that becomes zero; -1: none. */
static double complex general(plait_dtype_t dtype, const shape_t *s, int64_t bad,
                              int64_t i, int64_t j)
{
    return (j == bad) ? 0 : dealt_sample(dtype, 3, j * s->m + i);
}

static double complex *general_matrix(plait_dtype_t dtype, const shape_t *s,
                                      int64_t bad)
{
    double complex *a = dealt_matrix(s->m, s->n);

    for (int64_t j = 0; j < s->n; j++) {
        for (int64_t i = 0; i < s->m; i++) {
            a[j * s->m + i] = general(dtype, s, bad, i, j);
        }
    }
    return a;
}

static dealt_run_t panels_run(const plait_op_t *op, plait_dtype_t dtype,
                              const shape_t *s, int n_ranks, plait_direct_t direct,
                              int64_t bad, const plait_panels_params_t *params)
{
    const int64_t n = plait_min(s->m, s->n);
    dealt_run_t t = {.op = op,
                     .params = params,
                     .n_ranks = n_ranks,
                     .direct = direct,
                     .donates = n_ranks % 2 == 1,
                     .n_args = 1,
                     .n_rets = op->n_rets,
                     .text = text_of(op->name, dtype, s, n_ranks, direct)};

    t.args[0] = matrix_of(dtype, s, n_ranks);
    plait_free(t.args[0].whole);
    t.args[0].whole = general_matrix(dtype, s, bad);
    t.rets[0] = matrix_of(dtype, s, n_ranks);
    t.rets[1] = vector_of((op->n_rets == 3) ? PLAIT_S32 : dtype, n);
    if (op->n_rets == 3) {
        t.rets[2] = vector_of(PLAIT_S32, 1);
    }
    return t;
}

/* P A - L U, with multipliers that are at most 1. */
static void check_lu(const dealt_run_t *t, plait_dtype_t dtype, const shape_t *s,
                     int64_t bad)
{
    const int64_t n = plait_min(s->m, s->n);
    const double complex *lu = t->rets[0].whole;
    double complex *a = general_matrix(dtype, s, bad);
    double worst = 0;
    double largest = 0;

    for (int64_t i = 0; i < n; i++) {
        int64_t p = (int64_t)creal(t->rets[1].whole[i]);
        CHECK(p >= i && p < s->m, "%s: pivot %lld is %lld", t->text, (long long)i,
              (long long)p);
        for (int64_t j = 0; j < s->n && p >= i && p < s->m; j++) {
            double complex swap = a[j * s->m + i];
            a[j * s->m + i] = a[j * s->m + p];
            a[j * s->m + p] = swap;
        }
    }
    for (int64_t j = 0; j < s->n; j++) {
        for (int64_t i = 0; i < s->m; i++) {
            double complex sum = -a[j * s->m + i];
            for (int64_t k = 0; k <= plait_min(i, j) && k < n; k++) {
                sum += ((k == i) ? 1 : lu[k * s->m + i]) * lu[j * s->m + k];
            }
            worst = (cabs(sum) > worst || isnan(cabs(sum))) ? cabs(sum) : worst;
            largest = (i > j && cabs(lu[j * s->m + i]) > largest)
                          ? cabs(lu[j * s->m + i])
                          : largest;
        }
    }
    CHECK(worst <= 10 * (double)(s->m + s->n) * dealt_unit(dtype) *
                       (1 + dealt_norm(a, s->m, s->n)),
          "%s: error %g", t->text, worst);
    /* LAPACK compares |re| + |im| */
    CHECK(largest <= 1.42, "%s: a multiplier of %g", t->text, largest);
    CHECK(creal(t->rets[2].whole[0]) == (double)((bad < n) ? bad + 1 : 0),
          "%s: info %g", t->text, creal(t->rets[2].whole[0]));
    plait_free(a);
}

static void getrf_case(plait_dtype_t dtype, const shape_t *s, int n_ranks,
                       plait_direct_t direct, int64_t bad)
{
    const plait_panels_params_t params = {s->m, s->n, s->block};
    dealt_run_t t =
        panels_run(&plait_op_getrf, dtype, s, n_ranks, direct, bad, &params);

    t.plan = getrf_plan_of;
    t.problem = &(plait_panels_problem_t){
        .dtype = dtype, .m = s->m, .n = s->n, .block = s->block};
    dealt_run(&t);
    check_lu(&t, dtype, s, bad);
    clear(&t);
}

/* ---------------------------------------------------------------- geqrf, ormqr */

/* Q or Q^H times a matrix, with what geqrf has made. */
static void multiply(dealt_run_t *qr, plait_dtype_t dtype, const shape_t *s,
                     bool is_adjoint, int64_t n, double complex *c)
{
    const plait_ormqr_params_t params = {s->m, s->n, n, is_adjoint, s->block};
    const shape_t of_c = {s->m, n, s->block};
    dealt_run_t t = {.op = &plait_op_ormqr,
                     .params = &params,
                     .n_ranks = qr->n_ranks,
                     .direct = qr->direct,
                     .donates = is_adjoint,
                     .n_args = 3,
                     .n_rets = 1,
                     .text = text_of(is_adjoint ? "ormqr adjoint" : "ormqr", dtype, s,
                                     qr->n_ranks, qr->direct)};

    t.plan = ormqr_plan_of;
    t.problem = &(plait_ormqr_problem_t){.dtype = dtype,
                                         .m = s->m,
                                         .k = s->n,
                                         .n = n,
                                         .block = s->block,
                                         .is_adjoint = is_adjoint};
    t.args[0] = qr->rets[0];
    t.args[1] = qr->rets[1];
    t.args[2] = matrix_of(dtype, &of_c, qr->n_ranks);
    t.rets[0] = matrix_of(dtype, &of_c, qr->n_ranks);
    memcpy(t.args[2].whole, c, (size_t)(s->m * n) * sizeof(*c));
    dealt_run(&t);
    memcpy(c, t.rets[0].whole, (size_t)(s->m * n) * sizeof(*c));
    plait_free(t.args[2].whole);
    plait_free(t.rets[0].whole);
}

/* A - Q R, and Q^H Q - I by way of Q^H (Q I). */
static void geqrf_case(plait_dtype_t dtype, const shape_t *s, int n_ranks,
                       plait_direct_t direct)
{
    const plait_panels_params_t params = {s->m, s->n, s->block};
    dealt_run_t t = panels_run(&plait_op_geqrf, dtype, s, n_ranks, direct, -1, &params);
    const double bound = 10 * (double)(s->m + s->n + 1) * dealt_unit(dtype);

    t.plan = geqrf_plan_of;
    t.problem = &(plait_panels_problem_t){
        .dtype = dtype, .m = s->m, .n = s->n, .block = s->block};
    dealt_run(&t);
    double complex *qr = dealt_matrix(s->m, s->n);
    for (int64_t j = 0; j < s->n; j++) {
        for (int64_t i = 0; i <= j && i < s->m; i++) {
            qr[j * s->m + i] = t.rets[0].whole[j * s->m + i];
        }
    }
    multiply(&t, dtype, s, false, s->n, qr);
    double complex *a = general_matrix(dtype, s, -1);
    double norm = dealt_norm(a, s->m, s->n);
    for (int64_t i = 0; i < s->m * s->n; i++) {
        qr[i] -= a[i];
    }
    CHECK(dealt_norm(qr, s->m, s->n) <= bound * norm, "%s: A - QR is %g", t.text,
          dealt_norm(qr, s->m, s->n));
    double complex *q = dealt_matrix(s->m, s->m);
    for (int64_t i = 0; i < s->m; i++) {
        q[i * s->m + i] = 1;
    }
    multiply(&t, dtype, s, false, s->m, q);
    multiply(&t, dtype, s, true, s->m, q);
    for (int64_t i = 0; i < s->m; i++) {
        q[i * s->m + i] -= 1;
    }
    CHECK(dealt_norm(q, s->m, s->m) <= bound * (double)(s->m + 1),
          "%s: Q^H Q - I is %g", t.text, dealt_norm(q, s->m, s->m));
    plait_free(q);
    plait_free(a);
    plait_free(qr);
    clear(&t);
}

static const shape_t rectangles[] = {
    {0, 0, 2},  {0, 3, 2},   {3, 0, 2},   {1, 1, 4},   {9, 4, 2},   {4, 9, 2},
    {5, 12, 3}, {30, 7, 64}, {7, 30, 64}, {33, 33, 5}, {40, 64, 8}, {64, 40, 7}};

static void check_panels_all(void)
{
    for (size_t s = 0; s < sizeof(rectangles) / sizeof(*rectangles); s++) {
        for (size_t r = 0; r < sizeof(teams) / sizeof(*teams); r++) {
            for (int a = 0; a < 3; a++) {
                for (int d = 0; d < 4; d++) {
                    const shape_t *shape = &rectangles[s];
                    if (is_quick() && (d % 2 == (int)s % 2)) {
                        continue;
                    }
                    getrf_case(dealt_dtypes[d], shape, teams[r], dealt_directs[a], -1);
                    geqrf_case(dealt_dtypes[d], shape, teams[r], dealt_directs[a]);
                    if (plait_min(shape->m, shape->n) > 1) {
                        getrf_case(dealt_dtypes[d], shape, teams[r], dealt_directs[a],
                                   plait_min(shape->m, shape->n) / 2);
                    }
                }
            }
        }
    }
}

static void prove_panels(void)
{
    static const shape_t shapes[] = {
        {0, 4, 4}, {1, 1, 2}, {7, 6, 1}, {4, 11, 2}, {20, 9, 3}};
    static const plait_op_t *const ops[] = {&plait_op_getrf, &plait_op_geqrf};

    for (int n_ranks = 1; n_ranks <= DEALT_MAX_RANKS; n_ranks++) {
        for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++) {
            for (int i = 0; i < 2 * 3; i++) {
                const plait_panels_params_t params = {shapes[s].m, shapes[s].n,
                                                      shapes[s].block};
                dealt_run_t t = panels_run(ops[i % 2], PLAIT_F32, &shapes[s], n_ranks,
                                           dealt_directs[i / 2], -1, &params);
                dealt_prove(&t);
                clear(&t);
            }
        }
    }
}

static void prove_ormqr(void)
{
    for (int n_ranks = 1; n_ranks <= DEALT_MAX_RANKS; n_ranks++) {
        for (int i = 0; i < 2 * 3; i++) {
            const shape_t of_qr = {12, 9, 2};
            const shape_t of_c = {12, 7, 2};
            const plait_ormqr_params_t params = {12, 9, 7, i % 2, 2};
            dealt_run_t t = {.op = &plait_op_ormqr,
                             .params = &params,
                             .n_ranks = n_ranks,
                             .direct = dealt_directs[i / 2],
                             .n_args = 3,
                             .n_rets = 1,
                             .args = {matrix_of(PLAIT_C64, &of_qr, n_ranks),
                                      vector_of(PLAIT_C64, 9),
                                      matrix_of(PLAIT_C64, &of_c, n_ranks)},
                             .rets = {matrix_of(PLAIT_C64, &of_c, n_ranks)},
                             .text = "ormqr"};
            dealt_prove(&t);
            clear(&t);
        }
    }
}

/* ---------------------------------------------------------------- costs */

/* What a rank receives: of every panel of others, once, what its own columns need, with what its
 * owner found; and one panel of work. */
static plait_plan_cost_t model_of(const plait_op_t *op, const plait_dealt_t *d,
                                  int rank)
{
    const bool is_potrf = op == &plait_op_potrf;
    const int64_t item = plait_dealt_item(d);
    const int64_t side = is_potrf ? 0 : (op == &plait_op_getrf) ? 4 : item;
    const int64_t info = (op == &plait_op_geqrf) ? 0 : 4;
    const int64_t n_blocks = plait_dealt_n_blocks(d);
    plait_plan_cost_t cost = {.work_bytes = d->m * d->block * item};

    for (int64_t k = 0; k < n_blocks; k++) {
        const int64_t width = plait_dealt_width(d, k);
        const int64_t rows = d->m - k * d->block - (is_potrf ? width : 0);
        if (plait_dealt_owner(d, k) != rank) {
            cost.message_bytes +=
                info + side * width + ((k + 1 < n_blocks) ? rows * width * item : 0);
        }
    }
    return cost;
}

static void check_costs(void)
{
    static const plait_op_t *const ops[] = {&plait_op_potrf, &plait_op_getrf,
                                            &plait_op_geqrf};
    static const int ranks[] = {2, 3, 5, 8, 16, 33, 64};
    const shape_t shape = {200, 200, 7};

    for (int code = 0; code < 2 * 3 * 7; code++) {
        const int i = code / 2;
        const plait_op_t *op = ops[i / 7];
        const int n_ranks = ranks[i % 7];
        const plait_potrf_params_t square = {shape.n, shape.block, 1};
        const plait_panels_params_t panels = {shape.m, shape.n, shape.block};
        dealt_run_t t = {.op = op,
                         .params = (i < 7) ? (const void *)&square : &panels,
                         .n_ranks = n_ranks,
                         .direct = dealt_directs[1 + code % 2],
                         .n_args = 1,
                         .n_rets = op->n_rets,
                         .args = {matrix_of(PLAIT_C64, &shape, n_ranks)},
                         .rets = {matrix_of(PLAIT_C64, &shape, n_ranks)},
                         .text = op->name};
        t.rets[1] = (i < 7) ? vector_of(PLAIT_S32, 1)
                            : vector_of((i < 14) ? PLAIT_S32 : PLAIT_C64, shape.n);
        t.rets[2] = vector_of(PLAIT_S32, 1);
        for (int r = 0; r < n_ranks; r++) {
            plait_plan_cost_t cost = dealt_cost(&t, r);
            plait_plan_cost_t want = model_of(op, &t.args[0].d, r);
            CHECK(cost.message_bytes == want.message_bytes &&
                      cost.work_bytes == want.work_bytes,
                  "%s, rank %d of %d: %lld bytes, %lld of work; expected %lld, %lld",
                  t.text, r, n_ranks, (long long)cost.message_bytes,
                  (long long)cost.work_bytes, (long long)want.message_bytes,
                  (long long)want.work_bytes);
        }
        plait_free(t.rets[2].whole);
        t.n_rets = 2;
        clear(&t);
    }
}

/* ---------------------------------------------------------------- trees */

static const plait_move_t *move_at(const plait_plan_t *plan, int n)
{
    for (int i = 0; i < plan->n_steps; i++) {
        if (plan->steps[i].kind == PLAIT_STEP_MOVE && n-- == 0) {
            return &plan->steps[i].u.move;
        }
    }
    return NULL;
}

/* The one rank that blocks of a move go to, or come from; -1: none, -2: several. */
static int only_peer(const plait_block_t blocks[], int64_t n)
{
    int peer = -1;

    for (int64_t i = 0; i < n; i++) {
        peer = (peer == -1 || peer == blocks[i].peer) ? blocks[i].peer : -2;
    }
    return peer;
}

/* A message takes its sender and its receiver a unit of time, from when both are ready: how long it
 * takes until the last rank is done. */
static int64_t time_of(plait_plan_t *const plans[], int n_ranks)
{
    int64_t clock[MAX_TREES] = {0};
    int64_t last = 0;

    for (int m = 0; move_at(plans[0], m) != NULL; m++) {
        int64_t done[MAX_TREES];
        memcpy(done, clock, sizeof(done));
        for (int r = 0; r < n_ranks; r++) {
            const plait_move_t *move = move_at(plans[r], m);
            int to = only_peer(move->out, move->n_out);
            CHECK(to != -2 && only_peer(move->in, move->n_in) != -2,
                  "rank %d of %d, move %d: several messages", r, n_ranks, m);
            if (to >= 0) {
                int64_t end = plait_max(clock[r], clock[to]) + 1;
                done[r] = plait_max(done[r], end);
                done[to] = plait_max(done[to], end);
            }
        }
        memcpy(clock, done, sizeof(clock));
    }
    for (int r = 0; r < n_ranks; r++) {
        last = plait_max(last, clock[r]);
    }
    return last;
}

/* A panel reaches all ranks in ceil(log2 P) messages one after the other. */
static void check_trees(void)
{
    for (int n_ranks = 2; n_ranks <= MAX_TREES; n_ranks++) {
        const int n_panels = 1 + n_ranks % 3;
        const shape_t shape = {4 * n_panels, 4 * n_panels, 4};
        const plait_potrf_params_t params = {shape.n, shape.block, 1};
        const int64_t dims[] = {4 * ((n_panels + n_ranks - 1) / n_ranks), shape.n};
        const int64_t one = 1;
        const plait_array_t a = {.dtype = PLAIT_F64, .ndim = 2, .dims = dims};
        const plait_array_t rets[] = {a, {.dtype = PLAIT_S32, .ndim = 1, .dims = &one}};
        plait_plan_t *plans[MAX_TREES] = {NULL};
        int log = 0;

        while ((1 << log) < n_ranks) {
            log++;
        }
        for (int r = 0; r < n_ranks; r++) {
            const plait_problem_t problem = {.n_ranks = n_ranks,
                                             .rank = r,
                                             .caps = {.direct = PLAIT_DIRECT_NONE},
                                             .n_args = 1,
                                             .n_rets = 2,
                                             .args = &a,
                                             .rets = rets};
            CHECK(plait_op_potrf.plan(&params, &problem, &plans[r]) == PLAIT_OK,
                  "plan");
        }
        int64_t time = time_of(plans, n_ranks);
        CHECK((n_panels == 1) ? time == log : time > log && time <= n_panels * log,
              "%d ranks: %lld messages one after the other for %d panels, log2 is %d",
              n_ranks, (long long)time, n_panels, log);
        for (int r = 0; r < n_ranks; r++) {
            plait_plan_destroy(&plans[r]);
        }
    }
}

/* ---------------------------------------------------------------- planted faults */

static int index_of(const plait_plan_t *plan, plait_step_kind_t kind, int n)
{
    int i = 0;

    while (i < plan->n_steps && (plan->steps[i].kind != kind || n-- > 0)) {
        i++;
    }
    return i;
}

static int count_steps(const plait_plan_t *plan, plait_step_kind_t kind)
{
    int n = 0;

    for (int i = 0; i < plan->n_steps; i++) {
        n += plan->steps[i].kind == kind;
    }
    return n;
}

/* Takes a step out and puts it in before another one that is earlier. */
static void hasten(plait_plan_t *plan, int from, int to)
{
    plait_step_t step = plan->steps[from];

    for (int i = from; i > to; i--) {
        plan->steps[i] = plan->steps[i - 1];
    }
    plan->steps[to] = step;
}

/* A panel that is factored after its owner has arrived, and one that is overwritten after its
 * owner has arrived at the fence after that: the proof must not hold. */
static void check_planted(void)
{
    const int64_t dims[] = {4, 8};
    const int64_t one = 1;
    const plait_array_t a = {.dtype = PLAIT_F64, .ndim = 2, .dims = dims};
    const plait_array_t rets[] = {a, {.dtype = PLAIT_S32, .ndim = 1, .dims = &one}};
    const plait_potrf_params_t params = {8, 2, 1};
    const char *const faults[] = {"reads what its owner writes in the same phase",
                                  "overwrites what a peer reads in the same phase"};

    for (int fault = 0; fault < 2; fault++) {
        plait_plan_t *plans[2] = {NULL};
        for (int r = 0; r < 2; r++) {
            const plait_problem_t problem = {.n_ranks = 2,
                                             .rank = r,
                                             .caps = {.direct = PLAIT_DIRECT_POINTER},
                                             .n_args = 1,
                                             .n_rets = 2,
                                             .args = &a,
                                             .rets = rets};
            CHECK(plait_op_potrf.plan(&params, &problem, &plans[r]) == PLAIT_OK,
                  "plan");
        }
        if (fault == 0) { /* rank 1 owns panel 1 */
            int at = index_of(plans[1], PLAIT_STEP_ARRIVE, 1);
            hasten(plans[1], at, at - 1);
        } else {
            int n_fences = count_steps(plans[0], PLAIT_STEP_FENCE);
            hasten(plans[0], plans[0]->n_steps - 1,
                   index_of(plans[0], PLAIT_STEP_FENCE, n_fences - 2));
        }
        refused(plait_plans_check(plans, 2, &(plait_check_t){.alias = -1}),
                PLAIT_ERR_INTERNAL, faults[fault]);
        for (int r = 0; r < 2; r++) {
            plait_plan_destroy(&plans[r]);
        }
    }
}

/* ---------------------------------------------------------------- wrong input */

static void check_refusals(plait_comm_t *comm, void *unused)
{
    plait_plan_t *plan = NULL;
    plait_potrf_problem_t p = {.dtype = PLAIT_S32, .n = 4, .block = 2};

    (void)unused;
    refused(plait_potrf_plan(comm, &p, &plan), PLAIT_ERR_INVALID,
            "expected float32, float64, complex64 or complex128");
    p.dtype = PLAIT_F64;
    p.block = 0;
    refused(plait_potrf_plan(comm, &p, &plan), PLAIT_ERR_INVALID, "expected 1 or more");
    p.block = 1;
    p.n = -3;
    refused(plait_potrf_plan(comm, &p, &plan), PLAIT_ERR_INVALID, "-3 x -3");
    refused(plait_potrf_plan(NULL, &p, &plan), PLAIT_ERR_COMM, "NULL");
    plait_ormqr_problem_t q = {.dtype = PLAIT_F32, .m = 4, .k = 2, .n = -1, .block = 1};
    refused(plait_ormqr_plan(comm, &q, &plan), PLAIT_ERR_INVALID, "4 x -1");
    const plait_panels_problem_t r = {.dtype = PLAIT_F32, .m = -2, .n = 2, .block = 1};
    refused(plait_getrf_plan(comm, &r, &plan), PLAIT_ERR_INVALID, "-2 x 2");
    refused(plait_geqrf_plan(comm, &r, &plan), PLAIT_ERR_INVALID, "-2 x 2");
}

/* All matrices on one rank: what it costs, besides that the results are the same. */
static void check_whole_cost(void)
{
    const shape_t shape = {20, 20, 3};
    const int64_t n = shape.n, item = plait_dtype_bytes(PLAIT_C64);
    const plait_potrf_params_t square = {n, shape.block, 0};
    const plait_panels_params_t panels = {n, n, shape.block};

    for (int i = 0; i < 2 * 5; i++) {
        const int n_ranks = 2 + i / 2;
        const bool is_potrf = i % 2 == 0;
        dealt_run_t t = is_potrf ? potrf_run(PLAIT_C64, &shape, n_ranks,
                                             PLAIT_DIRECT_READ, -1, 0, &square)
                                 : panels_run(&plait_op_getrf, PLAIT_C64, &shape,
                                              n_ranks, PLAIT_DIRECT_READ, -1, &panels);
        int64_t n_in = 0, n_lower = 0; /* of others, and what is read of it */
        for (int64_t j = 0; j < n; j++) {
            const int64_t k = j / shape.block;
            n_in += (k % n_ranks != 0) ? n : 0;
            n_lower += (k % n_ranks != 0) ? n - k * shape.block : 0;
        }
        const plait_plan_cost_t root = dealt_cost(&t, 0);
        CHECK(root.message_bytes == (is_potrf ? n_lower : n_in) * item &&
                  root.work_bytes == n * n * item,
              "%s: %lld bytes, %lld of work", t.text, (long long)root.message_bytes,
              (long long)root.work_bytes);
        int64_t n_out = 0;
        for (int r = 1; r < n_ranks; r++) {
            const plait_plan_cost_t cost = dealt_cost(&t, r);
            CHECK(cost.work_bytes == 0, "%s, rank %d", t.text, r);
            n_out += cost.message_bytes - (is_potrf ? 4 : 4 + 4 * n); /* info, pivots */
        }
        CHECK(n_out == root.message_bytes, "%s: %lld bytes back", t.text,
              (long long)n_out);
        clear(&t);
    }
}

/* What is chosen without a test's word: one rank for a small matrix, all for a large one, and all
 * sooner where a block column costs less. */
static void check_choice(void)
{
    for (int i = 0; i < 4 * 3; i++) {
        const plait_dtype_t dtype = dealt_dtypes[i % 4];
        const int n_ranks = 1 << (1 + 2 * (i / 4));
        int64_t largest[2] = {0};
        for (int64_t n = 16; n < 4000; n += 16) {
            const double flops =
                (double)(n * n * n) / 3 * (dealt_is_complex(dtype) ? 4 : 1);
            plait_dealt_t d = {
                .m = n, .n = n, .block = 4, .n_ranks = n_ranks, .dtype = dtype};
            largest[0] = plait_whole_is_cheaper(&d, flops) ? n : largest[0];
            d.block = 32;
            largest[1] = plait_whole_is_cheaper(&d, flops) ? n : largest[1];
        }
        CHECK(largest[0] >= 64 && largest[0] < 3000 && largest[1] < largest[0],
              "%s, %d ranks: %lld, %lld", plait_dtype_name(dtype), n_ranks,
              (long long)largest[0], (long long)largest[1]);
    }
    const plait_dealt_t one = {.m = 8, .n = 8, .block = 1, .n_ranks = 1};
    CHECK(!plait_whole_is_cheaper(&one, 1), "nobody to take it from");
}

int main(void)
{
    if (plait_blas_require() != PLAIT_OK) {
        printf("test_factor: skipped: %s\n", plait_error_text());
        return SKIPPED;
    }
    prove_ormqr();
    for (int is_whole = 0; is_whole < 2; is_whole++) {
        plait_dense_choose_whole(is_whole ? INT64_MAX : 0);
        prove_panels();
        check_panels_all();
    }
    check_whole_cost();
    plait_dense_choose_whole(0);
    check_costs();
    check_trees();
    check_planted();
    plait_dense_choose_whole(-1);
    check_choice();
    team_run(2, PLAIT_DIRECT_POINTER, check_refusals, NULL);
    (void)plait_pool_trim();
    return report("test_factor");
}
