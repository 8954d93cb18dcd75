/* Transforms of real numbers against sums in long double, for every instruction set of this
 * machine: both directions, signs and weights; rows and columns, strides, odd numbers of them. */
#include "check.h"
#include "isa.h"
#include "kernel/rfft.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINES = 70, MAX_RESULTS = 40, PATTERN = 0x5a, GUARD = 64 };

typedef struct {
    int64_t n, n_lines, padding;
    plait_dtype_t dtype;
    bool to_complex, is_rows;
    bool
        are_unlike; /* lines of other sizes than their neighbours, of zeros, with a NaN */
    int sign;
    double weight;
} problem_t;

static const double scale = 0.75;

static const char *text(const problem_t *p)
{
    static char line[160];

    snprintf(line, sizeof line, "rfft1 %s %s %lld %s%c %lld %s padding %lld weight %g",
             plait_fft1_isa(), plait_dtype_name(p->dtype), (long long)p->n,
             p->to_complex ? "to complex " : "to real ", p->sign < 0 ? '-' : '+',
             (long long)p->n_lines, p->is_rows ? "rows" : "columns",
             (long long)p->padding, p->weight);
    return line;
}

static bool has_nan(const problem_t *p, int64_t l)
{
    return p->are_unlike && l % 7 == 3;
}

/* Part `part` of element j of line l: exact in float. */
static double input(const problem_t *p, int64_t l, int64_t j, int part)
{
    static const double sizes[] = {1, 0x1p40, 0, 1, 0x1p-40, 1, 3};
    const double x = sample((uint64_t)(2 * l + part), (uint64_t)j);
    const double size = p->are_unlike ? sizes[l % 7] : 1;

    return (has_nan(p, l) && j == 0) ? NAN : rint(0x1p20 * x) * 0x1p-20 * size;
}

static int64_t n_half(const problem_t *p)
{
    return p->n / 2 + 1;
}

static bool is_edge(const problem_t *p, int64_t k)
{
    return 2 * k % p->n == 0;
}

/* cos and sin of 2 pi t / n, recomputed for every n. */
static long double *root;

/* Results of lines, NaN until asked for; the first indices are the other things that they depend on. */
static double results[2][2][2][2][MAX_LINES][MAX_RESULTS][2];

static void make_roots(int64_t n)
{
    const long double unit = 2 * acosl(-1.0L) / (long double)n;

    free(root);
    root = malloc((size_t)n * 2 * sizeof *root);
    for (int64_t t = 0; t < n; t++) {
        root[2 * t] = cosl(unit * (long double)t);
        root[2 * t + 1] = sinl(unit * (long double)t);
    }
    for (size_t i = 0; i < sizeof results / sizeof(double); i++) {
        ((double *)(void *)results)[i] = (double)NAN;
    }
}

static void sum(const problem_t *p, int64_t l, int64_t k, double result[2])
{
    long double y[2] = {0, 0};

    if (p->to_complex) {
        for (int64_t j = 0; j < p->n; j++) {
            const long double *w = root + 2 * (j * k % p->n);
            y[0] += input(p, l, j, 0) * w[0];
            y[1] += p->sign * input(p, l, j, 0) * w[1];
        }
        y[0] *= scale * (is_edge(p, k) ? 1 : p->weight);
        y[1] *= scale * (is_edge(p, k) ? 0 : p->weight);
    } else {
        for (int64_t j = 0; j < n_half(p); j++) {
            const long double *w = root + 2 * (j * k % p->n);
            const long double weight = is_edge(p, j) ? 1 : p->weight;
            const long double im = is_edge(p, j) ? 0 : input(p, l, j, 1);
            y[0] += weight * (input(p, l, j, 0) * w[0] - p->sign * im * w[1]);
        }
        y[0] *= scale;
    }
    result[0] = (double)y[0];
    result[1] = (double)y[1];
}

/* Result k of a line, stored at place `at` of the results that are checked. */
static const double *reference(const problem_t *p, int64_t l, int64_t at, int64_t k)
{
    double *known =
        results[p->to_complex][p->sign > 0][p->weight > 1][p->are_unlike][l][at];

    if (isnan(known[0])) {
        sum(p, l, k, known);
    }
    return known;
}

/* The array on one side: bytes from element to element and from line to line. */
typedef struct {
    char *memory, *data;
    int64_t step, pitch, n_bytes, n_elements;
    int n_parts;
} side_t;

static double get(const problem_t *p, const side_t *s, int64_t l, int64_t j, int part)
{
    const char *at = s->data + l * s->pitch + j * s->step;
    float f = 0;
    double d = 0;

    if (p->dtype == PLAIT_F32) {
        memcpy(&f, at + 4 * part, sizeof f);
        return (double)f;
    }
    memcpy(&d, at + 8 * part, sizeof d);
    return d;
}

static void put(const problem_t *p, const side_t *s, int64_t l, int64_t j, int part,
                double x)
{
    char *at = s->data + l * s->pitch + j * s->step;
    const float f = (float)x;

    if (p->dtype == PLAIT_F32) {
        memcpy(at + 4 * part, &f, sizeof f);
    } else {
        memcpy(at + 8 * part, &x, sizeof x);
    }
}

static side_t side_create(const problem_t *p, bool is_complex)
{
    const int64_t itemsize = (p->dtype == PLAIT_F32 ? 4 : 8) * (is_complex ? 2 : 1);
    side_t s = {.n_elements = is_complex ? n_half(p) : p->n,
                .n_parts = is_complex ? 2 : 1};

    s.step = p->is_rows ? itemsize : p->n_lines * itemsize + p->padding;
    s.pitch = p->is_rows ? s.n_elements * itemsize + p->padding : itemsize;
    s.n_bytes = (s.n_elements - 1) * s.step + (p->n_lines - 1) * s.pitch + itemsize;
    s.memory = malloc((size_t)(GUARD + s.n_bytes));
    memset(s.memory, PATTERN, (size_t)(GUARD + s.n_bytes));
    s.data = s.memory + GUARD;
    for (int64_t l = 0; l < p->n_lines; l++) {
        for (int64_t j = 0; j < s.n_elements; j++) {
            for (int part = 0; part < s.n_parts; part++) {
                put(p, &s, l, j, part, input(p, l, j, part));
            }
        }
    }
    return s;
}

/* Bytes between the lines are unchanged. */
static bool is_padding_kept(const problem_t *p, const side_t *s)
{
    const int64_t outer = p->is_rows ? s->pitch : s->step;
    bool is_kept = true;

    for (int64_t i = 0; i < GUARD; i++) {
        is_kept = is_kept && s->memory[i] == PATTERN;
    }
    for (int64_t end = outer; end < s->n_bytes; end += outer) {
        for (int64_t i = end - p->padding; i < end; i++) {
            is_kept = is_kept && s->data[i] == PATTERN;
        }
    }
    return is_kept;
}

static void run(const problem_t *p, const plait_rfft1_t *fft, const side_t *in,
                const side_t *out)
{
    const char **in_row = malloc((size_t)in->n_elements * sizeof *in_row);
    char **out_row = malloc((size_t)out->n_elements * sizeof *out_row);
    const int64_t n_bytes = plait_rfft1_scratch_bytes(fft);
    char *scratch = NULL;

    if (posix_memalign((void **)&scratch, 64, (size_t)n_bytes) != 0) {
        abort();
    }
    for (int64_t j = 0; j < in->n_elements; j++) {
        in_row[j] = in->data + j * in->step;
    }
    for (int64_t k = 0; k < out->n_elements; k++) {
        out_row[k] = out->data + k * out->step;
    }
    if (p->is_rows) {
        plait_rfft1_rows(fft, p->n_lines, in->data, in->pitch, out->data, out->pitch,
                         scratch);
    } else {
        plait_rfft1_columns(fft, p->n_lines, in_row, 0, out_row, 0, scratch);
    }
    free(scratch);
    free(in_row);
    free(out_row);
}

/* Relative errors as in docs/architecture.md for complex transforms. */
static double tolerance(const problem_t *p)
{
    const double eps = (p->dtype == PLAIT_F32) ? 0x1p-23 : 0x1p-52;
    const double log2n = log2((double)(p->n < 2 ? 2 : p->n));

    return 16 * eps * log2n;
}

static void test(const problem_t *p)
{
    plait_rfft1_t *fft = NULL;
    side_t in = side_create(p, !p->to_complex);
    side_t out = side_create(p, p->to_complex);

    CHECK(plait_rfft1_create(p->n, p->dtype, p->to_complex, p->sign, p->weight, scale,
                             &fft) == PLAIT_OK,
          "%s: %s", text(p), plait_error_text());
    if (fft != NULL) {
        const int64_t step = (out.n_elements + MAX_RESULTS - 1) / MAX_RESULTS;
        run(p, fft, &in, &out);
        for (int64_t l = 0; l < p->n_lines; l += (p->n_lines > 5) ? 3 : 1) {
            double worst = 0, norm = 0;
            for (int64_t k = 0; k < out.n_elements && !has_nan(p, l); k += step) {
                const double *want = reference(p, l, k / step, k);
                for (int part = 0; part < (p->to_complex ? 2 : 1); part++) {
                    double error = fabs(get(p, &out, l, k, part) - want[part]);
                    worst = (error > worst || isnan(error)) ? error : worst;
                    norm = fmax(norm, fabs(want[part]));
                }
            }
            CHECK(worst <= tolerance(p) * norm, "%s: line %lld: error %g of %g",
                  text(p), (long long)l, worst, norm);
            CHECK(!has_nan(p, l) || isnan(get(p, &out, l, 0, 0)), "%s: line %lld",
                  text(p), (long long)l);
        }
        CHECK(is_padding_kept(p, &out), "%s: writes beyond its results", text(p));
    }
    plait_rfft1_destroy(&fft);
    free(in.memory);
    free(out.memory);
}

static void test_length(int64_t n, bool is_long)
{
    static const int64_t counts[] = {1, 2, 3, 8, 33, MAX_LINES};

    make_roots(n);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (int variant = 0; variant < 16; variant++) {
            problem_t p = {.n = n,
                           .n_lines = counts[c],
                           .padding = (variant % 3 == 0) ? 24 : 0,
                           .dtype = (variant & 1) ? PLAIT_F32 : PLAIT_F64,
                           .to_complex = (variant & 2) != 0,
                           .is_rows = (variant & 4) != 0,
                           .sign = (variant & 8) ? 1 : -1,
                           .weight = ((variant + (int)c) % 3 == 0) ? 2 : 1};
            if (!is_long || (counts[c] <= 3 && variant < 8)) {
                test(&p);
            }
            p.are_unlike = true;
            if (!is_long && (counts[c] == 8 || (counts[c] == 33 && n % 4 == 1))) {
                test(&p);
            }
        }
    }
}

static void test_errors(void)
{
    plait_rfft1_t *fft = NULL;

    CHECK(plait_rfft1_create(0, PLAIT_F64, true, -1, 1, 1, &fft) == PLAIT_ERR_INVALID,
          "no points");
    CHECK(plait_rfft1_create(4, PLAIT_C64, true, -1, 1, 1, &fft) == PLAIT_ERR_INVALID,
          "not real");
    CHECK(plait_rfft1_create(4, PLAIT_F64, true, 0, 1, 1, &fft) == PLAIT_ERR_INVALID,
          "no sign");
    CHECK(fft == NULL, "nothing made");
}

int main(void)
{
    static const int64_t lengths[] = {37, 48, 49, 64, 66, 100, 101, 127, 128, 130};
    static const int64_t longs[] = {255, 256, 1000, 1009, 4096, 10007, 10014, 16384};
    static const isa_lengths_t of = {.all = 35,
                                     .some = lengths,
                                     .n_some = sizeof lengths / sizeof *lengths,
                                     .longs = longs,
                                     .n_longs = sizeof longs / sizeof *longs};

    test_errors();
    isa_test_each(&of, test_length);
    free(root);
    return report("test_rfft1");
}
