/* Transfers on devices that were started, beside each other and beside one that was not, by each link:
 * K messages from every rank to the next one, all at once. What is sent comes to its place late, on the
 * program's stream, and is overwritten there right afterwards. */
#ifndef PLAIT_TESTS_DEVICE_BESIDE_H
#define PLAIT_TESTS_DEVICE_BESIDE_H

#include "coll/coll.h"
#include "device_frames.h"
#include "ops/list.h"
#include "plan/launch.h"
#include "plan/started.h"
#include "team.h"

#include <string.h>

enum { BESIDE_K = 3, BESIDE_N = 30000, BESIDE_BYTES = BESIDE_N * 8 };

typedef struct {
    plait_comm_t *comm;
    plait_device_t *device;
    plait_stream_t stream;
} beside_t;

static const plait_allreduce_params_t beside_sum = {.reduce = PLAIT_SUM};

static inline beside_t beside_of(plait_comm_t *comm)
{
    plait_device_t *device = comm->end.caps.device;

    return (beside_t){comm, device, check_device_stream(device)};
}

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

/* On the stream, by and by; until then there are other numbers. */
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

/* The operand is the program's again when an operation was started. */
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

static inline void beside_rank(plait_comm_t *comm, void *context)
{
    const beside_t b = beside_of(comm);
    const bool is_staged = team_link == &plait_link_staged;
    check_device_counts_t before, after;

    (void)context;
    void *x = beside_array(&b);
    void *y = beside_array(&b);
    plait_call_t call = beside_call(&b, &plait_op_allreduce, &beside_sum, x, y);
    CHECK(plait_op_run(&call) == PLAIT_OK, "the link opens: %s", plait_error_text());
    before = check_device_counts(b.device);
    for (int round = 0; round < (is_quick() ? 3 : 10); round++) {
        beside_round(&b, round * (BESIDE_K + 1));
        after = check_device_counts(b.device);
        CHECK(after.across_bytes - before.across_bytes ==
                  (is_staged ? 0 : (BESIDE_K + 1) * (int64_t)BESIDE_BYTES),
              "%lld bytes across",
              (long long)(after.across_bytes - before.across_bytes));
        before = after;
    }
    check_device_free(b.device, x);
    check_device_free(b.device, y);
}

/* Rank 0 starts what the others call: it would go another way, so all are told. */
static inline void beside_differ_rank(plait_comm_t *comm, void *context)
{
    const beside_t b = beside_of(comm);
    plait_status_t status = PLAIT_OK;

    (void)context;
    void *x = beside_array(&b);
    void *y = beside_array(&b);
    plait_call_t call = beside_call(&b, &plait_op_allreduce, &beside_sum, x, y);
    CHECK(plait_op_run(&call) == PLAIT_OK, "all call it: %s", plait_error_text());
    if (plait_comm_rank(comm) == 0) {
        const int64_t id = beside_start(&b, &plait_op_allreduce, &beside_sum, x);
        status = plait_started_take(id, 1, call.rets, b.device, b.stream);
    } else {
        status = plait_op_run(&call);
    }
    CHECK(status == PLAIT_ERR_MISMATCH &&
              strstr(plait_error_text(), "rank 0: started: allreduce") != NULL &&
              strstr(plait_error_text(), ": allreduce") != NULL,
          "%d: %s", (int)status, plait_error_text());
    CHECK(plait_op_run(&call) == PLAIT_OK, "after it: %s", plait_error_text());
    check_device_drain(b.device);
    check_device_free(b.device, x);
    check_device_free(b.device, y);
}

static inline void beside_all(int n_ranks)
{
    const plait_device_link_t *const links[] = {NULL, &plait_link_ipc,
                                                &plait_link_staged};

    for (int r = 0; r < n_ranks; r++) {
        team_devices[r] = devices[r];
    }
    for (int l = 0; l < 3; l++) {
        team_link = links[l];
        team_run(n_ranks, PLAIT_DIRECT_NONE, beside_rank, NULL);
        team_run(n_ranks, PLAIT_DIRECT_NONE, beside_differ_rank, NULL);
    }
}

#endif
