/* Plans of factorizations, which are not executed: their cost, by the definition and for up to 64 ranks; how
 * panels travel; where one rank does everything; and that planted faults are found. */
#include "dense/whole.h"
#include "dense_factor.h"
#include "kernel/blas.h"

enum { SKIPPED = 77, MAX_TREES = 64 };

/* ---- costs ---- */

/* The data that a rank receives: of every other rank's panel, once, the part for its own columns, with the
 * owner's outcome; and one panel of work memory. */
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
        dealt_clear(&t);
    }
}

/* All matrices on one rank: the cost; other tests show that results are the same. */
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
        dealt_clear(&t);
    }
}

/* The choice without a test's setting: one rank for a small matrix, all ranks for a large matrix, and all ranks
 * sooner if a block column costs less. */
static void check_choice(void)
{
    for (int i = 0; i < 4 * 3; i++) {
        const plait_dtype_t dtype = dealt_dtypes[i % 4];
        const int n_ranks = 1 << (1 + 2 * (i / 4));
        int64_t largest[2] = {0};
        for (int64_t n = 16; n < 4000; n += 16) {
            const double flops =
                (double)(n * n * n) / 3 * (plait_is_complex(dtype) ? 4 : 1);
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

/* ---- steps ---- */

/* The plans of all ranks for a Cholesky factorization of n columns in blocks. */
static void potrf_plans(int64_t n, int64_t block, int n_ranks, plait_direct_t direct,
                        plait_plan_t *plans[])
{
    const plait_potrf_params_t params = {n, block, 1};
    const int64_t dims[] = {plait_dense_columns(n, block, n_ranks), n};
    const int64_t one = 1;
    const plait_array_t a = {.dtype = PLAIT_F64, .ndim = 2, .dims = dims};
    const plait_array_t rets[] = {a, {.dtype = PLAIT_S32, .ndim = 1, .dims = &one}};

    for (int r = 0; r < n_ranks; r++) {
        const plait_problem_t problem = {.n_ranks = n_ranks,
                                         .rank = r,
                                         .caps = {.direct = direct},
                                         .n_args = 1,
                                         .n_rets = 2,
                                         .args = &a,
                                         .rets = rets};
        CHECK(plait_op_potrf.plan(&params, &problem, &plans[r]) == PLAIT_OK, "plan");
    }
}

static const plait_move_t *move_at(const plait_plan_t *plan, int n)
{
    for (int i = 0; i < plan->n_steps; i++) {
        if (plan->steps[i].kind == PLAIT_STEP_MOVE && n-- == 0) {
            return &plan->steps[i].u.move;
        }
    }
    return NULL;
}

/* The only rank that blocks of a move go to or come from; -1: none, -2: several. */
static int only_peer(const plait_block_t blocks[], int64_t n)
{
    int peer = -1;

    for (int64_t i = 0; i < n; i++) {
        peer = (peer == -1 || peer == blocks[i].peer) ? blocks[i].peer : -2;
    }
    return peer;
}

/* The time until the last rank is done, if a message takes its sender and its receiver one unit of time from
 * when both are ready. */
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

/* A panel reaches all ranks in ceil(log2 P) consecutive messages. */
static void check_trees(void)
{
    for (int n_ranks = 2; n_ranks <= MAX_TREES; n_ranks++) {
        const int n_panels = 1 + n_ranks % 3;
        plait_plan_t *plans[MAX_TREES] = {NULL};
        int log = 0;

        while ((1 << log) < n_ranks) {
            log++;
        }
        potrf_plans(4 * n_panels, 4, n_ranks, PLAIT_DIRECT_NONE, plans);
        int64_t time = time_of(plans, n_ranks);
        CHECK((n_panels == 1) ? time == log : time > log && time <= n_panels * log,
              "%d ranks: %lld messages one after the other for %d panels, log2 is %d",
              n_ranks, (long long)time, n_panels, log);
        for (int r = 0; r < n_ranks; r++) {
            plait_plan_destroy(&plans[r]);
        }
    }
}

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

/* Moves a step before an earlier step. */
static void hasten(plait_plan_t *plan, int from, int to)
{
    plait_step_t step = plan->steps[from];

    for (int i = from; i > to; i--) {
        plan->steps[i] = plan->steps[i - 1];
    }
    plan->steps[to] = step;
}

/* One panel is factored after its owner has arrived; another panel is overwritten after its owner has arrived
 * at the fence after that. The proof must not hold. */
static void check_planted(void)
{
    const char *const faults[] = {"reads what its owner writes in the same phase",
                                  "overwrites what a peer reads in the same phase"};

    for (int fault = 0; fault < 2; fault++) {
        plait_plan_t *plans[2] = {NULL};
        potrf_plans(8, 2, 2, PLAIT_DIRECT_POINTER, plans);
        if (fault == 0) { /* rank 1 owns panel 1 */
            int at = index_of(plans[1], PLAIT_STEP_ARRIVE, 1);
            hasten(plans[1], at, at - 1);
        } else {
            int n_fences = count_steps(plans[0], PLAIT_STEP_FENCE);
            hasten(plans[0], plans[0]->n_steps - 1,
                   index_of(plans[0], PLAIT_STEP_FENCE, n_fences - 2));
        }
        check_refused(plait_plans_check(plans, 2, &(plait_check_t){.alias = -1}),
                      PLAIT_ERR_INTERNAL, faults[fault]);
        for (int r = 0; r < 2; r++) {
            plait_plan_destroy(&plans[r]);
        }
    }
}

int main(void)
{
    if (plait_blas_require() != PLAIT_OK) {
        printf("test_factor_plans: skipped: %s\n", plait_error_text());
        return SKIPPED;
    }
    plait_dense_choose_whole(INT64_MAX);
    check_whole_cost();
    plait_dense_choose_whole(0);
    check_costs();
    check_trees();
    check_planted();
    plait_dense_choose_whole(-1);
    check_choice();
    return report("test_factor_plans");
}
