/* Every collective of plait/coll.h on one communicator, against plain arithmetic: the same
 * functions for threads (test_coll) and for MPI (mpi_coll). */
#ifndef PLAIT_TESTS_COLL_CASES_H
#define PLAIT_TESTS_COLL_CASES_H

#include "check.h"
#include "numbers.h"
#include "plait/coll.h"

#include <string.h>

enum { CASE_MAX_P = 32, GUARD = 64 };

/* Byte i that a rank gives. No two ranks have the same bytes, nor do chunks that are 64 KiB apart. */
static inline char byte_at(int rank, int64_t i)
{
    return (char)(rank * 89 + i * 31 + (i >> 8) * 7 + (i >> 16) * 13 + 1);
}

/* Bytes [from, from + n) that a rank gives. Rows of 256 bytes are the same row, begun at different places (31
 * * 223 = 1 mod 256). So they are made by whole copies, which sanitizers check faster than single bytes. */
static inline void fill(char *to, int64_t n, int rank, int64_t from)
{
    enum { ROW = 256, INVERSE = 223 };
    char twice[2 * ROW];
    int64_t n_row = 0;

    for (int64_t i = 0; i < n && n <= ROW; i++) {
        to[i] = byte_at(rank, from + i);
    }
    for (int64_t i = 0; i < 2 * ROW && n > ROW; i++) {
        twice[i] = (char)(31 * i);
    }
    for (int64_t i = 0; i < n && n > ROW; i += n_row) {
        const int64_t at = (from + i) % ROW;
        const int first = (byte_at(rank, from + i - at) & 0xff) * INVERSE % ROW;
        n_row = (n - i < ROW - at) ? n - i : ROW - at;
        memcpy(to + i, twice + first + at, (size_t)n_row);
    }
}

/* Operand and result of one call, with a guard behind the result. */
typedef struct {
    char *x, *y, *want;
    int64_t n_y; /* bytes */
} case_t;

static inline case_t case_begin(int rank, int64_t n_x, int64_t n_y)
{
    case_t c = {.x = plait_alloc(n_x, 1),
                .y = plait_alloc(n_y + GUARD, 1),
                .want = plait_alloc(n_y + GUARD, 1),
                .n_y = n_y};

    fill(c.x, n_x, rank, 0);
    memset(c.y, 0x5b, (size_t)(n_y + GUARD));
    memset(c.want, 0x5b, (size_t)(n_y + GUARD));
    return c;
}

/* Bytes [at, at + n) of the result come from a rank's operand, from its byte `from` on. */
static inline void expect(case_t *c, int64_t at, int64_t n, int rank, int64_t from)
{
    fill(c->want + at, n, rank, from);
}

static inline void case_end(case_t *c, plait_comm_t *comm, plait_status_t status,
                            const char *what, int64_t n)
{
    CHECK(status == PLAIT_OK, "%s n %lld", what, (long long)n);
    CHECK(memcmp(c->y, c->want, (size_t)(c->n_y + GUARD)) == 0,
          "%s n %lld, rank %d of %d", what, (long long)n, plait_comm_rank(comm),
          plait_comm_size(comm));
    plait_free(c->x);
    plait_free(c->y);
    plait_free(c->want);
}

/* ---- equal blocks of n elements ---- */

static inline void case_equal(plait_comm_t *comm, plait_dtype_t dtype, int64_t n)
{
    int me = plait_comm_rank(comm);
    int size = plait_comm_size(comm);
    int64_t b = n * plait_dtype_bytes(dtype);
    case_t c = case_begin(me, b, size * b);

    for (int q = 0; q < size; q++) {
        expect(&c, q * b, b, q, 0);
    }
    case_end(&c, comm, plait_allgather(comm, dtype, n, c.x, c.y), "allgather", n);
    c = case_begin(me, size * b, size * b);
    for (int q = 0; q < size; q++) {
        expect(&c, q * b, b, q, me * b);
    }
    case_end(&c, comm, plait_alltoall(comm, dtype, n, c.x, c.y), "alltoall", n);
    for (int root = 0; root < size; root += (size > 2) ? size - 1 : 1) {
        c = case_begin(me, b, size * b);
        for (int q = 0; q < size && me == root; q++) {
            expect(&c, q * b, b, q, 0);
        }
        case_end(&c, comm,
                 plait_gather(comm, root, dtype, n, c.x, (me == root) ? c.y : NULL),
                 "gather", n);
        c = case_begin(me, size * b, b);
        expect(&c, 0, b, root, me * b);
        case_end(&c, comm,
                 plait_scatter(comm, root, dtype, n, (me == root) ? c.x : NULL, c.y),
                 "scatter", n);
        c = case_begin(me, b, b);
        expect(&c, 0, b, root, 0);
        case_end(&c, comm, plait_bcast(comm, root, dtype, n, c.x, c.y), "bcast", n);
    }
}

/* ---- blocks of different lengths, some empty ---- */

static inline int64_t sum_before(const int64_t counts[], int rank)
{
    int64_t sum = 0;

    for (int r = 0; r < rank; r++) {
        sum += counts[r];
    }
    return sum;
}

static inline void case_counts(plait_comm_t *comm, plait_dtype_t dtype,
                               const int64_t counts[])
{
    int me = plait_comm_rank(comm);
    int size = plait_comm_size(comm);
    int64_t item = plait_dtype_bytes(dtype);
    int64_t n = sum_before(counts, size);
    int root = size - 1;
    case_t c = case_begin(me, counts[me] * item, n * item);

    for (int q = 0; q < size; q++) {
        expect(&c, sum_before(counts, q) * item, counts[q] * item, q, 0);
    }
    case_end(&c, comm, plait_allgatherv(comm, dtype, counts, c.x, c.y), "allgatherv",
             n);
    c = case_begin(me, counts[me] * item, n * item);
    for (int q = 0; q < size && me == root; q++) {
        expect(&c, sum_before(counts, q) * item, counts[q] * item, q, 0);
    }
    case_end(&c, comm, plait_gatherv(comm, root, dtype, counts, c.x, c.y), "gatherv",
             n);
    c = case_begin(me, n * item, counts[me] * item);
    expect(&c, 0, counts[me] * item, root, sum_before(counts, me) * item);
    case_end(&c, comm, plait_scatterv(comm, root, dtype, counts, c.x, c.y), "scatterv",
             n);
}

/* scale * ((3 i + 5 j) mod 4) elements from i to j. */
static inline void case_alltoallv(plait_comm_t *comm, plait_dtype_t dtype,
                                  int64_t scale)
{
    int me = plait_comm_rank(comm);
    int size = plait_comm_size(comm);
    int64_t item = plait_dtype_bytes(dtype);
    int64_t *counts = plait_alloc((int64_t)size * size, sizeof(*counts));
    int64_t n_x = 0;
    int64_t n_y = 0;

    for (int i = 0; i < size * size; i++) {
        counts[i] = scale * ((3 * (i / size) + 5 * (i % size)) % 4);
    }
    n_x = sum_before(counts + me * size, size);
    for (int q = 0; q < size; q++) {
        n_y += counts[q * size + me];
    }
    case_t c = case_begin(me, n_x * item, n_y * item);
    n_y = 0;
    for (int q = 0; q < size; q++) {
        int64_t n = counts[q * size + me];
        expect(&c, n_y * item, n * item, q, sum_before(counts + q * size, me) * item);
        n_y += n;
    }
    case_end(&c, comm, plait_alltoallv(comm, dtype, counts, c.x, c.y), "alltoallv",
             scale);
    plait_free(counts);
}

/* ---- routes ---- */

/* Two blocks in, three out. Block 1 goes to the right neighbour's block 2, block 0 to the left neighbour's
 * block 0, except at the ends of the line. Block 1 of every result is zero. */
static inline void case_route(plait_comm_t *comm, plait_dtype_t dtype, int64_t n)
{
    int me = plait_comm_rank(comm);
    int size = plait_comm_size(comm);
    int64_t b = n * plait_dtype_bytes(dtype);
    plait_edge_t edges[2 * CASE_MAX_P];
    int64_t n_edges = 0;
    case_t c = case_begin(me, 2 * b, 3 * b);

    for (int r = 0; r < size; r++) {
        edges[n_edges++] = (plait_edge_t){r, 1, (r + 1) % size, 2};
        if (r > 0) {
            edges[n_edges++] = (plait_edge_t){r, 0, r - 1, 0};
        }
    }
    memset(c.want, 0, (size_t)(3 * b));
    expect(&c, 2 * b, b, (me + size - 1) % size, b);
    if (me + 1 < size) {
        expect(&c, 0, b, me + 1, 0);
    }
    case_end(&c, comm, plait_route(comm, n_edges, edges, dtype, n, 2, c.x, 3, c.y),
             "route", n);

    /* from all to the last rank, which gives nothing */
    int last = size - 1;
    n_edges = 0;
    for (int r = 0; r < last; r++) {
        edges[n_edges++] = (plait_edge_t){r, 0, last, last - 1 - r};
    }
    c = case_begin(me, b, (me == last) ? last * b : 0);
    for (int r = 0; r < last && me == last; r++) {
        expect(&c, (last - 1 - r) * b, b, r, 0);
    }
    case_end(&c, comm,
             plait_route(comm, n_edges, edges, dtype, n, (me == last) ? 0 : 1, c.x,
                         (me == last) ? last : 0, c.y),
             "route to one", n);
}

/* ---- reductions ---- */

/* Puts element i of the reduction over ranks [first, end) at place k of `to`. */
static inline void put_reduced(plait_reduce_t op, plait_dtype_t dtype, int first,
                               int end, int64_t i, char *to, int64_t k)
{
    bool is_logical = op == PLAIT_LAND || op == PLAIT_LOR || op == PLAIT_LXOR;
    number_t sum = {0, 0};

    for (int r = first; r < end; r++) {
        number_t x = number_of(dtype, op, r, i);
        sum = (r == first) ? x : combine(op, dtype, sum, x);
    }
    if (is_logical && end == first + 1) {
        sum.re = sum.re != 0;
    }
    if (end > first) {
        put(dtype, to, k, sum);
    } else {
        put_identity(dtype, op, to, k);
    }
}

static inline case_t reduce_begin(plait_reduce_t op, plait_dtype_t dtype, int rank,
                                  int64_t n_x, int64_t n_y)
{
    int64_t item = plait_dtype_bytes(dtype);
    case_t c = case_begin(rank, n_x * item, n_y * item);

    for (int64_t i = 0; i < n_x; i++) {
        put(dtype, c.x, i, number_of(dtype, op, rank, i));
    }
    return c;
}

static inline void case_scan(plait_comm_t *comm, plait_reduce_t op, plait_dtype_t dtype,
                             int64_t n, int flags)
{
    int me = plait_comm_rank(comm);
    int own = (flags & PLAIT_SCAN_EXCLUSIVE) ? 0 : 1;
    bool is_reverse = (flags & PLAIT_SCAN_REVERSE) != 0;
    int first = is_reverse ? me + 1 - own : 0;
    int end = is_reverse ? plait_comm_size(comm) : me + own;
    case_t c = reduce_begin(op, dtype, me, n, n);

    for (int64_t i = 0; i < n; i++) {
        put_reduced(op, dtype, first, end, i, c.want, i);
    }
    case_end(&c, comm, plait_scan(comm, op, flags, dtype, n, c.x, c.y), "scan", n);
}

static inline void case_reduce_scatter(plait_comm_t *comm, plait_reduce_t op,
                                       plait_dtype_t dtype, const int64_t counts[])
{
    int me = plait_comm_rank(comm);
    int size = plait_comm_size(comm);
    int64_t n = counts[me];
    case_t c = reduce_begin(op, dtype, me, size * n, n);

    for (int64_t i = 0; i < n; i++) {
        put_reduced(op, dtype, 0, size, sum_before(counts, me) + i, c.want, i);
    }
    plait_free(c.x);
    case_t whole = reduce_begin(op, dtype, me, sum_before(counts, size), 0);
    c.x = whole.x;
    plait_free(whole.y);
    plait_free(whole.want);
    case_end(&c, comm, plait_reduce_scatterv(comm, op, dtype, counts, c.x, c.y),
             "reduce_scatterv", n);
}

/* All reductions of n elements; scan with each of its flags. */
static inline void case_reductions(plait_comm_t *comm, plait_reduce_t op,
                                   plait_dtype_t dtype, int64_t n)
{
    int me = plait_comm_rank(comm);
    int size = plait_comm_size(comm);
    int64_t counts[CASE_MAX_P];
    case_t c = reduce_begin(op, dtype, me, n, n);

    for (int64_t i = 0; i < n; i++) {
        put_reduced(op, dtype, 0, size, i, c.want, i);
    }
    case_end(&c, comm, plait_allreduce(comm, op, dtype, n, c.x, c.y), "allreduce", n);
    c = reduce_begin(op, dtype, me, n, n);
    for (int64_t i = 0; i < n && me == size / 2; i++) {
        put_reduced(op, dtype, 0, size, i, c.want, i);
    }
    case_end(&c, comm, plait_reduce(comm, op, size / 2, dtype, n, c.x, c.y), "reduce",
             n);
    c = reduce_begin(op, dtype, me, size * n, n);
    for (int64_t i = 0; i < n; i++) {
        put_reduced(op, dtype, 0, size, me * n + i, c.want, i);
    }
    case_end(&c, comm, plait_reduce_scatter(comm, op, dtype, n, c.x, c.y),
             "reduce_scatter", n);
    for (int flags = 0; flags < 4; flags++) {
        case_scan(comm, op, dtype, n, flags);
    }
    for (int r = 0; r < size; r++) {
        counts[r] = n * ((r + 1) % 3);
    }
    case_reduce_scatter(comm, op, dtype, counts);
}

/* ---- all of the above ---- */

static inline void case_movement(plait_comm_t *comm, plait_dtype_t dtype, int64_t n)
{
    int size = plait_comm_size(comm);
    int64_t counts[CASE_MAX_P];

    for (int r = 0; r < size; r++) {
        counts[r] = n * ((2 * r + 1) % 3);
    }
    case_equal(comm, dtype, n);
    case_counts(comm, dtype, counts);
    case_alltoallv(comm, dtype, n);
    case_route(comm, dtype, n);
}

/* Every dtype with every reduction that it has, or one of n_parts parts of these pairs; then sizes on both
 * sides of each switch. Without direct access the largest size is collected in several stretches. */
static inline void case_part(plait_comm_t *comm, int part, int n_parts)
{
    static const int64_t sizes[] = {0, 1, 500, 9001, 140001};
    bool has_large = plait_comm_size(comm) <= 3 && !is_quick();

    for (int d = 0; d < plait_dtype_count(); d++) {
        plait_dtype_t dtype = plait_dtype_at(d);
        if ((d + part) % n_parts == 0) {
            case_movement(comm, dtype, 13);
        }
        for (int op = 0; op < PLAIT_REDUCE_COUNT; op++) {
            if (plait_reduce_is_defined((plait_reduce_t)op, dtype) &&
                (d + op + part) % n_parts == 0) {
                case_reductions(comm, (plait_reduce_t)op, dtype, 37);
            }
        }
    }
    for (int s = 0; s < (has_large ? 5 : 4); s++) {
        case_movement(comm, PLAIT_F64, sizes[s]);
        case_reductions(comm, PLAIT_SUM, PLAIT_F64, sizes[s]);
        case_reductions(comm, PLAIT_MAX, PLAIT_S16, sizes[s] / 3);
    }
}

static inline void case_all(plait_comm_t *comm)
{
    case_part(comm, 0, 1);
}

/* ---- matched transfers ---- */

/* All ranks send first and then receive: a message that fits a buffer does not wait. */
static inline void case_send_first(plait_comm_t *comm, int64_t n_bytes)
{
    int me = plait_comm_rank(comm);
    int size = plait_comm_size(comm);
    int left = (me + size - 1) % size;
    case_t c = case_begin(me, n_bytes, n_bytes);

    CHECK(plait_send(comm, (me + 1) % size, 7, PLAIT_U8, n_bytes, c.x) == PLAIT_OK,
          "send of %lld", (long long)n_bytes);
    for (int64_t i = 0; i < n_bytes; i++) { /* the message was copied */
        ((char *)c.x)[i] = 0;
    }
    expect(&c, 0, n_bytes, left, 0);
    case_end(&c, comm, plait_recv(comm, left, 7, PLAIT_U8, n_bytes, c.y, NULL), "recv",
             n_bytes);
}

/* Rank 0 sends many messages with two tags, some of them long. Rank 1 takes one tag after the other; each tag
 * is in order. */
static inline void case_order(plait_comm_t *comm)
{
    enum { N = 40 };
    int me = plait_comm_rank(comm);
    int64_t *data = plait_alloc(20000, sizeof(*data));

    for (int i = 0; i < N && me == 0; i++) {
        data[0] = i;
        /* the longest messages wait for their receiver, so they have the tag that is taken first */
        int64_t n = (i % 10 == 8) ? 20000 : 1 + 100 * (i % 7);
        CHECK(plait_send(comm, 1, i % 2, PLAIT_S64, n, data) == PLAIT_OK, "send %d", i);
    }
    for (int tag = 0; tag < 2 && me == 1; tag++) {
        for (int i = tag; i < N; i += 2) {
            int64_t n = (i % 10 == 8) ? 20000 : 1 + 100 * (i % 7);
            plait_envelope_t from = {-9, -9};
            CHECK(plait_recv(comm, (i % 3 == 0) ? PLAIT_ANY_SOURCE : 0, tag, PLAIT_S64,
                             n, data, &from) == PLAIT_OK &&
                      from.source == 0 && from.tag == tag,
                  "recv %d: from %d with tag %d", i, from.source, from.tag);
            CHECK(data[0] == i, "message %d has %lld", i, (long long)data[0]);
        }
    }
    CHECK(plait_barrier(comm) == PLAIT_OK, "barrier");
    plait_free(data);
}

/* A message that the receiver refuses. The receiver learns at once, the sender once at a later operation,
 * which is carried out all the same. n_bytes: of a buffered send. */
static inline void case_refusal(plait_comm_t *comm, int64_t n_bytes)
{
    int me = plait_comm_rank(comm);
    char *x = plait_alloc(n_bytes, 1);
    int64_t one = 1;
    int64_t sum = 0;
    int n_refused = 0;
    plait_status_t status = PLAIT_OK;

    if (me == 0) { /* a fast receiver may have refused before this call */
        status = plait_send(comm, 1, 3, PLAIT_U8, n_bytes, x);
        n_refused += status == PLAIT_ERR_TRUNCATION;
    } else if (me == 1) {
        status = plait_recv(comm, 0, 3, PLAIT_U8, n_bytes - 1, x, NULL);
        CHECK(status == PLAIT_ERR_TRUNCATION, "recv of too much");
    }
    for (int i = 0; i < 50; i++) { /* the answer may take some rounds */
        sum = 0;
        status = plait_allreduce(comm, PLAIT_SUM, PLAIT_S64, 1, &one, &sum);
        n_refused += status == PLAIT_ERR_TRUNCATION;
        CHECK(status == PLAIT_OK || (me == 0 && status == PLAIT_ERR_TRUNCATION),
              "allreduce after a refusal");
        CHECK(status == PLAIT_OK ||
                  strstr(plait_error_text(), "a buffered send") != NULL,
              "text");
        CHECK(sum == plait_comm_size(comm), "it was carried out");
    }
    CHECK(n_refused == (me == 0), "rank %d was refused %d times", me, n_refused);
    if (me == 0) {
        CHECK(plait_send(comm, 1, 3, PLAIT_U8, n_bytes, x) == PLAIT_OK, "and on");
    } else if (me == 1) {
        CHECK(plait_recv(comm, 0, 3, PLAIT_U8, n_bytes, x, NULL) == PLAIT_OK, "and on");
    }
    plait_free(x);
}

/* More messages than the buffers hold: the sender waits for room, and nothing is lost. */
static inline void case_flood(plait_comm_t *comm)
{
    enum { N = 400, BYTES = PLAIT_SEND_BYTES };
    int me = plait_comm_rank(comm);
    int64_t *x = plait_alloc(BYTES, 1);

    for (int64_t i = 0; i < N && me == 0; i++) {
        x[0] = i;
        x[BYTES / 8 - 1] = i;
        CHECK(plait_send(comm, 1, 1, PLAIT_U8, BYTES, x) == PLAIT_OK, "send");
    }
    for (int64_t i = 0; i < N && me == 1; i++) {
        CHECK(plait_recv(comm, 0, 1, PLAIT_U8, BYTES, x, NULL) == PLAIT_OK &&
                  x[0] == i && x[BYTES / 8 - 1] == i,
              "message %lld has %lld", (long long)i, (long long)x[0]);
    }
    CHECK(plait_barrier(comm) == PLAIT_OK, "barrier");
    plait_free(x);
}

static inline void case_matched(plait_comm_t *comm)
{
    int32_t y = 5;

    CHECK(plait_send(comm, PLAIT_PROC_NULL, 0, PLAIT_S32, 1, NULL) == PLAIT_OK, "none");
    plait_envelope_t from = {-9, -9};
    CHECK(plait_recv(comm, PLAIT_PROC_NULL, PLAIT_ANY_TAG, PLAIT_S32, 1, &y, &from) ==
                  PLAIT_OK &&
              y == 5 && from.source == PLAIT_PROC_NULL && from.tag == PLAIT_ANY_TAG,
          "none");
    case_send_first(comm, 0);
    case_send_first(comm, 8);
    case_send_first(comm, 4008);
    case_send_first(comm, 4032);
    case_send_first(comm, 5000);
    case_send_first(comm, 8064);
    case_send_first(comm, PLAIT_SEND_BYTES);
    if (plait_comm_size(comm) > 1) {
        case_order(comm);
        case_refusal(comm, 100);
        case_refusal(comm, 30000);
        case_flood(comm);
    }
}

/* Parameters that all ranks share fail on all alike. A rank that cannot go on is waited for, and nothing of
 * the failure remains. */
static inline void case_mismatch(plait_comm_t *comm)
{
    double x[4] = {1};
    double y[4] = {0};

    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64,
                          (plait_comm_rank(comm) == 0) ? 3 : 4, x,
                          y) == PLAIT_ERR_MISMATCH,
          "mismatch");
    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 4, x, y) == PLAIT_OK &&
              y[0] == plait_comm_size(comm),
          "after it");
}

#endif
