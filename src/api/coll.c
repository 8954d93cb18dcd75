/* Typed functions for C programs: each fills an operation's parameters and arrays. */
#include "plait/coll.h"

#include "base/checked.h"
#include "base/status.h"
#include "coll/coll.h"
#include "ops/list.h"
#include "plan/launch.h"

#include <stddef.h>

_Static_assert(sizeof(plait_edge_t) == PLAIT_EDGE_WORDS * sizeof(int64_t),
               "edges are passed on as they are");

/* An array of n elements, or of n_rows rows of n elements. */
typedef struct {
    int64_t dims[2];
    plait_array_t array;
} vector_t;

/* What all calls have. */
typedef struct {
    const plait_op_t *op;
    plait_comm_t *comm;
    plait_dtype_t dtype;
    vector_t x, y;
} call_t;

static plait_status_t begin(call_t *c, const plait_op_t *op, plait_comm_t *comm,
                            plait_dtype_t dtype)
{
    plait_status_t status = PLAIT_OK;

    *c = (call_t){.op = op, .comm = comm, .dtype = dtype};
    PLAIT_CHECK(comm != NULL, PLAIT_ERR_COMM, "%s: the communicator is NULL", op->name);
done:
    return status;
}

/* n_rows < 0: one axis of n elements. The array may be NULL if it has no elements or is not used. */
static plait_status_t set(const call_t *c, vector_t *v, int64_t n_rows, int64_t n,
                          const void *data, bool is_used)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(n >= 0, PLAIT_ERR_INVALID,
                "%s: %lld elements on rank %d, expected 0 or more", c->op->name,
                (long long)n, c->comm->end.rank);
    PLAIT_CHECK(n == 0 || n_rows == 0 || data != NULL || !is_used, PLAIT_ERR_INVALID,
                "%s: an array of rank %d is NULL", c->op->name, c->comm->end.rank);
    v->dims[0] = (n_rows < 0) ? n : n_rows;
    v->dims[1] = n;
    v->array = (plait_array_t){.dtype = c->dtype,
                               .ndim = (n_rows < 0) ? 1 : 2,
                               .dims = v->dims,
                               .data = (void *)(uintptr_t)data};
done:
    return status;
}

static plait_status_t set_pair(call_t *c, int64_t n, const void *x, const void *y)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(set(c, &c->x, -1, n, x, true));
    PLAIT_TRY(set(c, &c->y, -1, n, y, true));
done:
    return status;
}

static plait_status_t launch(const void *params, const call_t *c)
{
    return plait_op_launch(c->op, params, c->comm, &c->x.array, &c->y.array);
}

static int64_t sum_of(const int64_t counts[], int64_t n, int64_t stride)
{
    int64_t sum = 0;

    /* the plan refuses negative counts and sums that overflow */
    for (int64_t i = 0; i < n; i++) {
        if (!plait_add(sum, plait_max(0, counts[i * stride]), &sum)) {
            sum = INT64_MAX;
        }
    }
    return sum;
}

/* Whether the plan accepts the counts. If not, all ranks meet to refuse them. A rank's NULL arrays must not
 * matter then: a rank without elements could not tell whether NULL is an error. */
static bool are_sound(const int64_t counts[], int64_t n)
{
    int64_t sum = 0;
    bool is_sound = true;

    for (int64_t i = 0; i < n && is_sound; i++) {
        is_sound = counts[i] >= 0 && plait_add(sum, counts[i], &sum);
    }
    return is_sound;
}

static plait_status_t check_counts(const plait_op_t *op, const int64_t counts[])
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(counts != NULL, PLAIT_ERR_INVALID, "%s: counts is NULL", op->name);
done:
    return status;
}

/* ---- reductions ---- */

plait_status_t plait_allreduce(plait_comm_t *comm, plait_reduce_t op,
                               plait_dtype_t dtype, int64_t n, const void *x, void *y)
{
    plait_status_t status = PLAIT_OK;
    const plait_allreduce_params_t params = {.reduce = op};
    call_t c;

    PLAIT_TRY(begin(&c, &plait_op_allreduce, comm, dtype));
    PLAIT_TRY(set_pair(&c, n, x, y));
    PLAIT_TRY(launch(&params, &c));
done:
    return status;
}

/* On the other ranks the operand takes the result's place, and the result is the operand. */
plait_status_t plait_reduce(plait_comm_t *comm, plait_reduce_t op, int root,
                            plait_dtype_t dtype, int64_t n, const void *x, void *y)
{
    plait_status_t status = PLAIT_OK;
    const plait_reduce_params_t params = {.reduce = op, .root = root, .elsewhere = 1};
    call_t c;

    PLAIT_TRY(begin(&c, &plait_op_reduce, comm, dtype));
    PLAIT_TRY(set_pair(&c, n, x, (comm->end.rank == root) ? y : x));
    PLAIT_TRY(launch(&params, &c));
done:
    return status;
}

plait_status_t plait_scan(plait_comm_t *comm, plait_reduce_t op, int flags,
                          plait_dtype_t dtype, int64_t n, const void *x, void *y)
{
    plait_status_t status = PLAIT_OK;
    const plait_scan_params_t params = {.reduce = op,
                                        .exclusive =
                                            (flags & PLAIT_SCAN_EXCLUSIVE) != 0,
                                        .reverse = (flags & PLAIT_SCAN_REVERSE) != 0};
    call_t c;

    PLAIT_TRY(begin(&c, &plait_op_scan, comm, dtype));
    PLAIT_CHECK((flags & ~(PLAIT_SCAN_EXCLUSIVE | PLAIT_SCAN_REVERSE)) == 0,
                PLAIT_ERR_INVALID, "scan: flags are %d, expected 0 to 3", flags);
    PLAIT_TRY(set_pair(&c, n, x, y));
    PLAIT_TRY(launch(&params, &c));
done:
    return status;
}

plait_status_t plait_reduce_scatter(plait_comm_t *comm, plait_reduce_t op,
                                    plait_dtype_t dtype, int64_t n, const void *x,
                                    void *y)
{
    plait_status_t status = PLAIT_OK;
    const plait_reduce_scatter_params_t params = {.reduce = op};
    call_t c;

    PLAIT_TRY(begin(&c, &plait_op_reduce_scatter, comm, dtype));
    PLAIT_TRY(set(&c, &c.x, comm->end.size, n, x, true));
    PLAIT_TRY(set(&c, &c.y, -1, n, y, true));
    PLAIT_TRY(launch(&params, &c));
done:
    return status;
}

plait_status_t plait_reduce_scatterv(plait_comm_t *comm, plait_reduce_t op,
                                     plait_dtype_t dtype, const int64_t counts[],
                                     const void *x, void *y)
{
    plait_status_t status = PLAIT_OK;
    plait_reduce_scatter_params_t params = {.reduce = op, .counts = counts};
    call_t c;

    PLAIT_TRY(begin(&c, &plait_op_reduce_scatter, comm, dtype));
    PLAIT_TRY(check_counts(c.op, counts));
    params.n_counts = comm->end.size;
    const bool is_sound = are_sound(counts, comm->end.size);
    PLAIT_TRY(set(&c, &c.x, -1, sum_of(counts, comm->end.size, 1), x, is_sound));
    PLAIT_TRY(set(&c, &c.y, -1, sum_of(counts + comm->end.rank, 1, 1), y, is_sound));
    PLAIT_TRY(launch(&params, &c));
done:
    return status;
}

/* ---- movement ---- */

plait_status_t plait_bcast(plait_comm_t *comm, int root, plait_dtype_t dtype, int64_t n,
                           const void *x, void *y)
{
    plait_status_t status = PLAIT_OK;
    const plait_bcast_params_t params = {.root = root};
    call_t c;

    PLAIT_TRY(begin(&c, &plait_op_bcast, comm, dtype));
    PLAIT_TRY(set(&c, &c.x, -1, n, x, comm->end.rank == root));
    PLAIT_TRY(set(&c, &c.y, -1, n, y, true));
    PLAIT_TRY(launch(&params, &c));
done:
    return status;
}

plait_status_t plait_allgather(plait_comm_t *comm, plait_dtype_t dtype, int64_t n,
                               const void *x, void *y)
{
    plait_status_t status = PLAIT_OK;
    const plait_allgather_params_t params = {0};
    call_t c;

    PLAIT_TRY(begin(&c, &plait_op_allgather, comm, dtype));
    PLAIT_TRY(set(&c, &c.x, -1, n, x, true));
    PLAIT_TRY(set(&c, &c.y, comm->end.size, n, y, true));
    PLAIT_TRY(launch(&params, &c));
done:
    return status;
}

plait_status_t plait_allgatherv(plait_comm_t *comm, plait_dtype_t dtype,
                                const int64_t counts[], const void *x, void *y)
{
    plait_status_t status = PLAIT_OK;
    plait_allgather_params_t params = {.counts = counts};
    call_t c;

    PLAIT_TRY(begin(&c, &plait_op_allgather, comm, dtype));
    PLAIT_TRY(check_counts(c.op, counts));
    params.n_counts = comm->end.size;
    const bool is_sound = are_sound(counts, comm->end.size);
    PLAIT_TRY(set(&c, &c.x, -1, sum_of(counts + comm->end.rank, 1, 1), x, is_sound));
    PLAIT_TRY(set(&c, &c.y, -1, sum_of(counts, comm->end.size, 1), y, is_sound));
    PLAIT_TRY(launch(&params, &c));
done:
    return status;
}

plait_status_t plait_alltoall(plait_comm_t *comm, plait_dtype_t dtype, int64_t n,
                              const void *x, void *y)
{
    plait_status_t status = PLAIT_OK;
    const plait_alltoall_params_t params = {0};
    call_t c;

    PLAIT_TRY(begin(&c, &plait_op_alltoall, comm, dtype));
    PLAIT_TRY(set(&c, &c.x, comm->end.size, n, x, true));
    PLAIT_TRY(set(&c, &c.y, comm->end.size, n, y, true));
    PLAIT_TRY(launch(&params, &c));
done:
    return status;
}

plait_status_t plait_alltoallv(plait_comm_t *comm, plait_dtype_t dtype,
                               const int64_t counts[], const void *x, void *y)
{
    plait_status_t status = PLAIT_OK;
    plait_alltoall_params_t params = {.counts = counts};
    call_t c;

    PLAIT_TRY(begin(&c, &plait_op_alltoall, comm, dtype));
    PLAIT_TRY(check_counts(c.op, counts));
    int64_t size = comm->end.size;
    int64_t rank = comm->end.rank;
    params.n_counts = size * size;
    const bool is_sound = are_sound(counts, size * size);
    PLAIT_TRY(set(&c, &c.x, -1, sum_of(counts + rank * size, size, 1), x, is_sound));
    PLAIT_TRY(set(&c, &c.y, -1, sum_of(counts + rank, size, size), y, is_sound));
    PLAIT_TRY(launch(&params, &c));
done:
    return status;
}

/* gather and gatherv. counts NULL: n elements of each rank. */
static plait_status_t gather(plait_comm_t *comm, int root, plait_dtype_t dtype,
                             const int64_t counts[], int64_t n, const void *x, void *y)
{
    plait_status_t status = PLAIT_OK;
    plait_gather_params_t params = {.root = root, .elsewhere = 1, .counts = counts};
    call_t c;

    PLAIT_TRY(begin(&c, &plait_op_gather, comm, dtype));
    int64_t size = comm->end.size;
    bool has_counts = counts != NULL;
    n = has_counts ? sum_of(counts + comm->end.rank, 1, 1) : n;
    params.n_counts = has_counts ? size : 0;
    const bool is_sound = are_sound(counts, params.n_counts);
    PLAIT_TRY(set(&c, &c.x, -1, n, x, is_sound));
    if (comm->end.rank == root) {
        PLAIT_TRY(set(&c, &c.y, has_counts ? -1 : size,
                      has_counts ? sum_of(counts, size, 1) : n, y, is_sound));
    } else { /* the operand takes the result's place, and the result is the operand */
        PLAIT_TRY(set(&c, &c.y, -1, n, x, is_sound));
    }
    PLAIT_TRY(launch(&params, &c));
done:
    return status;
}

plait_status_t plait_gather(plait_comm_t *comm, int root, plait_dtype_t dtype,
                            int64_t n, const void *x, void *y)
{
    return gather(comm, root, dtype, NULL, n, x, y);
}

plait_status_t plait_gatherv(plait_comm_t *comm, int root, plait_dtype_t dtype,
                             const int64_t counts[], const void *x, void *y)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_counts(&plait_op_gather, counts));
    PLAIT_TRY(gather(comm, root, dtype, counts, 0, x, y));
done:
    return status;
}

/* scatter and scatterv, with counts as in gather. */
static plait_status_t scatter(plait_comm_t *comm, int root, plait_dtype_t dtype,
                              const int64_t counts[], int64_t n, const void *x, void *y)
{
    plait_status_t status = PLAIT_OK;
    plait_scatter_params_t params = {.root = root, .counts = counts};
    call_t c;

    PLAIT_TRY(begin(&c, &plait_op_scatter, comm, dtype));
    int64_t size = comm->end.size;
    bool has_counts = counts != NULL;
    n = has_counts ? sum_of(counts + comm->end.rank, 1, 1) : n;
    params.n_counts = has_counts ? size : 0;
    const bool is_sound = are_sound(counts, params.n_counts);
    PLAIT_TRY(set(&c, &c.y, -1, n, y, is_sound));
    if (comm->end.rank == root) {
        PLAIT_TRY(set(&c, &c.x, has_counts ? -1 : size,
                      has_counts ? sum_of(counts, size, 1) : n, x, is_sound));
    } else { /* a template that is not read */
        PLAIT_TRY(set(&c, &c.x, -1, n, y, is_sound));
    }
    PLAIT_TRY(launch(&params, &c));
done:
    return status;
}

plait_status_t plait_scatter(plait_comm_t *comm, int root, plait_dtype_t dtype,
                             int64_t n, const void *x, void *y)
{
    return scatter(comm, root, dtype, NULL, n, x, y);
}

plait_status_t plait_scatterv(plait_comm_t *comm, int root, plait_dtype_t dtype,
                              const int64_t counts[], const void *x, void *y)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_counts(&plait_op_scatter, counts));
    PLAIT_TRY(scatter(comm, root, dtype, counts, 0, x, y));
done:
    return status;
}

plait_status_t plait_route(plait_comm_t *comm, int64_t n_edges,
                           const plait_edge_t edges[], plait_dtype_t dtype, int64_t n,
                           int64_t n_in, const void *x, int64_t n_out, void *y)
{
    plait_status_t status = PLAIT_OK;
    plait_route_params_t params = {
        .n_in = n_in, .n_out = n_out, .edges = (const int64_t *)edges};
    call_t c;

    PLAIT_TRY(begin(&c, &plait_op_route, comm, dtype));
    PLAIT_CHECK(n_edges >= 0, PLAIT_ERR_INVALID,
                "route: %lld edges, expected 0 or more", (long long)n_edges);
    PLAIT_CHECK(n_edges == 0 || edges != NULL, PLAIT_ERR_INVALID,
                "route: edges is NULL, expected %lld", (long long)n_edges);
    PLAIT_CHECK(n_in >= 0 && n_out >= 0, PLAIT_ERR_INVALID,
                "route: n_in is %lld, n_out %lld, expected 0 or more", (long long)n_in,
                (long long)n_out);
    PLAIT_CHECK(plait_mul(n_edges, PLAIT_EDGE_WORDS, &params.n_edges),
                PLAIT_ERR_OVERFLOW, "route: %lld edges", (long long)n_edges);
    PLAIT_TRY(set(&c, &c.x, n_in, n, x, true));
    PLAIT_TRY(set(&c, &c.y, n_out, n, y, true));
    PLAIT_TRY(launch(&params, &c));
done:
    return status;
}

plait_status_t plait_barrier(plait_comm_t *comm)
{
    plait_status_t status = PLAIT_OK;
    const plait_barrier_params_t params = {0};
    call_t c;

    PLAIT_TRY(begin(&c, &plait_op_barrier, comm, PLAIT_U8));
    PLAIT_TRY(plait_op_launch(c.op, &params, comm, NULL, NULL));
done:
    return status;
}

/* ---- matched transfers ---- */

/* Launches an operation that receives; *from: source and tag of the message. */
static plait_status_t launch_receive(const plait_op_t *op, const void *params,
                                     plait_comm_t *comm, const plait_array_t args[],
                                     const plait_array_t rets[], plait_envelope_t *from)
{
    plait_call_t call = plait_op_call(op, params, comm, args, rets);
    plait_matched_t matched = {.source = PLAIT_NO_RANK, .tag = PLAIT_ANY};

    call.matched = &matched;
    plait_status_t status = plait_op_run(&call);
    if (status == PLAIT_OK && from != NULL) {
        *from = (plait_envelope_t){.source = matched.source, .tag = matched.tag};
    }
    return status;
}

plait_status_t plait_sendrecv(plait_comm_t *comm, int dest, int send_tag,
                              plait_dtype_t dtype, int64_t n, const void *x, int source,
                              int recv_tag, plait_dtype_t recv_dtype, int64_t n_recv,
                              void *y, plait_envelope_t *from)
{
    plait_status_t status = PLAIT_OK;
    const plait_sendrecv_params_t params = {
        .source = source, .dest = dest, .sendtag = send_tag, .recvtag = recv_tag};
    call_t c;

    PLAIT_TRY(begin(&c, &plait_op_sendrecv, comm, dtype));
    PLAIT_TRY(set(&c, &c.x, -1, n, x, dest != PLAIT_PROC_NULL));
    c.dtype = recv_dtype;
    PLAIT_TRY(set(&c, &c.y, -1, n_recv, y, source != PLAIT_PROC_NULL));
    const plait_array_t args[] = {c.x.array, c.y.array};
    PLAIT_TRY(launch_receive(c.op, &params, comm, args, &c.y.array, from));
done:
    return status;
}

plait_status_t plait_send(plait_comm_t *comm, int dest, int tag, plait_dtype_t dtype,
                          int64_t n, const void *x)
{
    plait_status_t status = PLAIT_OK;
    const plait_send_params_t params = {.dest = dest, .tag = tag};
    call_t c;

    PLAIT_TRY(begin(&c, &plait_op_send, comm, dtype));
    PLAIT_TRY(set(&c, &c.x, -1, n, x, dest != PLAIT_PROC_NULL));
    PLAIT_TRY(plait_op_launch(c.op, &params, comm, &c.x.array, NULL));
done:
    return status;
}

plait_status_t plait_recv(plait_comm_t *comm, int source, int tag, plait_dtype_t dtype,
                          int64_t n, void *y, plait_envelope_t *from)
{
    plait_status_t status = PLAIT_OK;
    const plait_recv_params_t params = {.source = source, .tag = tag};
    call_t c;

    PLAIT_TRY(begin(&c, &plait_op_recv, comm, dtype));
    PLAIT_TRY(set(&c, &c.y, -1, n, y, source != PLAIT_PROC_NULL));
    PLAIT_TRY(launch_receive(c.op, &params, comm, &c.y.array, &c.y.array, from));
done:
    return status;
}
