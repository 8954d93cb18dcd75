/* Reduce elementwise over all ranks. All ranks get the result, with the same bits; only where MPI reduces
 * may NaN differ in sign and payload.
 *
 * Small operands: every rank publishes its operand at a fence and reduces all of them. Where fences carry no
 * data, the transport's own allreduce does it. Large operands, or dtypes that the transport does not reduce:
 * reduce-scatter, then allgather. Each rank owns a chunk, reduces it over all ranks in rank order, and takes
 * the other chunks from their owners. With direct access this reads every byte of every operand once.
 * Source: Rabenseifner, ICCS 2004, LNCS 3036 (reduce-scatter + allgather). */
#include "base/alloc.h"
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
    int root; /* the rank that gets the result; -1: all ranks */
} sum_t;

/* Chunk boundaries in elements. Multiples of 64 keep chunks off each other's cache lines. */
static int64_t chunk_start(const sum_t *s, int n_ranks, int rank)
{
    enum { GRAIN = 64 };
    int64_t n_grains = s->n / GRAIN;

    return (rank == n_ranks) ? s->n : n_grains * rank / n_ranks * GRAIN;
}

static bool gets_result(const sum_t *s, int rank)
{
    return s->root < 0 || s->root == rank;
}

/* Every rank publishes its operand. Ranks that get the result reduce all operands. */
static plait_status_t add_small(plait_plan_t *plan, const sum_t *s)
{
    plait_status_t status = PLAIT_OK;
    const plait_reduce_step_t reduce = {.op = s->op,
                                        .dtype = s->dtype,
                                        .n_pieces = plan->n_ranks,
                                        .n = s->n,
                                        .src_slot = PLAIT_SLOT_PUBLISHED,
                                        .dst_slot = s->y};

    PLAIT_TRY(plait_plan_publish(plan, s->x, 0, s->n * s->item_bytes));
    if (gets_result(s, plan->rank)) {
        PLAIT_TRY(plait_plan_reduce(plan, &reduce));
    }
done:
    return status;
}

/* Where a rank keeps its chunk of the result. */
typedef struct {
    int slot;
    int64_t offset, n_bytes;
} chunk_t;

static chunk_t chunk_of(const sum_t *s, const plait_plan_t *plan, int rank)
{
    int64_t lo = chunk_start(s, plan->n_ranks, rank);
    int64_t hi = chunk_start(s, plan->n_ranks, rank + 1);
    bool is_kept = gets_result(s, rank);

    /* a rank without result keeps its chunk in the first work buffer, see add_large */
    return (chunk_t){.slot = is_kept ? s->y : plan->n_args + plan->n_rets,
                     .offset = is_kept ? lo * s->item_bytes : 0,
                     .n_bytes = (hi - lo) * s->item_bytes};
}

/* Fetches the other ranks' chunks from where each keeps its own. With messages, also sends this rank's chunk
 * to the ranks that get the result. */
static plait_status_t add_allgather(plait_plan_t *plan, const sum_t *s)
{
    plait_status_t status = PLAIT_OK;
    const chunk_t mine = chunk_of(s, plan, plan->rank);
    plait_move_t move = {0};

    for (int i = 1; i < plan->n_ranks; i++) {
        int peer = (plan->rank + i) % plan->n_ranks;
        const chunk_t theirs = chunk_of(s, plan, peer);
        const plait_block_t in = {.peer = peer,
                                  .src_slot = theirs.slot,
                                  .dst_slot = s->y,
                                  .src_offset = theirs.offset,
                                  .dst_offset = chunk_start(s, plan->n_ranks, peer) *
                                                s->item_bytes,
                                  .box = {.row_bytes = theirs.n_bytes}};
        const plait_block_t out = {.peer = peer,
                                   .src_slot = mine.slot,
                                   .src_offset = mine.offset,
                                   .box = {.row_bytes = mine.n_bytes}};
        if (gets_result(s, plan->rank) && theirs.n_bytes > 0) {
            PLAIT_TRY(plait_move_add_in(&move, &in));
        }
        if (plan->direct == PLAIT_DIRECT_NONE && gets_result(s, peer) &&
            mine.n_bytes > 0) {
            PLAIT_TRY(plait_move_add_out(&move, &out));
        }
    }
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

/* Reduce-scatter, then allgather. A rank without result keeps its chunk in work memory. */
static plait_status_t add_large(plait_plan_t *plan, const plait_problem_t *problem,
                                const sum_t *s)
{
    plait_status_t status = PLAIT_OK;
    plait_part_t *parts = plait_alloc(plan->n_ranks, sizeof(*parts));
    const chunk_t mine = chunk_of(s, plan, plan->rank);
    const plait_reduction_t reduction = {.op = s->op,
                                         .dtype = s->dtype,
                                         .src_slot = s->x,
                                         .dst_slot = mine.slot,
                                         .dst_offset = mine.offset,
                                         .parts = parts};
    int work = 0;

    PLAIT_CHECK(parts != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a plan");
    for (int r = 0; r < plan->n_ranks; r++) {
        int64_t lo = chunk_start(s, plan->n_ranks, r);
        parts[r] = (plait_part_t){.n_pieces = plan->n_ranks,
                                  .offset = lo * s->item_bytes,
                                  .n = chunk_start(s, plan->n_ranks, r + 1) - lo};
    }
    if (!gets_result(s, plan->rank)) {
        PLAIT_TRY(plait_plan_add_work(plan, mine.n_bytes, &work));
    }
    PLAIT_TRY(plait_coll_reduce(plan, problem, &reduction));
    PLAIT_TRY(add_allgather(plan, s));
    PLAIT_TRY(plait_plan_fence(plan));
done:
    plait_free(parts);
    return status;
}

/* MPI gives the result to all ranks. A rank that shall not have the result keeps it in work memory. */
static plait_status_t add_native(plait_plan_t *plan, const sum_t *s)
{
    plait_status_t status = PLAIT_OK;
    plait_native_step_t native = {.native = PLAIT_NATIVE_ALLREDUCE,
                                  .op = s->op,
                                  .dtype = s->dtype,
                                  .n = s->n,
                                  .src_slot = s->x,
                                  .dst_slot = s->y,
                                  .n_recv = s->n,
                                  .recv_dtype = s->dtype};

    if (!gets_result(s, plan->rank)) {
        PLAIT_TRY(plait_plan_add_work(plan, s->n * s->item_bytes, &native.dst_slot));
    }
    PLAIT_TRY(plait_plan_native(plan, &native));
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
        const plait_reduce_step_t alone = {.op = op,
                                           .dtype = s.dtype,
                                           .n_pieces = 1,
                                           .n = s.n,
                                           .src_slot = s.x,
                                           .dst_slot = s.y};
        status = plait_plan_reduce(plan, &alone);
    } else if (plait_coll_publishes(problem, n_bytes)) {
        status = add_small(plan, &s);
    } else if (plait_caps_reduce(&problem->caps, s.op, s.dtype) &&
               (plan->direct == PLAIT_DIRECT_NONE ||
                (problem->caps.publish_bytes < 0 && n_bytes <= PLAIT_NATIVE_BYTES))) {
        status = add_native(plan, &s);
    } else {
        status = add_large(plan, problem, &s);
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
    PLAIT_TRY(plait_coll_check_reduce("allreduce", p->reduce, x->dtype));
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
