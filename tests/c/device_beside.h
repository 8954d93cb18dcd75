/* Started operations on devices, beside each other and beside a plain one, by each link: K messages from every
 * rank to the next one, all at once; and sums, which follow each other on streams of their own. Operands
 * arrive late, on the program's stream, and are overwritten there right afterwards. Ranks are threads
 * (test_device_start.c) or MPI's (mpi_started.c). */
#ifndef PLAIT_TESTS_DEVICE_BESIDE_H
#define PLAIT_TESTS_DEVICE_BESIDE_H

#include "check.h"
#include "check_device.h"
#include "coll/coll.h"
#include "comm/comm.h"
#include "ops/list.h"
#include "plan/launch.h"
#include "plan/side.h"
#include "plan/started.h"

#include <string.h>

/* With this many SUMS a process opens more blocks of a peer than it keeps open (link_ipc.c). */
enum { BESIDE_K = 3, BESIDE_SUMS = 40, BESIDE_N = 30000, BESIDE_BYTES = BESIDE_N * 8 };

typedef struct {
    plait_comm_t *comm;
    plait_device_t *device;
    plait_stream_t stream;
} beside_t;

static const plait_allreduce_params_t beside_sum = {.reduce = PLAIT_SUM};

static inline plait_call_t beside_call(const beside_t *b, const plait_op_t *op,
                                       const void *params, void *x, void *y)
{
    static const int64_t n = BESIDE_N;
    plait_call_t call = {.op = op,
                         .params = params,
                         .comm = b->comm,
                         .choices = plait_choices_now(op->family),
                         .device = b->device,
                         .stream = b->stream};

    call.args[0] = call.rets[0] = (plait_array_t){PLAIT_F64, 1, &n, NULL};
    call.args[0].data = x;
    call.rets[0].data = y;
    return call;
}

static inline double beside_item(int rank, int tag, int64_t i)
{
    return 100 * rank + 10 * tag + (double)i;
}

static inline void *beside_array(const beside_t *b)
{
    return check_device_alloc(b->device, BESIDE_BYTES);
}

static inline void beside_box(const beside_t *b, plait_device_box_kind_t kind,
                              const void *src, void *dst, int64_t n_bytes)
{
    const plait_device_box_t box = {
        .kind = kind, .src = src, .dst = dst, .box = {.row_bytes = n_bytes}};

    CHECK(b->device->table->boxes(b->device, b->stream, PLAIT_U8, 1, &box) == PLAIT_OK,
          "boxes");
}

/* Fills x late, on the stream; until then x has other numbers. */
static inline void beside_fill(const beside_t *b, int tag, void *x)
{
    enum { N_PARTS = 10, PART_BYTES = BESIDE_BYTES / N_PARTS };
    void *source = beside_array(b);
    double *items = check_device_view(b->device, source);

    check_device_drain(b->device);
    memset(check_device_view(b->device, x), 0x77, BESIDE_BYTES);
    for (int64_t i = 0; i < BESIDE_N; i++) {
        items[i] = beside_item(plait_comm_rank(b->comm), tag, i);
    }
    CHECK(b->device->table->enter(b->device) == PLAIT_OK, "enter");
    for (int64_t at = 0; at < BESIDE_BYTES; at += PART_BYTES) {
        beside_box(b, PLAIT_DEVICE_COPY, (char *)source + at, (char *)x + at,
                   PART_BYTES);
    }
    b->device->table->give(b->device, b->stream, source);
    b->device->table->leave(b->device);
}

static inline void beside_overwrite(const beside_t *b, void *x)
{
    CHECK(b->device->table->enter(b->device) == PLAIT_OK, "enter");
    beside_box(b, PLAIT_DEVICE_ZERO, NULL, x, BESIDE_BYTES);
    b->device->table->leave(b->device);
}

/* Once an operation was started, the operand is the program's again. */
static inline int64_t beside_start(const beside_t *b, const plait_op_t *op,
                                   const void *params, void *x)
{
    plait_call_t call = beside_call(b, op, params, x, NULL);
    void *number = check_device_alloc(b->device, 8);
    int64_t id = 0;

    CHECK(plait_started_begin(&call, number) == PLAIT_OK, "%s", plait_error_text());
    beside_overwrite(b, x);
    CHECK(plait_started_read(number, b->device, b->stream, &id) == PLAIT_OK, "number");
    check_device_free(b->device, number);
    return id;
}

static inline void beside_check(const beside_t *b, void *y, int tag)
{
    const int size = plait_comm_size(b->comm);
    const int from = (plait_comm_rank(b->comm) + size - 1) % size;
    int64_t n_wrong = 0;

    check_device_drain(b->device);
    const double *items = check_device_view(b->device, y);
    for (int64_t i = 0; i < BESIDE_N; i++) {
        n_wrong += items[i] != beside_item(from, tag, i);
    }
    CHECK(n_wrong == 0, "message %d from rank %d: %lld wrong", tag, from,
          (long long)n_wrong);
}

/* Receives are started in the opposite order, and one more message is exchanged before any is waited
 * for. */
static inline void beside_round(const beside_t *b, int first)
{
    const int me = plait_comm_rank(b->comm);
    const int size = plait_comm_size(b->comm);
    const int to = (me + 1) % size, from = (me + size - 1) % size;
    const plait_sendrecv_params_t both = {
        .source = from, .dest = to, .sendtag = BESIDE_K, .recvtag = BESIDE_K};
    void *x[BESIDE_K + 1], *y[BESIDE_K + 1];
    int64_t sent[BESIDE_K], received[BESIDE_K];

    for (int k = 0; k <= BESIDE_K; k++) {
        x[k] = beside_array(b);
        y[k] = beside_array(b);
    }
    for (int k = BESIDE_K - 1; k >= 0; k--) {
        const plait_recv_params_t in = {.source = from, .tag = k};
        received[k] = beside_start(b, &plait_op_recv, &in, y[k]);
    }
    for (int k = 0; k < BESIDE_K; k++) {
        const plait_send_params_t out = {.dest = to, .tag = k};
        beside_fill(b, first + k, x[k]);
        sent[k] = beside_start(b, &plait_op_send, &out, x[k]);
    }
    plait_call_t call =
        beside_call(b, &plait_op_sendrecv, &both, x[BESIDE_K], y[BESIDE_K]);
    call.args[1] = call.rets[0];
    beside_fill(b, first + BESIDE_K, x[BESIDE_K]);
    CHECK(plait_op_run(&call) == PLAIT_OK, "%s", plait_error_text());
    beside_overwrite(b, x[BESIDE_K]);
    beside_check(b, y[BESIDE_K], first + BESIDE_K);
    for (int k = 0; k < BESIDE_K; k++) {
        call = beside_call(b, &plait_op_recv, NULL, NULL, y[k]);
        CHECK(plait_started_take(received[k], 1, call.rets, b->device, b->stream) ==
                  PLAIT_OK,
              "%s", plait_error_text());
        CHECK(plait_started_take(sent[k], 0, NULL, b->device, b->stream) == PLAIT_OK,
              "%s", plait_error_text());
        beside_check(b, y[k], first + k);
    }
    for (int k = 0; k <= BESIDE_K; k++) {
        check_device_free(b->device, x[k]);
        check_device_free(b->device, y[k]);
    }
}

static inline void beside_check_sum(const beside_t *b, void *y, int tag)
{
    const int size = plait_comm_size(b->comm);
    int64_t n_wrong = 0;

    check_device_drain(b->device);
    const double *items = check_device_view(b->device, y);
    for (int64_t i = 0; i < BESIDE_N; i++) {
        double want = 0;
        for (int r = 0; r < size; r++) {
            want += beside_item(r, tag, i);
        }
        n_wrong += items[i] != want;
    }
    CHECK(n_wrong == 0, "sum %d: %lld wrong", tag, (long long)n_wrong);
}

static inline void beside_take_sum(const beside_t *b, int64_t id, int tag)
{
    void *y = beside_array(b);
    plait_call_t call = beside_call(b, &plait_op_allreduce, &beside_sum, NULL, y);

    CHECK(plait_started_take(id, 1, call.rets, b->device, b->stream) == PLAIT_OK, "%s",
          plait_error_text());
    beside_check_sum(b, y, tag);
    check_device_free(b->device, y);
}

/* Starts n sums, calls one plainly and starts one more; waits for the last ones first. is_shown: no bytes go
 * through the host, except for the numbers of the started operations. */
static inline void beside_sums(const beside_t *b, int n, bool is_shown)
{
    const check_device_counts_t before = check_device_counts(b->device);
    void *x = beside_array(b);
    void *y = beside_array(b);
    plait_call_t call = beside_call(b, &plait_op_allreduce, &beside_sum, x, y);
    int64_t ids[BESIDE_SUMS + 1];

    for (int k = 0; k < n; k++) {
        beside_fill(b, k, x);
        ids[k] = beside_start(b, &plait_op_allreduce, &beside_sum, x);
    }
    beside_fill(b, n, x);
    CHECK(plait_op_run(&call) == PLAIT_OK, "%s", plait_error_text());
    beside_overwrite(b, x);
    beside_fill(b, n + 1, x);
    ids[n] = beside_start(b, &plait_op_allreduce, &beside_sum, x);
    beside_check_sum(b, y, n);
    for (int k = n; k >= 0; k--) {
        beside_take_sum(b, ids[k], (k < n) ? k : n + 1);
    }
    const check_device_counts_t after = check_device_counts(b->device);
    const int64_t n_up = after.up_bytes - before.up_bytes;
    CHECK(!is_shown || n_up == (n + 1) * PLAIT_NUMBER_FLOATS * (int64_t)sizeof(float),
          "%d sums, %lld bytes up", n, (long long)n_up);
    CHECK((after.across_bytes > before.across_bytes) == is_shown,
          "%d sums, %lld bytes across", n,
          (long long)(after.across_bytes - before.across_bytes));
    check_device_free(b->device, x);
    check_device_free(b->device, y);
}

/* Rank 0 starts an operation that the others call. It might take another way, so all ranks get an error. */
static inline void beside_differ(const beside_t *b)
{
    plait_status_t status = PLAIT_OK;

    void *x = beside_array(b);
    void *y = beside_array(b);
    plait_call_t call = beside_call(b, &plait_op_allreduce, &beside_sum, x, y);
    CHECK(plait_op_run(&call) == PLAIT_OK, "all call it: %s", plait_error_text());
    if (plait_comm_rank(b->comm) == 0) {
        const int64_t id = beside_start(b, &plait_op_allreduce, &beside_sum, x);
        status = plait_started_take(id, 1, call.rets, b->device, b->stream);
    } else {
        status = plait_op_run(&call);
    }
    CHECK(status == PLAIT_ERR_MISMATCH &&
              strstr(plait_error_text(), "rank 0: started: allreduce") != NULL &&
              strstr(plait_error_text(), ": allreduce") != NULL,
          "%d: %s", (int)status, plait_error_text());
    CHECK(plait_op_run(&call) == PLAIT_OK, "after it: %s", plait_error_text());
    check_device_drain(b->device);
    check_device_free(b->device, x);
    check_device_free(b->device, y);
}

/* By a link by which nothing goes through the host, or staged: not the same. */
static inline void beside_all(plait_comm_t *comm, plait_device_t *device, bool is_shown)
{
    const beside_t b = {comm, device, check_device_stream(device)};
    void *x = beside_array(&b);
    void *y = beside_array(&b);
    plait_call_t call = beside_call(&b, &plait_op_allreduce, &beside_sum, x, y);

    beside_fill(&b, 0, x);
    beside_take_sum(&b, beside_start(&b, &plait_op_allreduce, &beside_sum, x), 0);
    CHECK(plait_op_run(&call) == PLAIT_OK, "the link opens: %s", plait_error_text());
    for (int round = 0; round < (is_quick() ? 3 : 10); round++) {
        const check_device_counts_t before = check_device_counts(device);
        beside_round(&b, round * (BESIDE_K + 1));
        const check_device_counts_t after = check_device_counts(device);
        CHECK(after.across_bytes - before.across_bytes ==
                  (is_shown ? (BESIDE_K + 1) * (int64_t)BESIDE_BYTES : 0),
              "%lld bytes across",
              (long long)(after.across_bytes - before.across_bytes));
        beside_sums(&b, BESIDE_K, is_shown);
    }
    beside_sums(&b, BESIDE_SUMS, is_shown);
    if (plait_comm_size(comm) > 1) {
        beside_differ(&b);
    }
    check_device_free(device, x);
    check_device_free(device, y);
}

#endif
