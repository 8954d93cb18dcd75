/* One-dimensional transforms against a sum in long double, for every instruction set of
 * this machine; bytes outside the elements, places, tails and alignments included. */
#include "base/alloc.h"
#include "check.h"
#include "isa.h"
#include "kernel/fft_plan.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_COLUMNS = 17,
    MAX_RESULTS = 64, /* of each column that are compared with the sum */
    N_BASES = 2,      /* different columns; the others are these times powers of two */
    GUARD = 64,
    PATTERN = 0x5a
};

typedef struct {
    int64_t n;
    plait_dtype_t dtype;
    int sign;
    int64_t n_columns;
    int64_t shift;   /* bytes off a 64-byte boundary */
    int64_t padding; /* bytes between rows */
    bool in_place, streams, is_rows;
} problem_t;

typedef struct {
    int64_t n;
    int64_t n_results, index[MAX_RESULTS];
    long double value[N_BASES][MAX_RESULTS][2]; /* of sign -1; +1 has value of -index */
} reference_t;

typedef struct {
    plait_fft1_t *fft;
    char *in, *out; /* first element; equal in place */
    char *in_memory, *out_memory, *scratch;
    int64_t step, pitch, n_bytes; /* from element to element, from column to column */
} memory_t;

static const double scale = 0.75;

static const char *text(const problem_t *p)
{
    static char line[160];

    snprintf(line, sizeof line, "fft1 %s %s %lld%s %s %lld shift %lld padding %lld%s%s",
             plait_fft1_isa(), plait_dtype_name(p->dtype), (long long)p->n,
             p->sign < 0 ? "-" : "+", p->is_rows ? "rows" : "columns",
             (long long)p->n_columns, (long long)p->shift, (long long)p->padding,
             p->in_place ? " in place" : "", p->streams ? " stream" : "");
    return line;
}

/* Exact even in float. */
static double input(int64_t base, int64_t j, int part)
{
    return rint(0x1p20 * sample((uint64_t)(2 * base + part), (uint64_t)j)) * 0x1p-20;
}

static double factor(int64_t column)
{
    return ldexp(1.0, (int)(column % 5) - 2);
}

static void set(const problem_t *p, char *at, const double z[2])
{
    if (p->dtype == PLAIT_C64) {
        const float f[2] = {(float)z[0], (float)z[1]};
        memcpy(at, f, sizeof f);
    } else {
        memcpy(at, z, 2 * sizeof z[0]);
    }
}

static void get(const problem_t *p, const char *at, double z[2])
{
    if (p->dtype == PLAIT_C64) {
        float f[2];
        memcpy(f, at, sizeof f);
        z[0] = (double)f[0];
        z[1] = (double)f[1];
    } else {
        memcpy(z, at, 2 * sizeof z[0]);
    }
}

/* ---- reference */

static void make_reference(int64_t n, reference_t *reference)
{
    const long double unit = 2 * acosl(-1.0L) / (long double)n;
    long double *root = malloc((size_t)n * 2 * sizeof *root);

    for (int64_t t = 0; t < n; t++) {
        root[2 * t] = cosl(unit * (long double)t);
        root[2 * t + 1] = -sinl(unit * (long double)t);
    }
    reference->n = n;
    reference->n_results = (n < MAX_RESULTS) ? n : MAX_RESULTS;
    for (int64_t i = 0; i < reference->n_results; i++) {
        const int64_t k = (n <= MAX_RESULTS) ? i : (i * (n / MAX_RESULTS) + i * i) % n;

        reference->index[i] = k;
        for (int base = 0; base < N_BASES; base++) {
            long double re = 0, im = 0;

            for (int64_t j = 0; j < n; j++) {
                const long double *w = root + 2 * (j * k % n);
                const long double x = input(base, j, 0), y = input(base, j, 1);

                re += x * w[0] - y * w[1];
                im += x * w[1] + y * w[0];
            }
            reference->value[base][i][0] = re * scale;
            reference->value[base][i][1] = im * scale;
        }
    }
    free(root);
}

/* ---- memory */

static char *guarded(const problem_t *p, int64_t n_bytes, char **memory_p)
{
    /* exactly as long as it must be, so that a sanitizer sees a read past its end */
    char *memory = NULL;

    if (posix_memalign((void **)memory_p, 64, (size_t)(GUARD + p->shift + n_bytes)) !=
        0) {
        abort();
    }
    memory = *memory_p;
    memset(memory, PATTERN, (size_t)(GUARD + p->shift + n_bytes));
    return memory + GUARD + p->shift;
}

static bool memory_create(const problem_t *p, memory_t *m)
{
    const int64_t itemsize = plait_dtype_bytes(p->dtype);
    const int64_t length = p->is_rows ? p->n : p->n_columns;
    const int64_t n_lines = p->is_rows ? p->n_columns : p->n;
    const int64_t line = length * itemsize + p->padding;

    memset(m, 0, sizeof *m);
    CHECK(plait_fft1_create(p->n, p->dtype, p->sign, scale, &m->fft) == PLAIT_OK, "%s",
          text(p));
    m->step = p->is_rows ? itemsize : line;
    m->pitch = p->is_rows ? line : itemsize;
    m->n_bytes = (n_lines - 1) * line + length * itemsize;
    m->in = guarded(p, m->n_bytes, &m->in_memory);
    m->out = p->in_place ? m->in : guarded(p, m->n_bytes, &m->out_memory);
    m->scratch =
        (m->fft == NULL) ? NULL : plait_alloc_aligned(plait_fft1_scratch_bytes(m->fft));
    if (m->scratch != NULL) { /* NaN: what is read must have been written */
        memset(m->scratch, 0xff, (size_t)plait_fft1_scratch_bytes(m->fft));
    }
    return m->scratch != NULL;
}

static void memory_destroy(memory_t *m)
{
    free(m->in_memory);
    free(m->out_memory);
    plait_free(m->scratch);
    plait_fft1_destroy(&m->fft);
}

static void run(const problem_t *p, const memory_t *m)
{
    const plait_fft_store_t store = p->streams ? PLAIT_FFT_STREAM : PLAIT_FFT_STORE;
    const int64_t offset = 8;
    const char **in = NULL;
    char **out = NULL;

    if (p->is_rows) {
        plait_fft1_rows(m->fft, p->n_columns, m->in, m->pitch, m->out, m->pitch,
                        m->scratch, store);
        return;
    }
    in = plait_alloc(p->n, sizeof *in);
    out = plait_alloc(p->n, sizeof *out);
    for (int64_t j = 0; j < p->n; j++) {
        in[j] = m->in + j * m->step - offset;
        out[j] = m->out + j * m->step + offset;
    }
    plait_fft1_columns(m->fft, p->n_columns, in, offset, out, -offset, m->scratch,
                       store);
    plait_free(in);
    plait_free(out);
}

/* ---- properties */

static bool outside_is_unchanged(const problem_t *p, const memory_t *m)
{
    const int64_t itemsize = plait_dtype_bytes(p->dtype);
    const int64_t length = (p->is_rows ? p->n : p->n_columns) * itemsize;
    bool unchanged = true;

    for (const char *b = m->out - GUARD; b < m->out; b++) {
        unchanged &= *b == PATTERN;
    }
    for (int64_t i = 0; i < m->n_bytes && p->padding > 0; i++) {
        unchanged &= (i % (length + p->padding) < length) || (m->out[i] == PATTERN);
    }
    return unchanged;
}

static double bound(const problem_t *p)
{
    const double eps = (p->dtype == PLAIT_C64) ? 1.2e-7 : 2.2e-16;
    int64_t rest = p->n;

    for (int64_t q = 2; q <= 31; q++) {
        while (rest % q == 0) {
            rest /= q;
        }
    }
    return ((rest > 1) ? 16 : 4) * eps * log2(fmax((double)p->n, 2.0));
}

static double error(const problem_t *p, const memory_t *m, const reference_t *reference,
                    int64_t column)
{
    double wrong = 0, all = 0;

    for (int64_t i = 0; i < reference->n_results; i++) {
        const int64_t index = reference->index[i];
        const int64_t k = (p->sign < 0) ? index : (p->n - index) % p->n;
        double y[2];

        get(p, m->out + column * m->pitch + k * m->step, y);
        for (int part = 0; part < 2; part++) {
            const double want = (double)reference->value[column % N_BASES][i][part];
            const double d = y[part] / factor(column) - want;

            wrong += d * d;
            all += want * want;
        }
    }
    return isnan(wrong) ? INFINITY : sqrt(wrong / all);
}

static void test_fft1_random(const problem_t *p, const reference_t *reference)
{
    memory_t m;

    if (memory_create(p, &m)) {
        for (int64_t c = 0; c < p->n_columns; c++) {
            for (int64_t j = 0; j < p->n; j++) {
                const double z[2] = {input(c % N_BASES, j, 0) * factor(c),
                                     input(c % N_BASES, j, 1) * factor(c)};

                set(p, m.in + c * m.pitch + j * m.step, z);
            }
        }
        run(p, &m);
        for (int64_t c = 0; c < p->n_columns; c++) {
            const double e = error(p, &m, reference, c);

            CHECK(e <= bound(p), "%s: column %lld, error %.2g, bound %.2g", text(p),
                  (long long)c, e, bound(p));
        }
        CHECK(outside_is_unchanged(p, &m), "%s", text(p));
    }
    memory_destroy(&m);
}

/* Column c is an impulse at j = (7 c + 1) mod n: all phases of all results. */
static void test_fft1_impulse(const problem_t *p)
{
    const double eps = (p->dtype == PLAIT_C64) ? 1.2e-7 : 2.2e-16;
    const double zero[2] = {0, 0}, one[2] = {1, 0};
    double worst = 0;
    memory_t m;

    if (memory_create(p, &m)) {
        for (int64_t c = 0; c < p->n_columns; c++) {
            for (int64_t j = 0; j < p->n; j++) {
                set(p, m.in + c * m.pitch + j * m.step,
                    (j == (7 * c + 1) % p->n) ? one : zero);
            }
        }
        run(p, &m);
        for (int64_t c = 0; c < p->n_columns; c++) {
            for (int64_t k = 0; k < p->n; k++) {
                const int64_t t = (7 * c + 1) % p->n * k % p->n;
                const double a = p->sign * 2 * acos(-1.0) * (double)t / (double)p->n;
                double y[2];

                get(p, m.out + c * m.pitch + k * m.step, y);
                worst =
                    fmax(worst, hypot(y[0] - scale * cos(a), y[1] - scale * sin(a)));
            }
        }
        CHECK(worst <= 2 * bound(p) + 8 * eps, "%s: impulse, error %.2g", text(p),
              worst);
    }
    memory_destroy(&m);
}

/* Each column alone gives the same bits as among others. */
static void test_fft1_grouping(const problem_t *p)
{
    const int64_t itemsize = plait_dtype_bytes(p->dtype);
    problem_t alone = *p;
    bool same = true;
    memory_t m, one;

    alone.n_columns = 1;
    if (memory_create(p, &m)) {
        for (int64_t c = 0; c < p->n_columns; c++) {
            for (int64_t j = 0; j < p->n; j++) {
                const double z[2] = {input(c, j, 0), input(c, j, 1)};

                set(p, m.in + c * m.pitch + j * m.step, z);
            }
        }
        run(p, &m);
        for (int64_t c = 0; c < p->n_columns && memory_create(&alone, &one); c += 3) {
            for (int64_t j = 0; j < p->n; j++) {
                memcpy(one.in + j * one.step, m.in + c * m.pitch + j * m.step,
                       (size_t)itemsize);
            }
            run(&alone, &one);
            for (int64_t k = 0; k < p->n; k++) {
                same &= memcmp(one.out + k * one.step, m.out + c * m.pitch + k * m.step,
                               (size_t)itemsize) == 0;
            }
            memory_destroy(&one);
        }
        CHECK(same, "%s: bits depend on the neighbours", text(p));
    }
    memory_destroy(&m);
}

static void test_fft1_refuses(void)
{
    plait_fft1_t *fft = NULL;

    CHECK(plait_fft1_create(0, PLAIT_C128, -1, 1.0, &fft) == PLAIT_ERR_INVALID, "n 0");
    CHECK(plait_fft1_create(8, PLAIT_F64, -1, 1.0, &fft) == PLAIT_ERR_INVALID,
          "float64");
    CHECK(plait_fft1_create(8, PLAIT_C64, 0, 1.0, &fft) == PLAIT_ERR_INVALID, "sign 0");
    CHECK(plait_fft1_create(INT64_MAX, PLAIT_C64, 1, 1.0, &fft) == PLAIT_ERR_OVERFLOW,
          "2^63");
    CHECK(fft == NULL, "a plan came with an error");
    plait_fft1_destroy(&fft);
    CHECK(plait_fft1_create(8, PLAIT_C64, 1, 1.0, &fft) == PLAIT_OK, "n 8");
    plait_fft1_rows(fft, 0, NULL, 0, NULL, 0, NULL, PLAIT_FFT_STORE);
    plait_fft1_destroy(&fft);
    plait_fft1_destroy(&fft);
}

/* Rows at one distance in bytes, or at another: the same bits. */
static void rows_between(plait_fft1_t *fft, int64_t n, int64_t itemsize,
                         const int64_t padding[2], char *scratch, char *result)
{
    enum { N_ROWS = 21 };
    const int64_t row = n * itemsize, in_pitch = row + padding[0],
                  out_pitch = row + padding[1];
    char *in = plait_alloc_aligned(N_ROWS * in_pitch + GUARD);
    char *out = (padding[0] == padding[1])
                    ? in
                    : plait_alloc_aligned(N_ROWS * out_pitch + GUARD);
    bool is_kept = true;

    memset(out, PATTERN, (size_t)(N_ROWS * out_pitch + GUARD));
    memset(in, PATTERN, (size_t)(N_ROWS * in_pitch + GUARD));
    for (int64_t r = 0; r < N_ROWS; r++) {
        for (int64_t j = 0; j < n; j++) {
            const double w[2] = {input(r, j, 0), input(r, j, 1)};
            plait_fft_set((itemsize == 16) ? PLAIT_C128 : PLAIT_C64, in + r * in_pitch,
                          j, w);
        }
    }
    plait_fft1_rows(fft, N_ROWS, in, in_pitch, out, out_pitch, scratch,
                    PLAIT_FFT_STORE);
    for (int64_t r = 0; r < N_ROWS; r++) {
        memcpy(result + r * row, out + r * out_pitch, (size_t)row);
        for (int64_t b = 0; b < padding[1]; b++) {
            is_kept = is_kept && out[r * out_pitch + row + b] == PATTERN;
        }
    }
    CHECK(is_kept, "rows of %lld: bytes between them", (long long)n);
    if (out != in) {
        plait_free(out);
    }
    plait_free(in);
}

/* Rows that fall on few sets of the cache are copied, on either side, both or neither; equal paddings mean in
 * place. */
static void test_fft1_pitches(int64_t n, plait_dtype_t dtype)
{
    static const int64_t paddings[][2] = {
        {64, 128}, {0, 64}, {64, 0}, {0, 0}, {64, 64}};
    enum { N_ROWS = 21 };
    const int64_t itemsize = plait_dtype_bytes(dtype), n_bytes = N_ROWS * n * itemsize;
    plait_fft1_t *fft = NULL;
    char *want = plait_alloc_aligned(n_bytes), *got = plait_alloc_aligned(n_bytes);

    CHECK(plait_fft1_create(n, dtype, -1, scale, &fft) == PLAIT_OK, "n %lld",
          (long long)n);
    char *scratch = plait_alloc_aligned(plait_fft1_scratch_bytes(fft));
    for (int i = 0; i < (int)(sizeof(paddings) / sizeof(paddings[0])); i++) {
        rows_between(fft, n, itemsize, paddings[i], scratch, (i == 0) ? want : got);
        CHECK(i == 0 || memcmp(want, got, (size_t)n_bytes) == 0,
              "rows of %lld %s %s, padding %lld and %lld", (long long)n,
              plait_dtype_name(dtype), plait_fft1_isa(), (long long)paddings[i][0],
              (long long)paddings[i][1]);
    }
    plait_free(scratch);
    plait_free(want);
    plait_free(got);
    plait_fft1_destroy(&fft);
}

/* ---- the matrix of problems */

static const int64_t counts[] = {1, 2, 3, 5, 8, 17};

enum { N_COUNTS = sizeof counts / sizeof counts[0] };

/* Two dtypes, both signs; other choices go through their combinations as n grows. */
static void test_length(const reference_t *reference, bool is_short)
{
    for (int i = 0; i < 4; i++) {
        problem_t p = {.n = reference->n, .dtype = (i % 2) ? PLAIT_C64 : PLAIT_C128};
        const int64_t real_bytes = plait_dtype_bytes(p.dtype) / 2;

        p.sign = (i < 2) ? -1 : 1;
        for (int j = 0; j < 2 * N_COUNTS; j++) {
            const int64_t mix = reference->n + 5 * j + i;

            p.n_columns = counts[j % N_COUNTS];
            p.is_rows = j >= N_COUNTS;
            p.in_place = mix % 2;
            p.streams = (mix / 2) % 2;
            p.shift = (mix / 4) % 3 == 0 ? 0 : (mix / 4) % 3 * real_bytes;
            p.padding = (mix % 3 == 0) ? 0 : (mix % 3 == 1) ? real_bytes : 64;
            if (is_short || j % 3 == i % 3) {
                test_fft1_random(&p, reference);
            }
        }
        p.n_columns = is_short ? 17 : 9;
        p.is_rows = i == 3;
        test_fft1_impulse(&p);
        p.is_rows = false;
        p.in_place = false;
        test_fft1_grouping(&p);
    }
}

int main(void)
{
    static const int64_t others[] = {74,   81,   101,   121,   125,   128,  169,  189,
                                     197,  233,  240,   243,   254,   256,  257,  343,
                                     360,  394,  512,   1000,  1009,  1024, 2048, 2310,
                                     4096, 8192, 10007, 12000, 20014, 36864};
    static reference_t reference;
    const int n_others = sizeof others / sizeof others[0];

    test_fft1_refuses();
    for (int i = 0; i < 64 + n_others; i++) {
        make_reference((i < 64) ? i + 1 : others[i - 64], &reference);
        for (int l = 0; l < N_ISAS; l++) {
            if (isa_use(l)) {
                test_length(&reference, reference.n <= 400);
                test_fft1_pitches(reference.n, PLAIT_C128);
                test_fft1_pitches(reference.n, PLAIT_C64);
            }
        }
    }
    return report("test_fft1");
}
