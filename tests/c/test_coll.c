/* Collectives and matched transfers by threads: values against arithmetic, every way of
 * reaching a peer's memory, in place and not, and what happens when ranks disagree. */
#include "check.h"
#include "coll/coll.h"
#include "coll_cases.h"
#include "device/pool.h"
#include "ops/list.h"
#include "plait/coll.h"
#include "plan/launch.h"
#include "team.h"

#include <string.h>

static const plait_direct_t directs[] = {PLAIT_DIRECT_POINTER, PLAIT_DIRECT_READ,
                                         PLAIT_DIRECT_NONE};

typedef struct {
    int64_t n;
    bool in_place;
    int root;
} vector_t;

/* Small integers: sums are exact in every order. */
static double value(int rank, int64_t i)
{
    return (double)((rank * 7 + i * 3) % 11 - 5);
}

static void allreduce_rank(plait_comm_t *comm, void *context)
{
    const vector_t *t = context;
    int rank = plait_comm_rank(comm);
    double *x = plait_alloc(t->n + 1, sizeof(double));
    double *y = t->in_place ? x : plait_alloc(t->n + 1, sizeof(double));

    for (int round = 0; round < 3; round++) {
        int64_t n_wrong = 0;
        for (int64_t i = 0; i < t->n; i++) {
            x[i] = value(rank, i + round);
        }
        CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, t->n, x, y) == PLAIT_OK,
              "n %lld", (long long)t->n);
        for (int64_t i = 0; i < t->n; i++) {
            double want = 0;
            for (int r = 0; r < plait_comm_size(comm); r++) {
                want += value(r, i + round);
            }
            n_wrong += y[i] != want;
        }
        CHECK(n_wrong == 0, "allreduce n %lld of %d: %lld wrong", (long long)t->n,
              plait_comm_size(comm), (long long)n_wrong);
    }
    plait_free(x);
    if (!t->in_place) {
        plait_free(y);
    }
}

static void bcast_rank(plait_comm_t *comm, void *context)
{
    const vector_t *t = context;
    float *x = plait_alloc(t->n + 1, sizeof(float));
    float *y = t->in_place ? x : plait_alloc(t->n + 1, sizeof(float));
    int64_t n_wrong = 0;

    for (int64_t i = 0; i < t->n; i++) {
        x[i] = (float)value(plait_comm_rank(comm), i);
    }
    CHECK(plait_bcast(comm, t->root, PLAIT_F32, t->n, x, y) == PLAIT_OK, "n %lld",
          (long long)t->n);
    for (int64_t i = 0; i < t->n; i++) {
        n_wrong += y[i] != (float)value(t->root, i);
    }
    CHECK(n_wrong == 0, "bcast n %lld root %d: %lld wrong", (long long)t->n, t->root,
          (long long)n_wrong);
    CHECK(plait_barrier(comm) == PLAIT_OK, "barrier");
    plait_free(x);
    if (!t->in_place) {
        plait_free(y);
    }
}

/* Every rank sends right and receives from the left, with tags by sender; then the ends of a chain. */
static void ring_rank(plait_comm_t *comm, void *context)
{
    const vector_t *t = context;
    int rank = plait_comm_rank(comm);
    int n_ranks = plait_comm_size(comm);
    int right = (rank + 1) % n_ranks;
    int left = (rank + n_ranks - 1) % n_ranks;
    int32_t *x = plait_alloc(t->n + 1, sizeof(int32_t));
    int32_t *y = plait_alloc(t->n + 1, sizeof(int32_t));
    int64_t n_wrong = 0;

    for (int64_t i = 0; i < t->n; i++) {
        x[i] = (int32_t)(rank * 1000 + i);
    }
    CHECK(plait_sendrecv(comm, right, rank, PLAIT_S32, t->n, x, left, left, PLAIT_S32,
                         t->n, y, NULL) == PLAIT_OK,
          "ring");
    for (int64_t i = 0; i < t->n; i++) {
        n_wrong += y[i] != (int32_t)(left * 1000 + i);
    }
    CHECK(n_wrong == 0, "ring n %lld: %lld wrong", (long long)t->n, (long long)n_wrong);
    int up = (rank + 1 < n_ranks) ? rank + 1 : PLAIT_PROC_NULL;
    int down = (rank > 0) ? rank - 1 : PLAIT_PROC_NULL;
    y[0] = -1;
    plait_envelope_t from;
    CHECK(plait_sendrecv(comm, up, 5, PLAIT_S32, t->n, x, down, PLAIT_ANY_TAG,
                         PLAIT_S32, t->n, y, &from) == PLAIT_OK &&
              from.source == down && from.tag == ((rank > 0) ? 5 : PLAIT_ANY_TAG),
          "chain, rank %d from %d with tag %d", rank, from.source, from.tag);
    CHECK(t->n == 0 || y[0] == ((rank > 0) ? (rank - 1) * 1000 : -1),
          "chain, rank %d got %d", rank, y[0]);
    plait_free(x);
    plait_free(y);
}

/* A message is longer than its place, then of another dtype: both partners know, nothing is written, and the
 * communicator goes on working. */
static void faults_rank(plait_comm_t *comm, void *context)
{
    int rank = plait_comm_rank(comm);
    int n_ranks = plait_comm_size(comm);
    int right = (rank + 1) % n_ranks;
    int left = (rank + n_ranks - 1) % n_ranks;
    double x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    double y[8] = {0};

    (void)context;
    CHECK(plait_sendrecv(comm, right, 0, PLAIT_F64, 8, x, left, 0, PLAIT_F64, 4, y,
                         NULL) == PLAIT_ERR_TRUNCATION,
          "truncation");
    CHECK(strstr(plait_error_text(), "got 64 bytes, room for 32") != NULL, "text");
    CHECK(y[0] == 0, "y was written");
    CHECK(plait_sendrecv(comm, right, 0, PLAIT_F64, 4, x, left, 0, PLAIT_S64, 4, y,
                         NULL) == PLAIT_ERR_MISMATCH,
          "dtype");
    CHECK(plait_sendrecv(comm, right, 0, PLAIT_F64, 4, x, left, 0, PLAIT_F64, 4, y,
                         NULL) == PLAIT_OK,
          "after faults");
    CHECK(y[3] == 4, "after faults");
    CHECK(plait_sendrecv(comm, n_ranks, 0, PLAIT_F64, 4, x, left, 0, PLAIT_F64, 4, y,
                         NULL) == PLAIT_ERR_INVALID,
          "dest");
    CHECK(plait_sendrecv(comm, right, -2, PLAIT_F64, 4, x, left, 0, PLAIT_F64, 4, y,
                         NULL) == PLAIT_ERR_INVALID,
          "tag");
    y[3] = 0;
    CHECK(plait_sendrecv(comm, right, INT32_MAX, PLAIT_F64, 4, x, left, INT32_MAX,
                         PLAIT_F64, 4, y, NULL) == PLAIT_OK,
          "the largest tag");
    CHECK(y[3] == 4, "the largest tag");
    CHECK(plait_bcast(comm, -1, PLAIT_F64, 4, x, x) == PLAIT_ERR_INVALID, "root");
    CHECK(plait_allreduce(comm, PLAIT_LAND, PLAIT_F64, 4, x, y) == PLAIT_ERR_INVALID,
          "LAND of floats");
    CHECK(plait_allreduce(NULL, PLAIT_SUM, PLAIT_F64, 4, x, y) == PLAIT_ERR_COMM,
          "no communicator");
    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, -4, x, y) == PLAIT_ERR_INVALID,
          "negative n");
}

/* No other rank can send the message; the guard's default limit would end the wait after a minute. */
static void own_rank(plait_comm_t *comm, void *context)
{
    double y = 0;

    (void)context;
    plait_envelope_t from = {-9, -9};
    CHECK(plait_recv(comm, plait_comm_rank(comm), 0, PLAIT_F64, 1, &y, &from) ==
                  PLAIT_ERR_MISMATCH &&
              from.source == -9 &&
              strstr(plait_error_text(), "waits for itself") != NULL,
          "own receive: %s", plait_error_text());
}

/* Ranks call different operations at the same place. */
static void mismatch_rank(plait_comm_t *comm, void *context)
{
    int rank = plait_comm_rank(comm);
    double x[4] = {1, 1, 1, 1};
    double y[4] = {0};

    (void)context;
    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, (rank == 1) ? 3 : 4, x, y) ==
              PLAIT_ERR_MISMATCH,
          "n");
    CHECK(plait_allreduce(comm, (rank == 1) ? PLAIT_MAX : PLAIT_SUM, PLAIT_F64, 4, x,
                          y) == PLAIT_ERR_MISMATCH,
          "op");
    CHECK(((rank == 1)
               ? plait_barrier(comm)
               : plait_bcast(comm, 0, PLAIT_F64, 4, x, y)) == PLAIT_ERR_MISMATCH,
          "operation");
    CHECK(y[0] == 0, "rank %d: y was written", rank);
    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 4, x, y) == PLAIT_OK &&
              y[0] == plait_comm_size(comm),
          "after");
}

/* ---- rooted operations on the other ranks: zero or the operand, in place and not ---- */

typedef struct {
    int64_t n;
    int root;
    int elsewhere;
    bool in_place;
} rooted_t;

static void check_rooted(const char *name, const double *y, const double *x,
                         const rooted_t *t, int rank)
{
    int64_t n_wrong = 0;

    for (int64_t i = 0; i < t->n; i++) {
        n_wrong += y[i] != (t->elsewhere ? x[i] : 0);
    }
    CHECK(n_wrong == 0, "%s, rank %d, n %lld, elsewhere %d, in place %d: %lld wrong",
          name, rank, (long long)t->n, t->elsewhere, t->in_place, (long long)n_wrong);
}

static void rooted_rank(plait_comm_t *comm, void *context)
{
    const rooted_t *t = context;
    int rank = plait_comm_rank(comm);
    int64_t dims[] = {plait_comm_size(comm), t->n};
    double *x = plait_alloc(t->n, sizeof(double));
    double *given = plait_alloc(t->n, sizeof(double));
    double *y = plait_alloc(dims[0] * t->n, sizeof(double));
    const plait_reduce_params_t reduce = {PLAIT_SUM, t->root, t->elsewhere};
    const plait_gather_params_t gather = {.root = t->root, .elsewhere = t->elsewhere};
    plait_array_t arg = {.dtype = PLAIT_F64, .ndim = 1, .dims = dims + 1, .data = x};
    plait_array_t ret = arg;

    for (int64_t i = 0; i < t->n; i++) {
        x[i] = given[i] = value(rank, i);
    }
    memset(y, 0x77, (size_t)(dims[0] * t->n) * sizeof(double));
    ret.data = t->in_place ? x : y;
    CHECK(plait_op_launch(&plait_op_reduce, &reduce, comm, &arg, &ret) == PLAIT_OK,
          "reduce");
    if (rank != t->root) {
        check_rooted("reduce", ret.data, given, t, rank);
    }
    memcpy(x, given, (size_t)t->n * sizeof(double));
    ret.data = y;
    if (rank == t->root) {
        ret.ndim = 2;
        ret.dims = dims;
    }
    CHECK(plait_op_launch(&plait_op_gather, &gather, comm, &arg, &ret) == PLAIT_OK,
          "gather");
    if (rank != t->root) {
        check_rooted("gather", y, given, t, rank);
    }
    plait_free(x);
    plait_free(given);
    plait_free(y);
}

static void check_rooteds(int n_ranks, plait_direct_t direct)
{
    static const int64_t sizes[] = {0, 3, 5000, 70000};

    for (int i = 0; i < 4 * 4; i++) {
        rooted_t t = {.n = sizes[i / 4],
                      .root = n_ranks - 1,
                      .elsewhere = i % 2,
                      .in_place = i / 2 % 2};
        team_run(n_ranks, direct, rooted_rank, &t);
    }
}

/* ---- all operations ---- */

static void all_rank(plait_comm_t *comm, void *context)
{
    (void)context;
    case_all(comm);
}

static void matched_rank(plait_comm_t *comm, void *context)
{
    (void)context;
    case_matched(comm);
}

/* ---- arguments ---- */

static void expect_invalid(plait_status_t status, const char *text)
{
    CHECK(status == PLAIT_ERR_INVALID && strstr(plait_error_text(), text) != NULL,
          "expected \"%s\"", text);
}

/* Arguments that are wrong on all ranks fail alike on all; an argument that is wrong on one rank is told to the
 * others. Three ranks. */
static void arguments_rank(plait_comm_t *comm, void *context)
{
    static const int64_t negative[] = {1, -2, 1};
    static const int64_t pairs[] = {1, 1, 1, 1, -1, 1, 1, 1, 1};
    const plait_edge_t no_rank = {0, 0, 3, 0};
    const plait_edge_t no_block = {0, 1, 0, 0};
    const plait_edge_t twice[] = {{0, 0, 1, 0}, {2, 0, 1, 0}};
    double x[16] = {0};
    double y[16] = {0};
    plait_status_t status = PLAIT_OK;

    (void)context;
    expect_invalid(plait_allgatherv(comm, PLAIT_F64, negative, x, y),
                   "allgather: counts[1] is -2, expected 0 or more");
    expect_invalid(plait_alltoallv(comm, PLAIT_F64, pairs, x, y),
                   "alltoall: counts[1][1] is -1, expected 0 or more");
    expect_invalid(plait_gather(comm, 3, PLAIT_F64, 1, x, y),
                   "gather: root 3 is not a rank of this communicator (size 3)");
    expect_invalid(plait_scatter(comm, -1, PLAIT_F64, 1, x, y), "scatter: root -1");
    expect_invalid(plait_scan(comm, PLAIT_LAND, 0, PLAIT_F64, 1, x, y),
                   "scan: LAND is not defined for float64");
    expect_invalid(plait_scan(comm, PLAIT_SUM, 4, PLAIT_F64, 1, x, y), "flags are 4");
    expect_invalid(plait_reduce_scatter(comm, PLAIT_SUM, PLAIT_BOOL, 1, x, y),
                   "reduce_scatter: SUM is not defined for bool");
    expect_invalid(plait_route(comm, 1, &no_rank, PLAIT_F64, 1, 1, x, 1, y),
                   "route: dest 3 of edge 0 is not a rank");
    bool is_wrong = plait_comm_rank(comm) == 0;
    status = plait_route(comm, 1, &no_block, PLAIT_F64, 1, 1, x, 1, y);
    CHECK(status == (is_wrong ? PLAIT_ERR_INVALID : PLAIT_ERR_PEER) &&
              strstr(plait_error_text(),
                     "route: edge 0 names block 1 of the operand of rank 0, which has "
                     "1") != NULL,
          "route on rank %d: %s", plait_comm_rank(comm), plait_error_text());
    expect_invalid(plait_route(comm, 2, twice, PLAIT_F64, 1, 1, x, 1, y),
                   "route: two edges end in block 0 of rank 1");
    expect_invalid(plait_send(comm, 3, 0, PLAIT_F64, 1, x),
                   "send: dest 3 is not a rank of this communicator (size 3)");
    expect_invalid(plait_send(comm, PLAIT_ANY_SOURCE, 0, PLAIT_F64, 1, x),
                   "send: dest -1");
    expect_invalid(plait_send(comm, 0, -1, PLAIT_F64, 1, x),
                   "send: tag -1 is outside 0..2147483647");
    expect_invalid(plait_recv(comm, 5, 0, PLAIT_F64, 1, x, NULL), "recv: source 5");
    expect_invalid(plait_route(comm, -1, twice, PLAIT_F64, 1, 1, x, 1, y),
                   "route: -1 edges, expected 0 or more");
    expect_invalid(plait_route(comm, 2, NULL, PLAIT_F64, 1, 1, x, 1, y),
                   "route: edges is NULL, expected 2");
    expect_invalid(plait_allgather(comm, PLAIT_F64, 1, NULL, y),
                   "allgather: an array of rank");
    expect_invalid(plait_allgatherv(comm, PLAIT_F64, NULL, x, y),
                   "allgather: counts is NULL");
    expect_invalid(plait_alltoall(comm, PLAIT_F64, -1, x, y),
                   "alltoall: -1 elements on rank");
    expect_invalid(plait_allreduce(comm, (plait_reduce_t)77, PLAIT_F64, 1, x, y),
                   "allreduce: op is 77, known are 0 to");
    expect_invalid(plait_scan(comm, PLAIT_SUM, 0, (plait_dtype_t)200, 1, x, y),
                   "dtype is 200, which is no dtype");
}

/* All ranks meet to refuse wrong counts, even ranks whose arrays are NULL: else these ranks would be a call
 * ahead of a rank without elements. Three ranks. */
static void counts_rank(plait_comm_t *comm, void *context)
{
    static const int64_t negative[] = {1, -2, 1};
    static const int64_t large[] = {INT64_MAX, 0, 1};
    static const int64_t pairs[] = {0, 0, 0, 1, -1, 1, 1, 1, 1};
    double x[4] = {1, 0, 0, 0};
    double y[4] = {0};

    (void)context;
    expect_invalid(plait_allgatherv(comm, PLAIT_F64, negative, NULL, y),
                   "allgather: counts[1] is -2");
    CHECK(plait_allgatherv(comm, PLAIT_F64, large, NULL, y) == PLAIT_ERR_OVERFLOW,
          "counts above 2^63: %s", plait_error_text());
    expect_invalid(plait_alltoallv(comm, PLAIT_F64, pairs, x, NULL),
                   "alltoall: counts[1][1] is -1");
    expect_invalid(plait_gatherv(comm, 1, PLAIT_F64, negative, NULL, y),
                   "gather: counts[1] is -2");
    expect_invalid(plait_scatterv(comm, 1, PLAIT_F64, negative, x, NULL),
                   "scatter: counts[1] is -2");
    expect_invalid(plait_reduce_scatterv(comm, PLAIT_SUM, PLAIT_F64, negative, x, NULL),
                   "reduce_scatter: counts[1] is -2");
    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 1, x, y) == PLAIT_OK &&
              y[0] == 3.0,
          "after wrong counts: %s", plait_error_text());
}

/* Shapes as in programs of XLA. Three ranks. */
static void shapes_rank(plait_comm_t *comm, void *context)
{
    static const int64_t counts[] = {2, 2, 2};
    const int64_t five[] = {5, 3};
    const int64_t three[] = {3, 3};
    double x[16] = {0};
    const plait_array_t a = {.dtype = PLAIT_F64, .ndim = 2, .dims = five, .data = x};
    const plait_array_t b = {.dtype = PLAIT_F64, .ndim = 2, .dims = three, .data = x};
    const plait_array_t c = {.dtype = PLAIT_F32, .ndim = 1, .dims = three, .data = x};
    const plait_array_t d = {.dtype = PLAIT_F64, .ndim = 1, .dims = three, .data = x};
    const plait_alltoall_params_t equal = {0};
    const plait_alltoall_params_t uneven = {.n_counts = 3, .counts = counts};
    const plait_allgather_params_t rows = {.n_counts = 3, .counts = counts};
    const plait_scatter_params_t scatter = {.root = plait_comm_rank(comm)};
    const plait_gather_params_t gather = {.elsewhere = 2};
    const plait_route_params_t route = {.n_in = 2, .n_out = 3};

    (void)context;
    expect_invalid(plait_op_launch(&plait_op_alltoall, &equal, comm, &a, &a),
                   "alltoall: operand must have shape (nproc, ...), got (5, 3) with "
                   "nproc 3");
    expect_invalid(plait_op_launch(&plait_op_alltoall, &equal, comm, &b, &a),
                   "alltoall: operand and result have different shapes, (3, 3) and "
                   "(5, 3)");
    expect_invalid(plait_op_launch(&plait_op_alltoall, &uneven, comm, &b, &b),
                   "alltoall: counts has 3 entries, expected 3 x 3");
    expect_invalid(plait_op_launch(&plait_op_scatter, &scatter, comm, &a, &d),
                   "scatter: operand must have shape (nproc, ...), got (5, 3) with "
                   "nproc 3");
    expect_invalid(plait_op_launch(&plait_op_allgather, &equal, comm, &c, &b),
                   "allgather: operand is float32, result is float64");
    expect_invalid(plait_op_launch(&plait_op_allgather, &equal, comm, &d, &a),
                   "allgather: result must have shape (nproc, ...), got (5, 3)");
    expect_invalid(plait_op_launch(&plait_op_allgather, &rows, comm, &b, &b),
                   "shape (3, 3), expected 2 rows by its count");
    expect_invalid(plait_op_launch(&plait_op_gather, &gather, comm, &d, &b),
                   "gather: elsewhere is 2, expected 0 or 1");
    expect_invalid(plait_op_launch(&plait_op_route, &route, comm, &d, &d),
                   "route: operand has shape (3,), which is not 2 equal blocks");
}

/* ---- ranks that disagree ---- */

/* Rank 1 differs in one argument after another; every rank learns of each difference, then all go on. */
static void disagree_rank(plait_comm_t *comm, void *context)
{
    bool is_odd = plait_comm_rank(comm) == 1;
    int size = plait_comm_size(comm);
    double x[64] = {0};
    double y[64] = {0};
    int64_t counts[8] = {0};
    int64_t pairs[64] = {0};
    plait_edge_t edge = {0, 0, 1, is_odd};

    (void)context;
    counts[0] = 1;
    counts[size - 1] += is_odd; /* of a rank that is not asked for it, or this one */
#define MISMATCH(_call) CHECK((_call) == PLAIT_ERR_MISMATCH, "rank %d", is_odd)
    MISMATCH(plait_allgather(comm, PLAIT_F64, 4 + is_odd, x, y));
    MISMATCH(plait_allgather(comm, is_odd ? PLAIT_S64 : PLAIT_F64, 4, x, y));
    MISMATCH(plait_allgatherv(comm, PLAIT_F64, counts, x, y));
    MISMATCH(plait_alltoall(comm, PLAIT_F64, 4 + is_odd, x, y));
    pairs[0] = is_odd;
    MISMATCH(plait_alltoallv(comm, PLAIT_F64, pairs, x, y));
    MISMATCH(plait_gather(comm, is_odd, PLAIT_F64, 2, x, y));
    MISMATCH(plait_scatter(comm, is_odd, PLAIT_F64, 2, x, y));
    MISMATCH(plait_scatterv(comm, 0, PLAIT_F64, counts, x, y));
    MISMATCH(plait_reduce(comm, PLAIT_SUM, is_odd, PLAIT_F64, 2, x, y));
    MISMATCH(plait_scan(comm, PLAIT_SUM, is_odd, PLAIT_F64, 2, x, y));
    MISMATCH(plait_scan(comm, is_odd ? PLAIT_MAX : PLAIT_SUM, 0, PLAIT_F64, 2, x, y));
    MISMATCH(
        plait_reduce_scatter(comm, is_odd ? PLAIT_MIN : PLAIT_MAX, PLAIT_F64, 2, x, y));
    MISMATCH(plait_route(comm, 1, &edge, PLAIT_F64, 2, 2, x, 2, y));
    edge.dest_block = 0;
    MISMATCH(plait_route(comm, 1, &edge, PLAIT_F64, 2 + is_odd, 1, x, 1, y));
    MISMATCH(is_odd ? plait_allgather(comm, PLAIT_F64, 2, x, y)
                    : plait_alltoall(comm, PLAIT_F64, 2, x, y));
#undef MISMATCH
    CHECK(plait_allgather(comm, PLAIT_F64, 2, x, y) == PLAIT_OK, "and on");
    /* a rank without blocks has no say about their size */
    CHECK(plait_route(comm, 0, NULL, PLAIT_F64, is_odd ? 7 : 2, is_odd ? 0 : 1, x, 0,
                      y) == PLAIT_OK,
          "a rank without blocks");
}

/* The communicator of one rank that needs no threads. */
static void check_self(void)
{
    plait_comm_t *comm = NULL;
    double x[2] = {1, 2};
    double y[2] = {0};
    double *big = plait_alloc(PLAIT_SEND_BYTES / 8 + 1, sizeof(*big));

    CHECK(plait_comm_self(&comm) == PLAIT_OK, "self");
    case_all(comm);
    case_matched(comm);
    CHECK(plait_recv(comm, 0, 1, PLAIT_F64, 1, y, NULL) == PLAIT_ERR_MISMATCH,
          "nothing was sent");
    CHECK(plait_send(comm, 0, 1, PLAIT_F64, PLAIT_SEND_BYTES / 8 + 1, big) ==
              PLAIT_ERR_MISMATCH,
          "too much to be kept");
    CHECK(plait_send(comm, 0, 1, PLAIT_F64, 1, &x[0]) == PLAIT_OK &&
              plait_sendrecv(comm, 0, 1, PLAIT_F64, 1, &x[1], 0, 1, PLAIT_F64, 1, &y[0],
                             NULL) == PLAIT_OK &&
              plait_recv(comm, 0, 1, PLAIT_F64, 1, &y[1], NULL) == PLAIT_OK &&
              y[0] == 1 && y[1] == 2,
          "in the order of sends: %g %g", y[0], y[1]);
    CHECK(plait_send(comm, 0, 1, PLAIT_F64, 2, x) == PLAIT_OK &&
              plait_recv(comm, 0, 1, PLAIT_F64, 1, y, NULL) == PLAIT_ERR_TRUNCATION,
          "truncation");
    CHECK(plait_barrier(comm) == PLAIT_OK, "told once");
    int n = 0;
    while (n < 1000 &&
           plait_send(comm, 0, n, PLAIT_F64, PLAIT_SEND_BYTES / 8, big) == PLAIT_OK) {
        n++;
    }
    CHECK(n == PLAIT_BUFFERED_BYTES / PLAIT_SEND_BYTES - 1, "%d fit", n);
    while (n-- > 0) {
        CHECK(plait_recv(comm, 0, n, PLAIT_F64, PLAIT_SEND_BYTES / 8, big, NULL) ==
                  PLAIT_OK,
              "recv");
    }
    plait_comm_destroy(&comm);
    plait_free(big);
}

/* Lists are distinguished by their contents: these two have the same sums, and the same address. */
static void lists_rank(plait_comm_t *comm, void *context)
{
    static const int64_t lists[2][4] = {{1, 1, 1, 1}, {0, 2, 2, 0}};
    int me = plait_comm_rank(comm);
    int64_t counts[4];

    (void)context;
    for (int round = 0; round < 4; round++) {
        double x[2] = {10 * me, 10 * me + 1};
        double y[2] = {-1, -1};
        memcpy(counts, lists[round % 2], sizeof(counts));
        CHECK(plait_alltoallv(comm, PLAIT_F64, counts, x, y) == PLAIT_OK, "alltoallv");
        double want = (round % 2) ? 10 * (1 - me) : me;
        CHECK(y[0] == want, "round %d, rank %d: %g", round, me, y[0]);
    }
}

/* Lists too long for the stack. */
static void many_rank(plait_comm_t *comm, void *context)
{
    (void)context;
    for (int round = 0; round < 3; round++) {
        case_alltoallv(comm, PLAIT_S16, 5);
    }
}

/* A message that is never received is freed with the communicator, and logged. */
static void lost_rank(plait_comm_t *comm, void *context)
{
    double x[4] = {0};

    (void)context;
    CHECK(plait_send(comm, 0, 9, PLAIT_F64, 4, x) == PLAIT_OK, "send");
}

int main(void)
{
    static const int64_t sizes[] = {0, 1, 63, 64, 1000, 20000, 300001};

    for (int n_ranks = 1; n_ranks <= (is_quick() ? 3 : 8); n_ranks++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            for (int d = 0; d < 3; d++) {
                for (int in_place = 0; in_place < 2; in_place++) {
                    vector_t t = {
                        .n = sizes[s], .in_place = in_place, .root = n_ranks / 2};
                    team_run(n_ranks, directs[d], allreduce_rank, &t);
                    team_run(n_ranks, directs[d], bcast_rank, &t);
                }
            }
            vector_t t = {.n = sizes[s]};
            team_run(n_ranks, PLAIT_DIRECT_POINTER, ring_rank, &t);
        }
        team_run(n_ranks, PLAIT_DIRECT_POINTER, faults_rank, NULL);
        for (int d = 0; d < 3; d++) {
            if (n_ranks > 4 && d != n_ranks % 3) {
                continue; /* of large teams each way in its turn */
            }
            team_run(n_ranks, directs[d], all_rank, NULL);
            check_rooteds(n_ranks, directs[d]);
        }
        team_run(n_ranks, PLAIT_DIRECT_POINTER, matched_rank, NULL);
        for (int d = 0; n_ranks > 1 && d < 2; d++) {
            team_run(n_ranks, directs[d], mismatch_rank, NULL);
            team_run(n_ranks, directs[d], disagree_rank, NULL);
        }
    }
    check_self();
    team_run(2, PLAIT_DIRECT_POINTER, lists_rank, NULL);
    team_run(TEAM_MAX, PLAIT_DIRECT_POINTER, many_rank, NULL);
    team_run(12, PLAIT_DIRECT_NONE, all_rank,
             NULL); /* more messages at once than a call has room for */
    team_run(3, PLAIT_DIRECT_POINTER, arguments_rank, NULL);
    team_run(3, PLAIT_DIRECT_POINTER, counts_rank, NULL);
    team_run(3, PLAIT_DIRECT_POINTER, shapes_rank, NULL);
    (void)setenv("PLAIT_LOG", "error", 1); /* not what is lost on purpose */
    team_run(2, PLAIT_DIRECT_POINTER, lost_rank, NULL);
    team_run(2, PLAIT_DIRECT_POINTER, own_rank, NULL);
    (void)plait_pool_trim();
    return report("test_coll");
}
