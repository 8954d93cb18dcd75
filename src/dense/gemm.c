/* c = op(a) b. Without transposition, block column k of a times block row k of b is added to c. With
 * transposition, block column k of a makes block row k of c. The diagonal block of a triangular a is the
 * first block applied to its rows of c, so that it can be applied in place. */
#include "dense/gemm.h"

#include "base/checked.h"
#include "base/status.h"
#include "dense/params.h"
#include "plait/dense.h"
#include "plan/op.h"

static const plait_attr_t gemm_attrs[] = {
    PLAIT_ATTR(plait_gemm_params_t, m),      PLAIT_ATTR(plait_gemm_params_t, n),
    PLAIT_ATTR(plait_gemm_params_t, k),      PLAIT_ATTR(plait_gemm_params_t, trans),
    PLAIT_ATTR(plait_gemm_params_t, block),  PLAIT_ATTR(plait_gemm_params_t, form_a),
    PLAIT_ATTR(plait_gemm_params_t, form_c), PLAIT_ATTR_END,
};

static plait_status_t gemm_of(const plait_gemm_params_t *p,
                              const plait_problem_t *problem, plait_gemm_t *g)
{
    plait_status_t status = PLAIT_OK;
    const plait_dealt_t common = {.block = p->block,
                                  .n_ranks = problem->n_ranks,
                                  .dtype = problem->args[0].dtype};

    PLAIT_CHECK(p->trans >= PLAIT_TRANS_NONE && p->trans <= PLAIT_TRANS_ADJOINT,
                PLAIT_ERR_INVALID, "gemm: trans is %lld, expected 0, 1 or 2",
                (long long)p->trans);
    PLAIT_CHECK(p->form_a >= PLAIT_FORM_GENERAL && p->form_a <= PLAIT_FORM_UNIT_UPPER,
                PLAIT_ERR_INVALID, "gemm: form_a is %lld, expected 0 to 4",
                (long long)p->form_a);
    PLAIT_CHECK(p->form_c == PLAIT_FORM_GENERAL || p->form_c == PLAIT_FORM_LOWER,
                PLAIT_ERR_INVALID, "gemm: form_c is %lld, expected 0 or 1",
                (long long)p->form_c);
    *g = (plait_gemm_t){
        .a = common,
        .b = common,
        .c = common,
        .is_trans = p->trans != PLAIT_TRANS_NONE,
        .is_lower = p->form_a == PLAIT_FORM_LOWER || p->form_a == PLAIT_FORM_UNIT_LOWER,
        .is_upper = p->form_a == PLAIT_FORM_UPPER || p->form_a == PLAIT_FORM_UNIT_UPPER,
        .is_unit = p->form_a >= PLAIT_FORM_UNIT_LOWER,
        .trans = "NTC"[p->trans],
        .is_lower_c = p->form_c == PLAIT_FORM_LOWER,
    };
    g->a.m = g->is_trans ? p->k : p->m;
    g->a.n = g->is_trans ? p->m : p->k;
    g->b.m = p->k;
    g->c.m = p->m;
    g->b.n = g->c.n = p->n;
    PLAIT_TRY(plait_dealt_fits(&g->a, &problem->args[0], "gemm operand a"));
    PLAIT_TRY(plait_dealt_fits(&g->b, &problem->args[1], "gemm operand b"));
    PLAIT_TRY(plait_dealt_fits(&g->c, &problem->rets[0], "gemm result"));
done:
    return status;
}

/* ---- what is in a panel ---- */

/* Part of a that its form does not make zero: a triangle or a rectangle. */
typedef struct {
    bool is_triangle;
    int64_t row, n_rows, column, n_columns;
} piece_t;

enum { MAX_PIECES = 3 };

/* The pieces of block k, in the order in which they are applied. */
static int pieces_of(const plait_gemm_t *g, int64_t k, piece_t piece[MAX_PIECES])
{
    const int64_t first = plait_dealt_column(&g->a, k), m = g->a.m;
    const int64_t width = plait_dealt_width(&g->a, k), end = first + width;
    const int64_t side = plait_max(0, plait_min(m, end) - first);
    const piece_t triangle = {true, first, side, first, side};
    int n = 0;

    if (g->is_lower) {
        piece[n++] = triangle;
        piece[n++] = (piece_t){false, first + side, m - first - side, first, side};
    } else if (g->is_upper) {
        piece[n++] = triangle;
        piece[n++] = (piece_t){false, 0, first, first, side};
        piece[n++] = (piece_t){false, 0, m, first + side, width - side};
    } else {
        piece[n++] = (piece_t){false, 0, m, first, width};
    }
    return n;
}

/* Rows of block k that contain any of its pieces. */
static void rows_of(const plait_gemm_t *g, int64_t k, int64_t *first_p, int64_t *end_p)
{
    const int64_t first = plait_dealt_column(&g->a, k);
    const int64_t end = first + plait_dealt_width(&g->a, k);

    *first_p = g->is_lower ? plait_min(first, g->a.m) : 0;
    *end_p = g->is_upper ? plait_min(end, g->a.m) : g->a.m;
}

/* ---- the walk ---- */

typedef struct {
    const plait_gemm_t *g;
    plait_plan_t *plan;
    plait_own_t own; /* columns of the result */
    int work_slot;
    int64_t first, end; /* rows of the result that have been written */
} walk_t;

/* The i-th panel of this rank's walk. Without transposition a triangle's walk starts at the triangle's own end,
 * so that its diagonal blocks come first. Otherwise, if ranks read by themselves, each rank starts with its own
 * panel. */
static int64_t panel_at(const walk_t *w, int64_t i)
{
    const int64_t n_blocks = plait_dealt_n_blocks(&w->g->a);
    const bool is_free =
        (w->g->is_trans || !w->g->is_upper) && w->plan->direct != PLAIT_DIRECT_NONE;

    return (!w->g->is_trans && w->g->is_lower) ? n_blocks - 1 - i
           : is_free                           ? (w->plan->rank + i) % n_blocks
                                               : i;
}

static plait_status_t add_piece(walk_t *w, const piece_t *piece,
                                const plait_panel_t *panel, int64_t panel_row,
                                int64_t panel_column)
{
    plait_status_t status = PLAIT_OK;
    const plait_gemm_t *g = w->g;
    const int64_t dst_row = g->is_trans ? piece->column : piece->row;
    const int64_t dst_end = dst_row + (g->is_trans ? piece->n_columns : piece->n_rows);
    const plait_rows_t src = {.slot = g->b_slot,
                              .ld = g->b.m,
                              .row = g->is_trans ? piece->row : piece->column};
    const plait_rows_t dst = {.slot = g->c_slot, .ld = g->c.m, .row = dst_row};
    const plait_panel_t part =
        plait_panel_part(panel, plait_dealt_item(&g->a), piece->row - panel_row,
                         piece->n_rows, piece->column - panel_column, piece->n_columns);
    const int64_t n_columns = plait_own_columns(&w->own, dst_end);

    if (piece->is_triangle) {
        const plait_triangle_t triangle = {.own = w->own,
                                           .part = part,
                                           .uplo = g->is_lower ? 'L' : 'U',
                                           .trans = g->trans,
                                           .diag = g->is_unit ? 'U' : 'N',
                                           .src = src,
                                           .dst = dst,
                                           .n_columns = n_columns};
        PLAIT_TRY(plait_sweep_triangle(w->plan, &triangle));
    } else {
        const bool is_known = w->first <= dst_row && dst_end <= w->end;
        const plait_product_t product = {.own = w->own,
                                         .part = part,
                                         .trans = g->trans,
                                         .alpha = 1,
                                         .beta = is_known ? 1 : 0,
                                         .src = src,
                                         .dst = dst,
                                         .n_columns = n_columns,
                                         .stairs = g->is_lower_c ? PLAIT_STAIRS_DST
                                                                 : PLAIT_STAIRS_NONE};
        PLAIT_TRY(plait_sweep_product(w->plan, &product));
    }
    w->first = (w->first == w->end) ? dst_row : plait_min(w->first, dst_row);
    w->end = plait_max(w->end, dst_end);
done:
    return status;
}

static plait_status_t add_panel(walk_t *w, int64_t k)
{
    plait_status_t status = PLAIT_OK;
    const plait_gemm_t *g = w->g;
    plait_dealt_t a = g->a;
    plait_panel_t panel;
    piece_t piece[MAX_PIECES];
    const int n_pieces = pieces_of(g, k, piece);
    const int64_t column = plait_dealt_column(&a, k);
    int64_t first = 0;
    int64_t end = 0;

    rows_of(g, k, &first, &end);
    if (first == end) {
        goto done; /* zero by its form, on all ranks */
    }
    a.n_readers = plait_own_readers(
        &w->own, g->is_trans ? column + plait_dealt_width(&a, k) : g->c.m);
    PLAIT_TRY(plait_dealt_fetch(w->plan, &a, g->a_slot, k, first, end - first,
                                w->work_slot, NULL, &panel));
    if (g->is_trans) {
        w->first = w->end = 0; /* no other panel writes its rows */
    }
    for (int i = 0; i < n_pieces; i++) {
        if (piece[i].n_rows > 0 && piece[i].n_columns > 0) {
            PLAIT_TRY(add_piece(w, &piece[i], &panel, first, column));
        }
    }
done:
    return status;
}

/* Rows of c that panels write: the rows behind them are zero by the form of op(a). */
static int64_t written_rows(const plait_gemm_t *g)
{
    const bool is_upper = g->is_trans ? g->is_lower : g->is_upper;

    return (is_upper || g->b.m == 0) ? plait_min(g->c.m, g->b.m) : g->c.m;
}

static plait_status_t add_walk(const plait_gemm_t *g, const plait_outline_t *outline,
                               plait_plan_t *plan)
{
    plait_status_t status = PLAIT_OK;
    walk_t w = {.g = g, .plan = plan, .own = outline->own, .work_slot = -1};

    PLAIT_TRY(plait_plan_add_work(plan, plait_dealt_panel_bytes(plan, &g->a, g->a.m),
                                  &w.work_slot));
    PLAIT_TRY(plait_sweep_fence(plan));
    for (int64_t i = 0; i < plait_dealt_n_blocks(&g->a); i++) {
        PLAIT_TRY(add_panel(&w, panel_at(&w, i)));
    }
    PLAIT_TRY(plait_sweep_outline(plan, outline));
    PLAIT_TRY(plait_sweep_fence(plan));
done:
    return status;
}

plait_status_t plait_gemm_add(plait_plan_t *plan, const plait_gemm_t *given)
{
    plait_status_t status = PLAIT_OK;
    plait_gemm_t g = *given;
    const bool has_tiles = (g.is_lower || g.is_upper) && g.is_lower_c;

    if (g.c.m > 0 && g.c.n > 0) {
        const int64_t n_stored = plait_dealt_stored(&g.c);
        g.a.block = plait_sweep_block(plan->n_ranks, g.a.block, g.a.n, has_tiles);
        g.c.block = plait_sweep_block(plan->n_ranks, g.c.block, g.c.n, g.is_lower_c);
        const plait_outline_t outline = {
            .own = {.d = g.c, .rank = plan->rank, .is_lower = g.is_lower_c},
            .n_rows = written_rows(&g),
            .n_stored = n_stored,
            .src_slot = -1,
            .dst_slot = g.c_slot};
        PLAIT_TRY(add_walk(&g, &outline, plan));
    }
done:
    return status;
}

static plait_status_t gemm_plan(const void *params, const plait_problem_t *problem,
                                plait_plan_t **plan_p)
{
    static const char *const forms[] = {"", " lower", " upper", " unit lower",
                                        " unit upper"};
    plait_status_t status = PLAIT_OK;
    const plait_gemm_params_t *p = params;
    plait_plan_t *plan = NULL;
    plait_gemm_t g;

    PLAIT_TRY(plait_dense_require(problem));
    PLAIT_TRY(gemm_of(p, problem, &g));
    PLAIT_TRY(plait_plan_create(
        problem, &plan, "gemm %s %lld x %lld x %lld, a%s %c%s in blocks of %lld",
        plait_dtype_name(g.a.dtype), (long long)p->m, (long long)p->n, (long long)p->k,
        forms[p->form_a], g.trans, g.is_lower_c ? ", c lower" : "",
        (long long)p->block));
    plan->uses_blas = plan->device == NULL;
    plait_dealt_agree(plan, &g.a);
    plait_dealt_agree(plan, &g.c);
    plait_plan_agree(plan, (uint64_t)p->trans);
    plait_plan_agree(plan, (uint64_t)p->form_a);
    plait_plan_agree(plan, (uint64_t)p->form_c);
    g.a_slot = plait_slot_arg(plan, 0);
    g.b_slot = plait_slot_arg(plan, 1);
    g.c_slot = plait_slot_ret(plan, 0);
    PLAIT_TRY(plait_gemm_add(plan, &g));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_gemm = {
    .name = "gemm",
    .n_args = 2,
    .n_rets = 1,
    .params_size = sizeof(plait_gemm_params_t),
    .attrs = gemm_attrs,
    .alias = -1,
    .family = PLAIT_FAMILY_NONE,
    .model = "mesh",
    .doc = "Multiply dealt matrices: c = op(a) b.",
    .plan = gemm_plan,
};
