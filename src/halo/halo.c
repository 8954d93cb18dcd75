/* Halo exchange and its exact adjoint, on padded local arrays.
 *
 * `layout` is that of the interior, without ghosts. Along an axis with extent e > 0 every
 * rank's array has e ghost cells before and after its interior. exchange fills each ghost
 * with the interior cell of its global index, wrapped where the axis is periodic, zero beyond
 * an end that is not; corners included, in one round, across several ranks where e is larger
 * than their interiors. reduce adds each ghost into the interior cell it is a copy of and
 * zeroes the ghosts. Boxes along each axis multiply to boxes of the array.
 * Source: own; the adjoint pair as in notes on structured meshes, e.g. PETSc's DMDA
 * (GlobalToLocal with INSERT, LocalToGlobal with ADD). */
#include "base/alloc.h"
#include "base/checked.h"
#include "halo/params.h"
#include "plan/op.h"
#include "redist/blocks.h"
#include "redist/params.h"

static const plait_attr_t halo_attrs[] = {
    PLAIT_ATTR_ARRAY(plait_halo_params_t, layout),
    PLAIT_ATTR_ARRAY(plait_halo_params_t, extents),
    PLAIT_ATTR_ARRAY(plait_halo_params_t, periodic),
    PLAIT_ATTR_END,
};

typedef struct {
    plait_layout_t layout;
    const plait_halo_params_t *p;
    int64_t item_bytes;
    int x, y; /* slots */
} halo_t;

static plait_interval_t interior_of(const halo_t *h, int rank, int axis)
{
    return plait_layout_interval(&h->layout, rank, axis, 0, NULL);
}

static void padded_shape(const halo_t *h, int rank, int64_t shape[])
{
    plait_layout_local_shape(&h->layout, rank, shape);
    for (int a = 0; a < h->layout.ndim; a++) {
        shape[a] += 2 * h->p->extents[a];
    }
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* Cells of `ghosts` (global indices, possibly outside the array) that are copies of cells of
 * `owned`; local index 0 of dst is global index dst_start. */
static plait_status_t add_ghosts(const halo_t *h, int axis, plait_interval_t owned,
                                 plait_interval_t ghosts, int64_t dst_start,
                                 plait_overlaps_t *list)
{
    plait_status_t status = PLAIT_OK;
    int64_t n = h->layout.shape[axis];
    bool wraps = h->p->periodic[axis] != 0;
    int64_t first = (wraps && n > 0) ? floor_div(ghosts.lo, n) : 0;
    int64_t last = (wraps && n > 0) ? floor_div(ghosts.hi - 1, n) : 0;

    for (int64_t k = first; k <= last; k++) { /* the k-th periodic image */
        int64_t lo = plait_max(ghosts.lo, owned.lo + k * n);
        int64_t hi = plait_min(ghosts.hi, owned.hi + k * n);
        if (lo < hi) {
            PLAIT_TRY(plait_overlaps_add(
                list,
                (plait_overlap_t){.n = hi - lo,
                                  .src = h->p->extents[axis] + lo - (owned.lo + k * n),
                                  .dst = lo - dst_start}));
        }
    }
done:
    return status;
}

/* Along one axis: which of dst's cells are copies of src's interior cells. The interior
 * itself comes first. */
static plait_status_t axis_overlaps(const halo_t *h, int src, int dst, int axis,
                                    plait_overlaps_t *list)
{
    plait_status_t status = PLAIT_OK;
    int64_t e = h->p->extents[axis];
    plait_interval_t from = interior_of(h, src, axis);
    plait_interval_t to = interior_of(h, dst, axis);

    list->n = 0;
    if (from.lo == to.lo && from.hi == to.hi && to.lo < to.hi) {
        PLAIT_TRY(plait_overlaps_add(
            list, (plait_overlap_t){.n = to.hi - to.lo, .src = e, .dst = e}));
    }
    if (e > 0) {
        const plait_interval_t before = {to.lo - e, to.lo};
        const plait_interval_t after = {to.hi, to.hi + e};
        PLAIT_TRY(add_ghosts(h, axis, from, before, to.lo - e, list));
        PLAIT_TRY(add_ghosts(h, axis, from, after, to.lo - e, list));
    }
done:
    return status;
}

/* The other way round: the adjoint's blocks. */
static void swap_sides(plait_overlaps_t *list)
{
    for (int64_t i = 0; i < list->n; i++) {
        plait_overlap_t *o = &list->items[i];
        int64_t src = o->src;
        o->src = o->dst;
        o->dst = src;
    }
}

/* Blocks of the exchange from src to dst, or with is_adjoint those of the reduction from dst
 * to src, appended to a list of the rank that plans. Sender and receiver call it alike. */
static plait_status_t add_pair(const halo_t *h, int src, int dst, bool is_adjoint,
                               bool is_out, const plait_block_t *block,
                               plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    plait_overlaps_t overlaps[PLAIT_MAX_NDIM] = {{0}};
    plait_pair_t pair = {.ndim = h->layout.ndim, .item_bytes = h->item_bytes};
    bool is_empty = false;

    padded_shape(h, is_adjoint ? dst : src, pair.src_shape);
    padded_shape(h, is_adjoint ? src : dst, pair.dst_shape);
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

static plait_status_t add_zeros(const halo_t *h, int rank, const int64_t before[],
                                const int64_t after[], plait_move_t *move)
{
    plait_pair_t pair = {.ndim = h->layout.ndim, .item_bytes = h->item_bytes};
    const plait_block_t block = {
        .peer = rank, .kind = PLAIT_BLOCK_ZERO, .src_slot = h->y, .dst_slot = h->y};

    padded_shape(h, rank, pair.src_shape);
    padded_shape(h, rank, pair.dst_shape);
    return plait_blocks_zero(&block, &pair, before, after, move);
}

/* Ghosts beyond an end of an axis that is not periodic (all of them, if there are no cells). */
static void outer_ghosts(const halo_t *h, int rank, int64_t before[], int64_t after[])
{
    for (int a = 0; a < h->layout.ndim; a++) {
        int64_t n = h->layout.shape[a];
        int64_t e = h->p->extents[a];
        plait_interval_t own = interior_of(h, rank, a);
        bool ends = h->p->periodic[a] == 0 || n == 0;
        int64_t n_cells = own.hi - own.lo + 2 * e;
        before[a] = ends ? plait_min(plait_max(e - own.lo, 0), n_cells) : 0;
        after[a] = ends ? plait_min(plait_max(own.hi + e - n, 0), n_cells) : 0;
    }
}

static plait_status_t add_exchange(plait_plan_t *plan, const halo_t *h)
{
    plait_status_t status = PLAIT_OK;
    plait_move_t move = {0};
    int64_t before[PLAIT_MAX_NDIM];
    int64_t after[PLAIT_MAX_NDIM];
    int replica = plait_layout_replica(&h->layout, plan->rank);

    for (int i = 0; i < plan->n_ranks; i++) {
        int peer = (plan->rank + i) % plan->n_ranks;
        const plait_block_t block = {.peer = peer, .src_slot = h->x, .dst_slot = h->y};
        if (plait_layout_replica(&h->layout, peer) != replica) {
            continue;
        }
        PLAIT_TRY(add_pair(h, peer, plan->rank, false, false, &block, &move));
        if (plan->direct == PLAIT_DIRECT_NONE && peer != plan->rank) {
            PLAIT_TRY(add_pair(h, plan->rank, peer, false, true, &block, &move));
        }
    }
    outer_ghosts(h, plan->rank, before, after);
    PLAIT_TRY(add_zeros(h, plan->rank, before, after, &move));
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(plait_plan_move(plan, &move));
    PLAIT_TRY(plait_plan_fence(plan));
done:
    plait_move_clear(&move);
    return status;
}

/* The own interior is copied first (the first block of the pair of a rank with itself); what
 * follows is added to it. */
static plait_status_t add_own(plait_plan_t *plan, const halo_t *h, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    const plait_block_t block = {.peer = plan->rank,
                                 .kind = PLAIT_BLOCK_ADD,
                                 .src_slot = h->x,
                                 .dst_slot = h->y};

    PLAIT_TRY(add_pair(h, plan->rank, plan->rank, true, false, &block, move));
    if (move->n_in > 0) {
        move->in[0].kind = PLAIT_BLOCK_COPY;
    }
done:
    return status;
}

static plait_status_t add_reduce(plait_plan_t *plan, const halo_t *h,
                                 plait_dtype_t dtype)
{
    plait_status_t status = PLAIT_OK;
    plait_move_t move = {.dtype = dtype};
    plait_move_t zeros = {0};
    int replica = plait_layout_replica(&h->layout, plan->rank);

    PLAIT_TRY(add_own(plan, h, &move));
    for (int i = 1; i < plan->n_ranks; i++) {
        int peer = (plan->rank + i) % plan->n_ranks;
        const plait_block_t block = {
            .peer = peer, .kind = PLAIT_BLOCK_ADD, .src_slot = h->x, .dst_slot = h->y};
        if (plait_layout_replica(&h->layout, peer) != replica) {
            continue;
        }
        PLAIT_TRY(add_pair(h, plan->rank, peer, true, false, &block, &move));
        if (plan->direct == PLAIT_DIRECT_NONE) {
            PLAIT_TRY(add_pair(h, peer, plan->rank, true, true, &block, &move));
        }
    }
    PLAIT_TRY(add_zeros(h, plan->rank, h->p->extents, h->p->extents, &zeros));
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(plait_plan_move(plan, &move));
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(plait_plan_move(plan, &zeros)); /* nobody reads these ghosts any more */
done:
    plait_move_clear(&move);
    plait_move_clear(&zeros);
    return status;
}

static plait_status_t check(const char *name, const halo_t *h,
                            const plait_problem_t *problem)
{
    plait_status_t status = PLAIT_OK;
    const plait_array_t *x = &problem->args[0];
    const plait_array_t *y = &problem->rets[0];
    int64_t padded[PLAIT_MAX_NDIM];

    PLAIT_CHECK(plait_layout_n_ranks(&h->layout) == problem->n_ranks, PLAIT_ERR_INVALID,
                "%s: the layout is for %d ranks, the communicator has %d", name,
                plait_layout_n_ranks(&h->layout), problem->n_ranks);
    PLAIT_CHECK(h->p->n_extents == h->layout.ndim && h->p->n_periodic == h->layout.ndim,
                PLAIT_ERR_INVALID, "%s: %lld extents and %lld periods for %d axes",
                name, (long long)h->p->n_extents, (long long)h->p->n_periodic,
                h->layout.ndim);
    for (int a = 0; a < h->layout.ndim; a++) {
        PLAIT_CHECK(h->p->extents[a] >= 0 && h->p->extents[a] < INT32_MAX,
                    PLAIT_ERR_INVALID,
                    "%s: extent %lld along axis %d, expected 0 or more", name,
                    (long long)h->p->extents[a], a);
        PLAIT_CHECK(h->layout.axis[a].split != PLAIT_SPLIT_CYCLIC, PLAIT_ERR_INVALID,
                    "%s: axis %d is block-cyclic, ghosts need contiguous parts", name,
                    a);
        PLAIT_CHECK(h->layout.stored[a] == 0, PLAIT_ERR_INVALID,
                    "%s: the layout stores more along axis %d than ranks own", name, a);
    }
    PLAIT_CHECK(
        x->dtype == y->dtype && x->ndim == h->layout.ndim && y->ndim == h->layout.ndim,
        PLAIT_ERR_INVALID, "%s: %s with %d axes to %s with %d, the layout has %d", name,
        plait_dtype_name(x->dtype), x->ndim, plait_dtype_name(y->dtype), y->ndim,
        h->layout.ndim);
    padded_shape(h, problem->rank, padded);
    for (int a = 0; a < h->layout.ndim; a++) {
        PLAIT_CHECK(
            x->dims[a] == padded[a] && y->dims[a] == padded[a], PLAIT_ERR_INVALID,
            "%s: rank %d has %lld along axis %d, its interior and ghosts are %lld",
            name, problem->rank, (long long)x->dims[a], a, (long long)padded[a]);
    }
done:
    return status;
}

static plait_status_t halo_plan(const char *name, bool is_reduce,
                                const plait_halo_params_t *p,
                                const plait_problem_t *problem, plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    plait_dtype_t dtype = problem->args[0].dtype;
    halo_t h = {.p = p, .item_bytes = plait_dtype_bytes(dtype)};
    plait_plan_t *plan = NULL;
    char text[96];

    PLAIT_TRY(plait_layout_unpack(p->layout, p->n_layout, &h.layout));
    PLAIT_TRY(check(name, &h, problem));
    PLAIT_CHECK(!is_reduce || plait_reduce_is_defined(PLAIT_SUM, dtype),
                PLAIT_ERR_INVALID, "%s: %s cannot be added", name,
                plait_dtype_name(dtype));
    plait_layout_print(&h.layout, text, sizeof(text));
    PLAIT_TRY(plait_plan_create(problem, &plan, "%s %s %s", name,
                                plait_dtype_name(dtype), text));
    h.x = plait_slot_arg(plan, 0);
    h.y = plait_slot_ret(plan, 0);
    plait_layout_agree(plan, &h.layout);
    for (int a = 0; a < h.layout.ndim; a++) {
        plait_plan_agree(plan, (uint64_t)(2 * p->extents[a] + (p->periodic[a] != 0)));
    }
    plait_plan_agree(plan, dtype);
    PLAIT_TRY(is_reduce ? add_reduce(plan, &h, dtype) : add_exchange(plan, &h));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

static plait_status_t exchange_plan(const void *params, const plait_problem_t *problem,
                                    plait_plan_t **plan_p)
{
    return halo_plan("halo_exchange", false, params, problem, plan_p);
}

static plait_status_t reduce_plan(const void *params, const plait_problem_t *problem,
                                  plait_plan_t **plan_p)
{
    return halo_plan("halo_reduce", true, params, problem, plan_p);
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
    .doc = "Fill the ghost cells of padded local arrays from their owners.",
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
