/* Matched transfers of arrays on devices, with messages large enough for links: from device to device, and
 * with one partner's array on the host. Works on any communicator whose ranks have found their link; messages
 * go to a neighbour. */
#ifndef PLAIT_TESTS_DEVICE_MATCHED_H
#define PLAIT_TESTS_DEVICE_MATCHED_H

#include "coll_cases.h"
#include "comm/comm.h"
#include "on_device.h"
#include "transport/device_link.h"

/* Items of 8 bytes: the largest staged message, the next larger one, and some of several chunks. */
static const int64_t matched_counts[] = {
    PLAIT_MATCHED_STAGED_BYTES / 8, PLAIT_MATCHED_STAGED_BYTES / 8 + 1, 30011, 400003};

enum { MATCHED_COUNTS = 4 };

/* Sanitizers watch every byte, so they see one ring of the longest messages. */
static inline int matched_n_counts(void)
{
    return is_quick() ? MATCHED_COUNTS - 1 : MATCHED_COUNTS;
}

/* Makes all ranks find how they reach each other. */
static inline void matched_open(plait_comm_t *comm)
{
    double one = 1, sum = 0;

    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 1, &one, &sum) == PLAIT_OK &&
              sum == plait_comm_size(comm),
          "ranks find their way to each other: %s", plait_error_text());
}

/* Sends to the next rank and receives from the one before, or from any, at the same time. */
static inline void matched_ring(plait_comm_t *comm, int64_t n, int tag, bool is_any)
{
    const int me = plait_comm_rank(comm);
    const int size = plait_comm_size(comm);
    const int before = (me + size - 1) % size;
    case_t c = case_begin(me, n * 8, n * 8);

    expect(&c, 0, n * 8, before, 0);
    case_end(&c, comm,
             plait_sendrecv(comm, (me + 1) % size, tag, PLAIT_S64, n, c.x,
                            is_any ? PLAIT_ANY_SOURCE : before,
                            is_any ? PLAIT_ANY_TAG : tag, PLAIT_S64, n, c.y, NULL),
             is_any ? "ring from any" : "ring", n);
}

/* From each rank to the next one along a line, in two calls. */
static inline void matched_line(plait_comm_t *comm, int64_t n, bool is_any)
{
    const int me = plait_comm_rank(comm);
    case_t c = case_begin(me, n * 8, n * 8);
    plait_status_t status = PLAIT_OK;

    if (me > 0) {
        expect(&c, 0, n * 8, me - 1, 0);
        status = plait_recv(comm, is_any ? PLAIT_ANY_SOURCE : me - 1, 3, PLAIT_S64, n,
                            c.y, NULL);
        CHECK(status == PLAIT_OK, "recv of %lld: %s", (long long)n, plait_error_text());
    }
    if (me + 1 < plait_comm_size(comm)) {
        status = plait_send(comm, me + 1, 3, PLAIT_S64, n, c.x);
    }
    case_end(&c, comm, status, "line", n);
}

/* Two ranks send to each other; then one sends first and the other afterwards, in two calls. */
static inline void matched_pair(plait_comm_t *comm, int64_t n)
{
    const int me = plait_comm_rank(comm);

    for (int first = 0; first < 2 && me < 2; first++) {
        case_t c = case_begin(me, n * 8, n * 8);
        const bool sends_first = me == first;
        plait_status_t status[2];

        expect(&c, 0, n * 8, 1 - me, 0);
        for (int i = 0; i < 2; i++) {
            status[i] = (sends_first == (i == 0))
                            ? plait_send(comm, 1 - me, i, PLAIT_S64, n, c.x)
                            : plait_recv(comm, 1 - me, i, PLAIT_S64, n, c.y, NULL);
        }
        CHECK(status[0] == PLAIT_OK, "first of two");
        case_end(&c, comm, status[1], "there and back", n);
        c = case_begin(me, n * 8, n * 8);
        expect(&c, 0, n * 8, 1 - me, 0);
        case_end(&c, comm,
                 plait_sendrecv(comm, 1 - me, me, PLAIT_S64, n, c.x, 1 - me,
                                PLAIT_ANY_TAG, PLAIT_S64, n, c.y, NULL),
                 "both at once", n);
    }
}

typedef struct {
    int64_t n[2]; /* items of rank 0, which sends, and of rank 1 */
    plait_dtype_t dtypes[2];
    plait_status_t fault;
} matched_fault_t;

/* Both partners get the verdict, and nothing is written. */
static inline void matched_fault(plait_comm_t *comm, const matched_fault_t *f)
{
    const int me = plait_comm_rank(comm);

    if (me < 2) {
        case_t c = case_begin(me, f->n[me] * 8, f->n[me] * 8);
        plait_status_t status =
            (me == 0) ? plait_send(comm, 1, 5, f->dtypes[0], f->n[0], c.x)
                      : plait_recv(comm, 0, 5, f->dtypes[1], f->n[1], c.y, NULL);
        CHECK(status == f->fault, "%lld sent, %lld expected: rank %d has %d, %s",
              (long long)f->n[0], (long long)f->n[1], me, (int)status,
              plait_error_text());
        case_end(&c, comm, PLAIT_OK, "what was refused", f->n[me]);
    }
}

static inline void matched_faults(plait_comm_t *comm)
{
    static const matched_fault_t faults[] = {
        {{30000, 20000}, {PLAIT_F64, PLAIT_F64}, PLAIT_ERR_TRUNCATION},
        {{30000, 10}, {PLAIT_F64, PLAIT_F64}, PLAIT_ERR_TRUNCATION},
        {{20000, 30000}, {PLAIT_F64, PLAIT_F64}, PLAIT_ERR_MISMATCH},
        {{30000, 30000}, {PLAIT_F64, PLAIT_S64}, PLAIT_ERR_MISMATCH},
    };
    const int me = plait_comm_rank(comm);

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        matched_fault(comm, &faults[i]);
    }
    if (me <
        2) { /* one half is refused; what the other one brings belongs to a failed call */
        const int64_t n = 30000;
        const int64_t n_in = (me == 0) ? n : n + 1;
        case_t c = case_begin(me, n * 8, n_in * 8);
        CHECK(plait_sendrecv(comm, 1 - me, 6, PLAIT_F64, n, c.x, 1 - me, 6, PLAIT_F64,
                             n_in, c.y, NULL) == PLAIT_ERR_MISMATCH,
              "one half fails");
        memcpy(c.y, c.want, (me == 0) ? (size_t)n_in * 8 : 0);
        case_end(&c, comm, PLAIT_OK, "one half", n);
    }
}

static inline void matched_transfers(plait_comm_t *comm)
{
    matched_ring(comm, matched_counts[MATCHED_COUNTS - 1], 6, false);
    for (int i = 0; i < matched_n_counts(); i++) {
        matched_ring(comm, matched_counts[i], 7, false);
        matched_line(comm, matched_counts[i], false);
        CHECK(plait_barrier(comm) == PLAIT_OK, "any source is of the next");
        matched_ring(comm, matched_counts[i], i, true);
        CHECK(plait_barrier(comm) == PLAIT_OK, "any source was of this");
        matched_line(comm, matched_counts[i], true);
        CHECK(plait_barrier(comm) == PLAIT_OK, "any source was of this");
    }
}

/* The bytes of one matched_ring by a link: all of them go across, or none. */
static inline void matched_bytes(plait_comm_t *comm, int64_t n, bool is_across)
{
    plait_device_t *device = comm->end.caps.device;
    const check_device_counts_t before = check_device_counts(device);

    matched_ring(comm, n, 8, false);
    const check_device_counts_t after = check_device_counts(device);
    const int64_t n_across = after.across_bytes - before.across_bytes;
    const int64_t n_up = after.up_bytes - before.up_bytes;
    const int64_t n_down = after.down_bytes - before.down_bytes;
    CHECK(n_across == (is_across ? n * 8 : 0) && n_up == n * 8 - n_across &&
              n_down == n_up,
          "ring of %lld: %lld bytes across, %lld down, %lld up", (long long)n,
          (long long)n_across, (long long)n_down, (long long)n_up);
}

/* Every rank but one has its arrays on a device. Ranks do not agree on what differs between them, so only
 * transfers are tested. Their lengths differ from earlier ones, so the plans are new. */
static inline void matched_mixed(plait_comm_t *comm, int host)
{
    const bool is_host = plait_comm_rank(comm) == host;
    plait_device_t *device = comm->end.caps.device;

    if (is_host) {
        comm->end.caps.device = NULL;
    }
    for (int i = 0; i < matched_n_counts(); i++) {
        const int64_t n = matched_counts[i] + 10 * (host + 1);
        matched_ring(comm, n, 9, false);
        matched_line(comm, n, false);
        matched_pair(comm, n);
    }
    comm->end.caps.device = device;
}

/* A ring in which each call on rank 0's device fails once, every second time with all later calls. has_host:
 * the others have their arrays on the host. All ranks finish the ring: rank 0 with the failure, its partners
 * well or with a refusal. */
static inline void matched_failures(plait_comm_t *comm, bool has_host)
{
    enum { N = 60000, MOST = 80 }; /* of more chunks than are in flight */
    const int me = plait_comm_rank(comm);
    const int size = plait_comm_size(comm);
    plait_device_t *device = comm->end.caps.device;
    double *x = plait_alloc(N, sizeof(*x));
    double *y = plait_alloc(N, sizeof(*y));
    double has_failed = 1, is_more = 1;
    int64_t n = 0;

    while (is_more != 0 && n < MOST) {
        n++;
        comm->end.caps.device = (has_host && me != 0) ? NULL : device;
        check_device_fail_at(device, (me == 0) ? n : 0, n % 2 == 0);
        plait_status_t status = plait_sendrecv(comm, (me + 1) % size, 12 + has_host,
                                               PLAIT_F64, N, x, (me + size - 1) % size,
                                               PLAIT_ANY_TAG, PLAIT_F64, N, y, NULL);
        check_device_fail_at(device, 0, false);
        comm->end.caps.device = device;
        has_failed = (me == 0 && status != PLAIT_OK);
        CHECK(me != 0 || status == PLAIT_OK || status == PLAIT_ERR_INTERNAL,
              "call %lld: %s", (long long)n, plait_error_text());
        CHECK(me == 0 || status == PLAIT_OK || status == PLAIT_ERR_MISMATCH ||
                  status == PLAIT_ERR_TRUNCATION,
              "call %lld: rank %d has %d, %s", (long long)n, me, (int)status,
              plait_error_text());
        CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 1, &has_failed, &is_more) ==
                  PLAIT_OK,
              "after call %lld: %s", (long long)n, plait_error_text());
    }
    CHECK(n > 4 && n < MOST, "%lld calls", (long long)n);
    plait_free(x);
    plait_free(y);
}

/* is_direct: their link is one for matched transfers. */
static inline void matched_all(plait_comm_t *comm, bool is_direct)
{
    const int size = plait_comm_size(comm);

    matched_open(comm);
    matched_transfers(comm);
    if (size > 1) {
        matched_bytes(comm, matched_counts[0], false);
        matched_bytes(comm, matched_counts[1], is_direct);
        matched_pair(comm, matched_counts[2]);
        matched_faults(comm);
        CHECK(plait_barrier(comm) == PLAIT_OK, "barrier");
        matched_mixed(comm, 0);
        matched_mixed(comm, size - 1);
    }
    CHECK(plait_barrier(comm) == PLAIT_OK, "barrier");
}

#endif
