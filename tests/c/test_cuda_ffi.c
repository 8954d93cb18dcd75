/* With PLAIT_CUDA=1 the handlers find CUDA's devices by themselves. Without devices the error says what was
 * looked for. With stand-ins of driver and libraries a call goes all the way. */
#include "comm/registry.h"
#include "device/find.h"
#include "fakes.h"
#include "frames.h"

plait_ffi_error_t *plait_ffi_cuda_allreduce(plait_ffi_frame_t *frame);

enum { N = 1000 };

typedef struct {
    call_t call;
    int64_t id, sum;
    float x[N], y[N];
} alone_t;

static void alone_init(alone_t *a)
{
    *a = (alone_t){.sum = PLAIT_SUM};
    for (int i = 0; i < N; i++) {
        a->x[i] = (float)i;
    }
    CHECK(plait_registry_add_self("test_cuda_ffi.c", &a->id) == PLAIT_OK, "self");
    call_init(&a->call);
    add_buffer(&a->call, 0, PLAIT_F32, N, a->x);
    add_buffer(&a->call, 1, PLAIT_F32, N, a->y);
    add_scalar(&a->call, "comm", &a->id);
    add_scalar(&a->call, "reduce", &a->sum);
    my_ordinal = 0;
    my_stream = a; /* not looked at by the stand-in, which does everything at once */
}

static void check_absent(alone_t *a)
{
    look_in(folder_of("empty"));
    CHECK(plait_ffi_cuda_allreduce(&a->call.frame) != NULL &&
              code == PLAIT_FFI_CODE_UNIMPLEMENTED,
          "there is no NVRTC in an empty folder");
    CHECK(strstr(message, "plait.Error: ") == message &&
              strstr(message, "was not found:\n") != NULL,
          "%s", message);
    CHECK(plait_device_ready(0) == PLAIT_ERR_UNSUPPORTED, "ready");
}

static void check_present(alone_t *a)
{
    look_in(FAKES_DIR);
    CHECK(plait_device_ready(0) == PLAIT_OK, "%s", plait_error_text());
    CHECK(plait_ffi_cuda_allreduce(&a->call.frame) == NULL, "%s", message);
    CHECK(memcmp(a->x, a->y, sizeof(a->x)) == 0, "allreduce");
    my_ordinal = 7;
    CHECK(plait_ffi_cuda_allreduce(&a->call.frame) != NULL &&
              strstr(message, "there is no CUDA device 7: this process has 1") != NULL,
          "%s", message);
}

int main(void)
{
    alone_t a;

    setenv("PLAIT_CUDA", "1", 1);
    setenv("PLAIT_CUDA_CACHE", "0", 1);
    CHECK(plait_device_is_there(), "PLAIT_CUDA=1");
    alone_init(&a);
    check_absent(&a);
    check_present(&a);
    CHECK(plait_registry_free(a.id) == PLAIT_OK, "free");
    look_in(NULL);
    remove_fakes();
    printf("test_cuda_ffi: %d checks, %d failed\n", n_checked, n_failed);
    return n_failed != 0;
}
