/* Operations on a device that are started and waited for, driven with call frames made by hand. */
#include "base/site.h"
#include "comm/registry.h"
#include "device_beside.h"
#include "device_frames.h"
#include "plan/launch.h"
#include "plan/started.h"
#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

plait_ffi_error_t *plait_ffi_cuda_allreduce(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_cuda_start_allreduce(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_cuda_start_recv(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_cuda_start_send(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_cuda_wait(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_wait(plait_ffi_frame_t *frame);

enum { N_DEVICES = 3, N = 20000 };

/* An operation on its device, the frames of its two halves one after the other, and a token. */
typedef struct {
    plait_device_t *device;
    call_t call;
    int64_t sum, peer;
    int64_t words[3]; /* of the result: float64, one axis */
    void *x, *y, *number, *token[2];
} half_t;

static const int64_t zero, one = 1;
static const float my_token = 2.5F;

static half_t *half_create(const int64_t *id, double value)
{
    half_t *h = calloc(1, sizeof(*h));
    plait_device_t *device = devices[my_ordinal];

    h->device = device;
    h->words[0] = PLAIT_F64;
    h->words[1] = 1;
    h->words[2] = N;
    h->x = check_device_alloc(device, N * 8);
    h->y = check_device_alloc(device, N * 8);
    h->number = check_device_alloc(device, 8);
    for (int i = 0; i < 2; i++) {
        h->token[i] = check_device_alloc(device, 4);
    }
    memcpy(check_device_view(device, h->token[0]), &my_token, 4);
    double *x = check_device_view(device, h->x);
    for (int i = 0; i < N; i++) {
        x[i] = value * i;
    }
    call_init(&h->call);
    add_buffer(&h->call, 0, PLAIT_F64, N, h->x);
    add_buffer(&h->call, 1, PLAIT_F64, N, h->y);
    add_scalar(&h->call, "comm", id);
    return h;
}

static void half_destroy(half_t *h)
{
    check_device_drain(h->device);
    check_device_free(h->device, h->x);
    check_device_free(h->device, h->y);
    check_device_free(h->device, h->number);
    check_device_free(h->device, h->token[0]);
    check_device_free(h->device, h->token[1]);
    free(h);
}

static void make_start(half_t *h)
{
    h->call.frame.rets.size = 0;
    add_buffer(&h->call, 0, PLAIT_F32, 1, h->token[0]);
    add_buffer(&h->call, 1, PLAIT_F32, 2, h->number);
    add_buffer(&h->call, 1, PLAIT_F32, 1, h->token[1]);
}

static void make_started_sum(half_t *h)
{
    make_start(h);
    add_scalar(&h->call, "reduce", &h->sum);
    add_array(&h->call, "results", h->words, 3);
}

/* As XLA does: moves the number elsewhere by then, and reuses the operand's memory. */
static void make_wait(half_t *h)
{
    void *moved = check_device_alloc(h->device, 8);
    const plait_device_box_t boxes[] = {
        {PLAIT_DEVICE_COPY, h->number, moved, {.row_bytes = 8}},
        {PLAIT_DEVICE_ZERO, NULL, h->x, {.row_bytes = N * 8}}};

    CHECK(h->device->table->enter(h->device) == PLAIT_OK &&
              h->device->table->boxes(h->device, my_stream, PLAIT_U8, 2, boxes) ==
                  PLAIT_OK,
          "boxes");
    h->device->table->give(h->device, my_stream, h->number);
    h->device->table->leave(h->device);
    h->number = moved;
    call_init(&h->call);
    add_buffer(&h->call, 0, PLAIT_F32, 2, h->number);
    add_buffer(&h->call, 0, PLAIT_F64, N, h->x); /* had to be there first */
    add_buffer(&h->call, 1, PLAIT_F64, N, h->y);
    add_scalar(&h->call, "n_after", &one);
}

static void check_sum(const half_t *h, double value)
{
    int n_wrong = 0;

    check_device_drain(h->device);
    const double *y = check_device_view(h->device, h->y);
    for (int i = 0; i < N; i++) {
        n_wrong += y[i] != value * i;
    }
    CHECK(n_wrong == 0, "%d of %d are wrong", n_wrong, N);
}

/* One device alone: the thread waits for nothing but the number. */
static void check_alone(int64_t id)
{
    for (int round = 0; round < 2; round++) {
        use(0);
        half_t *h = half_create(&id, 3);
        make_started_sum(h);
        const int64_t n_before = check_device_counts(devices[0]).n_waits;
        CHECK(plait_ffi_cuda_start_allreduce(&h->call.frame) == NULL, "%s", message);
        /* until who had the stream before has left its number */
        CHECK(check_device_counts(devices[0]).n_waits == n_before + round, "start");
        make_wait(h);
        CHECK(plait_ffi_cuda_wait(&h->call.frame) == NULL, "%s", message);
        CHECK(check_device_counts(devices[0]).n_waits == n_before + round + 1, "wait");
        check_sum(h, 3);
        CHECK(memcmp(check_device_view(devices[0], h->token[1]), &my_token, 4) == 0,
              "token");
        half_destroy(h);
    }
}

/* Starts two operations, calls a plain one, then waits for both, the second first. */
static void *rank_main(void *argument)
{
    const int64_t id = ((const int64_t *)argument)[0];
    half_t *h[3];

    use((int)((const int64_t *)argument)[1]);
    for (int k = 0; k < 3; k++) {
        h[k] = half_create(&id, (my_ordinal + 1) * (k + 1));
    }
    for (int k = 0; k < 2; k++) {
        make_started_sum(h[k]);
        CHECK(plait_ffi_cuda_start_allreduce(&h[k]->call.frame) == NULL, "%s", message);
        make_wait(h[k]);
    }
    add_scalar(&h[2]->call, "reduce", &h[2]->sum);
    CHECK(plait_ffi_cuda_allreduce(&h[2]->call.frame) == NULL, "%s", message);
    for (int k = 1; k >= 0; k--) {
        CHECK(plait_ffi_cuda_wait(&h[k]->call.frame) == NULL, "%s", message);
    }
    for (int k = 0; k < 3; k++) {
        check_sum(h[k], (k + 1.0) * (double)(N_DEVICES * (N_DEVICES + 1) / 2));
        half_destroy(h[k]);
    }
    return NULL;
}

static void check_ranks(int64_t id)
{
    pthread_t threads[N_DEVICES];
    int64_t ranks[N_DEVICES][2];

    for (int d = 0; d < N_DEVICES; d++) {
        ranks[d][0] = id;
        ranks[d][1] = d;
        (void)pthread_create(&threads[d], NULL, rank_main, ranks[d]);
    }
    for (int d = 0; d < N_DEVICES; d++) {
        (void)pthread_join(threads[d], NULL);
    }
}

/* One thread starts receives before sends, for both devices. */
static void check_transfers(int64_t id)
{
    half_t *in[2];
    half_t *out[2];

    for (int d = 0; d < 2; d++) {
        use(d);
        in[d] = half_create(&id, 0);
        out[d] = half_create(&id, d + 1);
        in[d]->peer = out[d]->peer = 1 - d;
        in[d]->sum = out[d]->sum = 0; /* the tag */
        make_start(in[d]);
        add_array(&in[d]->call, "results", in[d]->words, 3);
        add_scalar(&in[d]->call, "source", &in[d]->peer);
        add_scalar(&in[d]->call, "status", &zero);
        add_scalar(&in[d]->call, "tag", &zero);
        CHECK(plait_ffi_cuda_start_recv(&in[d]->call.frame) == NULL, "%s", message);
        make_wait(in[d]);
        make_start(out[d]);
        add_scalar(&out[d]->call, "dest", &out[d]->peer);
        add_array(&out[d]->call, "results", out[d]->words, 0);
        add_scalar(&out[d]->call, "tag", &zero);
        CHECK(plait_ffi_cuda_start_send(&out[d]->call.frame) == NULL, "%s", message);
        make_wait(out[d]);
        out[d]->call.frame.rets.size = 0;
    }
    for (int d = 0; d < 2; d++) {
        use(d);
        CHECK(plait_ffi_cuda_wait(&in[d]->call.frame) == NULL, "%s", message);
        CHECK(plait_ffi_cuda_wait(&out[d]->call.frame) == NULL, "%s", message);
        check_sum(in[d], 2 - d);
        half_destroy(in[d]);
        half_destroy(out[d]);
    }
}

/* The wait reports the failure, with the line of the start. */
static void check_failures(int64_t id)
{
    const int64_t site = plait_site_put(78, "program.py:42");
    half_t *h = NULL;

    use(0);
    h = half_create(&id, 1);
    make_started_sum(h);
    add_scalar(&h->call, "site", &site);
    h->words[0] = PLAIT_F32;
    CHECK(plait_ffi_cuda_start_allreduce(&h->call.frame) == NULL, "%s", message);
    make_wait(h);
    CHECK(plait_ffi_cuda_wait(&h->call.frame) != NULL &&
              strstr(message, "operand is float64, result is float32") != NULL &&
              strstr(message, " at program.py:42") != NULL,
          "%s", message);
    CHECK(plait_ffi_cuda_wait(&h->call.frame) != NULL &&
              strstr(message, "no operation with number") != NULL,
          "a second wait: %s", message);
    half_destroy(h);
}

static void forget(const half_t *h)
{
    const float *number = NULL;

    check_device_drain(h->device);
    number = check_device_view(h->device, h->number);
    plait_started_forget((int64_t)number[0] * (1 << 20) + (int64_t)number[1]);
}

/* Whether an operation fails if the n-th call on the device fails in one of its halves, start or wait. */
static bool fails_at(int64_t id, int64_t n, bool is_start)
{
    half_t *h = half_create(&id, 1);
    bool has_failed = false;

    make_started_sum(h);
    check_device_fail_at(devices[0], is_start ? n : 0, false);
    has_failed = plait_ffi_cuda_start_allreduce(&h->call.frame) != NULL;
    check_device_fail_at(devices[0], 0, false);
    if (!has_failed) {
        make_wait(h);
        check_device_fail_at(devices[0], is_start ? 0 : n, false);
        has_failed = plait_ffi_cuda_wait(&h->call.frame) != NULL;
        check_device_fail_at(devices[0], 0, false);
    }
    if (plait_started_count() > 0) {
        forget(h); /* it could not be read which one to wait for */
    }
    if (!has_failed) {
        check_sum(h, 1);
    }
    half_destroy(h);
    return has_failed;
}

/* Each call that may fail fails once: both halves leave nothing behind. */
static void check_each_failure(int64_t id)
{
    enum { MOST = 40 };

    use(0);
    for (int half = 0; half < 2; half++) {
        int64_t n = 1;
        while (n < MOST && fails_at(id, n, half == 0)) {
            n++;
        }
        CHECK(n > 5 && n < MOST, "half %d fails at %lld calls", half, (long long)n - 1);
    }
}

/* Nobody waits for the operation, or a caller with the number in host memory waits. */
static void check_forgotten(int64_t id)
{
    float number[PLAIT_NUMBER_FLOATS];
    half_t *h = NULL;

    for (int round = 0; round < 2; round++) {
        use(0);
        h = half_create(&id, 1);
        make_started_sum(h);
        CHECK(plait_ffi_cuda_start_allreduce(&h->call.frame) == NULL, "%s", message);
        check_device_drain(devices[0]);
        memcpy(number, check_device_view(devices[0], h->number), sizeof(number));
        CHECK(plait_started_count() == 1, "started");
        if (round == 0) {
            forget(h);
        } else {
            double y[N];
            make_wait(h);
            h->call.buffers[0][0].data = number;
            h->call.buffers[1][0].data = y;
            const plait_ffi_error_t *error = plait_ffi_wait(&h->call.frame);
            CHECK(!is_fine(&h->call.frame, error) &&
                      strstr(message, "it was started elsewhere") != NULL,
                  "%s", message);
        }
        CHECK(plait_started_count() == 0, "forgotten");
        half_destroy(h);
    }
}

/* Brings ranks together where no operation may do so. */
static pthread_barrier_t gate;

/* A started sum in which the n-th call on rank 0's device fails; is_dead: and all later calls. The other ranks
 * begin once that is arranged. */
static plait_status_t fail_together(const beside_t *b, int64_t n, bool is_dead)
{
    const int me = plait_comm_rank(b->comm);
    void *x = beside_array(b);
    void *y = beside_array(b);
    plait_call_t call = beside_call(b, &plait_op_allreduce, &beside_sum, x, y);
    int64_t id = 0;

    beside_fill(b, 0, x);
    if (me == 0) {
        id = beside_start(b, &plait_op_allreduce, &beside_sum, x);
        check_device_fail_at(b->device, n, is_dead);
    }
    (void)pthread_barrier_wait(&gate);
    if (me != 0) {
        id = beside_start(b, &plait_op_allreduce, &beside_sum, x);
    }
    while (plait_started_goes_on(id)) {
        (void)sched_yield();
    }
    check_device_fail_at(b->device, 0, false);
    plait_status_t status = plait_started_take(id, 1, call.rets, b->device, b->stream);
    if (status == PLAIT_OK) {
        beside_check_sum(b, y, 0);
    }
    check_device_drain(b->device);
    check_device_free(b->device, x);
    check_device_free(b->device, y);
    return status;
}

/* Fails each such call once. Either all ranks are told, or none has failed. */
static void check_failures_together(const beside_t *b)
{
    enum { MOST = 80 };
    const plait_status_t told =
        (plait_comm_rank(b->comm) == 0) ? PLAIT_ERR_INTERNAL : PLAIT_ERR_PEER;
    plait_status_t status = told;
    int64_t n = 0;

    while (status != PLAIT_OK && n < MOST) {
        n++;
        status = fail_together(b, n, n % 2 == 0);
        CHECK(status == PLAIT_OK ||
                  (status == told && strstr(plait_error_text(), "check device 0")),
              "call %lld: %d, %s", (long long)n, (int)status, plait_error_text());
    }
    CHECK(n > 4 && n < MOST, "%lld calls", (long long)n);
}

static void beside_rank(plait_comm_t *comm, void *context)
{
    plait_device_t *device = comm->end.caps.device;
    const beside_t b = {comm, device, check_device_stream(device)};
    const bool is_shown = team_link != &plait_link_staged;

    (void)context;
    beside_all(comm, device, is_shown);
    if (is_shown) {
        check_failures_together(&b);
    }
}

static void check_links(int n_ranks)
{
    const plait_device_link_t *const links[] = {NULL, &plait_link_ipc,
                                                &plait_link_staged};

    for (int r = 0; r < n_ranks; r++) {
        team_devices[r] = devices[r];
    }
    (void)pthread_barrier_init(&gate, NULL, (unsigned)n_ranks);
    for (int l = 0; l < 3; l++) {
        team_link = links[l];
        team_run(n_ranks, PLAIT_DIRECT_NONE, beside_rank, NULL);
    }
    (void)pthread_barrier_destroy(&gate);
}

int main(void)
{
    const int32_t ordinals[N_DEVICES] = {0, 1, 2};
    const int64_t before = plait_alloc_balance();
    int64_t alone = 0;
    int64_t ranks = 0;

    devices_begin(N_DEVICES);
    CHECK(plait_registry_add_self("test_device_start.c", &alone) == PLAIT_OK, "self");
    CHECK(plait_registry_add_local(N_DEVICES, ordinals, "test_device_start.c",
                                   &ranks) == PLAIT_OK,
          "local");
    check_alone(alone);
    check_failures(alone);
    check_each_failure(alone);
    check_forgotten(alone);
    for (int round = 0; round < (is_quick() ? 3 : 10); round++) {
        check_ranks(ranks);
        check_transfers(ranks);
    }
    check_links(2);
    check_links(3);
    CHECK(plait_started_count() == 0 && plait_in_flight() == 0, "left");
    CHECK(plait_registry_free(alone) == PLAIT_OK &&
              plait_registry_free(ranks) == PLAIT_OK,
          "free");
    devices_end(N_DEVICES);
    /* A page of the registry and the two entries with their labels stay for ever. */
    CHECK(plait_alloc_balance() - before == 1 + 2, "balance %lld",
          (long long)(plait_alloc_balance() - before));
    printf("test_device_start: %d checks, %d failed\n", n_checked, n_failed);
    return n_failed != 0;
}
