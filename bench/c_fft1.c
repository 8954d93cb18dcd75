/* Micro benchmark of the one-dimensional transforms: GF/s (5 n log2 n per transform,
 * best and median of many repetitions) and relative error of columns and rows of a
 * plane.
 *
 * c_fft1 [-c n_columns] [-p row padding in bytes] [-f] [-s] [-i] [n ...]
 *   -f single precision   -s streaming stores   -i in place
 * The last columns are FFTW's rows (ESTIMATE) and columns (MEASURE) where libfftw3.so.3
 * or libfftw3f.so.3 can be loaded. */
#include "base/alloc.h"
#include "kernel/fft.h"

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    int64_t n, n_columns, padding;
    bool is_single, streams, in_place;
} problem_t;

typedef struct {
    double best, median, error;
} figure_t;

typedef struct {
    plait_fft1_t *fft;
    char *in, *out, *scratch;
    const char **in_row;
    char **out_row;
    int64_t column_pitch, row_pitch;
} work_t;

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int64_t itemsize_of(const problem_t *p)
{
    return p->is_single ? 8 : 16;
}

static void set(const problem_t *p, char *at, double re, double im)
{
    if (p->is_single) {
        const float z[2] = {(float)re, (float)im};
        memcpy(at, z, sizeof z);
    } else {
        const double z[2] = {re, im};
        memcpy(at, z, sizeof z);
    }
}

static void get(const problem_t *p, const char *at, double z[2])
{
    if (p->is_single) {
        float f[2];
        memcpy(f, at, sizeof f);
        z[0] = (double)f[0];
        z[1] = (double)f[1];
    } else {
        memcpy(z, at, 2 * sizeof z[0]);
    }
}

static void fill(const problem_t *p, char *data, int64_t n_bytes)
{
    uint64_t state = 1;

    for (int64_t i = 0; i + itemsize_of(p) <= n_bytes; i += itemsize_of(p)) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        set(p, data + i, (double)(state >> 40) * 0x1p-24 - 0.5,
            (double)((state >> 16) & 0xffffff) * 0x1p-24 - 0.5);
    }
}

/* Against the sum in long double, over at most 64 results of one transform. */
static double error(const problem_t *p, const char *in, int64_t step_in,
                    const char *out, int64_t step_out)
{
    long double wrong = 0, all = 0;

    for (int64_t k = 0; k < p->n; k += (p->n + 63) / 64) {
        long double re = 0, im = 0;
        double y[2];

        for (int64_t j = 0; j < p->n; j++) {
            const long double a =
                -2 * acosl(-1.0L) * (long double)(j * k % p->n) / (long double)p->n;
            double x[2];

            get(p, in + j * step_in, x);
            re += x[0] * cosl(a) - x[1] * sinl(a);
            im += x[0] * sinl(a) + x[1] * cosl(a);
        }
        get(p, out + k * step_out, y);
        wrong += (y[0] - re) * (y[0] - re) + (y[1] - im) * (y[1] - im);
        all += re * re + im * im;
    }
    return (double)sqrtl(wrong / all);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void once(const problem_t *p, const work_t *w, bool is_rows)
{
    const plait_fft_store_t store = p->streams ? PLAIT_FFT_STREAM : PLAIT_FFT_STORE;

    if (is_rows) {
        plait_fft1_rows(w->fft, p->n_columns, w->in, w->row_pitch,
                        p->in_place ? w->in : w->out, w->row_pitch, w->scratch, store);
    } else {
        plait_fft1_columns(w->fft, p->n_columns, w->in_row, 0, w->out_row, 0,
                           w->scratch, store);
    }
}

enum { MAX_TIMES = 2001 };

static figure_t measure(const problem_t *p, const work_t *w, bool is_rows)
{
    static double time[MAX_TIMES];
    const double flops =
        5e-9 * (double)p->n * log2((double)p->n) * (double)p->n_columns;
    const double begin = seconds();
    int n = 0;
    figure_t figure = {0};

    while ((n < MAX_TIMES) && (n < 5 || seconds() - begin < 0.4)) {
        const double start = seconds();

        once(p, w, is_rows);
        time[n++] = seconds() - start;
        if (p->in_place && n % 50 == 0) {
            fill(p, w->in, p->n * w->column_pitch);
        }
    }
    qsort(time, (size_t)n, sizeof time[0], ascending);
    figure.best = flops / time[0];
    figure.median = flops / time[n / 2];
    if (!p->in_place && is_rows) {
        figure.error = error(p, w->in, itemsize_of(p), w->out, itemsize_of(p));
    } else if (!p->in_place) {
        figure.error = error(p, w->in, w->column_pitch, w->out, w->column_pitch);
    }
    return figure;
}

/* FFTW by its published interface; the types of single and double differ in nothing
 * here. */
typedef void *fftw_many_fn(int, const int *, int, void *, const int *, int, int, void *,
                           const int *, int, int, int, unsigned);
typedef void fftw_plan_fn(void *);

static double fftw_figure(const problem_t *p, const work_t *w, bool is_rows)
{
    const unsigned flag = is_rows ? 1u << 6 : 0;
    void *library = dlopen(p->is_single ? "libfftw3f.so.3" : "libfftw3.so.3", RTLD_NOW);
    const double flops =
        5e-9 * (double)p->n * log2((double)p->n) * (double)p->n_columns;
    const int n = (int)p->n, howmany = (int)p->n_columns;
    const int pitch =
        (int)((is_rows ? w->row_pitch : w->column_pitch) / itemsize_of(p));
    const int stride = is_rows ? 1 : pitch, dist = is_rows ? pitch : 1;
    fftw_many_fn *many = NULL;
    fftw_plan_fn *execute = NULL, *destroy = NULL;
    void *plan = NULL, *symbol = NULL;
    double best = 1e9;

    if (library == NULL) {
        return 0;
    }
    symbol =
        dlsym(library, p->is_single ? "fftwf_plan_many_dft" : "fftw_plan_many_dft");
    memcpy(&many, &symbol, sizeof many);
    symbol = dlsym(library, p->is_single ? "fftwf_execute" : "fftw_execute");
    memcpy(&execute, &symbol, sizeof execute);
    symbol = dlsym(library, p->is_single ? "fftwf_destroy_plan" : "fftw_destroy_plan");
    memcpy(&destroy, &symbol, sizeof destroy);
    plan = many(1, &n, howmany, w->in, NULL, stride, dist, p->in_place ? w->in : w->out,
                NULL, stride, dist, -1, flag);
    fill(p, w->in, p->n * w->column_pitch);
    for (double begin = seconds(); seconds() - begin < 0.3;) {
        const double start = seconds();

        execute(plan);
        best = fmin(best, seconds() - start);
    }
    destroy(plan);
    return flops / best;
}

static void run(const problem_t *p)
{
    const int64_t itemsize = itemsize_of(p);
    const double start = seconds();
    work_t w = {0};
    double plan_us = 0;
    figure_t columns, rows;
    int64_t n_bytes = 0;

    if (plait_fft1_create(p->n, p->is_single ? PLAIT_C64 : PLAIT_C128, -1, 1.0,
                          &w.fft) != PLAIT_OK) {
        return;
    }
    plan_us = 1e6 * (seconds() - start);
    w.column_pitch = p->n_columns * itemsize + p->padding;
    w.row_pitch = p->n * itemsize + p->padding;
    n_bytes = p->n * w.column_pitch + p->n_columns * p->padding;
    w.in = plait_alloc_aligned(n_bytes);
    w.out = plait_alloc_aligned(n_bytes);
    w.scratch = plait_alloc_aligned(plait_fft1_scratch_bytes(w.fft));
    w.in_row = plait_alloc(p->n, sizeof *w.in_row);
    w.out_row = plait_alloc(p->n, sizeof *w.out_row);
    for (int64_t j = 0; j < p->n; j++) {
        w.in_row[j] = w.in + j * w.column_pitch;
        w.out_row[j] = (p->in_place ? w.in : w.out) + j * w.column_pitch;
    }
    fill(p, w.in, n_bytes);
    fill(p, w.out, n_bytes);
    columns = measure(p, &w, false);
    rows = measure(p, &w, true);
    printf("%7lld  columns %5.1f (%5.1f) %.1e  rows %5.1f (%5.1f) %.1e  plan %7.0f us",
           (long long)p->n, columns.best, columns.median, columns.error, rows.best,
           rows.median, rows.error, plan_us);
    printf("  fftw columns %5.1f rows %5.1f\n", fftw_figure(p, &w, false),
           fftw_figure(p, &w, true));
    plait_free(w.in);
    plait_free(w.out);
    plait_free(w.scratch);
    plait_free(w.in_row);
    plait_free(w.out_row);
    plait_fft1_destroy(&w.fft);
}

int main(int argc, char **argv)
{
    static const int64_t standard[] = {64, 128, 189, 197, 240, 256, 512};
    problem_t p = {.n_columns = 256};
    bool has_list = false;

    printf("isa %s\n", plait_fft1_isa());
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-c") == 0 && i + 1 < argc) {
            p.n_columns = atoll(argv[++i]);
        } else if (strcmp(argv[i], "-p") == 0 && i + 1 < argc) {
            p.padding = atoll(argv[++i]);
        } else if (argv[i][0] == '-') {
            p.is_single |= argv[i][1] == 'f';
            p.streams |= argv[i][1] == 's';
            p.in_place |= argv[i][1] == 'i';
        } else {
            p.n = atoll(argv[i]);
            has_list = true;
            run(&p);
        }
    }
    for (size_t i = 0; !has_list && i < sizeof standard / sizeof standard[0]; i++) {
        p.n = standard[i];
        run(&p);
    }
    return 0;
}
