/* Transforms by cosines and sines, through Fourier transforms: of real numbers for types 1 to 3, of complex
 * numbers for type 4. Tables describe the work before and after these: which rows, and their factors. Rows are
 * pointers, so that reordering them costs nothing. An array's own rows are turned into columns.
 * Source: Makhoul, IEEE Trans. ASSP 28 (1980) 27, for types 2 and 3; Britanak, Yip and Rao (2007) for type 4
 * by n / 2 complex numbers. Type 4 of odd n is a transform of 2 n. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"
#include "kernel/fft_plan.h"
#include "kernel/fft_twiddle.h"
#include "kernel/rfft.h"

#include <string.h>

enum {
    ROWS_AT_ONCE = 16,
    MIN_BLOCK = 16,
    MIN_LONG_BLOCK = 8, /* of lines that fit into no cache */
    MAX_BLOCK = 512,
    MAX_TURNED = 4096, /* points: longer rows are done one by one */
    MIN_LONG = 32768,
    BLOCK_BYTES = 128 << 10 /* of the real columns that are transformed at once */
};

/* ---- tables */

/* Whether place i has an edge's factor, see plait_wave_t. type: 3 for places of an operand, 2 of a result. */
static bool is_edge(const plait_fft1_t *fft, int64_t i, int type)
{
    const plait_wave_t *w = &fft->wave;

    return (w->type == 1 && !w->is_sine && (i == 0 || i == fft->n - 1)) ||
           (w->type == type && i == (w->is_sine ? fft->n - 1 : 0));
}

/* Sines are cosines of reversed lines, or of lines with alternating signs. */
static int64_t turned(const plait_fft1_t *fft, int64_t i)
{
    return fft->wave.is_sine ? fft->n - 1 - i : i;
}

static double alternating(const plait_fft1_t *fft, int64_t i)
{
    return (fft->wave.is_sine && i % 2 != 0) ? -1 : 1;
}

/* Even places, then odd places in reverse. */
static int64_t dealt(int64_t n, int64_t i)
{
    return (2 * i < n) ? 2 * i : 2 * (n - i) - 1;
}

/* Type 1: one period of the lines as they continue beyond their ends. */
static void set_period(plait_fft1_t *fft)
{
    plait_fft_wave_t *w = &fft->u.wave;
    const int64_t n = fft->n;
    const int64_t m = w->n_singles;

    for (int64_t i = 0; i < m; i++) {
        plait_fft_single_t *s = &w->singles[i];
        if (!fft->wave.is_sine) {
            s->place = (i < n) ? i : m - i;
            s->factor = is_edge(fft, s->place, 3) ? fft->wave.edge_in : 1;
        } else if (i % (n + 1) == 0) {
            *s = (plait_fft_single_t){.place = -1, .factor = 1};
        } else {
            s->place = (i <= n) ? i - 1 : m - i - 1;
            s->factor = (i <= n) ? 1 : -1;
        }
    }
    for (int64_t k = 0; k < n; k++) {
        plait_fft_pair_t *p = &w->pairs[k];
        const double scale = fft->scale * (is_edge(fft, k, 2) ? fft->wave.edge_out : 1);
        *p = (plait_fft_pair_t){.a = k, .b = -1};
        p->f[fft->wave.is_sine ? 1 : 0] = fft->wave.is_sine ? -scale : scale;
    }
}

/* Types 2 and 3: the order of the lines, even places first, and their spectrum, in which y_k and y_(n-k) make
 * one number. */
static void set_spectrum(plait_fft1_t *fft, const plait_roots_t *roots)
{
    plait_fft_wave_t *w = &fft->u.wave;
    const int64_t n = fft->n;
    const bool is_back = fft->wave.type == 3;

    for (int64_t i = 0; i < n; i++) {
        const int64_t place = dealt(n, i);
        w->singles[i] = (plait_fft_single_t){place, alternating(fft, place)};
    }
    for (int64_t k = 0; k <= n / 2; k++) {
        plait_fft_pair_t *p = &w->pairs[k];
        double u[2];
        const bool is_end = is_edge(fft, turned(fft, k), is_back ? 3 : 2);
        const double edge = is_back ? fft->wave.edge_in : fft->wave.edge_out;
        const double scale = fft->scale * (is_back ? 1 : 2) * (is_end ? edge : 1);

        plait_roots_get(roots, 2 * k, u);
        const double c = scale * u[0];
        const double s = scale * u[1];
        const bool has_two = k > 0 && (is_back || 2 * k != n);
        *p = (plait_fft_pair_t){.a = turned(fft, k),
                                .b = has_two ? turned(fft, n - k) : -1,
                                .f = {c, -s, -s, -c}};
        if (is_back && !has_two) {
            p->f[1] = p->f[3] = 0;
        }
    }
}

/* Type 4, even n: a number at an even place and, counted from the end, one at an odd place make one complex
 * number. */
static void set_halves(plait_fft1_t *fft, const plait_roots_t *roots)
{
    plait_fft_wave_t *w = &fft->u.wave;
    const int64_t n = fft->n;
    const double scale = 2 * fft->scale;

    for (int64_t k = 0; k < n / 2; k++) {
        double u[2];
        const double even = scale * alternating(fft, 2 * k);
        const double odd = scale * alternating(fft, n - 1 - 2 * k);

        plait_roots_get(roots, 4 * k, u);
        w->pairs[k] = (plait_fft_pair_t){.a = turned(fft, 2 * k),
                                         .b = turned(fft, n - 1 - 2 * k),
                                         .f = {u[0], -u[1], u[1], u[0]}};
        plait_roots_get(roots, 4 * k + 1, u);
        w->pairs[n / 2 + k] = (plait_fft_pair_t){
            .a = 2 * k,
            .b = n - 1 - 2 * k,
            .f = {even * u[0], -even * u[1], -odd * u[1], -odd * u[0]}};
    }
}

/* Type 4, odd n: each number by itself, with as many zeros behind them. */
static void set_doubles(plait_fft1_t *fft, const plait_roots_t *roots)
{
    plait_fft_wave_t *w = &fft->u.wave;
    const int64_t n = fft->n;

    for (int64_t k = 0; k < n; k++) {
        double u[2];
        const double scale = 2 * fft->scale * alternating(fft, k);

        plait_roots_get(roots, 2 * k, u);
        w->pairs[k] =
            (plait_fft_pair_t){.a = turned(fft, k), .b = -1, .f = {u[0], 0, u[1], 0}};
        plait_roots_get(roots, 2 * k + 1, u);
        w->pairs[n + k] = (plait_fft_pair_t){
            .a = k, .b = -1, .f = {scale * u[0], -scale * u[1], 0, 0}};
    }
}

static void set_sizes(plait_fft1_t *fft)
{
    plait_fft_wave_t *w = &fft->u.wave;
    const int64_t n = fft->n;
    const int type = fft->wave.type;

    if (type == 4) {
        w->n_rows = (n % 2 == 0) ? n / 2 : 2 * n;
        w->n_in = (n % 2 == 0) ? n / 2 : n;
        w->n_out = w->n_in;
    } else {
        w->n_singles = (type != 1) ? n : fft->wave.is_sine ? 2 * (n + 1) : 2 * (n - 1);
        w->n_rows = w->n_singles / 2 + 1;
        w->n_in = (type == 3) ? w->n_rows : 0;
        w->n_out = (type == 1) ? n : (type == 2) ? w->n_rows : 0;
    }
    const int64_t n_lines = plait_max(2 * w->n_rows, w->n_singles);
    w->n_block = BLOCK_BYTES / (n_lines * fft->itemsize) / MIN_BLOCK * MIN_BLOCK;
    w->n_block = plait_max(w->n_block, (n < MIN_LONG) ? MIN_BLOCK : MIN_LONG_BLOCK);
    w->n_block = plait_min(w->n_block, MAX_BLOCK);
}

static plait_status_t make_tables(plait_fft1_t *fft)
{
    plait_fft_wave_t *w = &fft->u.wave;
    plait_status_t status = PLAIT_OK;
    plait_roots_t roots = {0};

    PLAIT_TRY(plait_roots_create(8 * fft->n, &roots));
    w->singles = plait_alloc(w->n_singles, sizeof *w->singles);
    w->pairs = plait_alloc(w->n_in + w->n_out, sizeof *w->pairs);
    PLAIT_CHECK(w->singles != NULL && w->pairs != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for a transform of %lld points", (long long)fft->n);
    if (fft->wave.type == 1) {
        set_period(fft);
    } else if (fft->wave.type < 4) {
        set_spectrum(fft, &roots);
    } else if (fft->n % 2 == 0) {
        set_halves(fft, &roots);
    } else {
        set_doubles(fft, &roots);
    }
    w->is_plain = true;
    for (int64_t i = 0; i < w->n_singles; i++) {
        w->is_plain = w->is_plain && w->singles[i].factor == 1;
    }
done:
    plait_roots_destroy(&roots);
    return status;
}

/* ---- creation */

/* Scratch, in byte offsets: pointers to real rows and to complex rows; the complex rows; copies of real rows; a
 * row of zeros, or one that nobody reads; rows turned into columns, and pointers to these; what the Fourier
 * transform needs. For a row by itself, complex numbers are in the block, real numbers behind it. */
typedef struct {
    int64_t real, complex, block, copies, none, turned, at_turned, rest, total;
    int64_t row_bytes, complex_row_bytes;
} layout_t;

static layout_t layout_of(const plait_fft1_t *fft)
{
    const plait_fft_wave_t *w = &fft->u.wave;
    const int64_t pointer = (int64_t)sizeof(char *);
    layout_t at = {.row_bytes = w->n_block * fft->itemsize};
    const int64_t n_copies = w->is_plain ? 0 : w->n_singles;

    at.complex_row_bytes = 2 * at.row_bytes;
    at.complex = plait_fft_line_up(w->n_singles * pointer);
    at.block = at.complex + plait_fft_line_up(w->n_rows * pointer);
    at.copies = at.block + w->n_rows * at.complex_row_bytes;
    at.none = at.copies + plait_max(n_copies * at.row_bytes,
                                    plait_fft_line_up(w->n_singles * fft->itemsize));
    at.turned = at.none + at.row_bytes;
    at.at_turned = at.turned;
    if (fft->n <= MAX_TURNED) {
        at.at_turned += plait_fft_line_up(fft->n * ROWS_AT_ONCE * fft->itemsize);
    }
    at.rest = at.at_turned + plait_fft_line_up(fft->n * pointer);
    at.total = at.rest + ((w->real != NULL) ? plait_rfft1_scratch_bytes(w->real)
                                            : plait_fft1_scratch_bytes(w->complex));
    return at;
}

static plait_status_t wave_create(plait_fft1_t *fft)
{
    plait_status_t status = PLAIT_OK;
    const plait_dtype_t complex = (fft->dtype == PLAIT_F32) ? PLAIT_C64 : PLAIT_C128;
    const bool is_back = fft->wave.type == 3;
    plait_fft_wave_t *w = &fft->u.wave;

    set_sizes(fft);
    PLAIT_TRY(make_tables(fft));
    if (fft->wave.type == 4) {
        PLAIT_TRY(plait_fft1_create(w->n_rows, complex, -1, 1, &w->complex));
    } else {
        PLAIT_TRY(plait_rfft1_create(w->n_singles, fft->dtype, !is_back,
                                     is_back ? 1 : -1, is_back ? 2 : 1, 1, &w->real));
    }
    fft->scratch_bytes = layout_of(fft).total;
done:
    return status;
}

static void wave_destroy(plait_fft1_t *fft)
{
    plait_fft_wave_t *w = &fft->u.wave;
    plait_rfft1_destroy(&w->real);
    plait_fft1_destroy(&w->complex);
    plait_free(w->singles);
    plait_free(w->pairs);
}

/* ---- columns */

/* n columns of the caller. */
typedef struct {
    int64_t n;
    const char *const *in;
    int64_t in_offset;
    char *const *out;
    int64_t out_offset;
    char *scratch;
} block_t;

/* Collects rows of real numbers before the Fourier transform. */
static void gather(const plait_fft1_t *fft, const layout_t *at, const block_t *b)
{
    const plait_fft_wave_t *w = &fft->u.wave;
    const char **rows = (const char **)(void *)(b->scratch + at->real);

    for (int64_t i = 0; i < w->n_singles; i++) {
        const plait_fft_single_t *s = &w->singles[i];
        const bool is_none = s->place < 0;
        const char *row =
            is_none ? b->scratch + at->none : b->in[s->place] + b->in_offset;
        if (s->factor != 1) {
            char *copy = b->scratch + at->copies + i * at->row_bytes;
            fft->kernels->scale_reals(b->n, s->factor, row, copy);
            row = copy;
        }
        rows[i] = row;
    }
}

/* Sets where the Fourier transform puts rows of real numbers. Rows with factors are scaled there afterwards. */
static void scatter_to(const plait_fft1_t *fft, const layout_t *at, const block_t *b)
{
    const plait_fft_wave_t *w = &fft->u.wave;
    char **rows = (char **)(void *)(b->scratch + at->real);

    for (int64_t i = 0; i < w->n_singles; i++) {
        rows[i] = b->out[w->singles[i].place] + b->out_offset;
    }
}

static void scale_results(const plait_fft1_t *fft, const block_t *b)
{
    const plait_fft_wave_t *w = &fft->u.wave;
    for (int64_t i = 0; i < w->n_singles; i++) {
        const plait_fft_single_t *s = &w->singles[i];
        char *row = b->out[s->place] + b->out_offset;
        if (s->factor != 1) {
            fft->kernels->scale_reals(b->n, s->factor, row, row);
        }
    }
}

static void join_pairs(const plait_fft1_t *fft, const layout_t *at, const block_t *b,
                       char *const rows[])
{
    const plait_fft_wave_t *w = &fft->u.wave;
    for (int64_t k = 0; k < w->n_in; k++) {
        const plait_fft_pair_t *p = &w->pairs[k];
        const char *x = b->in[p->a] + b->in_offset;
        const char *y = (p->b < 0) ? x : b->in[p->b] + b->in_offset;
        fft->kernels->join_reals(b->n, p->f, x, y, rows[k]);
    }
    for (int64_t k = w->n_in; k < w->n_rows; k++) {
        memset(rows[k], 0, (size_t)at->complex_row_bytes);
    }
}

static void part_pairs(const plait_fft1_t *fft, const layout_t *at, const block_t *b,
                       char *const rows[])
{
    const plait_fft_wave_t *w = &fft->u.wave;
    char *none = b->scratch + at->none;

    for (int64_t k = 0; k < w->n_out; k++) {
        const plait_fft_pair_t *p = &w->pairs[w->n_in + k];
        const int64_t row = (fft->wave.type == 1 && fft->wave.is_sine) ? k + 1 : k;
        char *y = (p->b < 0) ? none : b->out[p->b] + b->out_offset;
        fft->kernels->part_reals(b->n, p->f, rows[row], b->out[p->a] + b->out_offset,
                                 y);
    }
}

static void run_block(const plait_fft1_t *fft, const layout_t *at, const block_t *b)
{
    const plait_fft_wave_t *w = &fft->u.wave;
    char **rows = (char **)(void *)(b->scratch + at->complex);
    char **reals = (char **)(void *)(b->scratch + at->real);
    char *rest = b->scratch + at->rest;

    for (int64_t k = 0; k < w->n_rows; k++) {
        rows[k] = b->scratch + at->block + k * at->complex_row_bytes;
    }
    if (fft->wave.type == 4) {
        join_pairs(fft, at, b, rows);
        plait_fft1_columns(w->complex, b->n, (const char *const *)rows, 0, rows, 0,
                           rest, PLAIT_FFT_STORE);
        part_pairs(fft, at, b, rows);
    } else if (fft->wave.type == 3) {
        join_pairs(fft, at, b, rows);
        scatter_to(fft, at, b);
        plait_rfft1_columns(w->real, b->n, (const char *const *)rows, 0, reals, 0,
                            rest);
        scale_results(fft, b);
    } else {
        memset(b->scratch + at->none, 0, (size_t)at->row_bytes);
        gather(fft, at, b);
        plait_rfft1_columns(w->real, b->n, (const char *const *)reals, 0, rows, 0,
                            rest);
        part_pairs(fft, at, b, rows);
    }
}

static void wave_columns(const plait_fft1_t *fft, const plait_fft_columns_t *job,
                         char *scratch)
{
    const plait_fft_wave_t *w = &fft->u.wave;
    const layout_t at = layout_of(fft);

    for (int64_t c = 0; c < job->n_columns; c += w->n_block) {
        const block_t b = {.n = plait_min(w->n_block, job->n_columns - c),
                           .in = job->in,
                           .in_offset = job->in_offset + c * fft->itemsize,
                           .out = job->out,
                           .out_offset = job->out_offset + c * fft->itemsize,
                           .scratch = scratch};
        run_block(fft, &at, &b);
    }
}

static void run_row(const plait_fft1_t *fft, const layout_t *at, const char *in,
                    char *out, char *scratch)
{
    const plait_fft_wave_t *w = &fft->u.wave;
    const plait_fft_kernels_t *kernels = fft->kernels;
    const bool is_odd = fft->wave.type == 1 && fft->wave.is_sine; /* there is no y_0 */
    char *complex = scratch + at->block;
    char *real = scratch + at->copies;
    char *rest = scratch + at->rest;

    if (fft->wave.type == 4) {
        memset(complex, 0, (size_t)(2 * w->n_rows * fft->itemsize));
        kernels->take_pairs(w->n_in, w->pairs, in, complex);
        plait_fft1_rows(w->complex, 1, complex, 0, complex, 0, rest, PLAIT_FFT_STORE);
        kernels->put_pairs(w->n_out, w->pairs + w->n_in, complex, out);
    } else if (fft->wave.type == 3) {
        kernels->take_pairs(w->n_in, w->pairs, in, complex);
        plait_rfft1_rows(w->real, 1, complex, 0, real, 0, rest);
        kernels->put_singles(w->n_singles, w->singles, real, out);
    } else {
        kernels->take_singles(w->n_singles, w->singles, in, real);
        plait_rfft1_rows(w->real, 1, real, 0, complex, 0, rest);
        kernels->put_pairs(w->n_out, w->pairs, complex + 2 * is_odd * fft->itemsize,
                           out);
    }
}

/* Rows as columns of a copy. */
static void run_turned(const plait_fft1_t *fft, const layout_t *at,
                       const plait_fft_rows_t *job, char *scratch)
{
    const int64_t pitch = ROWS_AT_ONCE * fft->itemsize;
    char *columns = scratch + at->turned;
    char **rows = (char **)(void *)(scratch + at->at_turned);

    for (int64_t j = 0; j < fft->n; j++) {
        rows[j] = columns + j * pitch;
    }
    for (int64_t r = 0; r < job->n_rows; r += ROWS_AT_ONCE) {
        const int64_t n = plait_min(ROWS_AT_ONCE, job->n_rows - r);
        const block_t b = {
            .n = n, .in = (const char *const *)rows, .out = rows, .scratch = scratch};
        fft->kernels->turn_reals(n, fft->n, job->in + r * job->in_stride,
                                 job->in_stride, columns, pitch);
        run_block(fft, at, &b);
        fft->kernels->turn_reals(fft->n, n, columns, pitch,
                                 job->out + r * job->out_stride, job->out_stride);
    }
}

static void wave_rows(const plait_fft1_t *fft, const plait_fft_rows_t *job,
                      char *scratch)
{
    const layout_t at = layout_of(fft);

    if (fft->n <= MAX_TURNED) {
        run_turned(fft, &at, job, scratch);
    } else {
        for (int64_t r = 0; r < job->n_rows; r++) {
            run_row(fft, &at, job->in + r * job->in_stride,
                    job->out + r * job->out_stride, scratch);
        }
    }
}

const plait_fft_method_t plait_fft_wave = {"wave", wave_create, wave_destroy,
                                           wave_columns, wave_rows};
