/* Transforms of a CUDA device against the definition: every kind, one to three dimensions, behind each
 * other, interleaved, and with gaps. On the first GPU, or with the argument `host` on stand-ins of
 * CUDA's libraries, of which cuFFT's uses the definition. Without a GPU: skipped, with the reason. */
#include "cuda_arrays.h"
#include "dft.h"
#include "fakes.h"

#include <dlfcn.h>

static int64_t place_of(const plait_device_fft_t *f, int64_t number, const int64_t n[],
                        const int64_t embed[], int64_t stride)
{
    int64_t index[3] = {0}, at = 0;

    for (int d = f->ndim - 1; d >= 0; d--) {
        index[d] = number % n[d];
        number /= n[d];
    }
    for (int d = 0; d < f->ndim; d++) {
        at = (d > 0) ? at * embed[d] + index[d] : index[0];
    }
    return at * stride;
}

static double complex get_number(const void *x, int64_t i, bool is_double, bool is_real)
{
    const double *d = x;
    const float *s = x;
    int64_t at = is_real ? i : 2 * i;
    double re = is_double ? d[at] : (double)s[at];
    double im = is_real ? 0 : is_double ? d[at + 1] : (double)s[at + 1];

    return re + im * I;
}

/* The extents of both sides: half of the last extent on the complex side of a real transform. */
static void sides_of(const plait_device_fft_t *f, int64_t in[], int64_t out[])
{
    memcpy(in, f->n, sizeof(f->n));
    memcpy(out, f->n, sizeof(f->n));
    if (f->kind == PLAIT_DEVICE_FFT_R2C) {
        out[f->ndim - 1] = f->n[f->ndim - 1] / 2 + 1;
    } else if (f->kind == PLAIT_DEVICE_FFT_C2R) {
        in[f->ndim - 1] = f->n[f->ndim - 1] / 2 + 1;
    }
}

/* The whole complex operand of one transform, contiguous; missing numbers come by symmetry. */
static void gather(const plait_device_fft_t *f, const char *in, int64_t batch,
                   const int64_t n_in[], double complex *whole)
{
    bool is_double = f->dtype == PLAIT_C128, is_real = f->kind == PLAIT_DEVICE_FFT_R2C;
    const int last = f->ndim - 1;

    for (int64_t i = 0; i < n_elements(f->ndim, f->n); i++) {
        int64_t rest = i, mirror = 0, step = 1;
        bool is_there = i % f->n[last] < n_in[last];
        int64_t half = 0, half_step = 1;
        for (int d = last; d >= 0; d--) {
            int64_t k = rest % f->n[d], j = is_there ? k : (f->n[d] - k) % f->n[d];
            rest /= f->n[d];
            half += j * half_step;
            half_step *= n_in[d];
            mirror += k * step;
            step *= f->n[d];
        }
        double complex z = get_number(
            in,
            batch * f->in_distance + place_of(f, half, n_in, f->in_embed, f->in_stride),
            is_double, is_real);
        whole[mirror] = is_there ? z : conj(z);
    }
}

/* Largest difference from the definition, in units of the largest result. */
static double error_of(const plait_device_fft_t *f, const char *in, const char *out)
{
    bool is_double = f->dtype == PLAIT_C128, is_real = f->kind == PLAIT_DEVICE_FFT_C2R;
    int64_t n_in[3], n_out[3], n = n_elements(f->ndim, f->n);
    double complex *whole = plait_alloc(n, sizeof(*whole));
    double error = 0, largest = 0;

    sides_of(f, n_in, n_out);
    for (int64_t b = 0; b < f->n_batch; b++) {
        gather(f, in, b, n_in, whole);
        for (int a = 0; a < f->ndim; a++) {
            dft_axis(whole, f->ndim, f->n, a, f->sign);
        }
        for (int64_t i = 0; i < n_elements(f->ndim, n_out); i++) {
            int64_t full =
                i / n_out[f->ndim - 1] * f->n[f->ndim - 1] + i % n_out[f->ndim - 1];
            double complex expected = is_real ? creal(whole[full]) : whole[full];
            double complex got =
                get_number(out,
                           b * f->out_distance +
                               place_of(f, i, n_out, f->out_embed, f->out_stride),
                           is_double, is_real);
            error = fmax(error, cabs(got - expected));
            largest = fmax(largest, cabs(expected));
        }
    }
    plait_free(whole);
    return error / largest;
}

/* Bytes of one side, with everything between its elements. */
static int64_t side_bytes(const plait_device_fft_t *f, const int64_t n[],
                          const int64_t embed[], int64_t stride, int64_t distance,
                          bool is_real)
{
    int64_t last = place_of(f, n_elements(f->ndim, n) - 1, n, embed, stride);

    return ((f->n_batch - 1) * distance + last + 1) * plait_dtype_bytes(f->dtype) /
           (is_real ? 2 : 1);
}

/* is_planned: planned before other transforms, which may have taken its place. */
static void check_fft(const machine_t *m, const plait_device_fft_t *f, bool is_planned)
{
    const double ulp = (f->dtype == PLAIT_C128) ? 0x1p-52 : 0x1p-23;
    plait_device_fft_t lent = *f;
    int64_t n_in[3], n_out[3], n_work = 0;
    void *work = NULL;

    sides_of(f, n_in, n_out);
    array_t in =
        array_create(m, side_bytes(f, n_in, f->in_embed, f->in_stride, f->in_distance,
                                   f->kind == PLAIT_DEVICE_FFT_R2C));
    array_t out =
        array_create(m, side_bytes(f, n_out, f->out_embed, f->out_stride,
                                   f->out_distance, f->kind == PLAIT_DEVICE_FFT_C2R));
    for (int64_t i = 0; i < in.n_bytes / ((f->dtype == PLAIT_C128) ? 8 : 4); i++) {
        double x = sample(7, (uint64_t)i);
        float y = (float)x;
        memcpy(in.pinned + i * ((f->dtype == PLAIT_C128) ? 8 : 4),
               (f->dtype == PLAIT_C128) ? (const void *)&x : (const void *)&y,
               (f->dtype == PLAIT_C128) ? 8 : 4);
    }
    array_put(m, &in);
    if (is_planned) {
        n_work = 1 << 20;
    } else {
        good(m->call->fft_plan(m->device, f, &n_work), "fft_plan");
    }
    good(m->call->take(m->device, m->stream, n_work, &work), "work");
    good(m->call->fft(m->device, m->stream, &lent, in.dev, out.dev, work), "fft");
    memset(&lent, 0, sizeof(lent)); /* it has been read */
    array_get(m, &out);
    double error = error_of(f, in.expected, out.pinned);
    CHECK(error <= 8 * ulp * log2(2.0 + (double)n_elements(f->ndim, f->n)),
          "fft kind %d %s %d-d %lldx%lldx%lld batch %lld: error %g", (int)f->kind,
          plait_dtype_name(f->dtype), f->ndim, (long long)f->n[0], (long long)f->n[1],
          (long long)f->n[2], (long long)f->n_batch, error);
    CHECK(f->kind == PLAIT_DEVICE_FFT_C2R || array_is_expected(m, &in),
          "fft kind %d: the operand stays", (int)f->kind);
    m->call->give(m->device, m->stream, work);
    array_destroy(m, &in);
    array_destroy(m, &out);
}

/* Contiguous transforms one behind another, or interleaved; each last row has `pad` more elements. */
static plait_device_fft_t fft_of(plait_device_fft_kind_t kind, plait_dtype_t dtype,
                                 int ndim, const int64_t n[], int64_t n_batch,
                                 bool is_interleaved, int64_t pad)
{
    plait_device_fft_t f = {
        .kind = kind, .dtype = dtype, .ndim = ndim, .n_batch = n_batch};
    int64_t n_in[3], n_out[3];

    memcpy(f.n, n, (size_t)ndim * sizeof(n[0]));
    f.sign = (kind == PLAIT_DEVICE_FFT_R2C) ? -1 : 1;
    sides_of(&f, n_in, n_out);
    for (int d = 0; d < ndim; d++) {
        f.in_embed[d] = n_in[d] + ((d == ndim - 1) ? pad : 0);
        f.out_embed[d] = n_out[d] + ((d == ndim - 1) ? pad : 0);
    }
    f.in_stride = is_interleaved ? n_batch : 1;
    f.out_stride = f.in_stride;
    f.in_distance = is_interleaved ? 1 : n_elements(ndim, f.in_embed);
    f.out_distance = is_interleaved ? 1 : n_elements(ndim, f.out_embed);
    return f;
}

/* More transforms than are kept at once. */
enum { N_FFTS = 6 * 3 * 2 * 3 };

static plait_device_fft_t fft_number(int k)
{
    static const int64_t shapes[][3] = {{16}, {15, 8}, {6, 5, 12},
                                        {7},  {4, 9},  {3, 8, 7}};
    static const plait_device_fft_kind_t kinds[] = {
        PLAIT_DEVICE_FFT_C2C, PLAIT_DEVICE_FFT_R2C, PLAIT_DEVICE_FFT_C2R};

    return fft_of(kinds[k / 6 % 3], (k / 18 % 2 == 0) ? PLAIT_C64 : PLAIT_C128,
                  k % 3 + 1, shapes[k % 6], k / 36 * 2 + 1, k / 36 == 1, k / 36 == 2);
}

/* Number of plans in the stand-in. */
static int count_ffts(void)
{
    void *library = dlopen(FAKES_DIR "/libcufft.so.12", RTLD_NOW | RTLD_NOLOAD);
    int (*count)(void) = NULL;
    void *address = dlsym(library, "fake_ffts");

    memcpy(&count, &address, sizeof(count));
    const int n = count();
    (void)dlclose(library);
    return n;
}

/* All transforms, and then all again, planned before others. */
static void test_cuda_fft(const machine_t *m)
{
    for (int k = 0; k < 2 * N_FFTS; k++) {
        plait_device_fft_t f = fft_number(k % N_FFTS);
        check_fft(m, &f, k >= N_FFTS);
        if (f.kind == PLAIT_DEVICE_FFT_C2C) {
            f.sign = -1;
            check_fft(m, &f, k >= N_FFTS);
        }
    }
    if (m->is_host) {
        const int n_live = count_ffts();
        CHECK(n_live >= 32 && n_live <= N_FFTS, "%d plans", n_live);
    }
}

static void test_cuda_fft_refusals(const machine_t *m)
{
    static const int64_t n[] = {8};
    array_t a = array_create(m, 64);
    plait_device_fft_t f = fft_of(PLAIT_DEVICE_FFT_R2C, PLAIT_C64, 1, n, 1, false, 0);
    int64_t n_work = 0;

    f.sign = 1;
    CHECK(m->call->fft_plan(m->device, &f, &n_work) == PLAIT_ERR_UNSUPPORTED, "sign");
    f.sign = -1;
    f.dtype = PLAIT_F32;
    CHECK(m->call->fft_plan(m->device, &f, &n_work) == PLAIT_ERR_INVALID, "dtype");
    f.dtype = PLAIT_C64;
    f.n_batch = 1234;
    CHECK(m->call->fft(m->device, m->stream, &f, a.dev, a.dev, a.dev) ==
              PLAIT_ERR_INTERNAL,
          "not planned");
    if (m->is_host) {
        setenv("PLAIT_FAKE_FFT", "19", 1);
        CHECK(m->call->fft_plan(m->device, &f, &n_work) == PLAIT_ERR_TRANSPORT &&
                  says("nvJitLink failure (19)"),
              "%s", plait_error_text());
        unsetenv("PLAIT_FAKE_FFT");
    }
    array_destroy(m, &a);
}

int main(int n_arguments, char **arguments)
{
    machine_t m = machine_of(n_arguments, arguments);

    if (!machine_open(&m)) {
        return SKIPPED;
    }
    test_cuda_fft(&m);
    test_cuda_fft_refusals(&m);
    machine_close(&m);
    return report("test_cuda_fft");
}
