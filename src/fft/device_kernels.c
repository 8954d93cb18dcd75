#include "fft/device_kernels.h"

#include "base/status.h"
#include "plan/exec.h"

#include <inttypes.h>

static const plait_device_table_t *table_of(const plait_exec_t *exec)
{
    return exec->device->device->table;
}

/* ------------------------------------------------------------------ the library's call */

int64_t plait_fft_call_count(const plait_fft_call_t *call)
{
    int64_t n_calls = 1;

    for (int d = 0; d < call->n_loops; d++) {
        n_calls *= call->count[d];
    }
    return n_calls;
}

static bool next(const plait_fft_call_t *call, int64_t index[])
{
    for (int d = call->n_loops - 1; d >= 0; d--) {
        index[d]++;
        if (index[d] < call->count[d]) {
            return true;
        }
        index[d] = 0;
    }
    return false;
}

static plait_status_t call_all(const plait_fft_call_t *call, plait_exec_t *exec,
                               const char *from, char *to)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_run_t *run = exec->device;
    int64_t index[PLAIT_MAX_NDIM] = {0};

    do {
        const char *src = from;
        char *dst = to;
        for (int d = 0; d < call->n_loops; d++) {
            src += index[d] * call->src_stride[d] * call->src_bytes;
            dst += index[d] * call->dst_stride[d] * call->dst_bytes;
        }
        PLAIT_TRY(table_of(exec)->fft(run->device, run->stream, &call->fft, src, dst,
                                      exec->scratch));
    } while (next(call, index));
done:
    return status;
}

static plait_status_t copy(const plait_fft_call_t *call, plait_exec_t *exec,
                           const plait_box_copy_t *box, const char *src, char *dst)
{
    const plait_device_run_t *run = exec->device;
    const plait_device_box_t boxes = {
        .kind = PLAIT_DEVICE_COPY, .src = src, .dst = dst, .box = *box};

    return table_of(exec)->boxes(run->device, run->stream, call->fft.dtype, 1, &boxes);
}

static plait_status_t call_run(const void *params, plait_exec_t *exec)
{
    plait_status_t status = PLAIT_OK;
    const plait_fft_call_t *call = params;
    char *scratch = exec->scratch + call->scratch_at;
    const char *src = exec->slot[call->src_slot];
    char *dst = exec->slot[call->dst_slot];

    if (call->is_from_scratch) {
        PLAIT_TRY(copy(call, exec, &call->bring, src, scratch));
    }
    PLAIT_TRY(call_all(call, exec, call->is_from_scratch ? scratch : src,
                       call->is_to_scratch ? scratch : dst));
    if (call->is_to_scratch) {
        PLAIT_TRY(copy(call, exec, &call->take, scratch, dst));
    }
done:
    return status;
}

static void call_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_fft_call_t *call = params;

    touch(context, false, call->rank, call->src_slot, 0, &call->src);
    if (call->fft.kind == PLAIT_DEVICE_FFT_C2R) {
        touch(context, true, call->rank, call->src_slot, 0, &call->src);
    }
    touch(context, true, call->rank, call->dst_slot, 0, &call->dst);
}

static void call_print(const void *params, FILE *file)
{
    static const char *const names[] = {
        [PLAIT_DEVICE_FFT_C2C] = "complex",
        [PLAIT_DEVICE_FFT_R2C] = "from real",
        [PLAIT_DEVICE_FFT_C2R] = "to real",
    };
    const plait_fft_call_t *call = params;

    (void)fprintf(file, "%" PRId64 " of %" PRId64 " transforms of %" PRId64,
                  plait_fft_call_count(call), call->fft.n_batch, call->fft.n[0]);
    for (int a = 1; a < call->fft.ndim; a++) {
        (void)fprintf(file, " x %" PRId64, call->fft.n[a]);
    }
    (void)fprintf(file, ", %s%s (%" PRId64 " bytes)", names[call->fft.kind],
                  (call->n_scratch > 0) ? ", by way of scratch" : "",
                  plait_box_bytes(&call->dst));
}

const plait_kernel_t plait_fft_call_kernel = {
    .name = "fft",
    .run_device = call_run,
    .touch = call_touch,
    .print = call_print,
};

/* ------------------------------------------------------------------ weights */

/* Copies the array to scratch, multiplies the copy by a factor, and brings boxes back to where they were. */
static plait_status_t scale_boxes(const plait_fft_weight_t *w, plait_exec_t *exec,
                                  double factor, int64_t offset,
                                  const plait_box_copy_t *part)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_run_t *run = exec->device;
    const plait_device_table_t *table = table_of(exec);
    char *x = exec->slot[w->slot];
    const plait_device_box_t out = {.kind = PLAIT_DEVICE_COPY,
                                    .src = x,
                                    .dst = exec->scratch,
                                    .box = {.row_bytes = w->n * w->item_bytes}};
    const plait_device_box_t back = {.kind = PLAIT_DEVICE_COPY,
                                     .src = exec->scratch + offset,
                                     .dst = x + offset,
                                     .box = *part};

    PLAIT_TRY(table->boxes(run->device, run->stream, w->dtype, 1, &out));
    PLAIT_TRY(
        table->scale(run->device, run->stream, w->dtype, w->n, factor, exec->scratch));
    PLAIT_TRY(table->boxes(run->device, run->stream, w->dtype, 1, &back));
done:
    return status;
}

static plait_status_t weight_run(const void *params, plait_exec_t *exec)
{
    plait_status_t status = PLAIT_OK;
    const plait_fft_weight_t *w = params;
    const plait_box_copy_t imaginary = {.n_dims = 1,
                                        .count = {w->n},
                                        .src_stride = {w->item_bytes},
                                        .dst_stride = {w->item_bytes},
                                        .row_bytes = w->item_bytes / 2};

    if (w->weight != 1) {
        PLAIT_TRY(scale_boxes(w, exec, w->weight, w->middle, &w->part));
    }
    if (w->conjugates) {
        PLAIT_TRY(scale_boxes(w, exec, -1, w->item_bytes / 2, &imaginary));
    }
done:
    return status;
}

static void weight_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_fft_weight_t *w = params;

    touch(context, false, w->rank, w->slot, 0, &w->all);
    touch(context, true, w->rank, w->slot, 0, &w->all);
}

static void weight_print(const void *params, FILE *file)
{
    const plait_fft_weight_t *w = params;

    (void)fprintf(file, "times %g%s (%" PRId64 " bytes)", w->weight,
                  w->conjugates ? ", conjugated" : "", w->n * w->item_bytes);
}

const plait_kernel_t plait_fft_weight_kernel = {
    .name = "weight",
    .run_device = weight_run,
    .touch = weight_touch,
    .print = weight_print,
};

/* ------------------------------------------------------------------ the scale */

static plait_status_t scale_run(const void *params, plait_exec_t *exec)
{
    const plait_fft_scale_t *s = params;
    const plait_device_run_t *run = exec->device;

    return table_of(exec)->scale(run->device, run->stream, s->dtype, s->n, s->factor,
                                 exec->slot[s->slot]);
}

static void scale_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_fft_scale_t *s = params;

    touch(context, false, s->rank, s->slot, 0, &s->all);
    touch(context, true, s->rank, s->slot, 0, &s->all);
}

static void scale_print(const void *params, FILE *file)
{
    const plait_fft_scale_t *s = params;

    (void)fprintf(file, "times %g (%" PRId64 " %s)", s->factor, s->n,
                  plait_dtype_name(s->dtype));
}

const plait_kernel_t plait_fft_scale_kernel = {
    .name = "scale",
    .run_device = scale_run,
    .touch = scale_touch,
    .print = scale_print,
};
