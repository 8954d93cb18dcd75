/* Solutions and inverses with a Cholesky factor: plans proven for up to 17 ranks, at the cost of their parts;
 * executed by threads in every way of reaching a peer's memory, or on check devices, in steps or by a library
 * that takes all devices for one. Judged by residuals; parts that must not be read are NaN. */
#include "base/checked.h"
#include "dense.h"
#include "dense/params.h"
#include "dense/sweep.h"
#include "dense_failing.h"
#include "dense_main.h"
#include "plait/config.h"

/* n_rhs -1: the inverse. */
typedef struct {
    plait_dtype_t dtype;
    int64_t n, n_rhs, block;
    bool is_whole;
    int n_ranks;
    plait_direct_t direct;
    bool donates;
    int64_t bad; /* an element of the diagonal that is `value`; -1: none */
    double value;
} case_t;

static bool is_inverse(const case_t *c)
{
    return c->n_rhs < 0;
}

static plait_status_t plan_of(const plait_comm_t *comm, const void *problem,
                              plait_plan_t **plan_p)
{
    const case_t *c = problem;
    const plait_potrs_problem_t solve = {.dtype = c->dtype,
                                         .n = c->n,
                                         .n_rhs = c->n_rhs,
                                         .block = c->block,
                                         .is_whole = c->is_whole};
    const plait_potri_problem_t invert = {
        .dtype = c->dtype, .n = c->n, .block = c->block};

    return is_inverse(c) ? plait_potri_plan(comm, &invert, plan_p)
                         : plait_potrs_plan(comm, &solve, plan_p);
}

static const char *text_of_case(const case_t *c)
{
    static char text[160];

    (void)snprintf(text, sizeof(text),
                   "%s %s %lld rhs %lld block %lld whole %d P %d direct %d bad %lld",
                   is_inverse(c) ? "potri" : "potrs", plait_dtype_name(c->dtype),
                   (long long)c->n, (long long)c->n_rhs, (long long)c->block,
                   (int)c->is_whole, c->n_ranks, (int)c->direct, (long long)c->bad);
    return text;
}

static dealt_run_t run_of(const case_t *c, const plait_potrs_params_t *solve,
                          const plait_potri_params_t *invert)
{
    dealt_run_t t = {.op = is_inverse(c) ? &plait_op_potri : &plait_op_potrs,
                     .params = is_inverse(c) ? (const void *)invert : solve,
                     .plan = plan_of,
                     .problem = c,
                     .n_ranks = c->n_ranks,
                     .direct = c->direct,
                     .donates = c->donates,
                     .n_args = is_inverse(c) ? 1 : 2,
                     .n_rets = 1,
                     .args = {matrix_of(c->dtype, c->n, c->n, c->block, c->n_ranks)},
                     .text = text_of_case(c)};

    t.rets[0] = matrix_of(c->dtype, c->n, is_inverse(c) ? c->n : c->n_rhs, c->block,
                          c->n_ranks);
    if (c->is_whole) {
        t.rets[0] = matrix_of(c->dtype, c->n, c->n_rhs, plait_max(c->n_rhs, 1), 1);
        t.rets[0].is_whole = true;
    }
    t.args[1] = t.rets[0];
    return t;
}

/* ---- What comes out -------------------------------------------------------------------------- */

/* An element of L; below, an element of the result, where an inverse has one triangle, which is mirrored. */
static double complex lower_at(const dealt_run_t *t, int64_t i, int64_t j)
{
    return (i >= j) ? *at(&t->args[0], i, j) : 0;
}

static double complex result_at(const case_t *c, const dealt_run_t *t, int64_t i,
                                int64_t j)
{
    return (is_inverse(c) && i < j) ? conj(*at(&t->rets[0], j, i))
                                    : *at(&t->rets[0], i, j);
}

/* Entry by entry of one column: |L L^H x - b| <= 20 n eps |L| |L^H| |x|; y: L^H x, and |L^H| |x|. */
static int64_t n_bad_of(const case_t *c, const dealt_run_t *t, int64_t j,
                        double complex *y, double *size)
{
    const double eps = 20 * (double)(c->n + 1) * element_unit(c->dtype);
    int64_t n_bad = 0;

    for (int64_t i = 0; i < c->n; i++) {
        y[i] = size[i] = 0;
        for (int64_t k = i; k < c->n; k++) {
            const double complex l = conj(lower_at(t, k, i)), x = result_at(c, t, k, j);
            y[i] += l * x;
            size[i] += cabs(l) * cabs(x);
        }
    }
    for (int64_t i = 0; i < c->n; i++) {
        double complex sum =
            is_inverse(c) ? -(double)(i == j) : -*at(&t->args[1], i, j);
        double bound = 0;
        for (int64_t k = 0; k <= i; k++) {
            sum += lower_at(t, i, k) * y[k];
            bound += eps * cabs(lower_at(t, i, k)) * size[k];
        }
        n_bad += !(cabs(sum) <= bound);
    }
    return n_bad;
}

static void judge(const case_t *c, const dealt_run_t *t)
{
    double complex *y = dealt_matrix(c->n + 1, 1);
    double *size = plait_alloc(c->n + 1, sizeof(*size));
    int64_t n_bad = 0;

    for (int64_t j = 0; j < t->rets[0].d.n; j++) {
        n_bad += n_bad_of(c, t, j, y, size);
        for (int64_t i = 0; i < j && is_inverse(c); i++) {
            n_bad += *at(&t->rets[0], i, j) != 0;
        }
    }
    CHECK(n_bad == 0, "%s: %lld entries", t->text, (long long)n_bad);
    plait_free(y);
    plait_free(size);
}

/* A factor with NaN makes every result NaN. With a 0 on the diagonal some results are not finite; an inverse by
 * a library that reports the 0 has no finite element. */
static void judge_bad(const case_t *c, const dealt_run_t *t)
{
    const bool is_at_once = team_knows_devices && c->n >= c->n_ranks;
    const bool is_nan = isnan(c->value) || (is_inverse(c) && is_at_once);
    int64_t n_finite = 0, n = 0;

    for (int64_t j = 0; j < t->rets[0].d.n; j++) {
        for (int64_t i = is_inverse(c) ? j : 0; i < c->n; i++) {
            const double complex x = *at(&t->rets[0], i, j);
            n_finite += isfinite(creal(x)) && isfinite(cimag(x));
            n++;
        }
    }
    CHECK(is_nan ? n_finite == 0 : n == 0 || n_finite < n,
          "%s: %lld of %lld are finite", t->text, (long long)n_finite, (long long)n);
}

static void execute(const case_t *c)
{
    dealt_run_t t = run_of(c, NULL, NULL);

    dense_begin(&t);
    matrix_fill(&t.args[0], 3);
    for (int64_t i = 0; i < c->n; i++) { /* x stays of the size of b */
        *at(&t.args[0], i, i) += 1 + (double)c->n / 4;
    }
    if (c->bad >= 0 && isnan(c->value)) { /* as potrf leaves it where it has failed */
        matrix_fill(&t.args[0], 3);
        for (int64_t i = 0; i < c->n * c->n; i++) {
            t.args[0].whole[i] = (double complex)NAN;
        }
    } else if (c->bad >= 0) {
        *at(&t.args[0], c->bad, c->bad) = c->value;
    }
    form_poison(&t.args[0], PLAIT_FORM_LOWER);
    if (!is_inverse(c)) {
        matrix_fill(&t.args[1], 4);
    }
    dealt_run(&t);
    if (c->bad >= 0) {
        judge_bad(c, &t);
    } else {
        judge(c, &t);
    }
    dealt_clear(&t);
}

typedef struct {
    int64_t n, n_rhs, block;
} shape_of_t;

static const shape_of_t shapes[] = {
    {19, 23, 4}, {12, 12, 3}, {7, 15, 2}, {14, 5, 2}, {6, 6, 1},   {9, 10, 16},
    {13, 1, 3},  {1, 8, 2},   {5, 0, 2},  {0, 4, 2},  {37, 29, 5}, {16, 40, 4},
};

/* Each shape with right-hand sides that are dealt out, or whole on all ranks, and as an inverse; some with a
 * fault. */
static void execute_all(int n_ranks)
{
    const int n_shapes = (int)(sizeof(shapes) / sizeof(shapes[0]));

    for (int i = 0; i < 12 * n_shapes; i += is_quick() ? 5 : (n_ranks <= 3) ? 1 : 2) {
        const shape_of_t *s = &shapes[i / 12];
        case_t c = {.dtype = dealt_dtypes[i % 4],
                    .n = s->n,
                    .n_rhs = (i % 3 == 2) ? -1 : s->n_rhs,
                    .block = s->block,
                    .is_whole = i % 3 == 1,
                    .n_ranks = n_ranks,
                    .direct = dealt_directs[(i / 4 + i / 12) % 3],
                    .donates = (i / 2 + i / 12) % 2 == 1,
                    .bad = -1};
        execute(&c);
        if (s->n > 0 && i % 7 < 2) {
            c.bad = i % s->n;
            c.value = (i % 7 == 0) ? 0 : NAN;
            execute(&c);
        }
    }
}

/* One rank, more than one tile. */
static void execute_tiles(void)
{
    for (int i = 0; i < 6; i++) {
        const case_t c = {.dtype = dealt_dtypes[i % 4],
                          .n = PLAIT_SWEEP_TILE + 20,
                          .n_rhs = (i % 3 == 0)   ? 1
                                   : (i % 3 == 1) ? PLAIT_SWEEP_TILE + 7
                                                  : -1,
                          .block = 3,
                          .n_ranks = 1,
                          .donates = i % 2 == 0,
                          .bad = -1};
        execute(&c);
    }
}

/* ---- Plans ------------------------------------------------------------------------------------ */

/* more_work: work bytes besides both. n_kept: bytes that the first substitution shows to no other rank. */
static void check_cost(const char *text, int rank, const plait_plan_cost_t *is,
                       const plait_plan_cost_t *first, const plait_plan_cost_t *second,
                       int64_t more_work, int64_t n_kept)
{
    const int64_t n_bytes = first->message_bytes + second->message_bytes - n_kept;
    const int64_t n_messages = first->n_messages + second->n_messages;

    CHECK((n_kept > 0 ? is->n_messages < n_messages : is->n_messages == n_messages) &&
              is->message_bytes == n_bytes &&
              is->work_bytes <= first->work_bytes + second->work_bytes + more_work,
          "%s rank %d: %lld messages, %lld bytes, work %lld; expected %lld, %lld", text,
          rank, (long long)is->n_messages, (long long)is->message_bytes,
          (long long)is->work_bytes, (long long)n_messages, (long long)n_bytes);
}

/* Bytes of a whole solution that other ranks compute. */
static int64_t others_bytes(const case_t *c, int rank)
{
    const plait_dealt_t d = {
        .m = c->n, .n = c->n, .block = c->block, .n_ranks = c->n_ranks};

    return c->is_whole ? (c->n - plait_dealt_owned(&d, rank)) * c->n_rhs *
                             plait_dtype_bytes(c->dtype)
                       : 0;
}

static dealt_run_t solve_run(const dealt_run_t *t, const plait_trsm_params_t *params)
{
    dealt_run_t part = *t;

    part.op = &plait_op_trsm;
    part.params = params;
    part.n_args = 2;
    return part;
}

/* A solution costs as much as its substitutions; an inverse as much as the factor's inverse and the product. */
static void prove(const case_t *c)
{
    const plait_potrs_params_t solve = {c->n, c->n_rhs, c->block, c->is_whole};
    const plait_potri_params_t invert = {c->n, c->block};
    const plait_trsm_params_t down = {.n = c->n,
                                      .n_rhs = is_inverse(c) ? c->n : c->n_rhs,
                                      .block = c->block,
                                      .form = is_inverse(c) ? PLAIT_FORM_LOWER : 0,
                                      .whole = c->is_whole};
    const plait_gemm_params_t product = {.m = c->n,
                                         .n = c->n,
                                         .k = c->n,
                                         .trans = PLAIT_TRANS_ADJOINT,
                                         .block = c->block,
                                         .form_a = PLAIT_FORM_LOWER,
                                         .form_c = PLAIT_FORM_LOWER};
    const int64_t local = plait_dense_columns(c->n, c->block, c->n_ranks) * c->n *
                          plait_dtype_bytes(c->dtype);
    plait_trsm_params_t up = down;
    dealt_run_t t = run_of(c, &solve, &invert), first = solve_run(&t, &down);
    dealt_run_t second = solve_run(&t, &up);

    up.trans = PLAIT_TRANS_ADJOINT;
    if (is_inverse(c)) {
        second.op = &plait_op_gemm;
        second.params = &product;
    }
    (void)dealt_prove(&t);
    (void)dealt_prove(&first);
    (void)dealt_prove(&second);
    for (int r = 0; r < c->n_ranks; r++) {
        check_cost(t.text, r, &t.cost[r], &first.cost[r], &second.cost[r],
                   is_inverse(c) ? local : 0, others_bytes(c, r));
    }
}

static void prove_all(int n_ranks)
{
    const int n_shapes = (int)(sizeof(shapes) / sizeof(shapes[0]));

    for (int i = 0; i < 9 * n_shapes; i += (is_quick() || n_ranks > 8) ? 5 : 1) {
        const shape_of_t *s = &shapes[i / 9];
        const case_t c = {.dtype = PLAIT_C64,
                          .n = s->n,
                          .n_rhs = (i % 3 == 2) ? -1 : s->n_rhs,
                          .block = s->block,
                          .is_whole = i % 3 == 1,
                          .n_ranks = n_ranks,
                          .direct = dealt_directs[i / 3 % 3],
                          .bad = -1};
        prove(&c);
    }
}

/* ---- Wrong input ------------------------------------------------------------------------------ */

static void check_refusals(plait_comm_t *comm, void *unused)
{
    plait_potrs_problem_t s = {.dtype = PLAIT_F64, .n = 4, .n_rhs = -2, .block = 2};
    plait_potri_problem_t i = {.dtype = PLAIT_S32, .n = 4, .block = 2};
    plait_plan_t *plan = NULL;

    (void)unused;
    check_refused(plait_potrs_plan(NULL, &s, &plan), PLAIT_ERR_COMM, "NULL");
    check_refused(plait_potri_plan(NULL, &i, &plan), PLAIT_ERR_COMM, "NULL");
    check_refused(plait_potrs_plan(comm, &s, &plan), PLAIT_ERR_INVALID,
                  "potrs operand b has shape 4 x -2");
    s.block = 0;
    check_refused(plait_potrs_plan(comm, &s, &plan), PLAIT_ERR_INVALID,
                  "potrs operand a: blocks of 0 columns");
    check_refused(plait_potri_plan(comm, &i, &plan), PLAIT_ERR_INVALID,
                  "potri: the factor is int32; expected float32");
    i.dtype = PLAIT_F32;
    i.n = -4;
    check_refused(plait_potri_plan(comm, &i, &plan), PLAIT_ERR_INVALID,
                  "potri: the factor has shape -4 x -4");
}

/* ---- By a library that takes all devices for one ----------------------------------------------- */

static void choose(const char *backend)
{
    CHECK(plait_config_set("dense_backend", backend) == PLAIT_OK, "%s",
          plait_error_text());
}

/* A plan uses the chosen library, except if a rank has no block or there are no right-hand sides. If the
 * library is missing, the choice is an error. */
static void check_chosen(plait_comm_t *comm, void *unused)
{
    const case_t cases[] = {{.dtype = PLAIT_F64, .n = 64, .n_rhs = 3, .block = 2},
                            {.dtype = PLAIT_F64, .n = 64, .n_rhs = -1, .block = 2},
                            {.dtype = PLAIT_F64, .n = 64, .n_rhs = 0, .block = 2},
                            {.dtype = PLAIT_F64, .n = 1, .n_rhs = 3, .block = 2},
                            {.dtype = PLAIT_F64, .n = 1, .n_rhs = -1, .block = 2}};
    plait_device_t *const *devices = comm->end.caps.devices;
    plait_plan_t *plan = NULL;

    (void)unused;
    for (int i = 0; i < 5; i++) {
        char *text = NULL;
        size_t n = 0;
        FILE *file = open_memstream(&text, &n);
        CHECK(plan_of(comm, &cases[i], &plan) == PLAIT_OK, "%s", plait_error_text());
        plait_plan_print(plan, file);
        (void)fclose(file);
        CHECK((strstr(text, "by all devices at once: ") != NULL) == (i < 2), "%d: %s",
              i, text);
        free(text);
        plait_plan_destroy(&plan);
    }
    comm->end.caps.devices = NULL;
    for (int i = 0; i < 2; i++) {
        check_refused(
            plan_of(comm, &cases[i], &plan), PLAIT_ERR_UNSUPPORTED,
            "dense_backend is cuSolverMg: the ranks' devices belong to several");
    }
    comm->end.caps.devices = devices;
}

/* Blocks that the library takes stay, other blocks move; more and fewer right-hand sides than blocks. */
static void execute_kept(int n_ranks)
{
    for (int i = 0; i < 12; i++) {
        const int64_t n = 33 * n_ranks + 5;
        const case_t c = {.dtype = dealt_dtypes[i % 4],
                          .n = n,
                          .n_rhs = (i % 3 == 2)   ? -1
                                   : (i % 2 == 0) ? 7
                                                  : n + 50,
                          .block = 33,
                          .is_whole = i % 3 == 1,
                          .n_ranks = n_ranks,
                          .donates = i / 2 % 2 == 0,
                          .bad = -1};
        execute(&c);
    }
}

/* Blocks with more columns than the library takes. */
static void prove_moved(int n_ranks, int kind)
{
    const plait_potrs_params_t solve = {1100, 1050, 1030, kind == 1};
    const plait_potri_params_t invert = {1100, 1030};
    const case_t c = {.dtype = PLAIT_F32,
                      .n = 1100,
                      .n_rhs = (kind == 2) ? -1 : 1050,
                      .block = 1030,
                      .is_whole = kind == 1,
                      .n_ranks = n_ranks,
                      .direct = PLAIT_DIRECT_NONE};
    dealt_run_t t = run_of(&c, &solve, &invert);

    (void)dealt_prove(&t);
}

static void check_at_once(int n_ranks)
{
    on_device_begin(n_ranks);
    team_knows_devices = true;
    choose("cuSolverMg");
    execute_all(n_ranks);
    execute_kept(n_ranks);
    prove_moved(n_ranks, n_ranks - 2);
    check_failing(n_ranks, (n_ranks == 3) ? failing_potri : failing_potrs);
    team_run(n_ranks, PLAIT_DIRECT_POINTER, check_chosen, NULL);
    choose("auto");
    team_knows_devices = false;
    on_device_end(n_ranks);
}

static void check_on_devices(void)
{
    failing_plan_t plan_potrs = failing_potrs, plan_potri = failing_potri;

    for (int n_ranks = 1; n_ranks <= 3; n_ranks++) {
        on_device_begin(n_ranks);
        execute_all(n_ranks);
        prove_all(n_ranks);
        if (n_ranks == 1) {
            execute_tiles();
        }
        if (n_ranks == 1 && on_device_n_cuda == 0) {
            team_run(1, PLAIT_DIRECT_POINTER, plan_failing_rank, &plan_potrs);
            team_run(1, PLAIT_DIRECT_POINTER, plan_failing_rank, &plan_potri);
        }
        on_device_end(n_ranks);
    }
    on_device_pretend();
    for (int n_ranks = 2; n_ranks <= (is_quick() ? 3 : 4) && on_device_n_cuda == 0;
         n_ranks++) {
        check_at_once(n_ranks);
    }
}

static void check_on_host(void)
{
    static const int teams[] = {1, 2, 3, 4, 7};

    for (int n_ranks = 1; n_ranks <= DEALT_MAX_RANKS; n_ranks += is_quick() ? 4 : 1) {
        prove_all(n_ranks);
    }
    for (size_t i = 0; i < sizeof(teams) / sizeof(teams[0]); i++) {
        execute_all(teams[i]);
    }
    execute_tiles();
    team_run(1, PLAIT_DIRECT_POINTER, check_refusals, NULL);
}

int main(int n_arguments, char **arguments)
{
    return dense_main("test_potrs", n_arguments, arguments, check_on_devices,
                      check_on_host);
}
