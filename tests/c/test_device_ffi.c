/* The XLA handlers for arrays on a device, driven with call frames made by hand that hand over
 * the check device's stream. */
#include "comm/registry.h"
#include "device_frames.h"

#include <string.h>

plait_ffi_error_t *plait_ffi_allreduce(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_cuda_allreduce(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_cuda_barrier(plait_ffi_frame_t *frame);
plait_ffi_error_t *plait_ffi_cuda_fft(plait_ffi_frame_t *frame);

enum { N_DEVICES = 2, N = 5000 };

/* An array on the device with these bytes. */
static void *array_of(plait_device_t *device, const void *data, int64_t n_bytes)
{
    void *x = check_device_alloc(device, n_bytes);

    memcpy(check_device_view(device, x), data, (size_t)n_bytes);
    return x;
}

static void check_query(void)
{
    plait_ffi_metadata_t metadata = {.struct_size = 36, .traits = 9};
    plait_ffi_metadata_ext_t ext = {{.struct_size = 24, .type = PLAIT_FFI_EXT_METADATA},
                                    &metadata};
    call_t c;

    call_init(&c);
    c.frame.extension_start = &ext.extension_base;
    CHECK(plait_ffi_cuda_allreduce(&c.frame) == NULL && metadata.traits == 0,
          "handlers communicate: no command buffers");
}

static void add_sum(call_t *c, const int64_t *id)
{
    static const int64_t sum = PLAIT_SUM;

    add_scalar(c, "comm", id);
    add_scalar(c, "reduce", &sum);
}

/* One device alone: nothing waits, not even a call that passes a token on. */
static void check_alone(void)
{
    plait_device_t *device = devices[0];
    const float token = 4.5F;
    double x[N];
    int64_t id = 0;
    call_t c;

    for (int i = 0; i < N; i++) {
        x[i] = i;
    }
    void *from = array_of(device, x, sizeof(x));
    void *token_in = array_of(device, &token, sizeof(token));
    void *to = check_device_alloc(device, sizeof(x));
    void *token_out = check_device_alloc(device, sizeof(token));
    CHECK(plait_registry_add_self("test_device_ffi.c", &id) == PLAIT_OK, "self");
    call_init(&c);
    add_buffer(&c, 0, PLAIT_F64, N, from);
    add_buffer(&c, 0, PLAIT_F32, 1, token_in);
    add_buffer(&c, 1, PLAIT_F64, N, to);
    add_buffer(&c, 1, PLAIT_F32, 1, token_out);
    add_sum(&c, &id);
    use(0);
    CHECK(plait_ffi_cuda_allreduce(&c.frame) == NULL, "%s", message);
    CHECK(check_device_counts(device).n_waits == 0, "the host has waited");
    check_device_drain(device);
    CHECK(memcmp(check_device_view(device, to), x, sizeof(x)) == 0, "allreduce");
    CHECK(memcmp(check_device_view(device, token_out), &token, sizeof(token)) == 0,
          "token");

    my_stream = NULL;
    CHECK(plait_ffi_cuda_allreduce(&c.frame) != NULL &&
              strcmp(message, "no stream") == 0,
          "%s", message);
    my_stream = check_device_stream(device);
    plait_ffi_api_t older = api;
    older.struct_size = 152;
    c.frame.api = &older;
    CHECK(plait_ffi_cuda_allreduce(&c.frame) != NULL &&
              strstr(message, "does not tell devices apart") != NULL,
          "%s", message);
    c.frame.api = &api;
    plait_device_set_finder(NULL);
    CHECK(!plait_device_is_there() && plait_ffi_cuda_allreduce(&c.frame) != NULL &&
              code == PLAIT_FFI_CODE_UNIMPLEMENTED &&
              strstr(message, "device 0 cannot be used: set PLAIT_CUDA=1") != NULL,
          "%s", message);
    plait_device_set_finder(find);
    c.frame.attrs.size = 1;
    CHECK(plait_ffi_cuda_allreduce(&c.frame) != NULL &&
              strstr(message, "reduce is missing") != NULL,
          "%s", message);
    CHECK(plait_registry_free(id) == PLAIT_OK, "free");
    check_device_free(device, from);
    check_device_free(device, token_in);
    check_device_free(device, to);
    check_device_free(device, token_out);
}

/* A whole array of one device: one call of its library. */
static void check_fft(void)
{
    const int64_t words[] = {1, 8, 1, 1, 0, 0, 0, 0};
    const int64_t axis = 0;
    const int64_t forward = -1;
    const double one = 1;
    const double none = 0;
    plait_device_t *device = devices[0];
    double x[16] = {1}; /* a peak: all of its transform is 1 */
    int64_t id = 0;
    int64_t n_wrong = 0;
    call_t c;

    void *from = array_of(device, x, sizeof(x));
    void *to = check_device_alloc(device, sizeof(x));
    CHECK(plait_registry_add_self("test_device_ffi.c", &id) == PLAIT_OK, "self");
    call_init(&c);
    add_buffer(&c, 0, PLAIT_C128, 8, from);
    add_buffer(&c, 1, PLAIT_C128, 8, to);
    add_array(&c, "axes", &axis, 1);
    add_scalar(&c, "comm", &id);
    add_double(&c, "edge_in", &one);
    add_double(&c, "edge_out", &one);
    add_array(&c, "from", words, 8);
    add_double(&c, "scale", &one);
    add_scalar(&c, "sign", &forward);
    add_array(&c, "to", words, 8);
    add_array(&c, "waves", NULL, 0);
    add_double(&c, "weight", &none);
    use(0);
    const int64_t n_before = check_device_counts(device).n_waits;
    CHECK(plait_ffi_cuda_fft(&c.frame) == NULL, "%s", message);
    CHECK(my_memory.n_calls == 1 && my_memory.memory == NULL, "work memory is XLA's");
    CHECK(check_device_counts(device).n_waits == n_before, "the host has waited");
    check_device_drain(device);
    const double *y = check_device_view(device, to);
    for (int i = 0; i < 16; i++) {
        double want = (i % 2 == 0) ? 1 : 0;
        n_wrong += !(y[i] - want < 1e-15 && want - y[i] < 1e-15);
    }
    CHECK(n_wrong == 0, "fft: %lld wrong", (long long)n_wrong);
    CHECK(plait_registry_free(id) == PLAIT_OK, "free");
    check_device_free(device, from);
    check_device_free(device, to);
}

typedef struct {
    int64_t id;
    int ordinal;
} rank_t;

/* An operation of another program on the same communicator, in host memory, has its own plan. */
static void *rank_main(void *argument)
{
    const rank_t *rank = argument;
    plait_device_t *device = devices[rank->ordinal];
    double x[N];
    double want[N];
    call_t c;

    for (int i = 0; i < N; i++) {
        x[i] = i + rank->ordinal;
        want[i] = 2 * i + 1;
    }
    use(rank->ordinal);
    void *y = array_of(device, x, sizeof(x)); /* donated */
    call_init(&c);
    add_buffer(&c, 0, PLAIT_F64, N, y);
    add_buffer(&c, 1, PLAIT_F64, N, y);
    add_sum(&c, &rank->id);
    CHECK(plait_ffi_cuda_allreduce(&c.frame) == NULL, "%s", message);
    check_device_drain(device);
    CHECK(memcmp(check_device_view(device, y), want, sizeof(want)) == 0, "device %d",
          rank->ordinal);
    CHECK(my_memory.n_calls == 1 && my_memory.memory == NULL,
          "work memory is XLA's, and is given back");
    n_destroyed = 0;
    const bool is_short = rank->ordinal == 0;
    my_memory.take = is_short ? NULL : lend;
    CHECK(plait_ffi_cuda_allreduce(&c.frame) != NULL, "one has no memory");
    CHECK(strstr(message, is_short ? "of device memory to work in: out of memory"
                                   : "rank 0") != NULL &&
              n_destroyed == is_short,
          "%s", message);
    CHECK(code ==
              (is_short ? PLAIT_FFI_CODE_RESOURCE_EXHAUSTED : PLAIT_FFI_CODE_ABORTED),
          "%d: %s", code, message);
    check_device_drain(device);
    use(rank->ordinal);
    check_device_free(device, y);
    call_init(&c);
    add_scalar(&c, "comm", &rank->id);
    CHECK(plait_ffi_cuda_barrier(&c.frame) == NULL, "barrier: %s", message);
    call_init(&c);
    add_buffer(&c, 0, PLAIT_F64, N, x);
    add_buffer(&c, 1, PLAIT_F64, N, x);
    add_sum(&c, &rank->id);
    CHECK(is_fine(&c.frame, plait_ffi_allreduce(&c.frame)), "on the host: %s", message);
    CHECK(memcmp(x, want, sizeof(want)) == 0, "rank %d on the host", rank->ordinal);
    return NULL;
}

static void check_ranks(void)
{
    const int32_t ordinals[N_DEVICES] = {0, 1};
    pthread_t threads[N_DEVICES];
    rank_t ranks[N_DEVICES];
    int64_t id = 0;

    CHECK(plait_registry_add_local(N_DEVICES, ordinals, "test_device_ffi.c", &id) ==
              PLAIT_OK,
          "local");
    for (int d = 0; d < N_DEVICES; d++) {
        ranks[d] = (rank_t){.id = id, .ordinal = d};
        (void)pthread_create(&threads[d], NULL, rank_main, &ranks[d]);
    }
    for (int d = 0; d < N_DEVICES; d++) {
        (void)pthread_join(threads[d], NULL);
    }
    CHECK(plait_registry_free(id) == PLAIT_OK, "free");
}

int main(void)
{
    devices_begin(N_DEVICES);
    CHECK(plait_device_is_there(), "there");
    check_query();
    check_alone();
    check_fft();
    check_ranks();
    devices_end(N_DEVICES);
    /* A page of the registry and the three entries with their labels stay for ever. */
    CHECK(plait_alloc_balance() == 1 + 3, "balance %lld",
          (long long)plait_alloc_balance());
    printf("test_device_ffi: %d checks, %d failed\n", n_checked, n_failed);
    return n_failed != 0;
}
