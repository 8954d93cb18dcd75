/* Plans of all ranks of an operation, made for every way of reaching a peer's memory and proven by the
 * checker; and the arrays of each rank in a problem. */
#ifndef PLAIT_TESTS_PLANS_H
#define PLAIT_TESTS_PLANS_H

#include "check.h"
#include "check_device.h"
#include "coll/coll.h"
#include "ops/list.h"
#include "plait/layout.h"
#include "plan/check.h"
#include "plan/launch.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_P = 17, MAX_NDIM = PLAIT_MAX_NDIM };

/* A problem's shapes of operands and results on each rank. */
typedef struct {
    const plait_op_t *op;
    _Alignas(16) unsigned char params[PLAIT_MAX_PARAMS_BYTES];
    plait_dtype_t dtype;
    bool is_other; /* results have another dtype */
    plait_dtype_t ret_dtype;
    /* local shape of operand and result on a rank */
    void (*shape)(const void *context, int rank, bool is_ret, int *ndim_p,
                  int64_t dims[]);
    /* for parameters that depend on the rank; or NULL */
    void (*adapt)(const void *context, int rank, void *params);
    /* further checks of good plans for the host; or NULL */
    void (*judge)(const void *context, int n_ranks, plait_plan_t *const plans[],
                  const char *text);
    const void *context;
    char text[160];
} problem_t;

/* The last entry is for arrays on a device, which main makes. */
static plait_caps_t all_caps[] = {
    {.direct = PLAIT_DIRECT_POINTER, .publish_bytes = PLAIT_PUBLISH_BYTES},
    {.direct = PLAIT_DIRECT_POINTER, .publish_bytes = -1},
    {.direct = PLAIT_DIRECT_READ, .publish_bytes = PLAIT_PUBLISH_BYTES},
    {.direct = PLAIT_DIRECT_READ, .can_write = true, .publish_bytes = -1},
    {.direct = PLAIT_DIRECT_NONE, .publish_bytes = -1},
    {.direct = PLAIT_DIRECT_READ,
     .publish_bytes = -1,
     .has_native = true,
     .native_reduce = {~0U, ~0U, ~0U, ~0U}},
    {.direct = PLAIT_DIRECT_NONE,
     .publish_bytes = -1,
     .has_native = true,
     .native_reduce = {~0U, ~0U, ~0U, ~0U}},
    {.direct = PLAIT_DIRECT_NONE,
     .publish_bytes = PLAIT_PUBLISH_BYTES,
     .has_native = true,
     .native_reduce = {~0U, ~0U, ~0U, ~0U}},
    {.direct = PLAIT_DIRECT_POINTER, .publish_bytes = PLAIT_PUBLISH_BYTES},
};

enum { N_CAPS = sizeof(all_caps) / sizeof(all_caps[0]) };

static inline plait_status_t make_plans(problem_t *p, int n_ranks,
                                        const plait_caps_t *caps, plait_plan_t *plans[])
{
    plait_status_t status = PLAIT_OK;

    for (int r = 0; r < n_ranks && status == PLAIT_OK; r++) {
        if (p->adapt != NULL) {
            p->adapt(p->context, r, p->params);
        }
        plait_endpoint_t end = {.rank = r, .size = n_ranks, .caps = *caps};
        int64_t arg_dims[MAX_NDIM] = {0};
        int64_t ret_dims[MAX_NDIM] = {0};
        int arg_ndim = 0;
        int ret_ndim = 0;
        p->shape(p->context, r, false, &arg_ndim, arg_dims);
        p->shape(p->context, r, true, &ret_ndim, ret_dims);
        const plait_array_t arg = {
            .dtype = p->dtype, .ndim = arg_ndim, .dims = arg_dims};
        const plait_array_t ret = {.dtype = p->is_other ? p->ret_dtype : p->dtype,
                                   .ndim = ret_ndim,
                                   .dims = ret_dims};
        const int64_t two = 2;
        const plait_array_t pair = {.dtype = PLAIT_S32, .ndim = 1, .dims = &two};
        /* sendrecv: the template is like the result; exchange: pairs of rank and tag */
        const plait_array_t args[] = {arg, ret, pair, pair};
        const plait_array_t rets[] = {ret, pair};
        status = plait_op_plan(p->op, p->params, &end, args, rets, &plans[r]);
    }
    return status;
}

/* A result takes an operand's memory only if both have the same size. */
static inline bool may_alias(plait_plan_t *const plans[], int n_ranks, int alias)
{
    bool is_equal = true;

    for (int r = 0; r < n_ranks; r++) {
        is_equal = is_equal && plans[r]->slot_bytes[alias] ==
                                   plans[r]->slot_bytes[plait_slot_ret(plans[r], 0)];
    }
    return is_equal;
}

/* Small teams are proven in every way. Large teams are proven in a third of the ways, in turns from problem to
 * problem. */
static inline bool is_in_turn(size_t c, int n_ranks)
{
    static size_t n_calls; /* N_CAPS for each problem */
    const size_t turn = n_calls++ / N_CAPS;

    return n_ranks <= (is_quick() ? 3 : 8) || (turn + c) % 3 == 0;
}

static inline void check_problem(problem_t *p, int n_ranks)
{
    for (size_t c = 0; c < N_CAPS; c++) {
        plait_plan_t *plans[MAX_P] = {NULL};
        if (!is_in_turn(c, n_ranks)) {
            continue;
        }
        plait_status_t status = make_plans(p, n_ranks, &all_caps[c], plans);
        CHECK(status == PLAIT_OK, "%s P %d caps %zu", p->text, n_ranks, c);
        if (status == PLAIT_OK && p->judge != NULL && all_caps[c].device == NULL) {
            p->judge(p->context, n_ranks, plans, p->text);
        }
        for (int alias = -1; status == PLAIT_OK && alias <= p->op->alias; alias++) {
            if (alias == -1 ||
                (alias == p->op->alias && may_alias(plans, n_ranks, alias))) {
                const plait_check_t options = {.alias = alias};
                CHECK(plait_plans_check(plans, n_ranks, &options) == PLAIT_OK,
                      "%s P %d caps %zu alias %d", p->text, n_ranks, c, alias);
            }
        }
        for (int r = 0; r < n_ranks; r++) {
            plait_plan_destroy(&plans[r]);
        }
    }
}

/* ---------------------------------------------------------------- shapes of problems */

static inline void vector_shape(const void *context, int rank, bool is_ret, int *ndim_p,
                                int64_t dims[])
{
    (void)rank;
    (void)is_ret;
    *ndim_p = 1;
    dims[0] = *(const int64_t *)context;
}

/* Which array of an operation holds one rank's block, and which holds all blocks. */
typedef enum { PART, JOINED, SENT, RECEIVED } role_t;

typedef struct {
    int n_ranks;
    int64_t n;                    /* elements of a row */
    const int64_t *counts;        /* NULL: equal blocks, n elements each */
    int64_t pairs[MAX_P * MAX_P]; /* of alltoall */
    role_t roles[2];              /* operand, result */
    int root; /* on other ranks the joined array is a part; -1: all have it */
} blocks_t;

static inline void blocks_shape(const void *context, int rank, bool is_ret, int *ndim_p,
                                int64_t dims[])
{
    const blocks_t *b = context;
    role_t role = b->roles[is_ret];
    int64_t n_rows = 0;

    role = (role == JOINED && b->root >= 0 && b->root != rank) ? PART : role;
    for (int r = 0; r < b->n_ranks; r++) {
        n_rows += (b->counts == NULL)  ? 1
                  : (role == JOINED)   ? b->counts[r]
                  : (role == SENT)     ? b->pairs[rank * b->n_ranks + r]
                  : (role == RECEIVED) ? b->pairs[r * b->n_ranks + rank]
                  : (r == rank)        ? b->counts[r]
                                       : 0;
    }
    *ndim_p = (b->counts == NULL && role == PART) ? 1 : 2;
    dims[0] = (*ndim_p == 1) ? b->n : n_rows;
    dims[1] = b->n;
}

typedef struct {
    int64_t n; /* elements of a block */
    int64_t n_in[MAX_P], n_out[MAX_P];
    int64_t edges[4 * 8 * MAX_P];
    int64_t n_edges;
} graph_t;

static inline void graph_shape(const void *context, int rank, bool is_ret, int *ndim_p,
                               int64_t dims[])
{
    const graph_t *g = context;

    *ndim_p = 2;
    dims[0] = is_ret ? g->n_out[rank] : g->n_in[rank];
    dims[1] = g->n;
}

static inline void graph_params(const void *context, int rank, void *params)
{
    const graph_t *g = context;
    const plait_route_params_t p = {.n_in = g->n_in[rank],
                                    .n_out = g->n_out[rank],
                                    .n_edges = 4 * g->n_edges,
                                    .edges = g->edges};

    memcpy(params, &p, sizeof(p));
}

typedef struct {
    plait_layout_t from, to;
} pair_t;

static inline void pair_shape(const void *context, int rank, bool is_ret, int *ndim_p,
                              int64_t dims[])
{
    const pair_t *pair = context;
    const plait_layout_t *layout = is_ret ? &pair->to : &pair->from;

    *ndim_p = layout->ndim;
    plait_layout_local_shape(layout, rank, dims);
}

/* Every split of `ndim` axes over a grid, by digits: 0 whole, 1 + g over grid axis g. */
static inline bool layout_of(int code, int ndim, const int64_t shape[], int grid_ndim,
                             const int grid[], plait_split_t split,
                             plait_layout_t *layout)
{
    int over[MAX_NDIM];

    for (int a = 0; a < ndim; a++) {
        over[a] = code % (grid_ndim + 1) - 1;
        code /= grid_ndim + 1;
    }
    return plait_layout_pencil(ndim, shape, grid_ndim, grid, over, split, layout) ==
           PLAIT_OK;
}

#endif
