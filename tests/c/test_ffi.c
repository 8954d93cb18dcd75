/* The XLA handlers driven with call frames made by hand: metadata query, attributes, tokens,
 * errors; devices of one launch that meet. Calls that are complete later: test_ffi_later.c. */
#include "base/alloc.h"
#include "base/site.h"
#include "check.h"
#include "coll/coll.h"
#include "comm/registry.h"
#include "device/pool.h"
#include "frames.h"
#include "ops/list.h"
#include "plan/launch.h"
#include "plan/started.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

plait_ffi_error_t *plait_ffi_allreduce(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_barrier(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_allgather(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_recv(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_redistribute(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_send(plait_ffi_frame_t *frame);

static void check_metadata(void)
{
    plait_ffi_metadata_t metadata = {
        .struct_size = 36, .traits = 9, .state_type_id = 9};
    plait_ffi_metadata_ext_t ext = {{.struct_size = 24, .type = PLAIT_FFI_EXT_METADATA},
                                    &metadata};
    call_t c;

    call_init(&c);
    c.frame.extension_start = &ext.extension_base;
    CHECK(plait_ffi_allreduce(&c.frame) == NULL, "metadata");
    CHECK(metadata.api_version.minor_version == 3 && metadata.traits == 0,
          "metadata of minor 3");
    c.frame.api = NULL; /* jaxlib <= 0.8.0 */
    CHECK(plait_ffi_allreduce(&c.frame) == NULL &&
              metadata.api_version.minor_version == 1,
          "no api");
    plait_ffi_api_t newer = api;
    newer.api_version.minor_version = 99;
    c.frame.api = &newer;
    CHECK(plait_ffi_allreduce(&c.frame) == NULL &&
              metadata.api_version.minor_version == PLAIT_FFI_NEWEST_MINOR,
          "newer runtime");
}

static void check_one_rank(int64_t id)
{
    const int64_t sum = 0;
    const int64_t wrong_id = 12345;
    double x[3] = {1, 2, 3};
    double y[3] = {0};
    float token_in = 4.5F;
    float token_out = 0;
    call_t c;

    call_init(&c);
    add_buffer(&c, 0, PLAIT_F64, 3, x);
    add_buffer(&c, 0, PLAIT_FFI_TOKEN, 0, NULL);
    add_buffer(&c, 1, PLAIT_F64, 3, y);
    add_buffer(&c, 1, PLAIT_FFI_TOKEN, 0, NULL);
    add_scalar(&c, "comm", &id);
    add_scalar(&c, "reduce", &sum);
    CHECK(plait_ffi_allreduce(&c.frame) == NULL && y[2] == 3,
          "allreduce of one rank: %s", message);

    call_init(&c);
    add_buffer(&c, 0, PLAIT_F64, 3, x);
    add_buffer(&c, 0, PLAIT_F32, 1, &token_in);
    add_buffer(&c, 1, PLAIT_F64, 3, y);
    add_buffer(&c, 1, PLAIT_F32, 1, &token_out);
    add_scalar(&c, "comm", &id);
    add_scalar(&c, "reduce", &sum);
    CHECK(plait_ffi_allreduce(&c.frame) == NULL && token_out == 4.5F, "explicit token");

    c.frame.attrs.size = 1;
    CHECK(plait_ffi_allreduce(&c.frame) != NULL &&
              strstr(message, "reduce is missing") != NULL,
          "%s", message);
    c.frame.attrs.size = 2;
    c.scalars[0].value = &wrong_id;
    CHECK(plait_ffi_allreduce(&c.frame) != NULL &&
              strstr(message, "plait.CommError: ") == message,
          "%s", message);
    CHECK(code == PLAIT_FFI_CODE_FAILED_PRECONDITION, "code %d", code);
    c.scalars[0].value = &id;
    c.buffers[1][0].dtype = PLAIT_F32;
    CHECK(plait_ffi_allreduce(&c.frame) != NULL &&
              strstr(message, "operand is float64, result is float32") != NULL,
          "%s", message);
    c.frame.stage = 0;
    CHECK(plait_ffi_allreduce(&c.frame) != NULL, "stage");
}

static void check_layout_words(int64_t id)
{
    const int64_t words[] = {1, 4, 1, 1, 0, 0, 0, 0};
    const int64_t bad[] = {1, 4, 1, 1, 9, 0, 0, 0};
    const int64_t turn = 0;
    int32_t x[4] = {1, 2, 3, 4};
    int32_t y[4] = {0};
    call_t c;

    call_init(&c);
    add_buffer(&c, 0, PLAIT_S32, 4, x);
    add_buffer(&c, 1, PLAIT_S32, 4, y);
    add_scalar(&c, "comm", &id);
    add_array(&c, "from", words, 8);
    add_array(&c, "to", words, 8);
    add_scalar(&c, "turn", &turn);
    CHECK(plait_ffi_redistribute(&c.frame) == NULL && y[3] == 4, "redistribute: %s",
          message);
    c.arrays[2].data = bad;
    CHECK(plait_ffi_redistribute(&c.frame) != NULL &&
              strstr(message, "layout: word 4") != NULL,
          "%s", message);
    c.arrays[2].size = 1000;
    CHECK(plait_ffi_redistribute(&c.frame) != NULL, "too many words");
}

/* A list of any length; an operation without results, whose token comes back. */
static void check_lists_and_send(int64_t id)
{
    const int64_t counts[] = {3, 4};
    const int64_t zero = 0;
    double x[3] = {1, 2, 3};
    double y[3] = {0};
    float token_in = 2.5F;
    float token_out = 0;
    call_t c;

    call_init(&c);
    add_buffer(&c, 0, PLAIT_F64, 3, x);
    add_buffer(&c, 1, PLAIT_F64, 3, y);
    add_scalar(&c, "comm", &id);
    add_array(&c, "counts", counts, 1);
    CHECK(plait_ffi_allgather(&c.frame) == NULL && y[2] == 3, "allgather: %s", message);
    c.arrays[1].size = 2;
    CHECK(plait_ffi_allgather(&c.frame) != NULL &&
              strstr(message, "counts has 2 entries, expected 1") != NULL,
          "%s", message);
    c.arrays[1].dtype = PLAIT_F64;
    CHECK(plait_ffi_allgather(&c.frame) != NULL &&
              strstr(message, "counts is missing or no array of int64") != NULL,
          "%s", message);

    call_init(&c);
    add_buffer(&c, 0, PLAIT_F64, 3, x);
    add_buffer(&c, 0, PLAIT_F32, 1, &token_in);
    add_buffer(&c, 1, PLAIT_F32, 1, &token_out);
    add_scalar(&c, "comm", &id);
    add_scalar(&c, "dest", &zero);
    add_scalar(&c, "tag", &zero);
    CHECK(plait_ffi_send(&c.frame) == NULL && token_out == 2.5F, "send: %s", message);
    memset(y, 0, sizeof(y));
    call_init(&c);
    add_buffer(&c, 0, PLAIT_F64, 3, y);
    add_buffer(&c, 1, PLAIT_F64, 3, y);
    add_scalar(&c, "comm", &id);
    add_scalar(&c, "source", &zero);
    add_scalar(&c, "status", &zero);
    add_scalar(&c, "tag", &zero);
    CHECK(plait_ffi_recv(&c.frame) == NULL && y[2] == 3, "recv: %s", message);
}

typedef struct {
    int64_t id;
    int32_t ordinal;
    double got;
    double want; /* by the groups */
} device_t;

static void *device_main(void *argument)
{
    device_t *device = argument;
    const int64_t sum = 0;
    call_t c;

    my_ordinal = device->ordinal;
    for (int round = 0; round < 100; round++) {
        double x[1] = {device->ordinal + round};
        double y[1] = {0};
        call_init(&c);
        add_buffer(&c, 0, PLAIT_F64, 1, x);
        add_buffer(&c, 1, PLAIT_F64, 1, y);
        add_scalar(&c, "comm", &device->id);
        add_scalar(&c, "reduce", &sum);
        plait_ffi_error_t *error = plait_ffi_allreduce(&c.frame);
        CHECK(is_fine(&c.frame, error) && y[0] == 2 * round + 2048 + 3, "round %d: %s",
              round, message);
    }
    device->got = 1;
    call_init(&c);
    add_scalar(&c, "comm", &device->id);
    plait_ffi_error_t *error = plait_ffi_barrier(&c.frame);
    CHECK(is_fine(&c.frame, error), "barrier: %s", message);
    return NULL;
}

/* A failure ends with the line that the program carries, or that an eager call has set. */
static void check_site(int64_t comm)
{
    int64_t site = plait_site_put(77, "program.py:41");
    int64_t sum = PLAIT_SUM;
    float x[1] = {1};
    double y[1] = {0};
    call_t c;

    for (int is_eager = 0; is_eager < 2; is_eager++) {
        int64_t carried = is_eager ? 0 : site;
        plait_site_eager()[comm % PLAIT_SITE_EAGER_SLOTS] = is_eager ? site : 0;
        call_init(&c);
        add_buffer(&c, 0, PLAIT_F32, 1, x);
        add_buffer(&c, 1, PLAIT_F64, 1, y);
        add_scalar(&c, "comm", &comm);
        add_scalar(&c, "reduce", &sum);
        add_scalar(&c, "site", &carried);
        CHECK(plait_ffi_allreduce(&c.frame) != NULL &&
                  strstr(message, " at program.py:41") != NULL,
              "%s", message);
    }
    plait_site_eager()[comm % PLAIT_SITE_EAGER_SLOTS] = 0;
}

/* A program's mark, in the upper half of the number, says who the ranks were. */
static void check_marks(void)
{
    const int64_t marks[] = {0, 41, 40, INT32_MAX};
    int64_t id = 0;

    CHECK(plait_registry_add_self("test_ffi.c", &id) == PLAIT_OK, "self");
    CHECK(plait_registry_set_mark(id, 41) == PLAIT_OK, "mark");
    CHECK(plait_registry_set_mark(id + 9, 41) == PLAIT_ERR_COMM, "mark of none");
    for (int i = 0; i < 4; i++) {
        int64_t number = id | marks[i] * ((int64_t)1 << 32);
        call_t c;
        call_init(&c);
        add_scalar(&c, "comm", &number);
        bool is_run = plait_ffi_barrier(&c.frame) == NULL;
        CHECK(is_run == (marks[i] == 0 || marks[i] == 41), "mark %d", (int)marks[i]);
        CHECK(is_run || strstr(message, "has other ranks than") != NULL, "%s", message);
    }
    CHECK(plait_registry_free(id) == PLAIT_OK, "free");
}

static void check_two_devices(void)
{
    const int32_t ordinals[] = {2048, 3};
    int64_t id = 0;
    pthread_t threads[2];
    device_t devices[2];

    CHECK(plait_registry_add_local(2, ordinals, "test_ffi.c", &id) == PLAIT_OK,
          "local");
    for (int d = 0; d < 2; d++) {
        devices[d] = (device_t){.id = id, .ordinal = ordinals[d]};
        (void)pthread_create(&threads[d], NULL, device_main, &devices[d]);
    }
    for (int d = 0; d < 2; d++) {
        (void)pthread_join(threads[d], NULL);
        CHECK(devices[d].got == 1, "device %d", d);
    }
    my_ordinal = 5;
    call_t c;
    call_init(&c);
    add_scalar(&c, "comm", &id);
    CHECK(plait_ffi_barrier(&c.frame) != NULL &&
              strstr(message, "device 5 is no rank") != NULL,
          "%s", message);
    CHECK(plait_registry_free(id) == PLAIT_OK, "free");
    CHECK(plait_ffi_barrier(&c.frame) != NULL && strstr(message, "was freed") != NULL,
          "%s", message);
    CHECK(plait_registry_free(id) == PLAIT_ERR_COMM, "second free");
}

static void *group_main(void *argument)
{
    device_t *device = argument;
    const int64_t sum = 0;
    int n_rounds = 50 + 10 * (device->ordinal % 2); /* groups need not keep step */
    call_t c;

    my_ordinal = device->ordinal;
    for (int round = 0; round < n_rounds; round++) {
        double x[1] = {device->ordinal};
        call_init(&c);
        add_buffer(&c, 0, PLAIT_F64, 1, x);
        add_buffer(&c, 1, PLAIT_F64, 1, &device->got);
        add_scalar(&c, "comm", &device->id);
        add_scalar(&c, "reduce", &sum);
        plait_ffi_error_t *error = plait_ffi_allreduce(&c.frame);
        CHECK(is_fine(&c.frame, error) && device->got == device->want,
              "device %d, round %d: %s", device->ordinal, round, message);
    }
    return NULL;
}

/* Five devices in three groups under one id, all in the same launch. */
static void check_groups(void)
{
    enum { N = 5 };
    const int32_t ordinals[N] = {10, 21, 12, 23, 30};
    const plait_device_rank_t list[N] = {{-4, 7, 10, 0},
                                         {900, 7, 21, 1},
                                         {-4, 7, 12, 2},
                                         {900, 7, 23, 3},
                                         {5, 7, 30, 4}};
    const double wants[N] = {22, 44, 22, 44, 30};
    int64_t id = 0;
    plait_comm_t *comm = NULL;
    pthread_t threads[N];
    device_t devices[N];

    CHECK(plait_registry_add_devices(N, list, 7, NULL, "test_ffi.c", &id) == PLAIT_OK,
          "groups");
    CHECK(plait_registry_is_by_device(id), "by device");
    for (int d = 0; d < N; d++) {
        CHECK(plait_registry_find(id, ordinals[d], &comm) == PLAIT_OK &&
                  plait_comm_size(comm) == (d < 4 ? 2 : 1) &&
                  plait_comm_rank(comm) == (d == 2 || d == 3),
              "device %d is rank %d of %d", ordinals[d], plait_comm_rank(comm),
              plait_comm_size(comm));
        CHECK(comm->id == id && comm->track == d, "id and track");
    }
    for (int d = 0; d < N; d++) {
        devices[d] = (device_t){.id = id, .ordinal = ordinals[d], .want = wants[d]};
        (void)pthread_create(&threads[d], NULL, group_main, &devices[d]);
    }
    for (int d = 0; d < N; d++) {
        (void)pthread_join(threads[d], NULL);
    }
    CHECK(plait_registry_free(id) == PLAIT_OK, "free");
    id = 0;
    CHECK(plait_registry_add_devices(0, list, 7, NULL, "test_ffi.c", &id) ==
              PLAIT_ERR_INVALID,
          "no devices");
    CHECK(plait_registry_add_devices(N, list, 8, NULL, "test_ffi.c", &id) ==
              PLAIT_ERR_INVALID,
          "no devices of this process");
}

/* One group is in this process alone; another group would need MPI. */
static void check_half_made(void)
{
    const plait_device_rank_t list[] = {
        {.group = 0, .process = 0, .ordinal = 0, .track = 0},
        {.group = 1, .process = 0, .ordinal = 1, .track = 1},
        {.group = 1, .process = 1, .ordinal = 2, .track = 0}};
    const uint64_t mpi_comms[] = {0, 0};
    const int64_t before = plait_alloc_balance();
    int64_t id = plait_registry_next();

    CHECK(plait_registry_add_devices(3, list, 0, mpi_comms, "test_ffi.c", &id) !=
              PLAIT_OK,
          "without MPI");
    CHECK(plait_alloc_balance() == before, "%lld allocations are left",
          (long long)(plait_alloc_balance() - before));
}

/* A started operation is waited for after its communicator was freed. */
static void check_outlived(void)
{
    const int64_t n = 2;
    const double x[] = {1, 2};
    double y[] = {0, 0};
    const plait_allreduce_params_t params = {.reduce = PLAIT_SUM};
    const plait_array_t arg = {
        .dtype = PLAIT_F64, .ndim = 1, .dims = &n, .data = (void *)(uintptr_t)x};
    plait_array_t ret = {.dtype = PLAIT_F64, .ndim = 1, .dims = &n};
    int64_t id = 0, started = 0;
    float number[2];

    CHECK(plait_registry_add_self("test_ffi.c", &id) == PLAIT_OK, "self");
    plait_call_t call = plait_op_call(&plait_op_allreduce, &params,
                                      plait_registry_comm(id), &arg, &ret);
    CHECK(plait_started_begin(&call, number) == PLAIT_OK, "%s", plait_error_text());
    (void)plait_started_read(number, NULL, NULL, &started);
    while (plait_started_goes_on(started)) {
        (void)sched_yield();
    }
    CHECK(plait_registry_free(id) == PLAIT_OK, "free");
    ret.data = y;
    CHECK(plait_started_take(started, 1, &ret, NULL, NULL) == PLAIT_OK && y[1] == 2,
          "%s", plait_error_text());
}

/* A program makes a communicator for each of its steps. */
static void check_many(void)
{
    enum { MANY = 70000 };
    int64_t id = 0;
    int n_made = 0;

    for (int i = 0; i < MANY; i++) {
        n_made += plait_registry_add_self("step", &id) == PLAIT_OK &&
                  plait_registry_comm(id) != NULL &&
                  plait_registry_free(id) == PLAIT_OK;
    }
    CHECK(n_made == MANY && id > MANY, "%d of %d, the last one is #%lld", n_made, MANY,
          (long long)id);
}

int main(void)
{
    int64_t id = 0;
    int64_t before = plait_alloc_balance();

    check_metadata();
    CHECK(plait_registry_add_self("test_ffi.c", &id) == PLAIT_OK && id > 0, "self");
    check_one_rank(id);
    check_layout_words(id);
    check_lists_and_send(id);
    check_site(id);
    check_marks();
    check_two_devices();
    check_groups();
    CHECK(plait_registry_free(id) == PLAIT_OK, "free");
    (void)plait_pool_trim();
    /* A page of the registry and the four entries with their labels stay for ever. */
    CHECK(plait_alloc_balance() - before == 1 + 4, "balance %lld",
          (long long)plait_alloc_balance());
    check_half_made();
    check_outlived();
    check_many();
    printf("test_ffi: %d checks, %d failed\n", n_checked, n_failed);
    return n_failed != 0;
}
