/* QR factorization of tall matrices along a tree: plans proven for up to 64 ranks, with the messages and
 * words of the model; executed by threads in every way of reaching a peer's memory, and on devices, against
 * backward errors. */
#include "base/checked.h"
#include "dealt.h"
#include "dense/params.h"
#include "dense_failing.h"
#include "dense_main.h"
#include "plait/dense.h"

enum { MAX_PLANNED = 64 };

/* The rows of every rank, and the columns. */
typedef struct {
    int64_t m, n;
} shape_t;

/* ---- plans ---- */

static int log2_of(int n_ranks)
{
    int log = 0;

    while ((1 << log) < n_ranks) {
        log++;
    }
    return log;
}

/* On a device the plans are those for messages, however threads reach each other. */
static void make_plans(const shape_t *s, plait_dtype_t dtype, bool without_q,
                       int n_ranks, plait_direct_t direct, plait_plan_t *plans[])
{
    plait_device_t *device = team_devices[0];
    const plait_tsqr_params_t params = {s->m, s->n, without_q};
    const int64_t rows[] = {s->n, s->m}, of_q[] = {without_q ? 0 : s->n, s->m};
    const int64_t triangle[] = {s->n, s->n};
    const plait_array_t a = {.dtype = dtype, .ndim = 2, .dims = rows};
    const plait_array_t rets[] = {{.dtype = dtype, .ndim = 2, .dims = of_q},
                                  {.dtype = dtype, .ndim = 2, .dims = triangle}};

    for (int r = 0; r < n_ranks; r++) {
        const plait_problem_t problem = {
            .n_ranks = n_ranks,
            .rank = r,
            .caps = {.direct = (device != NULL) ? PLAIT_DIRECT_NONE : direct,
                     .device = device},
            .n_args = 1,
            .n_rets = 2,
            .args = &a,
            .rets = rets};
        CHECK(plait_op_tsqr.plan(&params, &problem, &plans[r]) == PLAIT_OK, "plan");
    }
}

static void destroy_plans(plait_plan_t *plans[], int n_ranks)
{
    for (int r = 0; r < n_ranks; r++) {
        plait_plan_destroy(&plans[r]);
    }
}

static int count_steps(const plait_plan_t *plan, plait_step_kind_t kind)
{
    int n = 0;

    for (int i = 0; i < plan->n_steps; i++) {
        n += plan->steps[i].kind == kind;
    }
    return n;
}

/* The definition of a binomial tree: a rank gets one triangle from each rank that is a power of two further, if
 * that power is below the rank's own lowest bit. All ranks but the first get two triangles from their parent,
 * or one without Q; one level after another. */
static void judge_cost(const plait_plan_t *plan, const shape_t *s, plait_dtype_t dtype,
                       bool without_q)
{
    const int64_t item = plait_dtype_bytes(dtype);
    const bool is_square = plan->device != NULL;
    const int64_t triangle = (is_square ? s->n * s->n : s->n * (s->n + 1) / 2) * item;
    const int rank = plan->rank, n_ranks = plan->n_ranks, log = log2_of(n_ranks);
    const plait_plan_cost_t cost = plait_plan_cost(plan);
    int n_children = 0;

    for (int bit = 1; rank + bit < n_ranks && (rank & bit) == 0; bit *= 2) {
        n_children++;
    }
    const int n_up = n_children, n_down = rank > 0;
    CHECK(cost.n_messages == ((s->n > 0) ? n_up + n_down : 0) &&
              cost.message_bytes == (n_up + (without_q ? 1 : 2) * n_down) * triangle,
          "rank %d of %d, %lld columns: %lld messages, %lld bytes", rank, n_ranks,
          (long long)s->n, (long long)cost.n_messages, (long long)cost.message_bytes);
    const int n_pairs = (without_q && log > 1) ? 1 : log;
    const int64_t pair = 2 * s->n * s->n * item, rows = s->m * s->n * item;
    const int64_t of_device =
        rows + (1 + n_pairs) * s->n * item + (without_q ? 0 : pair);
    const int64_t of_host = without_q ? rows : 0;
    CHECK(cost.work_bytes <=
              2 * triangle + n_pairs * pair + (is_square ? of_device : of_host),
          "rank %d of %d: %lld of work", rank, n_ranks, (long long)cost.work_bytes);
    if (plan->direct == PLAIT_DIRECT_NONE && s->n > 0) {
        CHECK(count_steps(plan, PLAIT_STEP_MOVE) == 2 * log, "rank %d of %d: %d moves",
              rank, n_ranks, count_steps(plan, PLAIT_STEP_MOVE));
    }
}

static void check_plans(void)
{
    static const shape_t shapes[] = {{0, 0}, {3, 0}, {1, 1}, {5, 3}, {9, 9}};

    for (int n_ranks = 1; n_ranks <= MAX_PLANNED; n_ranks++) {
        for (int i = 0; i < 5 * 3 * 2; i++) {
            const shape_t *s = &shapes[i / 3 % 5];
            const bool without_q = i >= 5 * 3;
            const plait_dtype_t dtype = dealt_dtypes[(i + n_ranks) % 4];
            plait_plan_t *plans[MAX_PLANNED] = {NULL};
            make_plans(s, dtype, without_q, n_ranks, dealt_directs[i % 3], plans);
            for (int alias = -1; alias <= 0; alias++) {
                CHECK(plait_plans_check(plans, n_ranks,
                                        &(plait_check_t){.alias = alias}) == PLAIT_OK,
                      "%lldx%lld, %d ranks, access %d, donated %d", (long long)s->m,
                      (long long)s->n, n_ranks, (int)dealt_directs[i % 3], alias);
            }
            for (int r = 0; r < n_ranks; r++) {
                judge_cost(plans[r], s, dtype, without_q);
            }
            destroy_plans(plans, n_ranks);
        }
    }
}

/* The last step of a kind; -1: none. */
static int last_step(const plait_plan_t *plan, plait_step_kind_t kind)
{
    int i = plan->n_steps - 1;

    while (i >= 0 && plan->steps[i].kind != kind) {
        i--;
    }
    return i;
}

/* Coefficients are read before the fence: the proof must not hold. */
static void check_planted(void)
{
    const shape_t s = {4, 2};
    plait_plan_t *plans[2] = {NULL};

    make_plans(&s, PLAIT_F64, false, 2, PLAIT_DIRECT_POINTER, plans);
    const int at = last_step(plans[1], PLAIT_STEP_MOVE);
    const plait_step_t move = plans[1]->steps[at];
    CHECK(at > 0 && plans[1]->steps[at - 1].kind == PLAIT_STEP_FENCE, "step %d", at);
    plans[1]->steps[at] = plans[1]->steps[at - 1];
    plans[1]->steps[at - 1] = move;
    check_refused(plait_plans_check(plans, 2, &(plait_check_t){.alias = -1}),
                  PLAIT_ERR_INTERNAL, "reads what its owner writes in the same phase");
    destroy_plans(plans, 2);
}

/* ---- execution ---- */

static plait_status_t tsqr_plan_of(const plait_comm_t *comm, const void *problem,
                                   plait_plan_t **plan_p)
{
    return plait_tsqr_plan(comm, problem, plan_p);
}

/* The rows of all ranks as block columns, one for each rank: a rank's part is column-major. */
static dealt_array_t rows_of(plait_dtype_t dtype, const shape_t *s, int n_ranks)
{
    return (dealt_array_t){.d = {.m = s->m,
                                 .n = s->n * n_ranks,
                                 .block = plait_max(s->n, 1),
                                 .n_ranks = n_ranks,
                                 .dtype = dtype},
                           .whole = dealt_matrix(s->m, s->n * n_ranks)};
}

static dealt_array_t triangle_of(plait_dtype_t dtype, int64_t n)
{
    return (dealt_array_t){
        .d = {.m = n, .n = n, .block = plait_max(n, 1), .n_ranks = 1, .dtype = dtype},
        .is_whole = true,
        .whole = dealt_matrix(n, n)};
}

/* An element of row i, counted over all ranks. */
static double complex *at(const dealt_array_t *a, const shape_t *s, int64_t i,
                          int64_t j)
{
    return &a->whole[(i / s->m * s->n + j) * s->m + i % s->m];
}

typedef struct {
    plait_dtype_t dtype;
    shape_t s;
    int n_ranks;
    plait_direct_t direct;
    int64_t n_rows; /* of data; the others are zero */
    bool has_nan;
    bool donates, without_q;
    char text[120];
} case_t;

static void run_case(case_t *c, dealt_run_t *t, const plait_tsqr_params_t *params,
                     const plait_tsqr_problem_t *problem)
{
    const shape_t of_none = {c->s.m, 0};

    (void)snprintf(c->text, sizeof(c->text),
                   "tsqr %s %lldx%lld, %d ranks, access %d, %lld rows%s%s",
                   plait_dtype_name(c->dtype), (long long)c->s.m, (long long)c->s.n,
                   c->n_ranks, (int)c->direct, (long long)c->n_rows,
                   c->has_nan ? ", NaN" : "", c->without_q ? ", without Q" : "");
    *t = (dealt_run_t){
        .op = &plait_op_tsqr,
        .params = params,
        .n_ranks = c->n_ranks,
        .direct = c->direct,
        .donates = c->donates,
        .plan = c->donates ? NULL : tsqr_plan_of,
        .problem = problem,
        .n_args = 1,
        .n_rets = 2,
        .args = {rows_of(c->dtype, &c->s, c->n_ranks)},
        .rets = {rows_of(c->dtype, c->without_q ? &of_none : &c->s, c->n_ranks),
                 triangle_of(c->dtype, c->s.n)},
        .text = c->text};
    for (int64_t i = 0; i < c->n_rows; i++) {
        for (int64_t j = 0; j < c->s.n; j++) {
            *at(&t->args[0], &c->s, i, j) = element_sample(c->dtype, 3, i * c->s.n + j);
        }
    }
    if (c->has_nan) {
        *at(&t->args[0], &c->s, c->n_rows - 1, c->s.n / 2) = (double complex)NAN;
    }
    dealt_run(t);
}

/* Frobenius norms of A, A - Q R and Q^H Q - I. */
static void norms_of(const dealt_run_t *t, const case_t *c, double norms[3])
{
    const int64_t n_rows = c->s.m * c->n_ranks, n = c->s.n;
    const double complex *r = t->rets[1].whole;
    double sums[3] = {0};

    for (int64_t i = 0; i < n_rows; i++) {
        for (int64_t j = 0; j < n; j++) {
            const double complex a = *at(&t->args[0], &c->s, i, j);
            double complex rest = a;
            for (int64_t k = 0; k <= j; k++) {
                rest -= *at(&t->rets[0], &c->s, i, k) * r[j * n + k];
            }
            sums[0] += creal(a * conj(a));
            sums[1] += creal(rest * conj(rest));
        }
    }
    for (int64_t j = 0; j < n; j++) {
        for (int64_t k = 0; k < n; k++) {
            double complex rest = (j == k) ? -1 : 0;
            for (int64_t i = 0; i < n_rows; i++) {
                rest +=
                    conj(*at(&t->rets[0], &c->s, i, j)) * *at(&t->rets[0], &c->s, i, k);
            }
            sums[2] += creal(rest * conj(rest));
        }
    }
    for (int i = 0; i < 3; i++) {
        norms[i] = sqrt(sums[i]);
    }
}

static void judge(const dealt_run_t *t, const case_t *c)
{
    const int64_t n = c->s.n, n_rows = c->s.m * c->n_ranks;
    const double bound = 10 * (double)n * element_unit(c->dtype);
    double norms[3];

    norms_of(t, c, norms);
    CHECK(norms[1] <= bound * norms[0], "%s: A - Q R is %g of %g", c->text, norms[1],
          norms[0]);
    CHECK(norms[2] <= bound * sqrt((double)n), "%s: Q^H Q - I is %g", c->text,
          norms[2]);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = j + 1; i < n; i++) {
            CHECK(t->rets[1].whole[j * n + i] == 0, "%s: R is no triangle", c->text);
        }
        for (int64_t i = c->n_rows; i < n_rows; i++) {
            CHECK(*at(&t->rets[0], &c->s, i, j) == 0, "%s: row %lld of Q is not zero",
                  c->text, (long long)i);
        }
    }
}

/* R is the same, with and without Q. */
static void judge_alone(const dealt_run_t *with_q, const case_t *of)
{
    case_t c = *of;
    const plait_tsqr_params_t params = {c.s.m, c.s.n, 1};
    const plait_tsqr_problem_t problem = {
        .dtype = c.dtype, .m = c.s.m, .n = c.s.n, .without_q = true};
    dealt_run_t t;

    c.without_q = true;
    run_case(&c, &t, &params, &problem);
    for (int64_t i = 0; i < c.s.n * c.s.n; i++) {
        CHECK(t.rets[1].whole[i] == with_q->rets[1].whole[i], "%s: other bits", c.text);
    }
    dealt_clear(&t);
}

static void run_and_judge(case_t *c)
{
    const plait_tsqr_params_t params = {c->s.m, c->s.n, 0};
    const plait_tsqr_problem_t problem = {.dtype = c->dtype, .m = c->s.m, .n = c->s.n};
    dealt_run_t t;

    run_case(c, &t, &params, &problem);
    if (!c->has_nan) {
        judge(&t, c);
        judge_alone(&t, c);
    }
    for (int64_t j = c->s.n / 2; c->has_nan && j < c->s.n; j++) {
        /* of Q LAPACK promises nothing: in OpenBLAS 0.3.21 snrm2 passes over a NaN */
        CHECK(isnan(cabs(t.rets[1].whole[j * c->s.n + j])), "%s: R has no NaN",
              c->text);
    }
    dealt_clear(&t);
}

static void check_results(int n_ranks, plait_direct_t direct)
{
    static const shape_t shapes[] = {{0, 0}, {3, 0}, {1, 1},  {9, 1},
                                     {4, 4}, {9, 4}, {20, 7}, {70, 33}};
    const int n_shapes = sizeof(shapes) / sizeof(*shapes);

    for (int i = 0; i < n_shapes * 4; i++) {
        const shape_t *s = &shapes[i / 4];
        case_t c = {.dtype = dealt_dtypes[i % 4],
                    .s = *s,
                    .n_ranks = n_ranks,
                    .direct = direct,
                    .n_rows = s->m * n_ranks,
                    .donates = (i + n_ranks) % 5 == 0};
        if (is_quick() && (i + n_ranks) % 7 != 0) {
            continue;
        }
        run_and_judge(&c);
    }
}

/* Rows of zeros on the last ranks: some rows of one rank, all rows of others. */
static void check_padding(int n_ranks, plait_direct_t direct)
{
    for (int i = 0; i < 4; i++) {
        case_t c = {.dtype = dealt_dtypes[i],
                    .s = {6, 5},
                    .n_ranks = n_ranks,
                    .direct = direct,
                    .n_rows = 6 * (n_ranks - n_ranks / 2) - 1};
        run_and_judge(&c);
    }
}

static void check_nan(int n_ranks, plait_direct_t direct)
{
    for (int i = 0; i < 4; i++) {
        case_t c = {.dtype = dealt_dtypes[i],
                    .s = {8, 5},
                    .n_ranks = n_ranks,
                    .direct = direct,
                    .n_rows = 8 * n_ranks,
                    .has_nan = true};
        run_and_judge(&c);
    }
}

static void check_team(int n_ranks, plait_direct_t direct)
{
    check_results(n_ranks, direct);
    check_padding(n_ranks, direct);
    if (n_ranks <= 7) {
        check_nan(n_ranks, direct);
    }
}

/* ---- wrong input ---- */

static void check_refusals(plait_comm_t *comm, void *unused)
{
    plait_plan_t *plan = NULL;
    plait_tsqr_problem_t p = {.dtype = PLAIT_S32, .m = 4, .n = 2};

    (void)unused;
    check_refused(plait_tsqr_plan(comm, &p, &plan), PLAIT_ERR_INVALID,
                  "expected float32, float64, complex64 or complex128");
    p.dtype = PLAIT_F64;
    p.m = 1;
    check_refused(plait_tsqr_plan(comm, &p, &plan), PLAIT_ERR_INVALID,
                  "tsqr: 1 rows on each rank; expected at least as many as the 2");
    p.n = -1;
    check_refused(plait_tsqr_plan(comm, &p, &plan), PLAIT_ERR_INVALID, "1 x -1");
    check_refused(plait_tsqr_plan(NULL, &p, &plan), PLAIT_ERR_COMM, "NULL");
}

static void check_on_devices(void)
{
    failing_plan_t plan = failing_tsqr;

    for (int n_ranks = 1; n_ranks <= (is_quick() ? 3 : 6); n_ranks++) {
        on_device_begin(n_ranks);
        if (n_ranks == 1) { /* plans of any number of ranks */
            check_plans();
        }
        check_team(n_ranks, PLAIT_DIRECT_NONE);
        if (n_ranks == 1 && on_device_n_cuda == 0) {
            team_run(1, PLAIT_DIRECT_POINTER, plan_failing_rank, &plan);
        } else if (n_ranks < 4 && on_device_n_cuda == 0) {
            check_failing(n_ranks, failing_tsqr);
        }
        on_device_end(n_ranks);
    }
}

static void check_on_host(void)
{
    static const int teams[] = {1, 2, 3, 5, 7, 8, 16};

    check_plans();
    check_planted();
    for (int i = 0; i < 7 * 3; i++) {
        check_team(teams[i / 3], dealt_directs[i % 3]);
    }
    team_run(2, PLAIT_DIRECT_POINTER, check_refusals, NULL);
}

int main(int n_arguments, char **arguments)
{
    return dense_main("test_tsqr", n_arguments, arguments, check_on_devices,
                      check_on_host);
}
