/* The plans of all ranks of every operation fit together: P = 1..17, every way of reaching a
 * peer's memory, with and without native collectives, results apart from and in the place of
 * operands. And the checker finds planted faults. */
#include "check.h"
#include "check_device.h"
#include "coll/coll.h"
#include "fft/params.h"
#include "ghosts.h"
#include "halo/params.h"
#include "ops/list.h"
#include "plait/layout.h"
#include "plan/check.h"
#include "plan/launch.h"
#include "redist/blocks.h"
#include "redist/params.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_P = 17, MAX_NDIM = PLAIT_MAX_NDIM };

/* What a problem gives each rank: shapes of operands and results. */
typedef struct {
    const plait_op_t *op;
    _Alignas(16) unsigned char params[PLAIT_MAX_PARAMS_BYTES];
    plait_dtype_t dtype;
    bool is_other; /* results have another dtype */
    plait_dtype_t ret_dtype;
    /* local shape of operand and result on a rank */
    void (*shape)(const void *context, int rank, bool is_ret, int *ndim_p,
                  int64_t dims[]);
    /* where parameters depend on the rank; or NULL */
    void (*adapt)(const void *context, int rank, void *params);
    /* what else is to hold of good plans for the host; or NULL */
    void (*judge)(const void *context, int n_ranks, plait_plan_t *const plans[],
                  const char *text);
    const void *context;
    char text[160];
} problem_t;

/* The last one is for arrays on a device, which main makes. */
static plait_caps_t all_caps[] = {
    {.direct = PLAIT_DIRECT_POINTER, .publish_bytes = PLAIT_PUBLISH_BYTES},
    {.direct = PLAIT_DIRECT_POINTER, .publish_bytes = -1},
    {.direct = PLAIT_DIRECT_READ, .publish_bytes = PLAIT_PUBLISH_BYTES},
    {.direct = PLAIT_DIRECT_READ, .publish_bytes = -1},
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

static plait_status_t make_plans(problem_t *p, int n_ranks, const plait_caps_t *caps,
                                 plait_plan_t *plans[])
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

/* A result takes an operand's memory only where both are equally large. */
static bool may_alias(plait_plan_t *const plans[], int n_ranks, int alias)
{
    bool is_equal = true;

    for (int r = 0; r < n_ranks; r++) {
        is_equal = is_equal && plans[r]->slot_bytes[alias] ==
                                   plans[r]->slot_bytes[plait_slot_ret(plans[r], 0)];
    }
    return is_equal;
}

static void check_problem(problem_t *p, int n_ranks)
{
    for (size_t c = 0; c < N_CAPS; c++) {
        plait_plan_t *plans[MAX_P] = {NULL};
        plait_status_t status = make_plans(p, n_ranks, &all_caps[c], plans);
        if (all_caps[c].device != NULL && p->op->host_only) {
            CHECK(status == PLAIT_ERR_UNSUPPORTED, "%s P %d", p->text, n_ranks);
            continue;
        }
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

/* ---------------------------------------------------------------- rank model */

static void vector_shape(const void *context, int rank, bool is_ret, int *ndim_p,
                         int64_t dims[])
{
    (void)rank;
    (void)is_ret;
    *ndim_p = 1;
    dims[0] = *(const int64_t *)context;
}

static void check_coll(int n_ranks, int64_t n, plait_dtype_t dtype)
{
    problem_t p = {.dtype = dtype, .shape = vector_shape, .context = &n};
    const plait_allreduce_params_t sum = {.reduce = PLAIT_SUM};
    plait_reduce_params_t reduce = {.reduce = PLAIT_SUM, .root = n_ranks / 2};
    const plait_bcast_params_t bcast = {.root = n_ranks - 1};

    (void)snprintf(p.text, sizeof(p.text), "allreduce n %lld", (long long)n);
    p.op = &plait_op_allreduce;
    memcpy(p.params, &sum, sizeof(sum));
    check_problem(&p, n_ranks);
    (void)snprintf(p.text, sizeof(p.text), "reduce n %lld", (long long)n);
    p.op = &plait_op_reduce;
    for (reduce.elsewhere = 0; reduce.elsewhere < 2; reduce.elsewhere++) {
        memcpy(p.params, &reduce, sizeof(reduce));
        check_problem(&p, n_ranks);
    }
    (void)snprintf(p.text, sizeof(p.text), "bcast n %lld", (long long)n);
    p.op = &plait_op_bcast;
    memcpy(p.params, &bcast, sizeof(bcast));
    check_problem(&p, n_ranks);
    (void)snprintf(p.text, sizeof(p.text), "barrier");
    p.op = &plait_op_barrier;
    memset(p.params, 0, sizeof(plait_barrier_params_t));
    check_problem(&p, n_ranks);
    plait_sendrecv_params_t ring = {.source = 0, .dest = 0, .recvtag = PLAIT_ANY};
    (void)snprintf(p.text, sizeof(p.text), "sendrecv n %lld", (long long)n);
    p.op = &plait_op_sendrecv;
    memcpy(p.params, &ring, sizeof(ring));
    check_problem(&p, n_ranks);
    const plait_exchange_params_t exchange = {.status = 0};
    (void)snprintf(p.text, sizeof(p.text), "exchange n %lld", (long long)n);
    p.op = &plait_op_exchange;
    memcpy(p.params, &exchange, sizeof(exchange));
    check_problem(&p, n_ranks);
    const plait_send_params_t send = {.dest = n_ranks - 1, .tag = 3};
    (void)snprintf(p.text, sizeof(p.text), "send n %lld", (long long)n);
    p.op = &plait_op_send;
    memcpy(p.params, &send, sizeof(send));
    check_problem(&p, n_ranks);
    plait_recv_params_t recv = {.source = PLAIT_ANY, .tag = PLAIT_ANY};
    (void)snprintf(p.text, sizeof(p.text), "recv n %lld", (long long)n);
    p.op = &plait_op_recv;
    memcpy(p.params, &recv, sizeof(recv));
    check_problem(&p, n_ranks);
    recv.source = PLAIT_NO_RANK;
    memcpy(p.params, &recv, sizeof(recv));
    check_problem(&p, n_ranks);
    for (int flags = 0; flags < 4; flags++) {
        const plait_scan_params_t scan = {.exclusive = flags & 1,
                                          .reverse = flags >> 1};
        (void)snprintf(p.text, sizeof(p.text), "scan n %lld flags %d", (long long)n,
                       flags);
        p.op = &plait_op_scan;
        memcpy(p.params, &scan, sizeof(scan));
        check_problem(&p, n_ranks);
    }
}

/* ---------------------------------------------------------------- blocks of ranks */

/* Which array of an operation holds one rank's block, and which all of them. */
typedef enum { PART, JOINED, SENT, RECEIVED } role_t;

typedef struct {
    int n_ranks;
    int64_t n;                    /* elements of a row */
    const int64_t *counts;        /* NULL: equal blocks, n elements each */
    int64_t pairs[MAX_P * MAX_P]; /* of alltoall */
    role_t roles[2];              /* operand, result */
    int root; /* elsewhere the joined array is a part; -1: all have it */
} blocks_t;

static void blocks_shape(const void *context, int rank, bool is_ret, int *ndim_p,
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

static void check_blocks_op(blocks_t *b, const plait_op_t *op, const void *params,
                            role_t x, role_t y, int root)
{
    problem_t p = {.op = op, .dtype = PLAIT_S16, .shape = blocks_shape, .context = b};

    b->roles[0] = x;
    b->roles[1] = y;
    b->root = root;
    memcpy(p.params, params, op->params_size);
    (void)snprintf(p.text, sizeof(p.text), "%s n %lld%s root %d", op->name,
                   (long long)b->n, (b->counts != NULL) ? " counts" : "", root);
    check_problem(&p, b->n_ranks);
}

/* kind 0: equal blocks; 1: uneven counts with zeros among them; 2: all but one are zero. */
static void check_blocks(int n_ranks, int64_t n, int kind)
{
    int64_t counts[MAX_P];
    blocks_t b = {.n_ranks = n_ranks, .n = n, .counts = (kind > 0) ? counts : NULL};
    int64_t n_counts = (kind > 0) ? n_ranks : 0;
    int root = n_ranks / 2;

    for (int r = 0; r < n_ranks; r++) {
        counts[r] = (kind == 1) ? (r * 5 + 2) % 4 : (r == n_ranks - 1) ? 3 : 0;
        for (int q = 0; q < n_ranks; q++) {
            b.pairs[r * n_ranks + q] = (kind == 1)             ? (r * 3 + q * 2) % 5
                                       : (r == 0 && q == root) ? 7
                                                               : 0;
        }
    }
    const plait_allgather_params_t allgather = {n_counts, b.counts};
    const plait_alltoall_params_t alltoall = {n_counts * n_ranks,
                                              (kind > 0) ? b.pairs : NULL};
    const plait_reduce_scatter_params_t reduce_scatter = {PLAIT_MAX, n_counts,
                                                          b.counts};
    check_blocks_op(&b, &plait_op_allgather, &allgather, PART, JOINED, -1);
    check_blocks_op(&b, &plait_op_reduce_scatter, &reduce_scatter, JOINED, PART, -1);
    check_blocks_op(&b, &plait_op_alltoall, &alltoall, SENT, RECEIVED, -1);
    for (int i = 0; i < 2; i++) {
        const plait_gather_params_t gather = {i * root, i, n_counts, b.counts};
        const plait_scatter_params_t scatter = {i * root, n_counts, b.counts};
        check_blocks_op(&b, &plait_op_gather, &gather, PART, JOINED, i * root);
        check_blocks_op(&b, &plait_op_scatter, &scatter, JOINED, PART, i * root);
    }
}

/* ---------------------------------------------------------------- routes */

typedef struct {
    int64_t n; /* elements of a block */
    int64_t n_in[MAX_P], n_out[MAX_P];
    int64_t edges[4 * 8 * MAX_P];
    int64_t n_edges;
} graph_t;

static void graph_shape(const void *context, int rank, bool is_ret, int *ndim_p,
                        int64_t dims[])
{
    const graph_t *g = context;

    *ndim_p = 2;
    dims[0] = is_ret ? g->n_out[rank] : g->n_in[rank];
    dims[1] = g->n;
}

static void graph_params(const void *context, int rank, void *params)
{
    const graph_t *g = context;
    const plait_route_params_t p = {.n_in = g->n_in[rank],
                                    .n_out = g->n_out[rank],
                                    .n_edges = 4 * g->n_edges,
                                    .edges = g->edges};

    memcpy(params, &p, sizeof(p));
}

static void add_edge(graph_t *g, int64_t source, int64_t source_block, int64_t dest,
                     int64_t dest_block)
{
    const int64_t edge[] = {source, source_block, dest, dest_block};

    memcpy(g->edges + 4 * g->n_edges, edge, sizeof(edge));
    g->n_edges++;
}

static void check_graph(graph_t *g, int n_ranks, const char *name)
{
    problem_t p = {.op = &plait_op_route,
                   .dtype = PLAIT_U8,
                   .shape = graph_shape,
                   .adapt = graph_params,
                   .context = g};

    (void)snprintf(p.text, sizeof(p.text), "route %s n %lld", name, (long long)g->n);
    check_problem(&p, n_ranks);
}

static void check_routes(int n_ranks, int64_t n)
{
    graph_t shift = {.n = n};
    graph_t ring = {.n = n};
    graph_t star = {.n = n};
    graph_t none = {.n = n};

    for (int r = 0; r < n_ranks; r++) {
        shift.n_in[r] = shift.n_out[r] = 1;
        ring.n_in[r] = ring.n_out[r] = 3;
        star.n_in[r] = (r == 0) ? 0 : 2;
        star.n_out[r] = (r == 0) ? 2 * n_ranks : 0;
        none.n_out[r] = r % 2;
        if (r + 1 < n_ranks) { /* the first rank gets zeros */
            add_edge(&shift, r, 0, r + 1, 0);
        }
        add_edge(&ring, r, 0, (r + 1) % n_ranks, 2);
        add_edge(&ring, r, 2, (r + n_ranks - 1) % n_ranks, 0);
        if (r > 0) { /* one block twice, the other never; nothing for blocks 0 and 1 */
            add_edge(&star, r, 1, 0, 2 * r);
            add_edge(&star, r, 1, 0, 2 * r + 1);
        }
    }
    check_graph(&shift, n_ranks, "shift");
    check_graph(&ring, n_ranks, "ring");
    check_graph(&star, n_ranks, "star");
    check_graph(&none, n_ranks, "without edges");
}

/* ---------------------------------------------------------------- mesh model */

typedef struct {
    plait_layout_t from, to;
} pair_t;

static void pair_shape(const void *context, int rank, bool is_ret, int *ndim_p,
                       int64_t dims[])
{
    const pair_t *pair = context;
    const plait_layout_t *layout = is_ret ? &pair->to : &pair->from;

    *ndim_p = layout->ndim;
    plait_layout_local_shape(layout, rank, dims);
}

static void name_pair(problem_t *p, const char *op, const pair_t *pair)
{
    char from[64];
    char to[64];

    plait_layout_print(&pair->from, from, sizeof(from));
    plait_layout_print(&pair->to, to, sizeof(to));
    (void)snprintf(p->text, sizeof(p->text), "%s %s -> %s", op, from, to);
}

static void check_redist(const pair_t *pair, int n_ranks)
{
    problem_t p = {.op = &plait_op_redistribute,
                   .dtype = PLAIT_S16,
                   .shape = pair_shape,
                   .context = pair};
    plait_redistribute_params_t params = {0};

    params.n_from = plait_layout_pack(&pair->from, params.from);
    params.n_to = plait_layout_pack(&pair->to, params.to);
    memcpy(p.params, &params, sizeof(params));
    name_pair(&p, "redistribute", pair);
    check_problem(&p, n_ranks);
    if (pair->from.ndim > 1) {
        pair_t turned = {.from = plait_layout_turned(&pair->from), .to = pair->to};
        p.context = &turned;
        params.n_from = plait_layout_pack(&turned.from, params.from);
        params.turn = 1;
        memcpy(p.params, &params, sizeof(params));
        name_pair(&p, "redistribute turned", &turned);
        check_problem(&p, n_ranks);
    }
}

static void check_fft(const pair_t *pair, int n_axes, int n_ranks)
{
    problem_t p = {
        .op = &plait_op_fft, .dtype = PLAIT_C64, .shape = pair_shape, .context = pair};
    plait_fft_params_t params = {.sign = -1, .scale = 1.0, .n_axes = n_axes};

    params.n_from = plait_layout_pack(&pair->from, params.from);
    params.n_to = plait_layout_pack(&pair->to, params.to);
    for (int i = 0; i < n_axes; i++) {
        params.axes[i] = pair->from.ndim - n_axes + i;
    }
    memcpy(p.params, &params, sizeof(params));
    name_pair(&p, "fft", pair);
    check_problem(&p, n_ranks);
}

/* Real numbers on one side; the last axis is halved, or the first one that is transformed. */
static void check_real_fft(const pair_t *complex, int n_axes, int variant, int n_ranks)
{
    pair_t pair = *complex;
    bool to_complex = variant % 2 == 0;
    problem_t p = {.op = &plait_op_fft,
                   .dtype = to_complex ? PLAIT_F32 : PLAIT_C64,
                   .is_other = true,
                   .ret_dtype = to_complex ? PLAIT_C64 : PLAIT_F32,
                   .shape = pair_shape,
                   .context = &pair};
    plait_fft_params_t params = {.sign = -1, .scale = 1.0, .n_axes = n_axes};
    plait_layout_t *half = to_complex ? &pair.to : &pair.from;
    int last = pair.from.ndim - 1;

    for (int i = 0; i < n_axes; i++) {
        params.axes[i] = (variant < 2) ? last - n_axes + 1 + i : last - i;
    }
    half->shape[params.axes[n_axes - 1]] = half->shape[params.axes[n_axes - 1]] / 2 + 1;
    params.n_from = plait_layout_pack(&pair.from, params.from);
    params.n_to = plait_layout_pack(&pair.to, params.to);
    memcpy(p.params, &params, sizeof(params));
    name_pair(&p, to_complex ? "fft of real" : "fft to real", &pair);
    check_problem(&p, n_ranks);
}

/* Every split of `ndim` axes over a grid, by digits: 0 whole, 1 + g over grid axis g. */
static bool layout_of(int code, int ndim, const int64_t shape[], int grid_ndim,
                      const int grid[], plait_split_t split, plait_layout_t *layout)
{
    int over[MAX_NDIM];

    for (int a = 0; a < ndim; a++) {
        over[a] = code % (grid_ndim + 1) - 1;
        code /= grid_ndim + 1;
    }
    return plait_layout_pencil(ndim, shape, grid_ndim, grid, over, split, layout) ==
           PLAIT_OK;
}

static int power(int base, int exponent)
{
    return (exponent == 0) ? 1 : base * power(base, exponent - 1);
}

/* ---------------------------------------------------------------- ghosts */

typedef struct {
    plait_layout_t cells;
    int64_t before[MAX_NDIM], after[MAX_NDIM];
    plait_boundary_t boundary[MAX_NDIM];
    bool is_bare, is_reduce;
} ghosts_t;

static void ghosts_shape(const void *context, int rank, bool is_ret, int *ndim_p,
                         int64_t dims[])
{
    const ghosts_t *g = context;

    *ndim_p = g->cells.ndim;
    plait_layout_stored_shape(&g->cells, rank, dims);
    for (int a = 0; a < g->cells.ndim && !(g->is_bare && is_ret == g->is_reduce); a++) {
        dims[a] += g->before[a] + g->after[a];
    }
}

static int owner_of(const plait_layout_t *cells, int replica, const int64_t cell[])
{
    int n_ranks = plait_layout_n_ranks(cells);

    for (int r = 0; r < n_ranks; r++) {
        bool owns = plait_layout_replica(cells, r) == replica;
        for (int a = 0; a < cells->ndim; a++) {
            plait_interval_t i = plait_layout_interval(cells, r, a, 0, NULL);
            owns = owns && cell[a] >= i.lo && cell[a] < i.hi;
        }
        if (owns) {
            return r;
        }
    }
    abort();
}

/* n[r]: places of rank's padded array that are copies of rank r's cells. */
static void count_copies(const ghosts_t *g, int rank, int64_t n[])
{
    int64_t shape[MAX_NDIM];
    int64_t n_places = 1;
    bool has_cells = true;

    memset(n, 0, MAX_P * sizeof(*n));
    plait_layout_local_shape(&g->cells, rank, shape);
    for (int a = 0; a < g->cells.ndim; a++) {
        has_cells = has_cells && shape[a] > 0;
        shape[a] += g->before[a] + g->after[a];
        n_places *= shape[a];
    }
    for (int64_t i = 0; has_cells && i < n_places; i++) {
        int64_t cell[MAX_NDIM];
        int64_t rest = i;
        bool is_copy = true;
        for (int a = g->cells.ndim - 1; a >= 0; a--) {
            plait_interval_t own = plait_layout_interval(&g->cells, rank, a, 0, NULL);
            cell[a] = ghost_cell(g->boundary[a], g->cells.shape[a],
                                 own.lo - g->before[a] + rest % shape[a]);
            rest /= shape[a];
            is_copy = is_copy && cell[a] >= 0;
        }
        if (is_copy) {
            n[owner_of(&g->cells, plait_layout_replica(&g->cells, rank), cell)]++;
        }
    }
}

static int64_t n_packed; /* plans whose short rows are packed before they are read */

/* One message from each neighbour, of what it has, in one round between two fences. */
static void judge_ghosts(const void *context, int n_ranks, plait_plan_t *const plans[],
                         const char *text)
{
    const ghosts_t *g = context;
    int64_t copies[MAX_P][MAX_P];

    for (int r = 0; r < n_ranks; r++) {
        count_copies(g, r, copies[r]);
    }
    for (int r = 0; r < n_ranks; r++) {
        plait_plan_cost_t cost = plait_plan_cost(plans[r]);
        int64_t n_neighbours = 0;
        int64_t n_items = 0;
        int64_t n_given = 0;
        int n_fences = 0;
        int n_rounds = 0;
        for (int q = 0; q < n_ranks; q++) {
            int64_t n = g->is_reduce ? copies[q][r] : copies[r][q];
            n_neighbours += q != r && n > 0;
            n_items += (q != r) ? n : 0;
            n_given += (q == r) ? 0 : g->is_reduce ? copies[r][q] : copies[q][r];
        }
        n_packed += cost.work_bytes > 0;
        bool may_pack = plans[r]->direct == PLAIT_DIRECT_READ;
        int64_t most_packed = may_pack ? n_given * plait_dtype_bytes(PLAIT_F32) : 0;
        for (int i = 0; i < plans[r]->n_steps; i++) {
            const plait_step_t *step = &plans[r]->steps[i];
            bool is_remote = false;
            n_fences += step->kind == PLAIT_STEP_FENCE;
            for (int64_t k = 0; step->kind == PLAIT_STEP_MOVE && k < step->u.move.n_in;
                 k++) {
                is_remote = is_remote || step->u.move.in[k].peer != r;
            }
            n_rounds += is_remote;
        }
        CHECK(cost.n_messages == n_neighbours &&
                  cost.message_bytes == n_items * plait_dtype_bytes(PLAIT_F32),
              "%s rank %d of %d: %lld messages of %lld bytes, it has %lld neighbours "
              "with %lld cells",
              text, r, n_ranks, (long long)cost.n_messages,
              (long long)cost.message_bytes, (long long)n_neighbours,
              (long long)n_items);
        CHECK(n_fences == ((plans[r]->direct == PLAIT_DIRECT_NONE) ? 0 : 2) &&
                  n_rounds == (n_neighbours > 0) && cost.work_bytes <= most_packed,
              "%s rank %d of %d: %d fences, %d rounds", text, r, n_ranks, n_fences,
              n_rounds);
    }
}

static void check_ghosts(ghosts_t *g, int n_ranks)
{
    problem_t p = {
        .dtype = PLAIT_F32, .shape = ghosts_shape, .judge = judge_ghosts, .context = g};
    plait_halo_params_t params = {.bare = g->is_bare};
    char layout[64];
    int ndim = g->cells.ndim;
    int n = 0;

    params.n_layout = plait_layout_pack(&g->cells, params.layout);
    params.n_before = params.n_after = params.n_boundary = ndim;
    for (int a = 0; a < ndim; a++) {
        params.before[a] = g->before[a];
        params.after[a] = g->after[a];
        params.boundary[a] = g->boundary[a];
    }
    memcpy(p.params, &params, sizeof(params));
    plait_layout_print(&g->cells, layout, sizeof(layout));
    for (int is_reduce = 0; is_reduce < 2; is_reduce++) {
        g->is_reduce = is_reduce != 0;
        p.op = g->is_reduce ? &plait_op_halo_reduce : &plait_op_halo_exchange;
        n = snprintf(p.text, sizeof(p.text), "%s%s %s", p.op->name,
                     g->is_bare ? " bare" : "", layout);
        for (int a = 0; a < ndim; a++) {
            n += snprintf(p.text + n, sizeof(p.text) - (size_t)n, " %d:%d+%d",
                          (int)g->boundary[a], (int)g->before[a], (int)g->after[a]);
        }
        check_problem(&p, n_ranks);
    }
}

/* As JAX stores it: equal parts, of one more than needed with is_roomy. */
static void store_equal(plait_layout_t *layout, bool is_roomy)
{
    int64_t local[MAX_NDIM];

    plait_layout_local_shape(layout, 0, local);
    for (int a = 0; a < layout->ndim; a++) {
        layout->stored[a] = local[a] + is_roomy;
        if (layout->axis[a].split == PLAIT_SPLIT_CEIL) {
            layout->axis[a].block = layout->stored[a];
        }
    }
}

/* Every boundary on every axis, widths of 0 to beyond the axis, differing on both sides. */
static void check_halo(const plait_layout_t *cells, int seed, int n_ranks)
{
    static const int64_t widths[] = {0, 1, 2, 3, 1, 7, 2};
    int64_t most = (cells->ndim > 2) ? 3 : 7;
    int step = (n_ranks > 6) ? 3 : 1; /* of large teams some, in turns */

    for (int s = seed % step; s < 4; s += step) {
        ghosts_t g = {.cells = *cells, .is_bare = (seed + s) % 2 == 0};
        for (int a = 0; a < cells->ndim; a++) {
            int64_t before = widths[(seed + 3 * a + s) % 7];
            int64_t after = widths[(2 * seed + a + 3 * s) % 7];
            g.before[a] = (before < most) ? before : most;
            g.after[a] = (after < most) ? after : most;
            g.boundary[a] = (plait_boundary_t)((seed / 4 + a + s) % 4);
        }
        if (cells->axis[0].split != PLAIT_SPLIT_EVEN && s >= 2) {
            store_equal(&g.cells, s == 3);
        }
        check_ghosts(&g, n_ranks);
    }
}

static void check_layouts(int ndim, const int64_t shape[], int grid_ndim,
                          const int grid[], int n_ranks)
{
    int n_codes = power(grid_ndim + 1, ndim);

    for (int f = 0; f < n_codes; f++) {
        for (int t = 0; t < n_codes; t++) {
            pair_t pair = {0};
            if (layout_of(f, ndim, shape, grid_ndim, grid,
                          (f % 2) ? PLAIT_SPLIT_CEIL : PLAIT_SPLIT_EVEN, &pair.from) &&
                layout_of(t, ndim, shape, grid_ndim, grid, PLAIT_SPLIT_EVEN,
                          &pair.to)) {
                check_redist(&pair, n_ranks);
                check_fft(&pair, 1 + (f + t) % ndim, n_ranks);
                check_real_fft(&pair, 1 + (f + t) % ndim, (f + 2 * t) % 4, n_ranks);
            }
        }
        plait_layout_t cells;
        for (int split = PLAIT_SPLIT_EVEN; split <= PLAIT_SPLIT_CEIL; split++) {
            if (layout_of(f, ndim, shape, grid_ndim, grid, (plait_split_t)split,
                          &cells)) {
                check_halo(&cells, 5 * f + split, n_ranks);
            }
        }
    }
}

/* A rank that has the part V of an axis of 4 P^2 sends and takes V (1 - 1 / P) three times. */
static void judge_volume(const void *context, int n_ranks, plait_plan_t *const plans[],
                         const char *text)
{
    const int64_t n_local = 4 * (int64_t)n_ranks;
    const int64_t n_bytes = plait_dtype_bytes(PLAIT_C64) * n_local;

    (void)context;
    for (int r = 0; r < n_ranks; r++) {
        plait_plan_cost_t cost = plait_plan_cost(plans[r]);
        CHECK(cost.message_bytes == 3 * (n_bytes - n_bytes / n_ranks),
              "%s P %d rank %d: %lld bytes", text, n_ranks, r,
              (long long)cost.message_bytes);
        CHECK(n_ranks == 1 || strstr(plans[r]->title, ", axis 0 as ") != NULL, "%s",
              plans[r]->title);
        CHECK(cost.n_messages == 3 * (n_ranks - 1), "%s P %d rank %d: %lld messages",
              text, n_ranks, r, (long long)cost.n_messages);
        CHECK(cost.work_bytes <= n_bytes, "%s P %d rank %d: %lld bytes of work", text,
              n_ranks, r, (long long)cost.work_bytes);
    }
}

/* Without factors all of the axis goes to all; the title says so. */
static void judge_gathered(const void *context, int n_ranks,
                           plait_plan_t *const plans[], const char *text)
{
    (void)context;
    for (int r = 0; r < n_ranks; r++) {
        CHECK(n_ranks == 1 || strstr(plans[r]->title, "gathers axis 0") != NULL,
              "%s: %s", text, plans[r]->title);
    }
}

static void check_volume(int n_ranks, bool is_prime)
{
    const int64_t shape[] = {is_prime ? 997 : 4 * (int64_t)n_ranks * n_ranks};
    const int grid[] = {n_ranks};
    pair_t pair = {0};
    problem_t p = {.op = &plait_op_fft,
                   .dtype = PLAIT_C64,
                   .shape = pair_shape,
                   .judge = is_prime ? judge_gathered : judge_volume,
                   .context = &pair};
    plait_fft_params_t params = {.sign = -1, .scale = 1.0, .n_axes = 1};

    (void)layout_of(1, 1, shape, 1, grid, PLAIT_SPLIT_CEIL, &pair.from);
    pair.to = pair.from;
    params.n_from = plait_layout_pack(&pair.from, params.from);
    params.n_to = plait_layout_pack(&pair.to, params.to);
    memcpy(p.params, &params, sizeof(params));
    name_pair(&p, "fft", &pair);
    check_problem(&p, n_ranks);
}

/* Axes that no other axis takes the split of, or only one too short: lengths with and without
 * useful factors, parts of any size, and dealt out in turn. */
static void check_lone_axes(int n_ranks)
{
    const int64_t p = n_ranks;
    const int64_t lines[] = {p * p, p * (p + 1), p * p + 1, 3 * p * p, 97, 60, 3};
    const int grid[] = {n_ranks};

    for (size_t s = 0; s < sizeof(lines) / sizeof(lines[0]); s++) {
        check_layouts(1, &lines[s], 1, grid, n_ranks);
    }
    for (int t = 0; t < 3; t++) {
        int64_t shape[] = {2, 2, 2};
        shape[t] = p * (p + 2);
        for (int split = PLAIT_SPLIT_EVEN; split <= PLAIT_SPLIT_CYCLIC; split++) {
            pair_t pair = {0};
            (void)layout_of(power(2, t), 3, shape, 1, grid, (plait_split_t)split,
                            &pair.from);
            (void)layout_of(power(2, t), 3, shape, 1, grid, PLAIT_SPLIT_CEIL, &pair.to);
            check_fft(&pair, 3, n_ranks);
            pair_t back = {.from = pair.to, .to = pair.from};
            check_fft(&back, 3, n_ranks);
        }
    }
    for (int a = 2; a <= n_ranks / 2; a++) {
        const int both[] = {a, n_ranks / a};
        const int64_t shape[] = {a * (a + 1), (p / a) * (p / a + 2)};
        pair_t pair = {0};
        if (n_ranks % a == 0 &&
            layout_of(1 + 3 * 2, 2, shape, 2, both, PLAIT_SPLIT_EVEN, &pair.from)) {
            pair.to = pair.from;
            check_fft(&pair, 2, n_ranks);
        }
    }
    check_volume(n_ranks, false);
    check_volume(n_ranks, true);
}

static void check_cyclic(int n_ranks)
{
    const int64_t shape[] = {11, 7};
    const int grid[] = {n_ranks};
    pair_t pair = {0};

    (void)layout_of(1, 2, shape, 1, grid, PLAIT_SPLIT_EVEN, &pair.from);
    pair.to = pair.from;
    pair.to.axis[0].split = PLAIT_SPLIT_CYCLIC;
    for (int64_t block = 1; block <= 4; block++) {
        pair.to.axis[0].block = block;
        check_redist(&pair, n_ranks);
        pair_t back = {.from = pair.to, .to = pair.from};
        check_redist(&back, n_ranks);
    }
}

/* ---------------------------------------------------------------- planted faults */

typedef void (*plant_t)(plait_plan_t *plan);

static plait_step_t *first_of(plait_plan_t *plan, plait_step_kind_t kind)
{
    for (int i = 0; i < plan->n_steps; i++) {
        if (plan->steps[i].kind == kind) {
            return &plan->steps[i];
        }
    }
    abort();
}

static void drop_block(plait_plan_t *plan)
{
    first_of(plan, PLAIT_STEP_MOVE)->u.move.n_in--;
}

static void double_block(plait_plan_t *plan)
{
    plait_move_t *move = &first_of(plan, PLAIT_STEP_MOVE)->u.move;

    move->in[0] = move->in[1];
}

static void shift_block(plait_plan_t *plan)
{
    first_of(plan, PLAIT_STEP_MOVE)->u.move.in[0].src_offset += 1 << 20;
}

static void other_agreement(plait_plan_t *plan)
{
    plan->agree++;
}

/* The published bytes are read one fence too late. */
static void check_stale(void)
{
    const int64_t n = 4;
    const plait_allreduce_params_t sum = {.reduce = PLAIT_SUM};
    const plait_check_t options = {.alias = -1};
    problem_t p = {.op = &plait_op_allreduce,
                   .dtype = PLAIT_F64,
                   .shape = vector_shape,
                   .context = &n};
    plait_plan_t *plans[MAX_P] = {NULL};

    memcpy(p.params, &sum, sizeof(sum));
    CHECK(make_plans(&p, 3, &all_caps[0], plans) == PLAIT_OK, "allreduce");
    for (int r = 0; r < 3; r++) {
        plait_step_t last = plans[r]->steps[plans[r]->n_steps - 1];
        CHECK(plait_plan_meet(plans[r]) == PLAIT_OK, "meet");
        plans[r]->steps[plans[r]->n_steps - 2] = plans[r]->steps[plans[r]->n_steps - 1];
        plans[r]->steps[plans[r]->n_steps - 1] = last;
    }
    CHECK(plait_plans_check(plans, 3, &options) == PLAIT_ERR_INTERNAL,
          "a stale read is not found");
    for (int r = 0; r < 3; r++) {
        plait_plan_destroy(&plans[r]);
    }
}

static void check_planted(void)
{
    static const plant_t plants[] = {drop_block, double_block, shift_block,
                                     other_agreement};
    const int64_t shape[] = {6, 4};
    const int grid[] = {3};

    for (size_t i = 0; i < sizeof(plants) / sizeof(plants[0]); i++) {
        pair_t pair = {0};
        problem_t p = {.op = &plait_op_redistribute,
                       .dtype = PLAIT_S16,
                       .shape = pair_shape,
                       .context = &pair};
        plait_redistribute_params_t params = {0};
        plait_plan_t *plans[MAX_P] = {NULL};
        const plait_check_t options = {.alias = -1};
        (void)layout_of(1, 2, shape, 1, grid, PLAIT_SPLIT_EVEN, &pair.from);
        (void)layout_of(2, 2, shape, 1, grid, PLAIT_SPLIT_EVEN, &pair.to);
        params.n_from = plait_layout_pack(&pair.from, params.from);
        params.n_to = plait_layout_pack(&pair.to, params.to);
        memcpy(p.params, &params, sizeof(params));
        CHECK(make_plans(&p, 3, &all_caps[0], plans) == PLAIT_OK, "plant %zu", i);
        plants[i](plans[1]);
        CHECK(plait_plans_check(plans, 3, &options) == PLAIT_ERR_INTERNAL,
              "plant %zu is not found", i);
        for (int r = 0; r < 3; r++) {
            plait_plan_destroy(&plans[r]);
        }
    }
}

/* Plans of `p` for 3 ranks, with one thing wrong on each of them or on one. */
static void check_plant(problem_t *p, const plait_caps_t *caps, int alias,
                        void (*plant)(plait_plan_t *plan), const char *what)
{
    plait_plan_t *plans[MAX_P] = {NULL};
    const plait_check_t options = {.alias = alias};
    plait_status_t status = PLAIT_OK;

    CHECK(make_plans(p, 3, caps, plans) == PLAIT_OK, "%s", p->op->name);
    for (int r = 0; r < 3 && plant != NULL; r++) {
        plant(plans[r]);
    }
    status = plait_plans_check(plans, 3, &options);
    CHECK(status == PLAIT_ERR_INTERNAL && strstr(plait_error_text(), what) != NULL,
          "%s is not found in %s", what, p->op->name);
    for (int r = 0; r < 3; r++) {
        plait_plan_destroy(&plans[r]);
    }
}

static void remove_step(plait_plan_t *plan, int i)
{
    (void)memmove(plan->steps + i, plan->steps + i + 1,
                  (size_t)(plan->n_steps - i - 1) * sizeof(*plan->steps));
    plan->n_steps--;
}

static void remove_third(plait_plan_t *plan)
{
    remove_step(plan, 2);
}

static void remove_first(plait_plan_t *plan)
{
    remove_step(plan, 0);
}

/* The pieces of rank 1 are collected where those of rank 0 are. */
static void overlap_pieces(plait_plan_t *plan)
{
    plait_move_t *move = &first_of(plan, PLAIT_STEP_MOVE)->u.move;

    move->in[1].dst_offset = move->in[0].dst_offset;
}

static void other_blocks(plait_plan_t *plan)
{
    plan->agree_some += (plan->rank == 2) ? 2 : 0;
}

static void check_planted_steps(void)
{
    const plait_caps_t *direct = &all_caps[1];
    const plait_caps_t *messages = &all_caps[4];
    int64_t n = 1 << 14;
    problem_t p = {.op = &plait_op_allreduce,
                   .dtype = PLAIT_F64,
                   .shape = vector_shape,
                   .context = &n};
    blocks_t b = {.n_ranks = 3, .n = 4, .roles = {SENT, RECEIVED}, .root = -1};
    problem_t alltoall = {.op = &plait_op_alltoall,
                          .dtype = PLAIT_F64,
                          .shape = blocks_shape,
                          .context = &b};
    graph_t g = {.n = 3, .n_in = {1, 1, 1}, .n_out = {1, 1, 1}};
    problem_t route = {.op = &plait_op_route,
                       .dtype = PLAIT_F64,
                       .shape = graph_shape,
                       .adapt = graph_params,
                       .context = &g};

    /* a fence left out on all ranks: peers read what is being written */
    check_plant(&p, direct, -1, remove_third, "reads what nobody has written");
    check_plant(&p, direct, 0, remove_third, "in the same phase");
    check_plant(&alltoall, direct, 0, remove_first, "in the same phase");
    /* in place: blocks come before those that they overwrite have left */
    check_plant(&alltoall, messages, 0, NULL,
                "sends what the same move has overwritten");
    check_plant(&p, messages, -1, overlap_pieces, "writes twice");
    check_plant(&route, direct, -1, other_blocks, "agreement");
}

int main(void)
{
    static const int64_t small[][3] = {{5, 4, 3}, {3, 1, 2}, {0, 2, 3}};
    plait_device_t *device = check_device_create(0);

    all_caps[N_CAPS - 1].device = device;
    for (int n_ranks = 1; n_ranks <= MAX_P; n_ranks++) {
        const int line[] = {n_ranks};
        if (is_quick() && n_ranks > 4 && n_ranks != 7) {
            continue;
        }
        check_coll(n_ranks, 0, PLAIT_F32);
        check_coll(n_ranks, 1, PLAIT_F32);
        check_coll(n_ranks, 1500, PLAIT_C128);
        check_coll(n_ranks, 40000, PLAIT_U8);
        for (int kind = 0; kind < 3; kind++) {
            check_blocks(n_ranks, 0, kind);
            check_blocks(n_ranks, 3, kind);
        }
        check_routes(n_ranks, 0);
        check_routes(n_ranks, 5);
        for (int s = 0; s < 2; s++) {
            check_layouts(3, small[s], 1, line, n_ranks);
        }
        check_layouts(2, small[0], 1, line, n_ranks);
        check_layouts(1, small[0], 1, line, n_ranks);
        for (int a = 2; a <= n_ranks / 2; a++) {
            const int grid[] = {a, n_ranks / a};
            if (n_ranks % a == 0 && (n_ranks <= 8 || a == 2)) {
                check_layouts(3, small[0], 2, grid, n_ranks);
            }
        }
        check_cyclic(n_ranks);
        check_lone_axes(n_ranks);
    }
    CHECK(n_packed > 0, "no plan packs short rows");
    check_planted();
    check_stale();
    check_planted_steps();
    CHECK(check_device_destroy(&device) == 0, "device");
    return report("test_plans");
}
