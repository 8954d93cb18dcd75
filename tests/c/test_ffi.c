/* The XLA handlers driven with call frames made by hand: metadata query, attributes, tokens,
 * errors; two devices of one launch that meet; calls that are complete later, and operations
 * that are started and waited for. */
#include "base/site.h"
#include "check.h"
#include "comm/registry.h"
#include "device/pool.h"
#include "frames.h"
#include "plan/lanes.h"
#include "plan/launch.h"
#include "plan/started.h"

#include <pthread.h>
#include <string.h>

plait_ffi_error_t *plait_ffi_allreduce(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_barrier(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_allgather(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_recv(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_redistribute(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_send(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_start_allgather(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_start_allreduce(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_start_recv(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_start_send(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_wait(plait_ffi_frame_t *frame);

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
        CHECK(plait_ffi_allreduce(&c.frame) == NULL && y[0] == 2 * round + 2048 + 3,
              "round %d: %s", round, message);
    }
    device->got = 1;
    call_init(&c);
    add_scalar(&c, "comm", &device->id);
    CHECK(plait_ffi_barrier(&c.frame) == NULL, "barrier: %s", message);
    return NULL;
}

/* A failure ends with the line that the program carries, or that an eager call has told. */
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
        CHECK(plait_ffi_allreduce(&c.frame) == NULL && device->got == device->want,
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

/* ---- calls that are complete later ---- */

enum { LARGE = 200000 }; /* doubles: beyond what is done on XLA's thread */

typedef struct {
    call_t call;
    int64_t sum;
    int64_t words[3]; /* of the result: float64, one axis */
    double x[LARGE], y[LARGE];
    float pair[2];
} large_t;

static large_t *large_create(const int64_t *id, double value)
{
    large_t *l = calloc(1, sizeof(*l));

    for (int i = 0; i < LARGE; i++) {
        l->x[i] = value * i;
    }
    l->words[0] = PLAIT_F64;
    l->words[1] = 1;
    l->words[2] = LARGE;
    call_init(&l->call);
    add_buffer(&l->call, 0, PLAIT_F64, LARGE, l->x);
    add_buffer(&l->call, 1, PLAIT_F64, LARGE, l->y);
    add_scalar(&l->call, "comm", id);
    add_scalar(&l->call, "reduce", &l->sum);
    return l;
}

/* The call's frame as one that only starts it. */
static void make_start(large_t *l)
{
    l->call.frame.rets.size = 0;
    add_buffer(&l->call, 1, PLAIT_F32, 2, l->pair);
    add_array(&l->call, "results", l->words, 3);
}

static const int64_t one = 1;

/* And then as one that waits for it. */
static void make_wait(large_t *l)
{
    call_init(&l->call);
    add_buffer(&l->call, 0, PLAIT_F32, 2, l->pair);
    add_buffer(&l->call, 0, PLAIT_F64, LARGE, l->x); /* had to be there first */
    add_buffer(&l->call, 1, PLAIT_F64, LARGE, l->y);
    add_scalar(&l->call, "n_after", &one);
}

static void check_sum(const large_t *l, double value)
{
    int n_wrong = 0;

    for (int i = 0; i < LARGE; i++) {
        n_wrong += l->y[i] != value * i;
    }
    CHECK(n_wrong == 0, "%d of %d are wrong", n_wrong, LARGE);
}

static void check_later(int64_t id)
{
    large_t *l = large_create(&id, 1);
    plait_ffi_error_t *error = plait_ffi_allreduce(&l->call.frame);

    CHECK(l->call.frame.future != NULL, "a large call is complete later");
    memset(&l->call.dims, -1, sizeof(l->call.dims)); /* the frame is dead now */
    memset(&l->call.scalars, 0, sizeof(l->call.scalars));
    CHECK(is_fine(&l->call.frame, error), "%s", message);
    check_sum(l, 1);
    free(l);
    l = large_create(&id, 1);
    l->call.buffers[1][0].dtype = PLAIT_F32;
    error = plait_ffi_allreduce(&l->call.frame);
    CHECK(l->call.frame.future != NULL && !is_fine(&l->call.frame, error) &&
              strstr(message, "plait.Error: rank 0 of communicator #") == message &&
              strstr(message, "operand is float64, result is float32") != NULL,
          "%s", message);
    free(l);
    CHECK(plait_in_flight() == 0, "%lld in flight", (long long)plait_in_flight());
}

enum { DEVICES = 4 };

/* One thread calls the handlers of all devices: none of them may wait for another. */
static void check_devices_later(int64_t id, const int32_t ordinals[])
{
    large_t *l[DEVICES];
    plait_ffi_error_t *errors[DEVICES];

    for (int d = 0; d < DEVICES; d++) {
        my_ordinal = ordinals[d];
        l[d] = large_create(&id, d + 1);
        errors[d] = plait_ffi_allreduce(&l[d]->call.frame);
    }
    for (int d = 0; d < DEVICES; d++) {
        CHECK(is_fine(&l[d]->call.frame, errors[d]), "%s", message);
        check_sum(l[d], DEVICES * (DEVICES + 1) / 2);
        free(l[d]);
    }
}

/* Two are started, a plain one is called, then both are waited for, the second one first. */
static void check_started(int64_t id, const int32_t ordinals[])
{
    large_t *l[DEVICES][3];
    plait_ffi_error_t *errors[DEVICES][3];

    for (int d = 0; d < DEVICES; d++) {
        my_ordinal = ordinals[d];
        for (int k = 0; k < 3; k++) {
            l[d][k] = large_create(&id, (d + 1) * (k + 1));
            if (k < 2) {
                make_start(l[d][k]);
                CHECK(plait_ffi_start_allreduce(&l[d][k]->call.frame) == NULL, "%s",
                      message);
                memset(l[d][k]->x, -1, sizeof(l[d][k]->x)); /* copied by then */
                make_wait(l[d][k]);
            }
        }
        errors[d][2] = plait_ffi_allreduce(&l[d][2]->call.frame);
        for (int k = 1; k >= 0; k--) {
            errors[d][k] = plait_ffi_wait(&l[d][k]->call.frame);
        }
    }
    for (int d = 0; d < DEVICES; d++) {
        for (int k = 0; k < 3; k++) {
            CHECK(is_fine(&l[d][k]->call.frame, errors[d][k]), "%s", message);
            check_sum(l[d][k], (k + 1.0) * DEVICES * (DEVICES + 1) / 2);
            free(l[d][k]);
        }
    }
    CHECK(plait_started_count() == 0, "%lld are left",
          (long long)plait_started_count());
}

/* Receives are started before sends, of messages that no buffer holds. */
static void check_started_transfers(int64_t id, const int32_t ordinals[])
{
    const int64_t zero = 0;
    large_t *in[2];
    large_t *out[2];

    for (int d = 0; d < 2; d++) {
        const int64_t peer = 1 - d;
        my_ordinal = ordinals[d];
        in[d] = large_create(&id, 0);
        in[d]->call.frame.attrs.size = 1;
        make_start(in[d]);
        add_scalar(&in[d]->call, "source", &peer);
        add_scalar(&in[d]->call, "status", &zero);
        add_scalar(&in[d]->call, "tag", &zero);
        CHECK(plait_ffi_start_recv(&in[d]->call.frame) == NULL, "%s", message);
        make_wait(in[d]);
        out[d] = large_create(&id, d + 1);
        out[d]->call.frame.attrs.size = 1;
        make_start(out[d]);
        out[d]->call.frame.attrs.size = 1;
        add_scalar(&out[d]->call, "dest", &peer);
        add_array(&out[d]->call, "results", out[d]->words, 0);
        add_scalar(&out[d]->call, "tag", &zero);
        CHECK(plait_ffi_start_send(&out[d]->call.frame) == NULL, "%s", message);
        make_wait(out[d]);
        out[d]->call.frame.rets.size = 0;
    }
    for (int d = 0; d < 2; d++) {
        CHECK(is_fine(&in[d]->call.frame, plait_ffi_wait(&in[d]->call.frame)), "%s",
              message);
        CHECK(is_fine(&out[d]->call.frame, plait_ffi_wait(&out[d]->call.frame)), "%s",
              message);
        check_sum(in[d], 2 - d);
        free(in[d]);
        free(out[d]);
    }
}

/* What fails is told by the one that waits, with the line of the start. */
static void check_started_failures(int64_t id)
{
    int64_t site = plait_site_put(78, "program.py:42");
    large_t *l = large_create(&id, 1);
    const int64_t none = 0;

    make_start(l);
    l->call.frame.attrs.size--;
    add_array(&l->call, "results", l->words, 2);
    CHECK(plait_ffi_start_allreduce(&l->call.frame) != NULL &&
              strstr(message, "results is too short") != NULL,
          "%s", message);
    l->call.frame.attrs.size--;
    add_array(&l->call, "results", l->words, 3);
    add_scalar(&l->call, "site", &site);
    l->words[0] = PLAIT_F32;
    CHECK(plait_ffi_start_allreduce(&l->call.frame) == NULL, "%s", message);
    make_wait(l);
    CHECK(!is_fine(&l->call.frame, plait_ffi_wait(&l->call.frame)) &&
              strstr(message, "operand is float64, result is float32") != NULL &&
              strstr(message, " at program.py:42") != NULL,
          "%s", message);
    CHECK(!is_fine(&l->call.frame, plait_ffi_wait(&l->call.frame)) &&
              strstr(message, "no operation with number") != NULL,
          "a second wait: %s", message);
    free(l);
    l = large_create(&id, 1);
    make_start(l);
    CHECK(plait_ffi_start_allreduce(&l->call.frame) == NULL, "%s", message);
    CHECK(plait_started_count() == 1, "started");
    plait_started_forget((int64_t)l->pair[0] * (1 << 20) + (int64_t)l->pair[1]);
    plait_started_forget(none);
    CHECK(plait_started_count() == 0, "forgotten");
    while (plait_in_flight() > 0) {
    }
    free(l);
}

static void check_lanes(void)
{
    const plait_lanes_t collective = {true, PLAIT_ANY, PLAIT_ANY, PLAIT_ANY};
    const plait_lanes_t to_1 = {false, 1, PLAIT_NO_RANK, PLAIT_ANY};
    const plait_lanes_t to_2 = {false, 2, PLAIT_NO_RANK, PLAIT_ANY};
    const plait_lanes_t from_1 = {false, PLAIT_NO_RANK, 1, 7};
    const plait_lanes_t from_1_other = {false, PLAIT_NO_RANK, 1, 8};
    const plait_lanes_t from_any = {false, PLAIT_NO_RANK, PLAIT_ANY, 7};
    const plait_lanes_t both = {false, 2, 1, PLAIT_ANY};

    CHECK(plait_lanes_conflict(&collective, &collective), "collectives");
    CHECK(!plait_lanes_conflict(&collective, &both), "collective and transfer");
    CHECK(plait_lanes_conflict(&to_1, &to_1), "to one rank");
    CHECK(!plait_lanes_conflict(&to_1, &to_2), "to two ranks");
    CHECK(!plait_lanes_conflict(&to_1, &from_1), "send and receive");
    CHECK(!plait_lanes_conflict(&from_1, &from_1_other), "two tags");
    CHECK(plait_lanes_conflict(&from_1, &from_any), "any source");
    CHECK(!plait_lanes_conflict(&from_1_other, &from_any), "any source, another tag");
    CHECK(plait_lanes_conflict(&both, &from_1_other), "any tag");
    CHECK(plait_lanes_conflict(&both, &to_2), "one half");
}

static void check_overlap(int64_t self)
{
    const int32_t ordinals[DEVICES] = {11, 12, 13, 14};
    int n_rounds = is_quick() ? 5 : 30;
    int64_t id = 0;

    check_lanes();
    check_later(self);
    check_started_failures(self);
    CHECK(plait_registry_add_local(DEVICES, ordinals, "test_ffi.c", &id) == PLAIT_OK,
          "local");
    for (int round = 0; round < n_rounds; round++) {
        check_devices_later(id, ordinals);
        check_started(id, ordinals);
    }
    CHECK(plait_registry_free(id) == PLAIT_OK, "free");
    CHECK(plait_registry_add_local(2, ordinals, "test_ffi.c", &id) == PLAIT_OK,
          "local");
    for (int round = 0; round < n_rounds; round++) {
        check_started_transfers(id, ordinals);
    }
    CHECK(plait_registry_free(id) == PLAIT_OK, "free");
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
    check_two_devices();
    check_groups();
    check_overlap(id);
    CHECK(plait_registry_free(id) == PLAIT_OK, "free");
    (void)plait_pool_trim();
    /* A page of the registry and the five entries with their labels stay for ever. */
    CHECK(plait_alloc_balance() - before == 1 + 5 * 3, "balance %lld",
          (long long)plait_alloc_balance());
    printf("test_ffi: %d checks, %d failed\n", n_checked, n_failed);
    return n_failed != 0;
}
