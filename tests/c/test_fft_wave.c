/* Transforms by cosines and sines against sums in long double, for every instruction set of this machine: all
 * types, edges, columns and rows, strides, odd counts of lines, in place. */
#include "check.h"
#include "isa.h"
#include "kernel/fft.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERN = 0x5a, GUARD = 64, MAX_RESULTS = 40, MAX_LINES = 70 };

typedef struct {
    int64_t n, n_lines, padding;
    plait_dtype_t dtype;
    bool is_rows, is_in_place;
    plait_wave_t wave;
} problem_t;

static const double scale = 0.75;

static const char *text(const problem_t *p)
{
    static char line[200];

    snprintf(line, sizeof line, "wave1 %s %s %s %d of %lld, %lld %s%s, edges %g %g",
             plait_fft1_isa(), plait_dtype_name(p->dtype),
             p->wave.is_sine ? "sine" : "cosine", p->wave.type, (long long)p->n,
             (long long)p->n_lines, p->is_rows ? "rows" : "columns",
             p->is_in_place ? " in place" : "", p->wave.edge_in, p->wave.edge_out);
    return line;
}

/* Exact in float. */
static double input(int64_t line, int64_t j)
{
    return rint(0x1p20 * sample((uint64_t)line, (uint64_t)j)) * 0x1p-20;
}

/* Whether element i is an end of the line, in the operand or the result, with a factor of its own. */
static bool is_edge(const plait_wave_t *w, int64_t n, int64_t i, int type)
{
    const bool is_first = i == 0;
    const bool is_last = i == n - 1;

    return (w->type == 1 && !w->is_sine && (is_first || is_last)) ||
           (w->type == type && (w->is_sine ? is_last : is_first));
}

/* cos or sin of 2 pi t / n_roots, recomputed for every n and wave. */
static long double *root;
static int64_t n_roots;

/* Results of a line with and without factors at its ends, NaN until asked for. */
static double results[2][MAX_LINES][MAX_RESULTS];

static void make_roots(int64_t n, const plait_wave_t *wave)
{
    const int64_t period = (wave->type != 1) ? n : wave->is_sine ? n + 1 : n - 1;
    const long double pi = acosl(-1.0L);

    n_roots = 8 * period;
    free(root);
    root = malloc((size_t)n_roots * sizeof *root);
    for (int64_t t = 0; t < n_roots; t++) {
        const long double angle = 2 * pi * (long double)t / (long double)n_roots;
        root[t] = wave->is_sine ? sinl(angle) : cosl(angle);
    }
    for (size_t i = 0; i < sizeof results / sizeof(double); i++) {
        ((double *)(void *)results)[i] = (double)NAN;
    }
}

/* cos or sin of 2 pi (j + a) (k + b) / (2 period), where a and b may be halves. */
static long double factor(const plait_wave_t *w, int64_t j, int64_t k)
{
    const int64_t half_j = (w->type == 2 || w->type == 4) ? 1 : 2 * w->is_sine;
    const int64_t half_k = (w->type == 3 || w->type == 4) ? 1 : 2 * w->is_sine;

    return root[(2 * j + half_j) * (2 * k + half_k) % n_roots];
}

static double sum(const problem_t *p, int64_t line, int64_t k)
{
    long double y = 0;

    for (int64_t j = 0; j < p->n; j++) {
        const bool is_half = is_edge(&p->wave, p->n, j, 3);
        y += (is_half ? 0.5 * p->wave.edge_in : 1) * 2 * input(line, j) *
             factor(&p->wave, j, k);
    }
    return (double)(scale * (is_edge(&p->wave, p->n, k, 2) ? p->wave.edge_out : 1) * y);
}

/* Result k of a line, stored at place `at` of the results that are checked. */
static double reference(const problem_t *p, int64_t line, int64_t at, int64_t k)
{
    double *known = &results[p->wave.edge_in > 1][line][at];

    if (isnan(*known)) {
        *known = sum(p, line, k);
    }
    return *known;
}

typedef struct {
    char *memory, *data;
    int64_t step, pitch, n_bytes;
} side_t;

static double get(const problem_t *p, const side_t *s, int64_t line, int64_t j)
{
    const char *at = s->data + line * s->pitch + j * s->step;
    float single = 0;
    double x = 0;

    if (p->dtype == PLAIT_F32) {
        memcpy(&single, at, sizeof single);
        x = (double)single;
    } else {
        memcpy(&x, at, sizeof x);
    }
    return x;
}

static void put(const problem_t *p, const side_t *s, int64_t line, int64_t j, double x)
{
    char *at = s->data + line * s->pitch + j * s->step;
    const float single = (float)x;

    if (p->dtype == PLAIT_F32) {
        memcpy(at, &single, sizeof single);
    } else {
        memcpy(at, &x, sizeof x);
    }
}

static side_t side_create(const problem_t *p)
{
    const int64_t itemsize = (p->dtype == PLAIT_F32) ? 4 : 8;
    side_t s = {.step = p->is_rows ? itemsize : p->n_lines * itemsize + p->padding,
                .pitch = p->is_rows ? p->n * itemsize + p->padding : itemsize};

    s.n_bytes = (p->n - 1) * s.step + (p->n_lines - 1) * s.pitch + itemsize;
    s.memory = malloc((size_t)(2 * GUARD + s.n_bytes));
    memset(s.memory, PATTERN, (size_t)(2 * GUARD + s.n_bytes));
    s.data = s.memory + GUARD;
    for (int64_t line = 0; line < p->n_lines; line++) {
        for (int64_t j = 0; j < p->n; j++) {
            put(p, &s, line, j, input(line, j));
        }
    }
    return s;
}

/* Bytes before, behind and between the lines are unchanged. */
static bool is_padding_kept(const problem_t *p, const side_t *s)
{
    const int64_t outer = p->is_rows ? s->pitch : s->step;
    bool is_kept = true;

    for (int64_t i = 0; i < GUARD; i++) {
        is_kept =
            is_kept && s->memory[i] == PATTERN && s->data[s->n_bytes + i] == PATTERN;
    }
    for (int64_t end = outer; end < s->n_bytes; end += outer) {
        for (int64_t i = end - p->padding; i < end; i++) {
            is_kept = is_kept && s->data[i] == PATTERN;
        }
    }
    return is_kept;
}

static void run(const problem_t *p, const plait_fft1_t *fft, const side_t *in,
                const side_t *out)
{
    const char **in_row = malloc((size_t)p->n * sizeof *in_row);
    char **out_row = malloc((size_t)p->n * sizeof *out_row);
    char *scratch = NULL;

    if (posix_memalign((void **)&scratch, 64, (size_t)plait_fft1_scratch_bytes(fft)) !=
        0) {
        abort();
    }
    for (int64_t j = 0; j < p->n; j++) {
        in_row[j] = in->data + j * in->step - 8;
        out_row[j] = out->data + j * out->step - 16;
    }
    if (p->is_rows) {
        plait_fft1_rows(fft, p->n_lines, in->data, in->pitch, out->data, out->pitch,
                        scratch, PLAIT_FFT_STORE);
    } else {
        plait_fft1_columns(fft, p->n_lines, in_row, 8, out_row, 16, scratch,
                           PLAIT_FFT_STORE);
    }
    free(scratch);
    free(in_row);
    free(out_row);
}

static void test(const problem_t *p)
{
    const double eps = (p->dtype == PLAIT_F32) ? 0x1p-23 : 0x1p-52;
    const double tolerance = 16 * eps * log2((double)(p->n + 3));
    const int64_t step = (p->n + MAX_RESULTS - 1) / MAX_RESULTS;
    plait_fft1_t *fft = NULL;
    side_t in = side_create(p);
    side_t own = side_create(p);
    const side_t *out = p->is_in_place ? &in : &own;

    CHECK(plait_fft1_create_wave(p->n, p->dtype, &p->wave, scale, &fft) == PLAIT_OK,
          "%s: %s", text(p), plait_error_text());
    if (fft != NULL) {
        run(p, fft, &in, out);
        for (int64_t line = 0; line < p->n_lines; line += (p->n_lines > 5) ? 3 : 1) {
            double worst = 0;
            double norm = 0;
            for (int64_t k = 0; k < p->n; k += step) {
                const double want = reference(p, line, k / step, k);
                const double error = fabs(get(p, out, line, k) - want);
                worst = (error > worst || isnan(error)) ? error : worst;
                norm = fmax(norm, fabs(want));
            }
            CHECK(worst <= tolerance * norm, "%s: line %lld: error %g of %g", text(p),
                  (long long)line, worst, norm);
        }
        CHECK(is_padding_kept(p, out), "%s: writes beyond its results", text(p));
    }
    plait_fft1_destroy(&fft);
    free(in.memory);
    free(own.memory);
}

static void test_wave(int64_t n, const plait_wave_t *wave, bool is_long)
{
    static const int64_t counts[] = {1, 2, 3, 16, 33, MAX_LINES};

    make_roots(n, wave);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (int variant = 0; variant < 8; variant++) {
            const bool has_edges = (variant + (int)c + (int)n) % 3 == 0;
            problem_t p = {.n = n,
                           .n_lines = counts[c],
                           .padding = (variant % 3 == 0) ? 24 : 0,
                           .dtype = (variant & 1) ? PLAIT_F32 : PLAIT_F64,
                           .is_rows = (variant & 2) != 0,
                           .is_in_place = (variant & 4) != 0,
                           .wave = *wave};
            p.wave.edge_in = has_edges ? 1.5 : 1;
            p.wave.edge_out = has_edges ? 0.25 : 1;
            if (!is_long || counts[c] <= 3) {
                test(&p);
            }
        }
    }
}

static void test_length(int64_t n, bool is_long)
{
    for (int type = 1; type <= 4; type++) {
        for (int is_sine = 0; is_sine < 2; is_sine++) {
            const plait_wave_t wave = {.type = type, .is_sine = is_sine != 0};
            if (n > 1 || type != 1 || is_sine != 0) {
                test_wave(n, &wave, is_long);
            }
        }
    }
}

static void test_errors(void)
{
    const plait_wave_t cosine = {.type = 1, .edge_in = 1, .edge_out = 1};
    const plait_wave_t none = {.type = 5, .edge_in = 1, .edge_out = 1};
    plait_fft1_t *fft = NULL;

    CHECK(plait_fft1_create_wave(1, PLAIT_F64, &cosine, 1, &fft) == PLAIT_ERR_INVALID,
          "one point");
    CHECK(plait_fft1_create_wave(4, PLAIT_C64, &cosine, 1, &fft) == PLAIT_ERR_INVALID,
          "not real");
    CHECK(plait_fft1_create_wave(4, PLAIT_F64, &none, 1, &fft) == PLAIT_ERR_INVALID,
          "no type");
    CHECK(fft == NULL, "nothing made");
}

int main(void)
{
    static const int64_t lengths[] = {37, 48, 63, 64, 65, 100};
    static const int64_t longs[] = {255, 256, 1009, 4096, 4099, 5000};
    static const isa_lengths_t of = {.all = 20,
                                     .some = lengths,
                                     .n_some = sizeof lengths / sizeof *lengths,
                                     .longs = longs,
                                     .n_longs = sizeof longs / sizeof *longs};

    test_errors();
    isa_test_each(&of, test_length);
    free(root);
    return report("test_fft_wave");
}
