/* Ghost cells around local arrays, and the exact adjoint.
 *
 * `layout` is the layout of the cells, without ghosts. Along axis a every rank's array has before[a] ghosts in
 * front of its cells and after[a] ghosts behind them. Elements stored beyond these are zero in results and
 * never read. exchange fills the ghosts with the cells that they are copies of (halo/ghosts.h): corners
 * included, in one round, from several ranks if a width is larger than their parts. reduce adds each ghost to
 * the cell that it is a copy of, and zeroes the ghost. Boxes of the array are products of boxes along each
 * axis. A rank without cells has no ghosts: its array is zero. With `bare`, exchange's operand and reduce's
 * result are arrays without ghosts.
 * Source: own; the adjoint pair as in notes on structured meshes, e.g. PETSc's DMDA
 * (GlobalToLocal with INSERT, LocalToGlobal with ADD). */
#include "base/alloc.h"
#include "base/checked.h"
#include "halo/ghosts.h"
#include "halo/packed.h"
#include "halo/params.h"
#include "plan/op.h"
#include "redist/params.h"

#include <stdio.h>

static const plait_attr_t halo_attrs[] = {
    PLAIT_ATTR_ARRAY(plait_halo_params_t, layout),
    PLAIT_ATTR_ARRAY(plait_halo_params_t, before),
    PLAIT_ATTR_ARRAY(plait_halo_params_t, after),
    PLAIT_ATTR_ARRAY(plait_halo_params_t, boundary),
    PLAIT_ATTR(plait_halo_params_t, bare),
    PLAIT_ATTR_END,
};

typedef struct {
    plait_layout_t layout;
    const plait_halo_params_t *p;
    int64_t item_bytes;
    bool is_reduce;
    int x, y; /* slots */
} halo_t;

static plait_interval_t cells_of(const halo_t *h, int rank, int axis)
{
    return plait_layout_interval(&h->layout, rank, axis, 0, NULL);
}

static bool has_cells(const halo_t *h, int rank)
{
    int64_t shape[PLAIT_MAX_NDIM];
    bool has = true;

    plait_layout_local_shape(&h->layout, rank, shape);
    for (int a = 0; a < h->layout.ndim; a++) {
        has = has && shape[a] > 0;
    }
    return has;
}

/* Shape of the array with ghosts, or of an array that is bare. */
static void array_shape(const halo_t *h, int rank, bool is_bare, int64_t shape[])
{
    plait_layout_stored_shape(&h->layout, rank, shape);
    for (int a = 0; a < h->layout.ndim && !is_bare; a++) {
        shape[a] += h->p->before[a] + h->p->after[a];
    }
}

/* Along one axis: which of dst's cells and ghosts are copies of src's cells. The cells themselves come
 * first. */
static plait_status_t axis_overlaps(const halo_t *h, int src, int dst, int axis,
                                    plait_overlaps_t *list)
{
    plait_status_t status = PLAIT_OK;
    const plait_halo_axis_t line = {.n = h->layout.shape[axis],
                                    .boundary = (plait_boundary_t)h->p->boundary[axis]};
    int64_t before = h->p->before[axis];
    int64_t start = h->p->bare ? 0 : before;
    plait_interval_t from = cells_of(h, src, axis);
    plait_interval_t to = cells_of(h, dst, axis);
    const plait_interval_t front = {to.lo - before, to.lo};
    const plait_interval_t behind = {to.hi, to.hi + h->p->after[axis]};

    list->n = 0;
    if (from.lo == to.lo && from.hi == to.hi) {
        PLAIT_TRY(plait_overlaps_add(
            list, (plait_overlap_t){.n = to.hi - to.lo, .src = start, .dst = before}));
    }
    PLAIT_TRY(plait_ghosts_add(&line, from, start, front, 0, list));
    PLAIT_TRY(
        plait_ghosts_add(&line, from, start, behind, before + to.hi - to.lo, list));
done:
    return status;
}

/* Exchanges source and destination: blocks of the adjoint. */
static void swap_sides(plait_overlaps_t *list)
{
    for (int64_t i = 0; i < list->n; i++) {
        const plait_overlap_t old = list->items[i];
        list->items[i] = (plait_overlap_t){.n = old.n,
                                           .src = old.dst,
                                           .dst = old.src,
                                           .src_run = old.dst_run,
                                           .dst_run = old.src_run};
    }
}

/* Appends blocks of the exchange from src to dst, or with is_adjoint blocks of the reduction from dst to src,
 * to a list of the rank that plans. Sender and receiver call this with the same values. */
static plait_status_t add_pair(const halo_t *h, int src, int dst, bool is_adjoint,
                               bool is_out, const plait_block_t *block,
                               plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    plait_overlaps_t overlaps[PLAIT_MAX_NDIM] = {{0}};
    plait_pair_t pair = {.ndim = h->layout.ndim, .item_bytes = h->item_bytes};
    bool is_bare = h->p->bare != 0;
    bool is_empty = !has_cells(h, src) || !has_cells(h, dst);

    array_shape(h, src, is_bare, is_adjoint ? pair.dst_shape : pair.src_shape);
    array_shape(h, dst, false, is_adjoint ? pair.src_shape : pair.dst_shape);
    for (int a = 0; a < h->layout.ndim && !is_empty; a++) {
        PLAIT_TRY(axis_overlaps(h, src, dst, a, &overlaps[a]));
        is_empty = overlaps[a].n == 0;
        if (is_adjoint) {
            swap_sides(&overlaps[a]);
        }
    }
    if (!is_empty) {
        PLAIT_TRY(plait_blocks_add(move, is_out, block, &pair, overlaps));
    }
done:
    for (int a = 0; a < h->layout.ndim; a++) {
        plait_overlaps_clear(&overlaps[a]);
    }
    return status;
}

/* Zeroes the result, except what lies between `before` and `after`. */
static plait_status_t add_zeros(const halo_t *h, int rank, bool is_bare,
                                const int64_t before[], const int64_t after[],
                                plait_move_t *move)
{
    plait_pair_t pair = {.ndim = h->layout.ndim, .item_bytes = h->item_bytes};
    const plait_block_t block = {
        .peer = rank, .kind = PLAIT_BLOCK_ZERO, .src_slot = h->y, .dst_slot = h->y};

    array_shape(h, rank, is_bare, pair.src_shape);
    array_shape(h, rank, is_bare, pair.dst_shape);
    return plait_blocks_zero(&block, &pair, before, after, move);
}

/* Zeroes elements that no cell is copied to: ghosts beyond a ZERO end, and what is stored behind the ghosts; on
 * a rank without cells everything. */
static plait_status_t zero_no_copies(const halo_t *h, int rank, plait_move_t *move)
{
    int64_t before[PLAIT_MAX_NDIM];
    int64_t after[PLAIT_MAX_NDIM];
    int64_t shape[PLAIT_MAX_NDIM];
    bool has = has_cells(h, rank);

    array_shape(h, rank, false, shape);
    for (int a = 0; a < h->layout.ndim; a++) {
        int64_t n = h->layout.shape[a];
        plait_interval_t own = cells_of(h, rank, a);
        plait_interval_t all = {own.lo - h->p->before[a], own.hi + h->p->after[a]};
        bool ends = h->p->boundary[a] == PLAIT_BOUNDARY_ZERO;
        int64_t n_kept =
            ends ? plait_min(all.hi, n) - plait_max(all.lo, 0) : all.hi - all.lo;
        before[a] = !has ? shape[a] : ends ? plait_max(-all.lo, 0) : 0;
        after[a] = !has ? 0 : shape[a] - before[a] - n_kept;
    }
    return add_zeros(h, rank, false, before, after, move);
}

/* Zeroes elements for which reduce makes no sum: ghosts, and what is stored behind them. */
static plait_status_t zero_no_cells(const halo_t *h, int rank, plait_move_t *move)
{
    bool is_bare = h->p->bare != 0;
    bool has = has_cells(h, rank);
    int64_t before[PLAIT_MAX_NDIM];
    int64_t after[PLAIT_MAX_NDIM];
    int64_t shape[PLAIT_MAX_NDIM];

    array_shape(h, rank, is_bare, shape);
    for (int a = 0; a < h->layout.ndim; a++) {
        plait_interval_t own = cells_of(h, rank, a);
        before[a] = !has ? shape[a] : is_bare ? 0 : h->p->before[a];
        after[a] = !has ? 0 : shape[a] - before[a] - (own.hi - own.lo);
    }
    return add_zeros(h, rank, is_bare, before, after, move);
}

/* Blocks from one rank to another: of the exchange, or of the reduction. */
static plait_status_t add_flow(const halo_t *h, int from, int to, bool is_out,
                               const plait_block_t *block, plait_move_t *move)
{
    bool is_alike =
        plait_layout_replica(&h->layout, from) == plait_layout_replica(&h->layout, to);

    return !is_alike      ? PLAIT_OK
           : h->is_reduce ? add_pair(h, to, from, true, is_out, block, move)
                          : add_pair(h, from, to, false, is_out, block, move);
}

static plait_status_t flow_blocks(const void *context, int from, int to,
                                  const plait_block_t *block, plait_move_t *move)
{
    return add_flow(context, from, to, false, block, move);
}

/* The own cells come first (the first block of a rank's pair with itself). A reduction copies them, and adds
 * all later blocks to them. */
static plait_status_t add_blocks(plait_plan_t *plan, const halo_t *h, int work,
                                 plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    const plait_flow_t flow = {flow_blocks, h};

    for (int i = 0; i < plan->n_ranks; i++) {
        int peer = (plan->rank + i) % plan->n_ranks;
        const plait_block_t block = {.peer = peer,
                                     .kind = h->is_reduce ? PLAIT_BLOCK_ADD
                                                          : PLAIT_BLOCK_COPY,
                                     .src_slot = h->x,
                                     .dst_slot = h->y};
        if (plan->direct == PLAIT_DIRECT_READ && i > 0) {
            PLAIT_TRY(plait_packed_take(plan, &flow, peer, work, &block, move));
        } else {
            PLAIT_TRY(add_flow(h, peer, plan->rank, false, &block, move));
        }
        if (plan->direct == PLAIT_DIRECT_NONE && i > 0) {
            PLAIT_TRY(add_flow(h, plan->rank, peer, true, &block, move));
        }
        if (i == 0 && h->is_reduce && move->n_in > 0) {
            move->in[0].kind = PLAIT_BLOCK_COPY;
        }
    }
done:
    return status;
}

static plait_status_t add_steps(plait_plan_t *plan, const halo_t *h,
                                plait_dtype_t dtype)
{
    plait_status_t status = PLAIT_OK;
    const plait_flow_t flow = {flow_blocks, h};
    const plait_block_t operand = {.src_slot = h->x};
    plait_move_t move = {.dtype = dtype};
    plait_move_t zeros = {0};
    bool is_apart = h->is_reduce && h->p->bare == 0; /* peers read the ghosts first */
    int work = -1;

    if (plan->direct == PLAIT_DIRECT_READ) {
        PLAIT_TRY(plait_packed_fill(plan, &flow, &operand, &work));
    }
    PLAIT_TRY(add_blocks(plan, h, work, &move));
    PLAIT_TRY(h->is_reduce ? zero_no_cells(h, plan->rank, is_apart ? &zeros : &move)
                           : zero_no_copies(h, plan->rank, &move));
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(plait_plan_move(plan, &move));
    PLAIT_TRY(plait_plan_fence(plan));
    if (is_apart) {
        PLAIT_TRY(plait_plan_move(plan, &zeros));
    }
done:
    plait_move_clear(&move);
    plait_move_clear(&zeros);
    return status;
}

/* Checks parameters, which are equal on all ranks. */
static plait_status_t check_params(const char *name, const halo_t *h, int n_ranks)
{
    plait_status_t status = PLAIT_OK;
    const plait_halo_params_t *p = h->p;
    int ndim = h->layout.ndim;

    PLAIT_CHECK(plait_layout_n_ranks(&h->layout) == n_ranks, PLAIT_ERR_INVALID,
                "%s: the layout is for %d ranks, the communicator has %d", name,
                plait_layout_n_ranks(&h->layout), n_ranks);
    PLAIT_CHECK(p->n_before == ndim && p->n_after == ndim && p->n_boundary == ndim,
                PLAIT_ERR_INVALID,
                "%s: got %lld and %lld widths and %lld boundaries, expected one for "
                "each of %d axes",
                name, (long long)p->n_before, (long long)p->n_after,
                (long long)p->n_boundary, ndim);
    PLAIT_CHECK(p->bare == 0 || p->bare == 1, PLAIT_ERR_INVALID,
                "%s: bare is %lld, expected 0 or 1", name, (long long)p->bare);
    for (int a = 0; a < ndim; a++) {
        PLAIT_CHECK(p->before[a] >= 0 && p->after[a] >= 0, PLAIT_ERR_INVALID,
                    "%s: widths %lld and %lld along axis %d, expected 0 or more", name,
                    (long long)p->before[a], (long long)p->after[a], a);
        PLAIT_CHECK(
            p->before[a] < INT32_MAX && p->after[a] < INT32_MAX, PLAIT_ERR_OVERFLOW,
            "%s: widths %lld and %lld along axis %d, expected less than 2^31 - 1", name,
            (long long)p->before[a], (long long)p->after[a], a);
        PLAIT_CHECK(p->boundary[a] >= 0 && p->boundary[a] <= PLAIT_BOUNDARY_REFLECT,
                    PLAIT_ERR_INVALID,
                    "%s: boundary %lld along axis %d, known are 0 to 3", name,
                    (long long)p->boundary[a], a);
        PLAIT_CHECK(h->layout.axis[a].split != PLAIT_SPLIT_CYCLIC, PLAIT_ERR_INVALID,
                    "%s: axis %d is block-cyclic, ghosts need contiguous parts", name,
                    a);
    }
done:
    return status;
}

static plait_status_t check_array(const char *name, const halo_t *h, int rank,
                                  bool is_bare, const plait_array_t *array)
{
    plait_status_t status = PLAIT_OK;
    int64_t shape[PLAIT_MAX_NDIM];

    PLAIT_CHECK(array->ndim == h->layout.ndim, PLAIT_ERR_INVALID,
                "%s: an array with %d axes, the layout has %d", name, array->ndim,
                h->layout.ndim);
    array_shape(h, rank, is_bare, shape);
    for (int a = 0; a < h->layout.ndim; a++) {
        PLAIT_CHECK(array->dims[a] == shape[a], PLAIT_ERR_INVALID,
                    "%s: rank %d has %lld along axis %d, its cells%s are %lld", name,
                    rank, (long long)array->dims[a], a, is_bare ? "" : " and ghosts",
                    (long long)shape[a]);
    }
done:
    return status;
}

static plait_status_t check(const char *name, const halo_t *h,
                            const plait_problem_t *problem)
{
    plait_status_t status = PLAIT_OK;
    bool is_reduce = h->is_reduce;
    const plait_array_t *x = &problem->args[0];
    const plait_array_t *y = &problem->rets[0];
    bool is_bare = h->p->bare != 0;

    PLAIT_TRY(check_params(name, h, problem->n_ranks));
    PLAIT_CHECK(x->dtype == y->dtype, PLAIT_ERR_INVALID,
                "%s: operand is %s, result is %s", name, plait_dtype_name(x->dtype),
                plait_dtype_name(y->dtype));
    PLAIT_TRY(check_array(name, h, problem->rank, is_bare && !is_reduce, x));
    PLAIT_TRY(check_array(name, h, problem->rank, is_bare && is_reduce, y));
    PLAIT_CHECK(!is_reduce || plait_reduce_is_defined(PLAIT_SUM, x->dtype),
                PLAIT_ERR_INVALID, "%s: %s cannot be added", name,
                plait_dtype_name(x->dtype));
done:
    return status;
}

/* "2+2 periodic, 0, 1+0 edge" */
static void print_widths(const halo_t *h, char *text, size_t n_bytes)
{
    static const char *const names[] = {"periodic", "zero", "edge", "reflect"};
    size_t n = 0;

    text[0] = '\0';
    for (int a = 0; a < h->layout.ndim && n < n_bytes; a++) {
        const char *comma = (a > 0) ? ", " : "";
        int64_t before = h->p->before[a];
        int64_t after = h->p->after[a];
        int more = (before + after == 0)
                       ? snprintf(text + n, n_bytes - n, "%s0", comma)
                       : snprintf(text + n, n_bytes - n, "%s%lld+%lld %s", comma,
                                  (long long)before, (long long)after,
                                  names[h->p->boundary[a]]);
        n += (size_t)plait_max(more, 0);
    }
}

static plait_status_t halo_plan(const char *name, bool is_reduce,
                                const plait_halo_params_t *p,
                                const plait_problem_t *problem, plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    plait_dtype_t dtype = problem->args[0].dtype;
    halo_t h = {.p = p, .item_bytes = plait_dtype_bytes(dtype), .is_reduce = is_reduce};
    plait_plan_t *plan = NULL;
    char layout[80];
    char widths[72];

    PLAIT_TRY(plait_layout_unpack(p->layout, p->n_layout, &h.layout));
    PLAIT_TRY(check(name, &h, problem));
    plait_layout_print(&h.layout, layout, sizeof(layout));
    print_widths(&h, widths, sizeof(widths));
    PLAIT_TRY(plait_plan_create(problem, &plan, "%s %s %s, ghosts %s", name,
                                plait_dtype_name(dtype), layout, widths));
    h.x = plait_slot_arg(plan, 0);
    h.y = plait_slot_ret(plan, 0);
    plait_layout_agree(plan, &h.layout);
    for (int a = 0; a < h.layout.ndim; a++) {
        plait_plan_agree(plan, (uint64_t)p->before[a]);
        plait_plan_agree(plan, (uint64_t)p->after[a]);
        plait_plan_agree(plan, (uint64_t)p->boundary[a]);
    }
    plait_plan_agree(plan, (uint64_t)p->bare);
    plait_plan_agree(plan, dtype);
    PLAIT_TRY(add_steps(plan, &h, dtype));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

static plait_status_t exchange_plan(const void *params, const plait_problem_t *problem,
                                    plait_plan_t **plan_p)
{
    const plait_halo_params_t *p = params;

    return halo_plan((p->bare != 0) ? "halo_pad" : "halo_exchange", false, p, problem,
                     plan_p);
}

static plait_status_t reduce_plan(const void *params, const plait_problem_t *problem,
                                  plait_plan_t **plan_p)
{
    const plait_halo_params_t *p = params;

    return halo_plan((p->bare != 0) ? "halo_fold" : "halo_reduce", true, p, problem,
                     plan_p);
}

const plait_op_t plait_op_halo_exchange = {
    .name = "halo_exchange",
    .n_args = 1,
    .n_rets = 1,
    .params_size = sizeof(plait_halo_params_t),
    .attrs = halo_attrs,
    .adjoint = "halo_reduce",
    .alias = 0,
    .family = PLAIT_FAMILY_HALO,
    .model = "mesh",
    .doc = "Fill ghost cells around local arrays with copies of their owners' cells.",
    .plan = exchange_plan,
};

const plait_op_t plait_op_halo_reduce = {
    .name = "halo_reduce",
    .n_args = 1,
    .n_rets = 1,
    .params_size = sizeof(plait_halo_params_t),
    .attrs = halo_attrs,
    .adjoint = "halo_exchange",
    .alias = 0,
    .family = PLAIT_FAMILY_HALO,
    .model = "mesh",
    .doc = "Add ghost cells into the cells they are copies of, then zero them.",
    .plan = reduce_plan,
};
