/* Transforms by cuFFT. Planning makes a cuFFT plan for each description and keeps it. If there are many, only
 * those used last are kept, since each has device memory. The others are destroyed, and made again when they
 * are needed. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"
#include "device/cuda_state.h"

#include <stdbool.h>

enum { MAX_NDIM = 3, MOST_PLANS = 64 };

struct plait_cuda_fft {
    plait_device_fft_t what;
    plait_cufft_t plan;
    bool is_made;
    int64_t n_uses; /* the device's count at this plan's last use */
    int64_t work_bytes;
    plait_cuda_fft_t *next;
};

/* Some of the names in cufft.h. */
static const char *const names[] = {
    "success",          "invalid plan",          "allocation failed",
    "invalid type",     "invalid value",         "internal error",
    "execution failed", "setup failed",          "invalid size",
    "unaligned data",   "incomplete parameters", "invalid device",
    "parse error",      "no workspace",          "not implemented",
    "license error",    "not supported",         "missing dependency",
    "NVRTC failure",    "nvJitLink failure",     "NVSHMEM failure"};
static const plait_cuda_results_t results = {.library = "cuFFT",
                                             .names = names,
                                             .n_names =
                                                 sizeof(names) / sizeof(names[0]),
                                             .no_memory = 2,
                                             .unsupported = {14, 16}};

static plait_status_t must(const plait_cuda_state_t *state, int result,
                           const char *what)
{
    return plait_cuda_library_must(&state->device, &results, result, what);
}

static bool is_same(const plait_device_fft_t *a, const plait_device_fft_t *b)
{
    bool is_equal = a->kind == b->kind && a->dtype == b->dtype && a->ndim == b->ndim &&
                    a->in_stride == b->in_stride && a->in_distance == b->in_distance &&
                    a->out_stride == b->out_stride &&
                    a->out_distance == b->out_distance && a->n_batch == b->n_batch;

    for (int d = 0; is_equal && d < a->ndim; d++) {
        is_equal = a->n[d] == b->n[d] && a->in_embed[d] == b->in_embed[d] &&
                   a->out_embed[d] == b->out_embed[d];
    }
    return is_equal; /* one plan serves both signs */
}

static plait_cuda_fft_t *find(const plait_cuda_state_t *state,
                              const plait_device_fft_t *fft)
{
    plait_cuda_fft_t *f = state->ffts;

    while (f != NULL && !is_same(&f->what, fft)) {
        f = f->next;
    }
    return f;
}

static int type_of(const plait_device_fft_t *fft)
{
    bool is_double = fft->dtype == PLAIT_C128;

    return (fft->kind == PLAIT_DEVICE_FFT_R2C)
               ? (is_double ? PLAIT_CUFFT_D2Z : PLAIT_CUFFT_R2C)
           : (fft->kind == PLAIT_DEVICE_FFT_C2R)
               ? (is_double ? PLAIT_CUFFT_Z2D : PLAIT_CUFFT_C2R)
               : (is_double ? PLAIT_CUFFT_Z2Z : PLAIT_CUFFT_C2C);
}

static plait_status_t check(const plait_device_fft_t *fft)
{
    plait_status_t status = PLAIT_OK;
    bool is_forward = fft->kind == PLAIT_DEVICE_FFT_R2C;
    bool is_backward = fft->kind == PLAIT_DEVICE_FFT_C2R;

    PLAIT_CHECK(fft->dtype == PLAIT_C64 || fft->dtype == PLAIT_C128, PLAIT_ERR_INVALID,
                "CUDA: a transform of %s", plait_dtype_name(fft->dtype));
    PLAIT_CHECK(fft->ndim >= 1 && fft->ndim <= MAX_NDIM && fft->n_batch >= 1,
                PLAIT_ERR_INVALID, "CUDA: %lld transforms of %d dimensions",
                (long long)fft->n_batch, fft->ndim);
    PLAIT_CHECK((fft->sign == 1 && !is_forward) || (fft->sign == -1 && !is_backward),
                PLAIT_ERR_UNSUPPORTED,
                "CUDA: cuFFT has no such sign (%d) from or to real numbers", fft->sign);
done:
    return status;
}

static plait_status_t make(plait_cuda_state_t *state, const plait_device_fft_t *fft,
                           plait_cuda_fft_t *f)
{
    plait_status_t status = PLAIT_OK;
    long long n[MAX_NDIM], in_embed[MAX_NDIM], out_embed[MAX_NDIM];
    size_t n_work = 0;

    for (int d = 0; d < fft->ndim; d++) {
        n[d] = fft->n[d];
        in_embed[d] = fft->in_embed[d];
        out_embed[d] = fft->out_embed[d];
    }
    PLAIT_TRY(must(state, state->cuda->cufftSetAutoAllocation(f->plan, 0),
                   "work memory of plait's own"));
    PLAIT_TRY(must(state,
                   state->cuda->cufftMakePlanMany64(
                       f->plan, fft->ndim, n, in_embed, fft->in_stride,
                       fft->in_distance, out_embed, fft->out_stride, fft->out_distance,
                       type_of(fft), fft->n_batch, &n_work),
                   "making a plan"));
    f->what = *fft;
    f->work_bytes = (int64_t)n_work;
done:
    return status;
}

static plait_status_t make_again(plait_cuda_state_t *state, plait_cuda_fft_t *f)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(must(state, state->cuda->cufftCreate(&f->plan), "making a plan"));
    status = make(state, &f->what, f);
    f->is_made = status == PLAIT_OK;
    if (!f->is_made) {
        (void)state->cuda->cufftDestroy(f->plan);
    }
done:
    return status;
}

static plait_status_t create(plait_cuda_state_t *state, const plait_device_fft_t *fft,
                             plait_cuda_fft_t **fft_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *cuda = NULL;
    plait_cuda_fft_t *f = NULL;

    PLAIT_TRY(plait_cuda_require(PLAIT_CUDA_CUFFT, &cuda));
    f = plait_alloc(1, sizeof(*f));
    PLAIT_CHECK(f != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a plan");
    f->what = *fft;
    PLAIT_TRY(make_again(state, f));
    f->next = state->ffts;
    state->ffts = f;
    *fft_p = f;
    f = NULL;
done:
    plait_free(f);
    return status;
}

static int count_made(const plait_cuda_state_t *state, plait_cuda_fft_t **oldest_p)
{
    int n = 0;

    for (plait_cuda_fft_t *f = state->ffts; f != NULL; f = f->next) {
        bool is_older = f->is_made && (n == 0 || f->n_uses < (*oldest_p)->n_uses);
        *oldest_p = is_older ? f : *oldest_p;
        n += f->is_made;
    }
    return n;
}

/* Called while planning, when all enqueued work can end by itself. After waiting for it, no plan is in use. */
static void thin(plait_cuda_state_t *state)
{
    plait_cuda_fft_t *oldest = NULL;
    int n = count_made(state, &oldest);

    if (n > MOST_PLANS && state->cuda->cuCtxSynchronize() == 0) {
        while (n > MOST_PLANS / 2) {
            (void)state->cuda->cufftDestroy(oldest->plan);
            oldest->is_made = false;
            n = count_made(state, &oldest);
        }
    }
}

plait_status_t plait_cuda_fft_plan(plait_device_t *device,
                                   const plait_device_fft_t *fft, int64_t *work_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_state_t *state = plait_cuda_state(device);
    plait_cuda_fft_t *f = NULL;

    (void)pthread_mutex_lock(&state->lock);
    PLAIT_TRY(check(fft));
    f = find(state, fft);
    if (f == NULL) {
        PLAIT_TRY(create(state, fft, &f));
    }
    f->n_uses = ++state->n_fft_uses;
    *work_bytes_p = f->work_bytes;
    thin(state);
done:
    (void)pthread_mutex_unlock(&state->lock);
    return status;
}

/* Stream and work area belong to the plan, so only one thread at a time may set them and enqueue. */
static plait_status_t enqueue(plait_cuda_state_t *state, plait_stream_t stream,
                              const plait_cuda_fft_t *f, int sign, const void *in,
                              void *out, void *work)
{
    plait_status_t status = PLAIT_OK;
    const plait_cuda_t *cuda = state->cuda;

    PLAIT_TRY(must(state, cuda->cufftSetStream(f->plan, stream), "setting the stream"));
    if (f->work_bytes > 0) {
        PLAIT_TRY(must(state, cuda->cufftSetWorkArea(f->plan, work),
                       "setting the work area"));
    }
    PLAIT_TRY(must(state, cuda->cufftXtExec(f->plan, (void *)(uintptr_t)in, out, sign),
                   "a transform"));
done:
    return status;
}

plait_status_t plait_cuda_fft(plait_device_t *device, plait_stream_t stream,
                              const plait_device_fft_t *fft, const void *in, void *out,
                              void *work)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_state_t *state = plait_cuda_state(device);
    plait_cuda_fft_t *f = NULL;

    (void)pthread_mutex_lock(&state->lock);
    f = find(state, fft);
    PLAIT_CHECK(f != NULL, PLAIT_ERR_INTERNAL,
                "CUDA: a transform that was not planned");
    PLAIT_CHECK(work != NULL || f->work_bytes == 0, PLAIT_ERR_INTERNAL,
                "CUDA: a transform without its work memory");
    if (!f->is_made) {
        PLAIT_TRY(make_again(state, f));
    }
    f->n_uses = ++state->n_fft_uses;
    PLAIT_TRY(enqueue(state, stream, f, fft->sign, in, out, work));
done:
    (void)pthread_mutex_unlock(&state->lock);
    return status;
}

void plait_cuda_ffts_release(plait_cuda_state_t *state)
{
    while (state->ffts != NULL) {
        plait_cuda_fft_t *f = state->ffts;

        state->ffts = f->next;
        if (f->is_made) {
            (void)state->cuda->cufftDestroy(f->plan);
        }
        plait_free(f);
    }
}
