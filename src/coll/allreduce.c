/* Reduce elementwise over all ranks; the result is on all of them, with the same bits.
 *
 * Small: the transport's own allreduce, or (threads) every rank reduces everything. Large, or
 * where there is none for the dtype: reduce-scatter, then allgather. Each rank owns a chunk,
 * reduces it over all ranks in rank order, and takes the other chunks from their owners; with
 * direct access that reads every byte of every operand once.
 * Source: Rabenseifner, ICCS 2004, LNCS 3036 (reduce-scatter + allgather). */
#include "base/checked.h"
#include "coll/coll.h"

static const plait_attr_t allreduce_attrs[] = {
    PLAIT_ATTR(plait_allreduce_params_t, reduce),
    PLAIT_ATTR_END,
};

typedef struct {
    plait_reduce_t op;
    plait_dtype_t dtype;
    int64_t n, item_bytes;
    int x, y; /* slots */
    int root; /* who gets the result; -1: all */
} sum_t;

/* Chunk boundaries in elements; a multiple of 64 keeps chunks off each other's cache lines. */
static int64_t chunk_start(const sum_t *s, int n_ranks, int rank)
{
    enum { GRAIN = 64 };
    int64_t n_grains = s->n / GRAIN;

    return (rank == n_ranks) ? s->n : n_grains * rank / n_ranks * GRAIN;
}

static bool has_native(const plait_caps_t *caps, const sum_t *s)
{
    return caps->has_native && (caps->native_reduce[s->op] & (1U << s->dtype)) != 0;
}

static bool gets_result(const sum_t *s, int rank)
{
    return s->root < 0 || s->root == rank;
}

/* Everybody reads everything; the result is put in place when nobody reads any more. */
static plait_status_t add_small(plait_plan_t *plan, const sum_t *s)
{
    plait_status_t status = PLAIT_OK;
    int work = 0;
    plait_reduce_step_t reduce = {
        .op = s->op, .dtype = s->dtype, .n = s->n, .src_slot = s->x};

    PLAIT_TRY(plait_plan_add_work(plan, s->n * s->item_bytes, &work));
    reduce.dst_slot = work;
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(plait_plan_reduce(plan, &reduce));
    PLAIT_TRY(plait_plan_fence(plan));
    if (gets_result(s, plan->rank)) {
        PLAIT_TRY(plait_coll_copy(plan, work, s->y, s->n * s->item_bytes));
    }
done:
    return status;
}

/* The other ranks' chunks from their results, and (messages) mine to those who want it. */
static plait_status_t add_allgather(plait_plan_t *plan, const sum_t *s)
{
    plait_status_t status = PLAIT_OK;
    plait_move_t move = {0};

    for (int i = 1; i < plan->n_ranks; i++) {
        int peer = (plan->rank + i) % plan->n_ranks;
        int64_t theirs = chunk_start(s, plan->n_ranks, peer);
        int64_t mine = chunk_start(s, plan->n_ranks, plan->rank);
        plait_block_t in = {.peer = peer,
                            .src_slot = s->y,
                            .dst_slot = s->y,
                            .src_offset = theirs * s->item_bytes,
                            .dst_offset = theirs * s->item_bytes};
        plait_block_t out = {
            .peer = peer, .src_slot = s->y, .src_offset = mine * s->item_bytes};
        in.box.row_bytes =
            (chunk_start(s, plan->n_ranks, peer + 1) - theirs) * s->item_bytes;
        out.box.row_bytes =
            (chunk_start(s, plan->n_ranks, plan->rank + 1) - mine) * s->item_bytes;
        if (gets_result(s, plan->rank) && in.box.row_bytes > 0) {
            PLAIT_TRY(plait_move_add_in(&move, &in));
        }
        if (plan->direct == PLAIT_DIRECT_NONE && gets_result(s, peer) &&
            out.box.row_bytes > 0) {
            PLAIT_TRY(plait_move_add_out(&move, &out));
        }
    }
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

/* Messages: my chunk of every rank's operand, one after the other, into work. */
static plait_status_t add_collect(plait_plan_t *plan, const sum_t *s, int work)
{
    plait_status_t status = PLAIT_OK;
    plait_move_t move = {0};
    int64_t lo = chunk_start(s, plan->n_ranks, plan->rank);
    int64_t n_mine = chunk_start(s, plan->n_ranks, plan->rank + 1) - lo;

    for (int peer = 0; peer < plan->n_ranks; peer++) {
        int64_t theirs = chunk_start(s, plan->n_ranks, peer);
        plait_block_t in = {.peer = peer,
                            .src_slot = s->x,
                            .dst_slot = work,
                            .src_offset = lo * s->item_bytes,
                            .dst_offset = peer * n_mine * s->item_bytes,
                            .box = {.row_bytes = n_mine * s->item_bytes}};
        plait_block_t out = {
            .peer = peer, .src_slot = s->x, .src_offset = theirs * s->item_bytes};
        out.box.row_bytes =
            (chunk_start(s, plan->n_ranks, peer + 1) - theirs) * s->item_bytes;
        if (n_mine > 0) {
            PLAIT_TRY(plait_move_add_in(&move, &in));
        }
        if (peer != plan->rank && out.box.row_bytes > 0) {
            PLAIT_TRY(plait_move_add_out(&move, &out));
        }
    }
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

static plait_status_t add_large(plait_plan_t *plan, const sum_t *s)
{
    plait_status_t status = PLAIT_OK;
    int64_t lo = chunk_start(s, plan->n_ranks, plan->rank);
    plait_reduce_step_t reduce = {.op = s->op,
                                  .dtype = s->dtype,
                                  .n = chunk_start(s, plan->n_ranks, plan->rank + 1) -
                                       lo,
                                  .src_slot = s->x,
                                  .src_offset = lo * s->item_bytes,
                                  .dst_slot = s->y,
                                  .dst_offset = lo * s->item_bytes};

    if (plan->direct == PLAIT_DIRECT_NONE) {
        reduce.is_local = true;
        reduce.src_offset = 0;
        reduce.piece_stride = reduce.n * s->item_bytes;
        PLAIT_TRY(plait_plan_add_work(plan, plan->n_ranks * reduce.piece_stride,
                                      &reduce.src_slot));
        PLAIT_TRY(add_collect(plan, s, reduce.src_slot));
    }
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(plait_plan_reduce(plan, &reduce));
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(add_allgather(plan, s));
    PLAIT_TRY(plait_plan_fence(plan));
done:
    return status;
}

plait_status_t plait_coll_allreduce(plait_plan_t *plan, const plait_problem_t *problem,
                                    plait_reduce_t op, int root)
{
    plait_status_t status = PLAIT_OK;
    int64_t n_bytes = 0;
    sum_t s = {.op = op,
               .dtype = problem->args[0].dtype,
               .x = plait_slot_arg(plan, 0),
               .y = plait_slot_ret(plan, 0),
               .root = root};

    s.item_bytes = plait_dtype_bytes(s.dtype);
    PLAIT_TRY(plait_array_size(&problem->args[0], &s.n, &n_bytes));
    plait_plan_agree(plan, (uint64_t)s.n);
    plait_plan_agree(plan, s.dtype);
    plait_plan_agree(plan, op);
    if (plan->n_ranks == 1) {
        const plait_reduce_step_t alone = {
            .op = op, .dtype = s.dtype, .n = s.n, .src_slot = s.x, .dst_slot = s.y};
        status = plait_plan_reduce(plan, &alone);
    } else if (has_native(&problem->caps, &s) &&
               (plan->direct == PLAIT_DIRECT_NONE || n_bytes <= PLAIT_NATIVE_BYTES)) {
        const plait_native_step_t native = {.native = PLAIT_NATIVE_ALLREDUCE,
                                            .op = op,
                                            .dtype = s.dtype,
                                            .n = s.n,
                                            .src_slot = s.x,
                                            .dst_slot = s.y,
                                            .n_recv = s.n,
                                            .recv_dtype = s.dtype};
        status = plait_plan_native(plan, &native);
    } else if (plan->direct != PLAIT_DIRECT_NONE && n_bytes <= PLAIT_NATIVE_BYTES) {
        status = add_small(plan, &s);
    } else {
        status = add_large(plan, &s);
    }
done:
    return status;
}

static plait_status_t allreduce_plan(const void *params, const plait_problem_t *problem,
                                     plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_allreduce_params_t *p = params;
    const plait_array_t *x = &problem->args[0];
    plait_plan_t *plan = NULL;
    int64_t n = 0;
    int64_t n_bytes = 0;

    PLAIT_TRY(plait_coll_same("allreduce", x, &problem->rets[0]));
    PLAIT_CHECK(p->reduce >= 0 && p->reduce < PLAIT_REDUCE_COUNT &&
                    plait_reduce_is_defined((plait_reduce_t)p->reduce, x->dtype),
                PLAIT_ERR_INVALID, "allreduce: %s is not defined for %s",
                plait_reduce_name((plait_reduce_t)p->reduce),
                plait_dtype_name(x->dtype));
    PLAIT_TRY(plait_array_size(x, &n, &n_bytes));
    PLAIT_TRY(plait_plan_create(problem, &plan, "allreduce(%s[%lld], %s)",
                                plait_dtype_name(x->dtype), (long long)n,
                                plait_reduce_name((plait_reduce_t)p->reduce)));
    PLAIT_TRY(plait_coll_allreduce(plan, problem, (plait_reduce_t)p->reduce, -1));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_allreduce = {
    .name = "allreduce",
    .n_args = 1,
    .n_rets = 1,
    .params_size = sizeof(plait_allreduce_params_t),
    .attrs = allreduce_attrs,
    .adjoint = "allreduce",
    .alias = 0,
    .model = "rank",
    .doc = "Reduce elementwise over all ranks; the result is on all ranks.",
    .line = "MPI_Allreduce with {items} items {dtype} {reduce}",
    .plan = allreduce_plan,
};
