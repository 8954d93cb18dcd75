/* x = op(a)^-1 b with a triangular a. Its panels are visited in the order of the substitution: forwards if
 * op(a) is lower triangular, otherwise backwards. Without transposition, block row k of x is solved for and
 * then subtracted from the other rows. With transposition, all known rows are subtracted from block row k,
 * which is then solved for. Both need only block column k of a. */
#include "dense/trsm.h"

#include "base/checked.h"
#include "base/status.h"
#include "dense/few.h"
#include "plait/dense.h"

static const plait_attr_t trsm_attrs[] = {
    PLAIT_ATTR(plait_trsm_params_t, n),
    PLAIT_ATTR(plait_trsm_params_t, n_rhs),
    PLAIT_ATTR(plait_trsm_params_t, block),
    PLAIT_ATTR(plait_trsm_params_t, uplo),
    PLAIT_ATTR(plait_trsm_params_t, trans),
    PLAIT_ATTR(plait_trsm_params_t, diag),
    PLAIT_ATTR(plait_trsm_params_t, form),
    PLAIT_ATTR(plait_trsm_params_t, whole),
    PLAIT_ATTR_END,
};

static plait_status_t check(const char *name, const plait_trsm_params_t *p)
{
    plait_status_t status = PLAIT_OK;
    const bool is_trans = p->trans != PLAIT_TRANS_NONE;

    PLAIT_CHECK(p->uplo == PLAIT_UPLO_LOWER || p->uplo == PLAIT_UPLO_UPPER,
                PLAIT_ERR_INVALID, "%s: uplo is %lld, expected 0 or 1", name,
                (long long)p->uplo);
    PLAIT_CHECK(p->trans >= PLAIT_TRANS_NONE && p->trans <= PLAIT_TRANS_ADJOINT,
                PLAIT_ERR_INVALID, "%s: trans is %lld, expected 0, 1 or 2", name,
                (long long)p->trans);
    PLAIT_CHECK(p->diag == PLAIT_DIAG_NON_UNIT || p->diag == PLAIT_DIAG_UNIT,
                PLAIT_ERR_INVALID, "%s: diag is %lld, expected 0 or 1", name,
                (long long)p->diag);
    PLAIT_CHECK(
        p->form == PLAIT_FORM_GENERAL ||
            (p->form == PLAIT_FORM_LOWER && is_trans == (p->uplo == PLAIT_UPLO_UPPER)),
        PLAIT_ERR_INVALID,
        "%s: form is %lld, expected 0, or 1 where op(a) is lower triangular", name,
        (long long)p->form);
    PLAIT_CHECK(p->whole == 0 || (p->whole == 1 && p->form == PLAIT_FORM_GENERAL),
                PLAIT_ERR_INVALID,
                "%s: whole is %lld, expected 0, or 1 for a general right-hand side",
                name, (long long)p->whole);
done:
    return status;
}

static plait_status_t fits(const char *name, const char *what, const plait_dealt_t *d,
                           const plait_array_t *array)
{
    char text[40];

    (void)snprintf(text, sizeof(text), "%s %s", name, what);
    return plait_dealt_fits(d, array, text);
}

plait_status_t plait_trsm_describe(const char *name, const plait_trsm_params_t *p,
                                   const plait_problem_t *problem, plait_trsm_t *t)
{
    plait_status_t status = PLAIT_OK;
    const plait_dealt_t a = {.m = p->n,
                             .n = p->n,
                             .block = p->block,
                             .n_ranks = problem->n_ranks,
                             .dtype = problem->args[0].dtype};
    plait_dealt_t x = a;

    x.n = p->n_rhs;
    if (p->whole == 1) {
        x.n_ranks = 1;
        x.block = plait_max(p->n_rhs, 1);
    }
    PLAIT_TRY(check(name, p));
    PLAIT_TRY(fits(name, "operand a", &a, &problem->args[0]));
    PLAIT_TRY(fits(name, "operand b", &x, &problem->args[1]));
    PLAIT_TRY(fits(name, "result", &x, &problem->rets[0]));
    *t = (plait_trsm_t){
        .a = a,
        .own = {.d = x, .rank = problem->rank, .is_lower = p->form == PLAIT_FORM_LOWER},
        .is_whole = p->whole == 1,
        .uplo = "LU"[p->uplo],
        .trans = "NTC"[p->trans],
        .diag = "NU"[p->diag],
        .work_slot = -1,
    };
done:
    return status;
}

/* Block k: fetches rows [first, end). Of these, [column, column + width) are the diagonal block, and [rest,
 * rest_end) the other rows. */
static plait_status_t add_panel(const plait_trsm_t *t, plait_plan_t *plan, int64_t k)
{
    plait_status_t status = PLAIT_OK;
    const int64_t column = plait_dealt_column(&t->a, k);
    const int64_t width = plait_dealt_width(&t->a, k), item = plait_dealt_item(&t->a);
    const bool is_lower = t->uplo == 'L', is_plain = t->trans == 'N';
    const int64_t first = is_lower ? column : 0;
    const int64_t end = is_lower ? t->a.m : column + width;
    const int64_t rest = is_lower ? column + width : 0;
    const int64_t rest_end = is_lower ? t->a.m : column;
    const plait_rows_t row = {.slot = t->x_slot, .ld = t->a.m, .row = column};
    const plait_rows_t others = {.slot = row.slot, .ld = row.ld, .row = rest};
    plait_dealt_t a = t->a;
    plait_panel_t panel;

    a.n_readers = plait_own_readers(&t->own, column + width);
    PLAIT_TRY(plait_dealt_fetch(plan, &a, t->a_slot, k, first, end - first,
                                t->work_slot, NULL, &panel));
    const plait_triangle_t triangle = {
        .own = t->own,
        .part = plait_panel_part(&panel, item, column - first, width, 0, width),
        .is_solve = true,
        .uplo = t->uplo,
        .trans = t->trans,
        .diag = t->diag,
        .src = row,
        .dst = row,
        .n_columns = plait_own_columns(&t->own, column + width)};
    const plait_product_t product = {
        .own = t->own,
        .part = plait_panel_part(&panel, item, rest - first, rest_end - rest, 0, width),
        .trans = t->trans,
        .alpha = -1,
        .beta = 1,
        .src = is_plain ? row : others,
        .dst = is_plain ? others : row,
        .n_columns = plait_own_columns(&t->own, is_plain ? column + width : rest_end),
        .stairs =
            (t->own.is_lower && !is_plain) ? PLAIT_STAIRS_SRC : PLAIT_STAIRS_NONE};
    if (is_plain) {
        PLAIT_TRY(plait_sweep_triangle(plan, &triangle));
        PLAIT_TRY(plait_sweep_product(plan, &product));
    } else {
        PLAIT_TRY(plait_sweep_product(plan, &product));
        PLAIT_TRY(plait_sweep_triangle(plan, &triangle));
    }
done:
    return status;
}

static plait_status_t add_walk(plait_trsm_t *t, const plait_outline_t *outline,
                               plait_plan_t *plan)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n_blocks = plait_dealt_n_blocks(&t->a);
    const bool is_forward = (t->uplo == 'L') == (t->trans == 'N'); /* op(a) is lower */

    if (t->work_slot < 0) {
        PLAIT_TRY(plait_plan_add_work(
            plan, plait_dealt_panel_bytes(plan, &t->a, t->a.m), &t->work_slot));
    }
    if (t->b_slot != t->x_slot) {
        PLAIT_TRY(plait_sweep_outline(plan, outline));
    }
    for (int64_t i = 0; i < n_blocks; i++) {
        PLAIT_TRY(add_panel(t, plan, is_forward ? i : n_blocks - 1 - i));
    }
done:
    return status;
}

/* A whole right-hand side and several ranks: the steps have their own fences. */
static bool is_few(const plait_plan_t *plan, const plait_trsm_t *t)
{
    return t->is_whole && plan->n_ranks > 1;
}

static plait_status_t add_few(const plait_trsm_t *t, plait_plan_t *plan)
{
    const plait_few_t few = {.a = t->a,
                             .n_rhs = t->own.d.n,
                             .rank = plan->rank,
                             .uplo = t->uplo,
                             .trans = t->trans,
                             .diag = t->diag,
                             .stays = t->stays,
                             .a_slot = t->a_slot,
                             .b_slot = t->b_slot,
                             .x_slot = t->x_slot};

    return plait_few_add(plan, &few);
}

static plait_status_t add_dealt(plait_trsm_t *t, plait_plan_t *plan)
{
    plait_status_t status = PLAIT_OK;
    plait_trsm_t walk = *t; /* with its own blocks */
    plait_dealt_t *x = &walk.own.d;
    const int64_t n_stored = plait_dealt_stored(x);
    /* one column: tiles and gemv take two thirds of the time of BLAS's own trsm */
    const bool has_tiles = t->own.is_lower || x->n == 1;

    walk.a.block = x->block = plait_sweep_block(plan->n_ranks, t->a.block,
                                                plait_max(t->a.n, x->n), has_tiles);
    const plait_outline_t outline = {.own = walk.own,
                                     .n_rows = t->a.n,
                                     .n_stored = n_stored,
                                     .src_slot = t->b_slot,
                                     .dst_slot = t->x_slot};
    PLAIT_TRY(add_walk(&walk, &outline, plan));
    t->work_slot = walk.work_slot;
done:
    return status;
}

static bool is_empty(const plait_trsm_t *t)
{
    return t->a.n == 0 || t->own.d.n == 0;
}

plait_status_t plait_trsm_fence(plait_plan_t *plan, const plait_trsm_t *t)
{
    return (is_empty(t) || is_few(plan, t)) ? PLAIT_OK : plait_sweep_fence(plan);
}

plait_status_t plait_trsm_add(plait_plan_t *plan, plait_trsm_t *t)
{
    return is_empty(t)       ? PLAIT_OK
           : is_few(plan, t) ? add_few(t, plan)
                             : add_dealt(t, plan);
}

static plait_status_t trsm_plan(const void *params, const plait_problem_t *problem,
                                plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_trsm_params_t *p = params;
    plait_plan_t *plan = NULL;
    plait_trsm_t t;

    PLAIT_TRY(plait_dense_require(problem));
    PLAIT_TRY(plait_trsm_describe("trsm", p, problem, &t));
    PLAIT_TRY(plait_plan_create(
        problem, &plan, "trsm %s %lld for %lld columns%s, a %s%s %c in blocks of %lld",
        plait_dtype_name(t.a.dtype), (long long)p->n, (long long)p->n_rhs,
        t.own.is_lower    ? " lower"
        : (p->whole == 1) ? " on all ranks"
                          : "",
        (t.diag == 'U') ? "unit " : "", (t.uplo == 'L') ? "lower" : "upper", t.trans,
        (long long)p->block));
    plan->uses_blas = plan->device == NULL;
    plait_dealt_agree(plan, &t.a);
    plait_dealt_agree(plan, &t.own.d);
    plait_plan_agree(plan, (uint64_t)p->uplo);
    plait_plan_agree(plan, (uint64_t)p->trans);
    plait_plan_agree(plan, (uint64_t)p->diag);
    plait_plan_agree(plan, (uint64_t)p->form);
    plait_plan_agree(plan, (uint64_t)p->whole);
    t.a_slot = plait_slot_arg(plan, 0);
    t.b_slot = plait_slot_arg(plan, 1);
    t.x_slot = plait_slot_ret(plan, 0);
    PLAIT_TRY(plait_trsm_fence(plan, &t));
    PLAIT_TRY(plait_trsm_add(plan, &t));
    PLAIT_TRY(plait_trsm_fence(plan, &t));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_trsm = {
    .name = "trsm",
    .n_args = 2,
    .n_rets = 1,
    .params_size = sizeof(plait_trsm_params_t),
    .attrs = trsm_attrs,
    .alias = 1,
    .family = PLAIT_FAMILY_NONE,
    .model = "mesh",
    .doc = "Solve with a dealt triangular matrix: x = op(a)^-1 b.",
    .plan = trsm_plan,
};
