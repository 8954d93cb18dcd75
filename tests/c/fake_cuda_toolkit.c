/* Stand-ins of CUDA's toolkit on the host, for tests of its callers: a compiler that compiles nothing,
 * transforms by the definition, and the versions of the rest. All libraries share this source. */
#include "fake_cuda.h"

#include <complex.h>
#include <math.h>
#include <stdbool.h>

pthread_mutex_t fake_cuda_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* ---- Versions ------------------------------------------------------------------------------- */

/* Version 13.0, or the version that the test sets. */
static int property(int which, int *value)
{
    int version = number_of_environment("PLAIT_FAKE_TOOLKIT", 13000);

    *value = (which == 0) ? version / 1000 : (which == 1) ? version % 1000 / 10 : 0;
    return 0;
}

int cufftGetProperty(int which, int *value)
{
    LOCKED;
    return property(which, value);
}

int cublasGetProperty(int which, int *value)
{
    LOCKED;
    return property(which, value);
}

int cusolverGetProperty(int which, int *value)
{
    LOCKED;
    return property(which, value);
}

int nvrtcVersion(int *major, int *minor)
{
    LOCKED;
    (void)property(0, major);
    return property(1, minor);
}

/* ---- NVRTC ---------------------------------------------------------------------------------- */

enum { COMPILATION_FAILED = 6 };

struct plait_nvrtc_program {
    char image[64];
};

static int n_compiled;

/* Number of compilations; for the tests. */
int fake_cuda_n_compiled(void);

int fake_cuda_n_compiled(void)
{
    return n_compiled;
}

const char *nvrtcGetErrorString(int result)
{
    LOCKED;
    return (result == COMPILATION_FAILED) ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR";
}

int nvrtcGetNumSupportedArchs(int *n)
{
    LOCKED;
    *n = 3;
    return 0;
}

int nvrtcGetSupportedArchs(int *archs)
{
    LOCKED;
    archs[0] = 75;
    archs[1] = 80;
    archs[2] = 90;
    return 0;
}

int nvrtcCreateProgram(plait_nvrtc_program_t *program, const char *source,
                       const char *name, int n_headers, const char *const *headers,
                       const char *const *names)
{
    LOCKED;
    (void)name;
    (void)n_headers;
    (void)headers;
    (void)names;
    *program = calloc(1, sizeof(**program));
    return (*program != NULL && strstr(source, "plait_fill") != NULL) ? 0 : 1;
}

int nvrtcDestroyProgram(plait_nvrtc_program_t *program)
{
    LOCKED;
    free(*program);
    *program = NULL;
    return 0;
}

int nvrtcCompileProgram(plait_nvrtc_program_t program, int n_options,
                        const char *const *options)
{
    LOCKED;
    int result = COMPILATION_FAILED;

    n_compiled++;
    for (int i = 0; i < n_options; i++) {
        const char *arch = strstr(options[i], "architecture=");
        if (arch != NULL && getenv("PLAIT_FAKE_NO_COMPILE") == NULL) {
            (void)snprintf(program->image, sizeof(program->image),
                           "fake cubin of %.20s", arch + strlen("architecture="));
            result = 0;
        }
    }
    return result;
}

int nvrtcGetProgramLogSize(plait_nvrtc_program_t program, size_t *n)
{
    LOCKED;
    (void)program;
    *n = sizeof("plait.cu(1): error: as ordered");
    return 0;
}

int nvrtcGetProgramLog(plait_nvrtc_program_t program, char *log)
{
    LOCKED;
    (void)program;
    memcpy(log, "plait.cu(1): error: as ordered",
           sizeof("plait.cu(1): error: as ordered"));
    return 0;
}

int nvrtcGetPTXSize(plait_nvrtc_program_t program, size_t *n)
{
    LOCKED;
    *n = strlen(program->image) + 1;
    return 0;
}

int nvrtcGetPTX(plait_nvrtc_program_t program, char *ptx)
{
    LOCKED;
    memcpy(ptx, program->image, strlen(program->image) + 1);
    return 0;
}

int nvrtcGetCUBINSize(plait_nvrtc_program_t program, size_t *n)
{
    LOCKED;
    return nvrtcGetPTXSize(program, n);
}

int nvrtcGetCUBIN(plait_nvrtc_program_t program, char *cubin)
{
    LOCKED;
    return nvrtcGetPTX(program, cubin);
}

/* ---- cuFFT ---------------------------------------------------------------------------------- */

enum {
    MAX_PLANS = 4096,
    MAX_DIMS = 3,
    WORK_BYTES = 1000,
    INVALID = 4,
    NO_WORKSPACE = 13
};

typedef struct {
    int ndim, type;
    long long n[MAX_DIMS], in_embed[MAX_DIMS], out_embed[MAX_DIMS];
    long long in_stride, in_distance, out_stride, out_distance, n_batch;
    void *work;
} fft_t;

static fft_t ffts[MAX_PLANS];
static int n_ffts;

int cufftCreate(plait_cufft_t *plan)
{
    LOCKED;
    *plan = n_ffts;
    n_ffts++;
    return (n_ffts < MAX_PLANS) ? 0 : INVALID;
}

int cufftDestroy(plait_cufft_t plan)
{
    LOCKED;
    ffts[plan] = (fft_t){.ndim = 0};
    return 0;
}

/* For tests: the number of plans alive. */
int fake_ffts(void);
int fake_ffts(void)
{
    LOCKED;
    int n = 0;

    for (int i = 0; i < n_ffts; i++) {
        n += ffts[i].ndim > 0;
    }
    return n;
}

int cufftSetAutoAllocation(plait_cufft_t plan, int is_automatic)
{
    LOCKED;
    (void)plan;
    return (is_automatic == 0) ? 0 : INVALID;
}

/* PLAIT_FAKE_FFT=n: the call returns n. */
int cufftMakePlanMany64(plait_cufft_t plan, int ndim, long long *n, long long *in_embed,
                        long long in_stride, long long in_distance,
                        long long *out_embed, long long out_stride,
                        long long out_distance, int type, long long n_batch,
                        size_t *n_work)
{
    LOCKED;
    fft_t *f = &ffts[plan];
    const int result = number_of_environment("PLAIT_FAKE_FFT", 0);

    if (result != 0) {
        return result;
    }
    *f = (fft_t){.ndim = ndim,
                 .type = type,
                 .in_stride = in_stride,
                 .in_distance = in_distance,
                 .out_stride = out_stride,
                 .out_distance = out_distance,
                 .n_batch = n_batch};
    memcpy(f->n, n, (size_t)ndim * sizeof(n[0]));
    memcpy(f->in_embed, in_embed, (size_t)ndim * sizeof(n[0]));
    memcpy(f->out_embed, out_embed, (size_t)ndim * sizeof(n[0]));
    *n_work = WORK_BYTES;
    return 0;
}

int cufftSetWorkArea(plait_cufft_t plan, void *work)
{
    LOCKED;
    ffts[plan].work = work;
    return 0;
}

int cufftSetStream(plait_cufft_t plan, plait_cu_stream_t stream)
{
    LOCKED;
    (void)plan;
    (void)stream;
    return 0;
}

/* Element i of an array of reals or complex numbers. */
static double complex get(const void *x, long long i, bool is_double, bool is_real)
{
    const double *d = x;
    const float *f = x;
    long long at = is_real ? i : 2 * i;
    double re = is_double ? d[at] : (double)f[at];
    double im = is_real ? 0 : is_double ? d[at + 1] : (double)f[at + 1];

    return re + im * I;
}

static void put(void *x, long long i, bool is_double, bool is_real, double complex z)
{
    double *d = x;
    float *f = x;
    long long at = is_real ? i : 2 * i;

    if (is_double) {
        d[at] = creal(z);
    } else {
        f[at] = (float)creal(z);
    }
    if (!is_real && is_double) {
        d[at + 1] = cimag(z);
    } else if (!is_real) {
        f[at + 1] = (float)cimag(z);
    }
}

/* Index of element number `i` of an array of extents n, the last one fastest. */
static void split(const fft_t *f, long long i, long long index[])
{
    for (int d = f->ndim - 1; d >= 0; d--) {
        index[d] = i % f->n[d];
        i /= f->n[d];
    }
}

static long long place(const fft_t *f, const long long index[], const long long embed[],
                       long long stride)
{
    long long at = index[0];

    for (int d = 1; d < f->ndim; d++) {
        at = at * embed[d] + index[d];
    }
    return at * stride;
}

/* Half of the complex numbers are not stored: they are conjugates of the other half. */
static double complex operand(const fft_t *f, const void *in, long long batch,
                              const long long index[], bool is_double)
{
    bool is_c2r = f->type == PLAIT_CUFFT_C2R || f->type == PLAIT_CUFFT_Z2D;
    bool is_r2c = f->type == PLAIT_CUFFT_R2C || f->type == PLAIT_CUFFT_D2Z;
    const int last = f->ndim - 1;
    bool is_mirrored = is_c2r && index[last] > f->n[last] / 2;
    long long at[MAX_DIMS] = {0};

    for (int d = 0; d < f->ndim; d++) {
        at[d] = is_mirrored ? (f->n[d] - index[d]) % f->n[d] : index[d];
    }
    double complex z =
        get(in, batch * f->in_distance + place(f, at, f->in_embed, f->in_stride),
            is_double, is_r2c);
    return is_mirrored ? conj(z) : z;
}

static double complex sum_of(const fft_t *f, const void *in, long long batch,
                             const long long k[], int sign, bool is_double)
{
    const double turn = 2 * 3.14159265358979323846;
    long long n_total = 1, j[MAX_DIMS] = {0};
    double complex sum = 0;

    for (int d = 0; d < f->ndim; d++) {
        n_total *= f->n[d];
    }
    for (long long i = 0; i < n_total; i++) {
        double phase = 0;

        split(f, i, j);
        for (int d = 0; d < f->ndim; d++) {
            phase += (double)(j[d] * k[d] % f->n[d]) / (double)f->n[d];
        }
        sum += operand(f, in, batch, j, is_double) * cexp(sign * turn * phase * I);
    }
    return sum;
}

/* A transform from complex to real numbers destroys its operand, as cuFFT may. */
static void destroy_operand(const fft_t *f, void *in, bool is_double)
{
    long long index[MAX_DIMS] = {0}, n_total = 1;

    for (int d = 0; d < f->ndim; d++) {
        n_total *= f->n[d];
    }
    for (long long i = 0; i < f->n_batch * n_total; i++) {
        split(f, i % n_total, index);
        if (index[f->ndim - 1] <= f->n[f->ndim - 1] / 2) {
            put(in,
                i / n_total * f->in_distance +
                    place(f, index, f->in_embed, f->in_stride),
                is_double, false, (double)NAN);
        }
    }
}

/* Reads everything before it writes anything: results may share the operands' memory. */
int cufftXtExec(plait_cufft_t plan, void *in, void *out, int sign)
{
    LOCKED;
    const fft_t *f = &ffts[plan];
    bool is_double = f->type == PLAIT_CUFFT_Z2Z || f->type == PLAIT_CUFFT_D2Z ||
                     f->type == PLAIT_CUFFT_Z2D;
    bool is_c2r = f->type == PLAIT_CUFFT_C2R || f->type == PLAIT_CUFFT_Z2D;
    bool is_r2c = f->type == PLAIT_CUFFT_R2C || f->type == PLAIT_CUFFT_D2Z;
    const int last = f->ndim - 1;
    long long n_total = 1, k[MAX_DIMS] = {0};

    if (f->work == NULL) {
        return NO_WORKSPACE;
    }
    if (((uintptr_t)in | (uintptr_t)out) % (is_double ? 16 : 8) != 0) {
        return INVALID; /* as cuFFT does; real numbers, too */
    }
    memset(f->work, 0xff, WORK_BYTES);
    for (int d = 0; d < f->ndim; d++) {
        n_total *= f->n[d];
    }
    double complex *result = calloc((size_t)(f->n_batch * n_total), sizeof(*result));
    for (long long i = 0; result != NULL && i < f->n_batch * n_total; i++) {
        split(f, i % n_total, k);
        result[i] = sum_of(f, in, i / n_total, k, sign, is_double);
    }
    if (is_c2r) {
        destroy_operand(f, in, is_double);
    }
    for (long long i = 0; result != NULL && i < f->n_batch * n_total; i++) {
        split(f, i % n_total, k);
        if (!is_r2c || k[last] <= f->n[last] / 2) {
            put(out,
                i / n_total * f->out_distance +
                    place(f, k, f->out_embed, f->out_stride),
                is_double, is_c2r, result[i]);
        }
    }
    free(result);
    return 0;
}
