/* Blocks along the edges of a graph that all ranks know: permutations, shifts, exchanges between neighbours.
 * Ranks without edges only take part in the fences. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/hash.h"
#include "coll/coll.h"

#include <stdlib.h>
#include <string.h>

static const plait_attr_t route_attrs[] = {
    PLAIT_ATTR_LIST(plait_route_params_t, edges),
    PLAIT_ATTR(plait_route_params_t, n_in),
    PLAIT_ATTR(plait_route_params_t, n_out),
    PLAIT_ATTR_END,
};

static int64_t n_edges(const plait_route_params_t *p)
{
    return p->n_edges / PLAIT_EDGE_WORDS;
}

static const int64_t *edge_at(const plait_route_params_t *p, int64_t i)
{
    return p->edges + i * PLAIT_EDGE_WORDS;
}

/* Checks rank and block at one end of an edge. The number of other ranks' blocks is not known. */
static plait_status_t check_end(const plait_problem_t *problem, int64_t i,
                                bool is_source, const int64_t end[2], int64_t n_blocks)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(end[0] >= 0 && end[0] < problem->n_ranks, PLAIT_ERR_INVALID,
                "route: %s %lld of edge %lld is not a rank of this communicator (size "
                "%d)",
                is_source ? "source" : "dest", (long long)end[0], (long long)i,
                problem->n_ranks);
    PLAIT_CHECK(end[1] >= 0, PLAIT_ERR_INVALID,
                "route: edge %lld names block %lld, expected 0 or more", (long long)i,
                (long long)end[1]);
    PLAIT_CHECK(end[0] != problem->rank || end[1] < n_blocks, PLAIT_ERR_INVALID,
                "route: edge %lld names block %lld of the %s of rank %lld, which has "
                "%lld",
                (long long)i, (long long)end[1], is_source ? "operand" : "result",
                (long long)end[0], (long long)n_blocks);
done:
    return status;
}

static int by_dest(const void *a, const void *b)
{
    const int64_t *p = a;
    const int64_t *q = b;
    int order = (p[0] > q[0]) - (p[0] < q[0]);

    return (order != 0) ? order : (p[1] > q[1]) - (p[1] < q[1]);
}

/* Checks that no two edges end in the same block, on any rank. */
static plait_status_t check_dests(const plait_route_params_t *p)
{
    plait_status_t status = PLAIT_OK;
    int64_t n = n_edges(p);
    int64_t(*dests)[2] = plait_alloc(n, sizeof(*dests));

    PLAIT_CHECK(dests != NULL, PLAIT_ERR_NO_MEMORY, "route: no memory for a plan");
    for (int64_t i = 0; i < n; i++) {
        dests[i][0] = edge_at(p, i)[PLAIT_EDGE_DEST];
        dests[i][1] = edge_at(p, i)[PLAIT_EDGE_DEST_BLOCK];
    }
    qsort(dests, (size_t)n, sizeof(*dests), by_dest);
    for (int64_t i = 1; i < n; i++) {
        PLAIT_CHECK(by_dest(dests[i - 1], dests[i]) != 0, PLAIT_ERR_INVALID,
                    "route: two edges end in block %lld of rank %lld, expected one at "
                    "most",
                    (long long)dests[i][1], (long long)dests[i][0]);
    }
done:
    plait_free(dests);
    return status;
}

/* Bytes of one block; 0 if the array has no blocks. */
static plait_status_t block_bytes(const plait_array_t *array, int64_t n_blocks,
                                  const char *name, int64_t *n_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    int64_t n = 0;
    int64_t n_bytes = 0;

    PLAIT_TRY(plait_array_size(array, &n, &n_bytes));
    PLAIT_CHECK(n_blocks >= 0 && ((n_blocks == 0) ? n == 0 : n % n_blocks == 0),
                PLAIT_ERR_INVALID,
                "route: %s has shape %s, which is not %lld equal blocks", name,
                plait_coll_shape(array).text, (long long)n_blocks);
    *n_bytes_p = (n_blocks > 0) ? n_bytes / n_blocks : 0;
done:
    return status;
}

/* Offsets of other ranks' blocks must fit, too. */
static plait_status_t check_offsets(const plait_route_params_t *p, int64_t bytes)
{
    plait_status_t status = PLAIT_OK;

    for (int64_t i = 0; i < n_edges(p); i++) {
        int64_t block = edge_at(p, i)[PLAIT_EDGE_SOURCE_BLOCK];
        int64_t end = 0;
        PLAIT_CHECK(plait_add(block, 1, &end) && plait_mul(end, bytes, &end),
                    PLAIT_ERR_OVERFLOW,
                    "route: edge %lld names block %lld of %lld bytes each",
                    (long long)i, (long long)block, (long long)bytes);
    }
done:
    return status;
}

static plait_status_t check(const plait_route_params_t *p,
                            const plait_problem_t *problem, int64_t *block_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    int64_t in_bytes = 0;
    int64_t out_bytes = 0;

    PLAIT_TRY(plait_coll_same_dtype("route", &problem->args[0], &problem->rets[0]));
    PLAIT_TRY(block_bytes(&problem->args[0], p->n_in, "operand", &in_bytes));
    PLAIT_TRY(block_bytes(&problem->rets[0], p->n_out, "result", &out_bytes));
    PLAIT_CHECK(p->n_in == 0 || p->n_out == 0 || in_bytes == out_bytes,
                PLAIT_ERR_INVALID,
                "route: operand has blocks of %lld bytes, result of %lld, expected "
                "equal ones",
                (long long)in_bytes, (long long)out_bytes);
    PLAIT_CHECK(p->n_edges % PLAIT_EDGE_WORDS == 0, PLAIT_ERR_INVALID,
                "route: edges has %lld numbers, expected a multiple of %d",
                (long long)p->n_edges, PLAIT_EDGE_WORDS);
    for (int64_t i = 0; i < n_edges(p); i++) {
        const int64_t *e = edge_at(p, i);
        PLAIT_TRY(check_end(problem, i, true, e + PLAIT_EDGE_SOURCE, p->n_in));
        PLAIT_TRY(check_end(problem, i, false, e + PLAIT_EDGE_DEST, p->n_out));
    }
    PLAIT_TRY(check_dests(p));
    in_bytes = (p->n_in > 0) ? in_bytes : out_bytes;
    PLAIT_TRY(check_offsets(p, in_bytes));
    *block_bytes_p = in_bytes;
done:
    return status;
}

static int by_number(const void *a, const void *b)
{
    const int64_t *p = a;
    const int64_t *q = b;

    return (*p > *q) - (*p < *q);
}

/* Zeroes the gaps between `ends`, the blocks of the result in which an edge ends. */
static plait_status_t add_zeros(const plait_plan_t *plan, int64_t n_out, int64_t ends[],
                                int64_t n_ends, int64_t bytes, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    plait_block_t block = {.kind = PLAIT_BLOCK_ZERO,
                           .peer = plan->rank,
                           .src_slot = plait_slot_ret(plan, 0),
                           .dst_slot = plait_slot_ret(plan, 0)};
    int64_t next = 0;

    qsort(ends, (size_t)n_ends, sizeof(ends[0]), by_number);
    for (int64_t i = 0; i <= n_ends; i++) {
        int64_t end = (i < n_ends) ? ends[i] : n_out;
        if (end > next) {
            block.dst_offset = next * bytes;
            block.box.row_bytes = (end - next) * bytes;
            PLAIT_TRY(plait_move_add_in(move, &block));
        }
        next = (i < n_ends) ? end + 1 : end;
    }
done:
    return status;
}

/* Incoming blocks in the order of the edges, and zeros where no edge ends. */
static plait_status_t add_in(const plait_plan_t *plan, const plait_route_params_t *p,
                             int64_t bytes, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    int64_t *ends = plait_alloc(n_edges(p), sizeof(*ends));
    int64_t n_ends = 0;
    plait_block_t block = {.src_slot = plait_slot_arg(plan, 0),
                           .dst_slot = plait_slot_ret(plan, 0),
                           .box = {.row_bytes = bytes}};

    PLAIT_CHECK(ends != NULL, PLAIT_ERR_NO_MEMORY, "route: no memory for a plan");
    for (int64_t i = 0; i < n_edges(p); i++) {
        const int64_t *e = edge_at(p, i);
        if (e[PLAIT_EDGE_DEST] == plan->rank) {
            ends[n_ends++] = e[PLAIT_EDGE_DEST_BLOCK];
            block.peer = (int)e[PLAIT_EDGE_SOURCE];
            block.src_offset = e[PLAIT_EDGE_SOURCE_BLOCK] * bytes;
            block.dst_offset = e[PLAIT_EDGE_DEST_BLOCK] * bytes;
            PLAIT_TRY(plait_move_add_in(move, &block));
        }
    }
    PLAIT_TRY(add_zeros(plan, p->n_out, ends, n_ends, bytes, move));
done:
    plait_free(ends);
    return status;
}

/* Messages: outgoing blocks in the order of the edges, as the receivers expect them. */
static plait_status_t add_out(const plait_plan_t *plan, const plait_route_params_t *p,
                              int64_t bytes, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;

    for (int64_t i = 0; i < n_edges(p); i++) {
        const int64_t *e = edge_at(p, i);
        const plait_block_t block = {.peer = (int)e[PLAIT_EDGE_DEST],
                                     .src_slot = plait_slot_arg(plan, 0),
                                     .src_offset = e[PLAIT_EDGE_SOURCE_BLOCK] * bytes,
                                     .box = {.row_bytes = bytes}};
        if (e[PLAIT_EDGE_SOURCE] == plan->rank && block.peer != plan->rank) {
            PLAIT_TRY(plait_move_add_out(move, &block));
        }
    }
done:
    return status;
}

/* A rank without blocks does not know their size. If every rank is on an edge, all ranks know it. */
static plait_status_t share_of(const plait_route_params_t *p, const plait_plan_t *plan,
                               int64_t bytes, plait_share_t *share)
{
    plait_status_t status = PLAIT_OK;
    bool *is_on = plait_alloc(plan->n_ranks, sizeof(*is_on));
    bool are_all = true;

    PLAIT_CHECK(is_on != NULL, PLAIT_ERR_NO_MEMORY, "route: no memory for a plan");
    *share = (plait_share_t){0};
    for (int64_t i = 0; i < n_edges(p); i++) {
        const int64_t *e = edge_at(p, i);
        int64_t n_bytes = (e[PLAIT_EDGE_SOURCE_BLOCK] + 1) * bytes;
        bool is_mine = e[PLAIT_EDGE_SOURCE] == plan->rank;
        is_on[e[PLAIT_EDGE_SOURCE]] = true;
        is_on[e[PLAIT_EDGE_DEST]] = true;
        share->n_most = plait_max(share->n_most, n_bytes);
        share->n_mine = is_mine ? plait_max(share->n_mine, n_bytes) : share->n_mine;
    }
    for (int r = 0; r < plan->n_ranks; r++) {
        are_all = are_all && is_on[r];
    }
    share->n_most = are_all ? share->n_most : -1;
done:
    plait_free(is_on);
    return status;
}

static plait_status_t route_plan(const void *params, const plait_problem_t *problem,
                                 plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_route_params_t *p = params;
    const plait_array_t *x = &problem->args[0];
    plait_plan_t *plan = NULL;
    plait_move_t move = {0};
    plait_share_t share = {0};
    int64_t bytes = 0;

    PLAIT_TRY(check(p, problem, &bytes));
    PLAIT_TRY(plait_plan_create(problem, &plan, "route(%s%s, %s)",
                                plait_dtype_name(x->dtype), plait_coll_shape(x).text,
                                plait_coll_edges(n_edges(p), p->edges).text));
    plait_plan_agree(plan, plait_hash_bytes(PLAIT_HASH_SEED, p->edges,
                                            (size_t)p->n_edges * sizeof(int64_t)));
    plait_plan_agree(plan, x->dtype);
    if (p->n_in > 0 || p->n_out > 0) {
        plait_plan_agree_some(plan, (uint64_t)bytes);
    }
    if (bytes > 0) {
        PLAIT_TRY(add_in(plan, p, bytes, &move));
        if (plan->direct == PLAIT_DIRECT_NONE) {
            PLAIT_TRY(add_out(plan, p, bytes, &move));
        }
    }
    PLAIT_TRY(share_of(p, plan, bytes, &share));
    PLAIT_TRY(plait_coll_move(plan, problem, &share, &move));
    *plan_p = plan;
    plan = NULL;
done:
    plait_move_clear(&move);
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_route = {
    .name = "route",
    .n_args = 1,
    .n_rets = 1,
    .params_size = sizeof(plait_route_params_t),
    .attrs = route_attrs,
    .adjoint = "route",
    .alias = -1,
    .model = "rank",
    .doc = "Blocks along the edges of a graph of ranks; zeros where no edge ends.",
    .line = "MPI_Neighbor_alltoallv ({items} items)",
    .plan = route_plan,
};
