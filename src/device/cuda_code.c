#include "device/cuda_code.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/status.h"
#include "device/cuda_cache.h"
#include "device/cuda_load.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { ARCH_BYTES = 48, MAX_ARCHS = 64, LOG_BYTES = 1024 };

/* Fused multiply-add would round a complex product differently from the host's. */
static const char *const options[] = {"--std=c++17", "--fmad=false"};

enum { N_OPTIONS = sizeof(options) / sizeof(options[0]) };

typedef struct {
    const plait_cuda_t *cuda;
    char arch[ARCH_BYTES]; /* the option for the architecture */
    bool is_ptx;
} target_t;

static plait_status_t must(const plait_cuda_t *cuda, int result, const char *what)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(result == 0, PLAIT_ERR_INTERNAL, "NVRTC: %s: %s", what,
                cuda->nvrtcGetErrorString(result));
done:
    return status;
}

/* NVRTC opens the library of its built-in functions by name alone. The loader does not find that library if
 * NVRTC was opened by its path, so this opens it by its path. */
static void open_builtins(int major, int minor)
{
    char path[PATH_MAX];
    const char *nvrtc = plait_cuda_path(PLAIT_CUDA_NVRTC);
    const char *end = strrchr(nvrtc, '/');
    int n = (end == NULL)
                ? -1
                : snprintf(path, sizeof(path), "%.*s/libnvrtc-builtins.so.%d.%d",
                           (int)(end - nvrtc), nvrtc, major, minor);

    if (n > 0 && n < PATH_MAX) {
        (void)dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
}

/* A driver may be older than NVRTC and refuse its PTX, but it runs machine code of its own major version. So
 * PTX is only for devices that NVRTC does not know. */
static plait_status_t choose_target(int capability, target_t *target)
{
    plait_status_t status = PLAIT_OK;
    int archs[MAX_ARCHS] = {0}, n_archs = 0, best = 0;

    PLAIT_TRY(must(target->cuda, target->cuda->nvrtcGetNumSupportedArchs(&n_archs),
                   "number of kinds of devices"));
    PLAIT_CHECK(n_archs <= MAX_ARCHS, PLAIT_ERR_INTERNAL, "NVRTC: %d kinds of devices",
                n_archs);
    PLAIT_TRY(must(target->cuda, target->cuda->nvrtcGetSupportedArchs(archs),
                   "kinds of devices"));
    for (int i = 0; i < n_archs; i++) {
        best = (archs[i] <= capability && archs[i] > best) ? archs[i] : best;
    }
    PLAIT_CHECK(
        best > 0, PLAIT_ERR_UNSUPPORTED,
        "%s does not compile for this device: its compute capability is %d.%d, and "
        "%d.%d is the least",
        plait_cuda_path(PLAIT_CUDA_NVRTC), capability / 10, capability % 10,
        archs[0] / 10, archs[0] % 10);
    target->is_ptx = best != capability;
    (void)snprintf(target->arch, ARCH_BYTES, "--gpu-architecture=%s_%d",
                   target->is_ptx ? "compute" : "sm", best);
done:
    return status;
}

static uint64_t key_of(const target_t *target, int major, int minor)
{
    const char *source = (const char *)plait_cuda_source;
    uint64_t key = plait_hash_bytes(PLAIT_HASH_SEED, source, strlen(source));

    for (int i = 0; i < N_OPTIONS; i++) {
        key = plait_hash_bytes(key, options[i], strlen(options[i]));
    }
    key = plait_hash_bytes(key, target->arch, strlen(target->arch));
    return plait_hash_word(key, (uint64_t)major << 32 | (uint64_t)minor);
}

/* Puts the head of the compiler's log before the error text. */
static void add_log(const plait_cuda_t *cuda, plait_nvrtc_program_t program)
{
    size_t n = 0;
    char *log = NULL;

    if (cuda->nvrtcGetProgramLogSize(program, &n) == 0 && n > 0) {
        log = plait_alloc((int64_t)n + 1, 1);
    }
    if (log != NULL && cuda->nvrtcGetProgramLog(program, log) == 0) {
        plait_error_prefix("%.*s\n", LOG_BYTES, log);
    }
    plait_free(log);
}

static plait_status_t take_image(const target_t *target, plait_nvrtc_program_t program,
                                 void **image_p, int64_t *n_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *cuda = target->cuda;
    size_t n = 0;
    char *image = NULL;

    PLAIT_TRY(must(cuda,
                   target->is_ptx ? cuda->nvrtcGetPTXSize(program, &n)
                                  : cuda->nvrtcGetCUBINSize(program, &n),
                   "size of the code"));
    PLAIT_CHECK(n > 0, PLAIT_ERR_INTERNAL, "NVRTC: no code for %s", target->arch);
    image = plait_alloc((int64_t)n, 1);
    PLAIT_CHECK(image != NULL, PLAIT_ERR_NO_MEMORY, "no memory for %zu bytes of code",
                n);
    PLAIT_TRY(must(cuda,
                   target->is_ptx ? cuda->nvrtcGetPTX(program, image)
                                  : cuda->nvrtcGetCUBIN(program, image),
                   "code"));
    *image_p = image;
    *n_bytes_p = (int64_t)n;
    image = NULL;
done:
    plait_free(image);
    return status;
}

static plait_status_t compile(const target_t *target, void **image_p,
                              int64_t *n_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *cuda = target->cuda;
    const char *arguments[N_OPTIONS + 1] = {target->arch};
    plait_nvrtc_program_t program = NULL;

    memcpy(arguments + 1, options, sizeof(options));
    PLAIT_TRY(must(cuda,
                   cuda->nvrtcCreateProgram(&program, (const char *)plait_cuda_source,
                                            "plait.cu", 0, NULL, NULL),
                   "program"));
    status = must(cuda, cuda->nvrtcCompileProgram(program, N_OPTIONS + 1, arguments),
                  target->arch);
    if (status != PLAIT_OK) {
        add_log(cuda, program);
        goto done;
    }
    PLAIT_TRY(take_image(target, program, image_p, n_bytes_p));
done:
    if (program != NULL) {
        (void)cuda->nvrtcDestroyProgram(&program);
    }
    return status;
}

plait_status_t plait_cuda_code(int capability, void **image_p, int64_t *n_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    target_t target = {.cuda = NULL};
    int major = 0, minor = 0;

    PLAIT_TRY(plait_cuda_require(PLAIT_CUDA_NVRTC, &target.cuda));
    PLAIT_TRY(must(target.cuda, target.cuda->nvrtcVersion(&major, &minor), "version"));
    PLAIT_TRY(choose_target(capability, &target));
    uint64_t key = key_of(&target, major, minor);

    if (!plait_cuda_cache_read(key, image_p, n_bytes_p)) {
        plait_log(PLAIT_LOG_INFO, "cuda: compiling the kernels, %s", target.arch);
        open_builtins(major, minor);
        PLAIT_TRY(compile(&target, image_p, n_bytes_p));
        plait_cuda_cache_write(key, *image_p, *n_bytes_p);
    }
done:
    return status;
}
