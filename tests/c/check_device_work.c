#include "base/alloc.h"
#include "base/status.h"
#include "check_device_parts.h"
#include "check_device_state.h"
#include "dft.h"
#include "kernel/reduce.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* Copies up to this size are done as soon as possible. */
enum { PIECES_MAX = 64, SMALL_BYTES = 32 << 10 };

/* ------------------------------------------------------------------ bytes */

typedef struct {
    char *to;
    const char *from;
    int64_t n_bytes;
} copy_t;

/* After a wait has failed, host memory is given back (and overwritten) while its copy goes on. */
static void run_copy(plait_device_t *device, void *argument)
{
    const copy_t *copy = argument;

    lock(device);
    memcpy(copy->to, copy->from, (size_t)copy->n_bytes);
    unlock(device);
}

/* Sleeps for longer than unordered work, or a message, can be late itself. */
static void run_rise(plait_device_t *device, void *argument)
{
    const copy_t *copy = argument;
    const struct timespec nap = {.tv_nsec = 300000};

    if (copy->n_bytes > SMALL_BYTES) {
        (void)nanosleep(&nap, NULL);
    }
    run_copy(device, argument);
}

plait_status_t check_device_to_host(plait_device_t *device, plait_stream_t stream,
                                    void *host, const void *src, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    const copy_t copy = {host, check_device_view(device, src), n_bytes};

    PLAIT_TRY(check_device_count_call(device, "to_host"));
    check_device_need_live(device, "to_host", src, n_bytes);
    check_device_need_pinned(device, host, n_bytes);
    check_device_enqueue(stream, run_copy, &copy, sizeof(copy));
    check_device_count_bytes(device, n_bytes, 0, 0);
done:
    return status;
}

plait_status_t check_device_to_device(plait_device_t *device, plait_stream_t stream,
                                      void *dst, const void *host, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    const copy_t copy = {check_device_view(device, dst), host, n_bytes};

    PLAIT_TRY(check_device_count_call(device, "to_device"));
    check_device_need_live(device, "to_device", dst, n_bytes);
    check_device_need_pinned(device, host, n_bytes);
    check_device_enqueue(stream, run_rise, &copy, sizeof(copy));
    check_device_count_bytes(device, 0, n_bytes, 0);
done:
    return status;
}

static void run_arrive(plait_device_t *device, void *argument)
{
    const copy_t *copy = argument;

    run_rise(device, argument);
    free((void *)(uintptr_t)copy->from);
}

void check_device_arrive(plait_device_t *device, void *memory, const void *data,
                         int64_t n_bytes)
{
    void *kept = malloc((size_t)n_bytes + 1);
    const copy_t copy = {check_device_view(device, memory), kept, n_bytes};

    memcpy(kept, data, (size_t)n_bytes);
    check_device_enqueue(check_device_stream(device), run_arrive, &copy, sizeof(copy));
}

/* A copy from memory that may belong to another process. */
typedef struct {
    copy_t copy;
    plait_device_t *source;
    const void *src; /* as the library sees it */
} read_t;

static void run_read(plait_device_t *device, void *argument)
{
    read_t *read = argument;

    run_copy(device, &read->copy);
    check_device_end_read(read->source, read->src);
}

plait_status_t check_device_copy(plait_device_t *device, plait_stream_t stream,
                                 void *dst, plait_device_t *from, const void *src,
                                 int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *source = (from != NULL) ? from : device;
    const read_t read = {
        {check_device_view(device, dst), check_device_view(source, src), n_bytes},
        source,
        src};

    PLAIT_TRY(check_device_count_call(device, "copy"));
    check_device_need_live(device, "copy to", dst, n_bytes);
    check_device_begin_read(source, src, n_bytes);
    check_device_enqueue(stream, run_read, &read, sizeof(read));
    check_device_count_bytes(device, 0, 0, n_bytes);
done:
    return status;
}

typedef struct {
    plait_dtype_t dtype;
    plait_device_box_t box; /* with the device's addresses */
} box_work_t;

static void run_box(plait_device_t *device, void *argument)
{
    box_work_t *w = argument;
    plait_device_box_t *b = &w->box;

    (void)device;
    if (b->kind == PLAIT_DEVICE_ZERO) {
        plait_host_zero_box(&b->box, b->dst);
    } else if (b->kind == PLAIT_DEVICE_ADD) {
        plait_reduce_box(plait_reduce_find(PLAIT_SUM, w->dtype),
                         plait_dtype_bytes(w->dtype), &b->box, b->src, b->dst);
    } else {
        plait_host_copy_box(&b->box, b->src, b->dst);
    }
}

/* Checks that all bytes of one side of a box belong to the device. */
static void need_box(plait_device_t *device, const char *base, const int64_t stride[],
                     const plait_box_copy_t *box)
{
    int64_t low = 0;
    int64_t high = box->row_bytes;

    for (int d = 0; d < box->n_dims; d++) {
        int64_t span = (box->count[d] - 1) * stride[d];
        low += (span < 0) ? span : 0;
        high += (span > 0) ? span : 0;
    }
    check_device_need_live(device, "a box", base + low, high - low);
}

plait_status_t check_device_boxes(plait_device_t *device, plait_stream_t stream,
                                  plait_dtype_t dtype, int64_t n_boxes,
                                  const plait_device_box_t list[])
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_device_count_call(device, "boxes"));
    for (int64_t i = 0; i < n_boxes; i++) {
        box_work_t w = {dtype, list[i]};
        if (plait_box_bytes(&w.box.box) > 0) {
            need_box(device, w.box.dst, w.box.box.dst_stride, &w.box.box);
            w.box.dst = check_device_view(device, w.box.dst);
            if (w.box.kind != PLAIT_DEVICE_ZERO) {
                need_box(device, w.box.src, w.box.box.src_stride, &w.box.box);
                w.box.src = check_device_view(device, w.box.src);
            }
            check_device_enqueue(stream, run_box, &w, sizeof(w));
        }
    }
done:
    return status;
}

typedef struct {
    plait_reduce_t op;
    plait_dtype_t dtype;
    int64_t n;
    int n_pieces;
    const char *pieces[PIECES_MAX];
    char *dst;
} reduce_work_t;

static void run_reduce(plait_device_t *device, void *argument)
{
    const reduce_work_t *w = argument;
    plait_reduce_fn_t fn = plait_reduce_find(w->op, w->dtype);
    size_t n_bytes = (size_t)(w->n * plait_dtype_bytes(w->dtype));
    char *sum = malloc(n_bytes); /* dst may be a piece that comes later */

    (void)device;
    plait_reduce_fill(w->op, w->dtype, w->n, sum);
    for (int q = 0; q < w->n_pieces; q++) {
        if (q == 0) {
            memcpy(sum, w->pieces[0], n_bytes);
        } else {
            fn(w->n, sum, sum, w->pieces[q]);
        }
    }
    memcpy(w->dst, sum, n_bytes);
    free(sum);
}

plait_status_t check_device_reduce(plait_device_t *device, plait_stream_t stream,
                                   plait_reduce_t op, plait_dtype_t dtype, int64_t n,
                                   int n_pieces, const void *const pieces[], void *dst)
{
    plait_status_t status = PLAIT_OK;
    int64_t n_bytes = n * plait_dtype_bytes(dtype);
    reduce_work_t w = {.op = op, .dtype = dtype, .n = n, .n_pieces = n_pieces};

    PLAIT_TRY(check_device_count_call(device, "reduce"));
    PLAIT_CHECK(n_pieces <= PIECES_MAX, PLAIT_ERR_UNSUPPORTED,
                "check device: %d pieces", n_pieces);
    for (int q = 0; q < n_pieces; q++) {
        check_device_need_live(device, "a piece", pieces[q], n_bytes);
        w.pieces[q] = check_device_view(device, pieces[q]);
    }
    check_device_need_live(device, "a reduction", dst, n_bytes);
    w.dst = check_device_view(device, dst);
    check_device_enqueue(stream, run_reduce, &w, sizeof(w));
done:
    return status;
}

typedef struct {
    plait_dtype_t dtype;
    int64_t n;
    double factor;
    void *x;
} scale_work_t;

static void run_scale(plait_device_t *device, void *argument)
{
    const scale_work_t *w = argument;
    bool is_complex = w->dtype == PLAIT_C64 || w->dtype == PLAIT_C128;
    bool is_single = w->dtype == PLAIT_C64 || w->dtype == PLAIT_F32;

    (void)device;
    for (int64_t i = 0; i < w->n * (is_complex ? 2 : 1); i++) {
        if (is_single) {
            ((float *)w->x)[i] *= (float)w->factor;
        } else {
            ((double *)w->x)[i] *= w->factor;
        }
    }
}

plait_status_t check_device_scale(plait_device_t *device, plait_stream_t stream,
                                  plait_dtype_t dtype, int64_t n, double factor,
                                  void *x)
{
    plait_status_t status = PLAIT_OK;
    const scale_work_t w = {dtype, n, factor, check_device_view(device, x)};

    PLAIT_TRY(check_device_count_call(device, "scale"));
    check_device_need_live(device, "scale", x, n * plait_dtype_bytes(dtype));
    check_device_enqueue(stream, run_scale, &w, sizeof(w));
done:
    return status;
}

/* ------------------------------------------------------------------ transforms */

typedef struct {
    plait_device_fft_t fft;
    char *in, *out;
} fft_work_t;

/* One side of a transform: elements along its axes, and where they are. */
typedef struct {
    plait_dtype_t dtype;
    int ndim;
    int64_t n[3], stride[3], distance; /* elements */
} side_t;

static side_t side_of(const plait_device_fft_t *f, bool is_out)
{
    const plait_device_fft_kind_t real =
        is_out ? PLAIT_DEVICE_FFT_C2R : PLAIT_DEVICE_FFT_R2C;
    const bool is_real = f->kind == real;
    const int64_t *embed = is_out ? f->out_embed : f->in_embed;
    side_t s = {.dtype = f->dtype,
                .ndim = f->ndim,
                .distance = is_out ? f->out_distance : f->in_distance};

    if (is_real) {
        s.dtype = (f->dtype == PLAIT_C64) ? PLAIT_F32 : PLAIT_F64;
    }
    int64_t stride = is_out ? f->out_stride : f->in_stride;
    for (int a = f->ndim - 1; a >= 0; a--) {
        s.n[a] = f->n[a];
        s.stride[a] = stride;
        stride *= embed[a];
    }
    if (f->kind != PLAIT_DEVICE_FFT_C2C && !is_real) {
        s.n[f->ndim - 1] = f->n[f->ndim - 1] / 2 + 1;
    }
    return s;
}

static int64_t place_of(const side_t *s, int64_t batch, int64_t i)
{
    int64_t at = batch * s->distance;

    for (int a = s->ndim - 1; a >= 0; a--) {
        at += i % s->n[a] * s->stride[a];
        i /= s->n[a];
    }
    return at;
}

static double complex load(const side_t *s, const void *data, int64_t at)
{
    switch (s->dtype) {
    case PLAIT_F32:
        return (double)((const float *)data)[at];
    case PLAIT_F64:
        return ((const double *)data)[at];
    case PLAIT_C64:
        return (double complex)((const float complex *)data)[at];
    default:
        return ((const double complex *)data)[at];
    }
}

static void store(const side_t *s, void *data, int64_t at, double complex v)
{
    switch (s->dtype) {
    case PLAIT_F32:
        ((float *)data)[at] = (float)creal(v);
        break;
    case PLAIT_F64:
        ((double *)data)[at] = creal(v);
        break;
    case PLAIT_C64:
        ((float complex *)data)[at] = (float complex)v;
        break;
    default:
        ((double complex *)data)[at] = v;
    }
}

/* By the definition, in long double. */
static void run_fft(plait_device_t *device, void *argument)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of dft.h's roots */
    const fft_work_t *w = argument;
    const plait_device_fft_t *f = &w->fft;
    const side_t in = side_of(f, false);
    const side_t out = side_of(f, true);
    int64_t n = n_elements(f->ndim, in.n);
    int last = f->ndim - 1;
    bool to_real = f->kind == PLAIT_DEVICE_FFT_C2R;

    (void)device;
    (void)pthread_mutex_lock(&mutex);
    for (int64_t b = 0; b < f->n_batch; b++) {
        int64_t shape[3] = {in.n[0], in.n[1], in.n[2]};
        double complex *x = plait_alloc(n, sizeof(*x));
        for (int64_t i = 0; i < n; i++) {
            x[i] = load(&in, w->in, place_of(&in, b, i));
        }
        for (int a = 0; a < f->ndim - to_real; a++) {
            dft_axis(x, f->ndim, shape, a, f->sign);
        }
        if (f->kind != PLAIT_DEVICE_FFT_C2C) {
            double complex *all = x;
            x = map_lines(all, f->ndim, shape, last, out.n[last],
                          to_real ? half_to_real : keep_half, f->sign);
            plait_free(all);
        }
        for (int64_t i = 0; i < n && to_real; i++) {
            store(&in, w->in, place_of(&in, b, i), (double complex)NAN);
        }
        for (int64_t i = 0; i < n_elements(f->ndim, out.n); i++) {
            store(&out, w->out, place_of(&out, b, i), x[i]);
        }
        plait_free(x);
    }
    (void)pthread_mutex_unlock(&mutex);
}

static uint64_t hash_fft(const plait_device_fft_t *f)
{
    uint64_t hash = (uint64_t)f->kind * 64 + (uint64_t)f->dtype;
    const int64_t words[] = {f->ndim,        f->n_batch,    f->sign,
                             f->in_stride,   f->out_stride, f->in_distance,
                             f->out_distance};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        hash = (hash ^ (uint64_t)words[i]) * UINT64_C(0x9e3779b97f4a7c15);
    }
    for (int a = 0; a < f->ndim; a++) {
        hash = (hash ^ (uint64_t)f->n[a]) * UINT64_C(0x9e3779b97f4a7c15);
        hash = (hash ^ (uint64_t)f->in_embed[a]) * UINT64_C(0x9e3779b97f4a7c15);
        hash = (hash ^ (uint64_t)f->out_embed[a]) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return hash;
}

static int64_t work_bytes_of(const plait_device_fft_t *f)
{
    return 8 * f->n[0] + 24;
}

/* As in libraries: to complex numbers forward, to real numbers backward, not in place; both sides are aligned
 * for complex numbers. */
plait_status_t check_device_fft_plan(plait_device_t *device,
                                     const plait_device_fft_t *fft,
                                     int64_t *work_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    int sign = (fft->kind == PLAIT_DEVICE_FFT_R2C)   ? -1
               : (fft->kind == PLAIT_DEVICE_FFT_C2R) ? 1
                                                     : fft->sign;

    PLAIT_TRY(check_device_count_call(device, "fft_plan"));
    PLAIT_CHECK(sign == fft->sign, PLAIT_ERR_UNSUPPORTED, "check device: sign %d",
                fft->sign);
    (void)check_device_mark(device, hash_fft(fft));
    *work_bytes_p = work_bytes_of(fft);
done:
    return status;
}

plait_status_t check_device_fft(plait_device_t *device, plait_stream_t stream,
                                const plait_device_fft_t *fft, const void *in,
                                void *out, void *work)
{
    plait_status_t status = PLAIT_OK;
    const fft_work_t w = {*fft, check_device_view(device, in),
                          check_device_view(device, out)};
    const side_t from = side_of(fft, false);
    const side_t to = side_of(fft, true);
    int64_t n_in = place_of(&from, fft->n_batch - 1, n_elements(from.ndim, from.n) - 1);
    int64_t n_out = place_of(&to, fft->n_batch - 1, n_elements(to.ndim, to.n) - 1);

    PLAIT_TRY(check_device_count_call(device, "fft"));
    if (!check_device_mark(device, hash_fft(fft))) {
        check_device_fault(device, "fft without fft_plan");
    }
    if (((uintptr_t)in | (uintptr_t)out) % (uintptr_t)plait_dtype_bytes(fft->dtype) !=
        0) {
        check_device_fault(device, "fft from or to where no complex number may begin");
    }
    check_device_need_live(device, "fft in", in,
                           (n_in + 1) * plait_dtype_bytes(from.dtype));
    check_device_need_live(device, "fft out", out,
                           (n_out + 1) * plait_dtype_bytes(to.dtype));
    check_device_need_live(device, "fft work", work, work_bytes_of(fft));
    check_device_enqueue(stream, run_fft, &w, sizeof(w));
done:
    return status;
}
