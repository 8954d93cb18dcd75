/* QR factorization of a matrix that has far more rows than columns. Every rank has some of the rows and
 * factors them, and the triangles R are combined along a binomial tree, two at a time. On the way up a rank
 * sends its triangle, once. On the way down it gets R and the coefficients of its columns of Q, which are a
 * triangle, too. Triangles travel packed: n (n + 1) / 2 elements each.
 *
 * On a device triangles travel as squares, and a pair stays in the form that LAPACK gives it (tsqr_tiles.c).
 *
 * Rank r combines its own triangle with that of rank r + 2^level, from level 0 on, until it sends its own: at
 * the level of its lowest bit. A pair (its own R, the other rank's R) is a 2n x n matrix. It is replaced by
 * its Q, two upper triangles. These, times the coefficients of rank r, give the coefficients of both ranks.
 * Source: Demmel, Grigori, Hoemmen, Langou, "Communication-optimal parallel and sequential QR and LU
 * factorizations", SIAM J. Sci. Comput. 34(1), 2012. */
#include "dense/tsqr.h"

#include "base/checked.h"
#include "base/status.h"
#include "dense/dealt.h"
#include "dense/params.h"
#include "dense/reflect.h"
#include "plan/op.h"

#include <inttypes.h>
#include <string.h>

static const plait_attr_t tsqr_attrs[] = {
    PLAIT_ATTR(plait_tsqr_params_t, m),
    PLAIT_ATTR(plait_tsqr_params_t, n),
    PLAIT_ATTR(plait_tsqr_params_t, without_q),
    PLAIT_ATTR_END,
};

/* ---- the tree ---- */

enum { MAX_LEVELS = 31 }; /* a rank is an int */

static int n_levels(int n_ranks)
{
    int n = 0;

    while (n < MAX_LEVELS && ((int64_t)1 << n) < n_ranks) {
        n++;
    }
    return n;
}

/* The rank that combines a rank's triangle with its own at a level; -1: the triangle is not sent at this
 * level. */
static int parent_of(int rank, int level)
{
    const int64_t bit = (int64_t)1 << level;

    return (rank % (2 * bit) == bit) ? (int)(rank - bit) : -1;
}

/* The rank whose triangle a rank combines with its own at a level; -1: none. */
static int child_of(int rank, int level, int n_ranks)
{
    const int64_t bit = (int64_t)1 << level;

    return (rank % (2 * bit) == 0 && rank + bit < n_ranks) ? (int)(rank + bit) : -1;
}

/* Number of pairs of a rank. They are at the levels from 0 on. */
static int n_pairs(int rank, int n_ranks)
{
    int n = 0;

    while (n < n_levels(n_ranks) && child_of(rank, n, n_ranks) >= 0) {
        n++;
    }
    return n;
}

/* ---- sizes ---- */

/* Scratch of a factorization: scalar factors of n reflectors, then LAPACK's work memory. */
static int64_t factors_bytes(const plait_tsqr_t *t)
{
    return (t->n * plait_tsqr_item(t) + 63) / 64 * 64;
}

static int64_t n_work(const plait_tsqr_t *t, int64_t m)
{
    plait_blas_work_t factor = {.n = -1}, form = {.n = -1};

    (void)plait_blas_geqrf(t->dtype, m, t->n, NULL, m, NULL, &factor);
    (void)plait_blas_orgqr(t->dtype, m, t->n, t->n, NULL, m, NULL, &form);
    return plait_max(1, plait_max(factor.n, form.n));
}

static int64_t scratch_bytes(const plait_tsqr_t *t)
{
    const int64_t of_rows = n_work(t, t->m), of_pairs = n_work(t, 2 * t->n);
    const int64_t factor =
        factors_bytes(t) + plait_max(of_rows, of_pairs) * plait_tsqr_item(t);

    return plait_max(factor, t->n * t->n * plait_tsqr_item(t));
}

/* ---- triangles ---- */

/* Packs the upper triangle of n columns, ld elements apart. `to` may be where the columns begin, if ld >= 2
 * n. */
static void pack(const plait_tsqr_t *t, char *to, const char *columns, int64_t ld)
{
    const int64_t item = plait_tsqr_item(t);

    for (int64_t j = 0; j < t->n; j++) {
        memmove(to + j * (j + 1) / 2 * item, columns + j * ld * item,
                (size_t)((j + 1) * item));
    }
}

/* Undoes this, with zeros below the diagonal, down to row n. */
static void unpack(const plait_tsqr_t *t, char *columns, int64_t ld, const char *from)
{
    const int64_t item = plait_tsqr_item(t);

    for (int64_t j = 0; j < t->n; j++) {
        char *column = columns + j * ld * item;
        memcpy(column, from + j * (j + 1) / 2 * item, (size_t)((j + 1) * item));
        memset(column + (j + 1) * item, 0, (size_t)((t->n - j - 1) * item));
    }
}

/* Replaces m x n columns by their Q, if Q is wanted; R goes, packed, to the own triangle. */
static void factor(const plait_tsqr_t *t, plait_exec_t *exec, int64_t m, char *columns)
{
    char *factors = exec->scratch;
    plait_blas_work_t work = {.n = n_work(t, m),
                              .work = exec->scratch + factors_bytes(t)};

    plait_reflect_factor(t->dtype, m, t->n, columns, m, factors, &work);
    pack(t, exec->slot[t->own_slot], columns, m);
    if (!t->without_q) {
        (void)plait_blas_orgqr(t->dtype, m, t->n, t->n, columns, m, factors, &work);
    }
}

/* Multiplies m x n columns by the coefficients that have come. */
static void multiply(const plait_tsqr_t *t, plait_exec_t *exec, int64_t m,
                     char *columns)
{
    unpack(t, exec->scratch, t->n, exec->slot[t->in_slot]);
    plait_blas_trmm(t->dtype, 'R', 'U', 'N', 'N', m, t->n, 1, exec->scratch, t->n,
                    columns, m);
}

static char *pair_at(const plait_tsqr_t *t, const plait_exec_t *exec)
{
    return exec->slot[t->pair_slot] + plait_tsqr_pair_offset(t);
}

/* ---- kernels ---- */

static void touch_bytes(const plait_tsqr_t *t, bool is_write, int slot, int64_t offset,
                        int64_t n_bytes, plait_touch_fn_t touch, void *context)
{
    const plait_box_copy_t box = {.row_bytes = n_bytes};

    touch(context, is_write, t->rank, slot, offset, &box);
}

/* On a device: scalar factors behind the rows; those of the rows, or of the pair at this level. */
static void touch_tau(const plait_tsqr_t *t, bool is_write, bool is_pair,
                      plait_touch_fn_t touch, void *context)
{
    if (t->is_on_device) {
        touch_bytes(t, is_write, t->rows_slot, plait_tsqr_tau_offset(t, is_pair),
                    plait_tsqr_column_bytes(t), touch, context);
    }
}

static plait_status_t rows_run(const void *params, plait_exec_t *exec)
{
    const plait_tsqr_t *t = params;
    char *q = exec->slot[t->q_slot];

    if (q != exec->slot[t->a_slot]) {
        memcpy(q, exec->slot[t->a_slot], (size_t)(plait_tsqr_rows_bytes(t)));
    }
    factor(t, exec, t->m, q);
    return PLAIT_OK;
}

static void rows_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_tsqr_t *t = params;
    const int64_t n_bytes = plait_tsqr_rows_bytes(t);

    touch_bytes(t, false, t->a_slot, 0, n_bytes, touch, context);
    touch_bytes(t, true, t->rows_slot, 0, n_bytes, touch, context);
    touch_tau(t, true, false, touch, context);
    touch_bytes(t, true, t->own_slot, 0, plait_tsqr_triangle_bytes(t), touch, context);
}

static void rows_print(const void *params, FILE *file)
{
    const plait_tsqr_t *t = params;

    (void)fprintf(file, "%" PRId64 " rows of %" PRId64, t->m, t->n);
}

static plait_status_t pair_run(const void *params, plait_exec_t *exec)
{
    const plait_tsqr_t *t = params;
    char *pair = pair_at(t, exec);

    unpack(t, pair, 2 * t->n, exec->slot[t->own_slot]);
    unpack(t, pair + t->n * plait_tsqr_item(t), 2 * t->n, exec->slot[t->in_slot]);
    factor(t, exec, 2 * t->n, pair);
    return PLAIT_OK;
}

static void pair_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_tsqr_t *t = params;

    touch_bytes(t, false, t->own_slot, 0, plait_tsqr_triangle_bytes(t), touch, context);
    touch_bytes(t, false, t->in_slot, 0, plait_tsqr_triangle_bytes(t), touch, context);
    touch_bytes(t, true, t->pair_slot, plait_tsqr_pair_offset(t),
                plait_tsqr_pair_bytes(t), touch, context);
    touch_tau(t, true, true, touch, context);
    touch_bytes(t, true, t->own_slot, 0, plait_tsqr_triangle_bytes(t), touch, context);
}

static void pair_print(const void *params, FILE *file)
{
    const plait_tsqr_t *t = params;

    (void)fprintf(file, "two triangles of %" PRId64 ", level %d", t->n, t->level + 1);
}

/* Own coefficients go to where they are kept; the other rank's go to the beginning of the pair, which is not
 * needed any more. */
static plait_status_t split_run(const void *params, plait_exec_t *exec)
{
    const plait_tsqr_t *t = params;
    char *pair = pair_at(t, exec);

    if (t->has_coefficients) {
        multiply(t, exec, 2 * t->n, pair);
    }
    pack(t, exec->slot[t->in_slot], pair, 2 * t->n);
    pack(t, pair, pair + t->n * plait_tsqr_item(t), 2 * t->n);
    return PLAIT_OK;
}

static void split_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_tsqr_t *t = params;

    if (t->has_coefficients) {
        touch_bytes(t, false, t->in_slot, 0, plait_tsqr_triangle_bytes(t), touch,
                    context);
    }
    touch_bytes(t, false, t->pair_slot, plait_tsqr_pair_offset(t),
                plait_tsqr_pair_bytes(t), touch, context);
    touch_tau(t, false, true, touch, context);
    touch_bytes(t, true, t->in_slot, 0, plait_tsqr_triangle_bytes(t), touch, context);
    touch_bytes(t, true, t->pair_slot, plait_tsqr_pair_offset(t),
                plait_tsqr_pair_bytes(t), touch, context);
}

static plait_status_t results_run(const void *params, plait_exec_t *exec)
{
    const plait_tsqr_t *t = params;

    if (t->has_coefficients) {
        multiply(t, exec, t->m, exec->slot[t->q_slot]);
    }
    unpack(t, exec->slot[t->r_slot], t->n, exec->slot[t->own_slot]);
    return PLAIT_OK;
}

static void results_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_tsqr_t *t = params;
    const int64_t n_bytes = plait_tsqr_rows_bytes(t);

    if (t->has_coefficients) {
        touch_bytes(t, false, t->in_slot, 0, plait_tsqr_triangle_bytes(t), touch,
                    context);
    }
    if (t->is_on_device ? !t->without_q : t->has_coefficients) {
        touch_bytes(t, false, t->rows_slot, 0, n_bytes, touch, context);
        touch_tau(t, false, false, touch, context);
        touch_bytes(t, true, t->q_slot, 0, n_bytes, touch, context);
    }
    touch_bytes(t, false, t->own_slot, 0, plait_tsqr_triangle_bytes(t), touch, context);
    touch_bytes(t, true, t->r_slot, 0, t->n * t->n * plait_tsqr_item(t), touch,
                context);
}

static const plait_kernel_t rows_kernel = {.name = "tsqr: factor",
                                           .run = rows_run,
                                           .tiles = plait_tsqr_rows_tiles,
                                           .touch = rows_touch,
                                           .print = rows_print};
static const plait_kernel_t pair_kernel = {.name = "tsqr: combine",
                                           .run = pair_run,
                                           .tiles = plait_tsqr_pair_tiles,
                                           .touch = pair_touch,
                                           .print = pair_print};
static const plait_kernel_t split_kernel = {.name = "tsqr: coefficients of",
                                            .run = split_run,
                                            .tiles = plait_tsqr_split_tiles,
                                            .touch = split_touch,
                                            .print = pair_print};
static const plait_kernel_t results_kernel = {.name = "tsqr: results of",
                                              .run = results_run,
                                              .tiles = plait_tsqr_results_tiles,
                                              .touch = results_touch,
                                              .print = rows_print};

/* ---- plan ---- */

static plait_status_t add(plait_plan_t *plan, const plait_kernel_t *kernel,
                          const plait_tsqr_t *t)
{
    return plait_plan_kernel_copy(plan, kernel, t, sizeof(*t));
}

/* Moves a triangle between this rank and the rank that it meets at this level; nothing if it meets none. */
static plait_status_t between(const plait_plan_t *plan, const plait_tsqr_t *t,
                              bool is_up, int src_slot, int64_t src_offset,
                              int dst_slot, plait_move_t *move)
{
    const int parent = parent_of(t->rank, t->level);
    const int child = child_of(t->rank, t->level, t->n_ranks);
    const int above = (parent >= 0) ? parent : t->rank;
    const int below = (parent >= 0) ? t->rank : child;
    const plait_block_t block = {.kind = PLAIT_BLOCK_COPY,
                                 .src_slot = src_slot,
                                 .dst_slot = dst_slot,
                                 .src_offset = src_offset,
                                 .box = {.row_bytes = plait_tsqr_triangle_bytes(t)}};

    return (below < 0) ? PLAIT_OK
                       : plait_dealt_between(plan, is_up ? below : above,
                                             is_up ? above : below, &block, move);
}

static plait_status_t add_up(plait_plan_t *plan, const plait_tsqr_t *t)
{
    plait_status_t status = PLAIT_OK;
    plait_move_t move = {0};

    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(between(plan, t, true, t->own_slot, 0, t->in_slot, &move));
    PLAIT_TRY(plait_plan_move(plan, &move));
    if (child_of(t->rank, t->level, t->n_ranks) >= 0) {
        PLAIT_TRY(add(plan, &pair_kernel, t));
    }
done:
    plait_move_clear(&move);
    return status;
}

/* Each level has its own place for a pair: the next pair is written while this one is read. */
static plait_status_t add_down(plait_plan_t *plan, const plait_tsqr_t *t)
{
    plait_status_t status = PLAIT_OK;
    plait_move_t move = {0};

    if (!t->without_q && child_of(t->rank, t->level, t->n_ranks) >= 0) {
        PLAIT_TRY(add(plan, &split_kernel, t));
    }
    PLAIT_TRY(plait_plan_fence(plan));
    if (!t->without_q) {
        PLAIT_TRY(between(plan, t, false, t->pair_slot, plait_tsqr_pair_offset(t),
                          t->in_slot, &move));
    }
    PLAIT_TRY(between(plan, t, false, t->own_slot, 0, t->own_slot, &move));
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

/* On a device; n_pairs: pairs that are kept. */
static plait_status_t add_on_device(plait_plan_t *plan, plait_tsqr_t *t,
                                    int64_t n_pairs)
{
    plait_status_t status = PLAIT_OK;
    const bool has_products = n_pairs > 0 && !t->without_q;

    PLAIT_TRY(plait_plan_add_work(
        plan, plait_tsqr_rows_bytes(t) + (1 + n_pairs) * plait_tsqr_column_bytes(t),
        &t->rows_slot));
    PLAIT_TRY(plait_plan_add_work(plan, has_products ? plait_tsqr_pair_bytes(t) : 0,
                                  &t->product_slot));
done:
    return status;
}

/* On the host, where the rows are in Q, or without Q in work memory. */
static plait_status_t add_on_host(plait_plan_t *plan, plait_tsqr_t *t)
{
    plait_status_t status = PLAIT_OK;

    if (t->without_q) {
        PLAIT_TRY(plait_plan_add_work(plan, plait_tsqr_rows_bytes(t), &t->q_slot));
    }
    t->rows_slot = t->q_slot;
    plait_plan_need_scratch(plan, scratch_bytes(t));
done:
    return status;
}

static plait_status_t add_steps(plait_plan_t *plan, plait_tsqr_t *t)
{
    plait_status_t status = PLAIT_OK;
    const int top = n_levels(t->n_ranks);
    int64_t n_own = n_pairs(t->rank, t->n_ranks);

    PLAIT_TRY(plait_plan_add_work(plan, plait_tsqr_triangle_bytes(t), &t->own_slot));
    PLAIT_TRY(plait_plan_add_work(plan, (top > 0) ? plait_tsqr_triangle_bytes(t) : 0,
                                  &t->in_slot));
    n_own = t->without_q ? plait_min(n_own, 1) : n_own;
    PLAIT_TRY(
        plait_plan_add_work(plan, n_own * plait_tsqr_pair_bytes(t), &t->pair_slot));
    PLAIT_TRY(t->is_on_device ? add_on_device(plan, t, n_own) : add_on_host(plan, t));
    PLAIT_TRY(add(plan, &rows_kernel, t));
    for (t->level = 0; t->level < top; t->level++) {
        PLAIT_TRY(add_up(plan, t));
    }
    for (int n_left = top; n_left > 0; n_left--) {
        t->level = n_left - 1;
        t->has_coefficients = t->rank > 0 || t->level + 1 < top;
        PLAIT_TRY(add_down(plan, t));
    }
    t->has_coefficients = top > 0 && !t->without_q;
    if (top > 0) {
        PLAIT_TRY(plait_plan_arrive(plan));
    }
    PLAIT_TRY(add(plan, &results_kernel, t));
    if (top > 0) {
        PLAIT_TRY(plait_plan_fence(plan));
    }
done:
    return status;
}

static plait_status_t check(const plait_tsqr_params_t *p,
                            const plait_problem_t *problem)
{
    plait_status_t status = PLAIT_OK;
    const plait_dealt_t rows = {.m = p->m,
                                .n = p->n,
                                .block = plait_max(p->n, 1),
                                .n_ranks = 1,
                                .dtype = problem->args[0].dtype};
    plait_dealt_t triangle = rows, q = rows;
    int64_t n_bytes = 0;

    triangle.m = p->n;
    q.n = p->without_q ? 0 : p->n;
    PLAIT_TRY(plait_dense_require(problem));
    PLAIT_TRY(plait_dealt_fits(&rows, &problem->args[0], "tsqr: the operand"));
    PLAIT_TRY(plait_dealt_fits(&q, &problem->rets[0], "tsqr: the result Q"));
    PLAIT_TRY(plait_dealt_fits(&triangle, &problem->rets[1], "tsqr: the result R"));
    PLAIT_CHECK(p->m >= p->n, PLAIT_ERR_INVALID,
                "tsqr: %lld rows on each rank; expected at least as many as the %lld "
                "columns",
                (long long)p->m, (long long)p->n);
    PLAIT_CHECK(plait_mul(p->n, p->n, &n_bytes) &&
                    plait_mul(n_bytes,
                              2 * (1 + n_levels(problem->n_ranks)) *
                                  plait_dtype_bytes(rows.dtype),
                              &n_bytes),
                PLAIT_ERR_OVERFLOW, "tsqr: triangles of %lld columns are too large",
                (long long)p->n);
done:
    return status;
}

static plait_status_t tsqr_plan(const void *params, const plait_problem_t *problem,
                                plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_tsqr_params_t *p = params;
    plait_plan_t *plan = NULL;
    plait_tsqr_t t = {.dtype = problem->args[0].dtype,
                      .rank = problem->rank,
                      .n_ranks = problem->n_ranks,
                      .m = p->m,
                      .n = p->n,
                      .without_q = p->without_q != 0,
                      .is_on_device = problem->caps.device != NULL};

    PLAIT_TRY(check(p, problem));
    PLAIT_TRY(plait_plan_create(problem, &plan, "tsqr %s %lldx%lld on each rank%s",
                                plait_dtype_name(t.dtype), (long long)p->m,
                                (long long)p->n, t.without_q ? ", without Q" : ""));
    plan->uses_blas = true;
    plait_plan_agree(plan, (uint64_t)p->m);
    plait_plan_agree(plan, (uint64_t)p->n);
    plait_plan_agree(plan, (uint64_t)t.without_q);
    plait_plan_agree(plan, (uint64_t)t.dtype);
    t.a_slot = plait_slot_arg(plan, 0);
    t.q_slot = plait_slot_ret(plan, 0);
    t.r_slot = plait_slot_ret(plan, 1);
    if (p->n > 0) {
        PLAIT_TRY(add_steps(plan, &t));
    }
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_tsqr = {
    .name = "tsqr",
    .n_args = 1,
    .n_rets = 2,
    .params_size = sizeof(plait_tsqr_params_t),
    .attrs = tsqr_attrs,
    .adjoint = NULL,
    .alias = 0,
    .model = "mesh",
    .doc = "QR factors of a tall matrix that is split by rows, along a tree.",
    .plan = tsqr_plan,
};
