/* The plans of all ranks of collectives and matched transfers fit together: P = 1..17, every way of reaching a
 * peer's memory (in turns for more than 8 ranks), with and without native collectives, results apart from
 * operands and in their place. Operations on global arrays: test_plans_mesh.c. */
#include "plans.h"

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

int main(void)
{
    plait_device_t *device = check_device_create(0);

    all_caps[N_CAPS - 1].device = device;
    for (int n_ranks = 1; n_ranks <= MAX_P; n_ranks++) {
        if (is_quick() && n_ranks > 4 && n_ranks != 7) {
            continue;
        }
        check_coll(n_ranks, 0, PLAIT_F32);
        check_coll(n_ranks, 1, PLAIT_U8);
        check_coll(n_ranks, 1500, PLAIT_C128);
        check_coll(n_ranks, 10000, PLAIT_F32);
        for (int kind = 0; kind < 3; kind++) {
            check_blocks(n_ranks, 0, kind);
            check_blocks(n_ranks, 3, kind);
        }
        check_routes(n_ranks, 0);
        check_routes(n_ranks, 5);
    }
    CHECK(check_device_destroy(&device) == 0, "device");
    return report("test_plans");
}
