/* Transforms of real numbers by complex ones.
 *
 * Rows of even n: two neighbouring numbers are the parts of one complex number, so a transform of n / 2 points
 * and one pass that splits even from odd (run_even) are enough. Otherwise two rows, or two neighbouring
 * columns, are the parts of one complex row or column, whose transform is split by symmetry. Each of the two
 * then gets the other one's rounding errors, and its NaN. Therefore rows or columns whose numbers are of
 * another size than their neighbours' are transformed alone, beside zeros, in twice the time.
 * Source: Cooley, Lewis and Welch, J. Sound Vib. 12 (1970) 315. */
#include "kernel/rfft.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"
#include "kernel/fft_plan.h"
#include "kernel/fft_twiddle.h"

#include <math.h>
#include <string.h>

enum {
    ROWS_AT_ONCE = 2 * PLAIT_FFT_MAX_LANES, /* through scratch */
    MOST_UNLIKE = 8                         /* times as large as its neighbour */
};

struct plait_rfft1 {
    int64_t n, n_half; /* n / 2 + 1 */
    bool to_complex;
    double edge;              /* factor of k = 0 and n / 2, relative to the others */
    int64_t itemsize;         /* of a complex number */
    plait_fft1_t *half, *all; /* rows of even n; everything else */
    void *u;                  /* of split_row or merge_row: n / 4 + 1 numbers */
    int64_t n_block;          /* complex columns at a time */
    int64_t scratch_bytes;
};

/* ---- creation */

/* u[k] = -i w (to complex) or i w (to real), w = exp(sign 2 pi i k / n), for k <= n / 4. */
static plait_status_t make_table(plait_rfft1_t *fft, plait_dtype_t dtype, int sign)
{
    plait_status_t status = PLAIT_OK;
    const int64_t n_roots = fft->n / 4 + 1;
    const double turn = fft->to_complex ? -1 : 1;
    plait_roots_t roots = {0};

    PLAIT_TRY(plait_roots_create(fft->n, &roots));
    fft->u = plait_alloc(n_roots, fft->itemsize);
    PLAIT_CHECK(fft->u != NULL, PLAIT_ERR_NO_MEMORY, "no memory for %lld roots",
                (long long)n_roots);
    for (int64_t k = 0; k < n_roots; k++) {
        double w[2];

        plait_roots_get(&roots, k, w);
        w[1] *= -sign;
        plait_fft_set(dtype, fft->u, k, (double[2]){-turn * w[1], turn * w[0]});
    }
done:
    plait_roots_destroy(&roots);
    return status;
}

/* Scratch for columns: pointers to rows of the block, and to rows of copies of columns that go alone; the block
 * of n complex rows; these copies; sizes of columns; what the complex transform needs. */
typedef struct {
    int64_t lone, block, copies, sizes, rest, total;
} layout_t;

/* Columns that go alone, at a time. */
static int64_t n_alone(const plait_rfft1_t *fft)
{
    return plait_max(1, fft->n_block / 2);
}

static layout_t layout_of(const plait_rfft1_t *fft)
{
    const int64_t pointer_bytes = plait_fft_line_up(fft->n * (int64_t)sizeof(char *));
    layout_t at = {.lone = pointer_bytes, .block = 2 * pointer_bytes};

    at.copies = at.block + plait_fft_line_up(fft->n * fft->n_block * fft->itemsize);
    at.sizes = at.copies + plait_fft_line_up(2 * fft->n * n_alone(fft) * fft->itemsize);
    at.rest = at.sizes + plait_fft_line_up(4 * fft->n_block * (int64_t)sizeof(double));
    at.total = at.rest + plait_fft1_scratch_bytes(fft->all);
    return at;
}

/* Bytes from row to row of scratch. */
static int64_t row_pitch(const plait_rfft1_t *fft, int64_t n)
{
    return plait_fft_line_up(n * fft->itemsize) + 64;
}

static int64_t rows_bytes(const plait_rfft1_t *fft)
{
    const int64_t n = (fft->half != NULL) ? fft->n / 2 : fft->n;
    const plait_fft1_t *inner = (fft->half != NULL) ? fft->half : fft->all;

    return ROWS_AT_ONCE * row_pitch(fft, n) + plait_fft1_scratch_bytes(inner);
}

plait_status_t plait_rfft1_create(int64_t n, plait_dtype_t dtype, bool to_complex,
                                  int sign, double weight, double scale,
                                  plait_rfft1_t **fft_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_dtype_t complex = (dtype == PLAIT_F32) ? PLAIT_C64 : PLAIT_C128;
    plait_rfft1_t *fft = NULL;

    PLAIT_CHECK(dtype == PLAIT_F32 || dtype == PLAIT_F64, PLAIT_ERR_INVALID,
                "no real transform of %s", plait_dtype_name(dtype));
    PLAIT_CHECK(n >= 1, PLAIT_ERR_INVALID, "a transform of %lld points", (long long)n);
    fft = plait_alloc(1, sizeof *fft);
    PLAIT_CHECK(fft != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a transform");
    fft->n = n;
    fft->n_half = n / 2 + 1;
    fft->to_complex = to_complex;
    fft->edge = 2 / weight;
    fft->itemsize = plait_dtype_bytes(complex);
    PLAIT_TRY(plait_fft1_create(n, complex, sign, scale * weight / 2, &fft->all));
    if (n % 2 == 0) {
        PLAIT_TRY(
            plait_fft1_create(n / 2, complex, sign, scale * weight / 2, &fft->half));
        PLAIT_TRY(make_table(fft, complex, sign));
    }
    fft->n_block = plait_fft_block_columns(fft->all, n);
    fft->scratch_bytes = plait_max(layout_of(fft).total, rows_bytes(fft));
    *fft_p = fft;
    fft = NULL;
done:
    plait_rfft1_destroy(&fft);
    return status;
}

void plait_rfft1_destroy(plait_rfft1_t **fft_p)
{
    plait_rfft1_t *fft = *fft_p;

    if (fft != NULL) {
        plait_fft1_destroy(&fft->half);
        plait_fft1_destroy(&fft->all);
        plait_free(fft->u);
        plait_free(fft);
        *fft_p = NULL;
    }
}

bool plait_rfft1_to_complex(const plait_rfft1_t *fft)
{
    return fft->to_complex;
}

int64_t plait_rfft1_scratch_bytes(const plait_rfft1_t *fft)
{
    return fft->scratch_bytes;
}

/* ---- which lines go together */

static bool are_alike(double a, double b)
{
    return a <= MOST_UNLIKE * b && b <= MOST_UNLIKE * a && a < INFINITY && b < INFINITY;
}

/* ---- columns */

static bool is_edge(const plait_rfft1_t *fft, int64_t k)
{
    return 2 * k % fft->n == 0;
}

/* From the transforms of n complex columns to those of 2 n real columns. */
static void split(const plait_rfft1_t *fft, int64_t n, char *const block[],
                  char *const out[], int64_t out_offset)
{
    for (int64_t k = 0; k < fft->n_half; k++) {
        fft->all->kernels->split_columns(n, is_edge(fft, k) ? fft->edge / 2 : 1,
                                         block[k], block[(fft->n - k) % fft->n],
                                         out[k] + out_offset);
    }
}

static void merge(const plait_rfft1_t *fft, int64_t n, const char *const in[],
                  int64_t in_offset, char *const block[])
{
    const plait_fft_kernels_t *kernels = fft->all->kernels;

    for (int64_t k = 0; k < fft->n_half; k++) {
        const char *from = in[k] + in_offset;
        if (is_edge(fft, k)) {
            kernels->merge_edge(n, fft->edge, from, block[k]);
        } else {
            kernels->merge_columns(n, from, block[k], block[fft->n - k]);
        }
    }
}

/* Transforms n pairs of columns; n is at most n_block. */
static void run_pairs(const plait_rfft1_t *fft, int64_t n, const char *const in[],
                      int64_t in_offset, char *const out[], int64_t out_offset,
                      char *scratch)
{
    const layout_t at = layout_of(fft);
    char **block = (char **)(void *)scratch;

    for (int64_t j = 0; j < fft->n; j++) {
        block[j] = scratch + at.block + j * fft->n_block * fft->itemsize;
    }
    if (fft->to_complex) {
        plait_fft1_columns(fft->all, n, in, in_offset, block, 0, scratch + at.rest,
                           PLAIT_FFT_STORE);
        split(fft, n, block, out, out_offset);
    } else {
        merge(fft, n, in, in_offset, block);
        plait_fft1_columns(fft->all, n, (const char *const *)block, 0, out, out_offset,
                           scratch + at.rest, PLAIT_FFT_STORE);
    }
}

static void copy_number(char *to, const char *from, int64_t n_bytes)
{
    switch (n_bytes) {
    case 4:
        memcpy(to, from, 4);
        break;
    case 8:
        memcpy(to, from, 8);
        break;
    default:
        memcpy(to, from, 16);
        break;
    }
}

/* Writes n numbers of n_bytes to every second place; collect: back. */
static void spread(int64_t n, int64_t n_bytes, const char *from, char *to)
{
    for (int64_t j = 0; j < n; j++) {
        copy_number(to + 2 * j * n_bytes, from + j * n_bytes, n_bytes);
    }
}

static void collect(int64_t n, int64_t n_bytes, const char *from, char *to)
{
    for (int64_t j = 0; j < n; j++) {
        copy_number(to + j * n_bytes, from + 2 * j * n_bytes, n_bytes);
    }
}

/* Transforms n columns, each beside a column of zeros; n is at most n_alone. */
static void run_alone(const plait_rfft1_t *fft, int64_t n, const char *const in[],
                      int64_t in_offset, char *const out[], int64_t out_offset,
                      char *scratch)
{
    const layout_t at = layout_of(fft);
    const int64_t in_bytes = fft->to_complex ? fft->itemsize / 2 : fft->itemsize;
    const int64_t out_bytes = fft->to_complex ? fft->itemsize : fft->itemsize / 2;
    const int64_t n_in = fft->to_complex ? fft->n : fft->n_half;
    const int64_t n_out = fft->to_complex ? fft->n_half : fft->n;
    const int64_t pitch = 2 * n * fft->itemsize;
    char **copy = (char **)(void *)(scratch + at.lone);

    memset(scratch + at.copies, 0, (size_t)(fft->n * pitch));
    for (int64_t j = 0; j < fft->n; j++) {
        copy[j] = scratch + at.copies + j * pitch;
    }
    for (int64_t j = 0; j < n_in; j++) {
        spread(n, in_bytes, in[j] + in_offset, copy[j]);
    }
    run_pairs(fft, n, (const char *const *)copy, 0, copy, 0, scratch);
    for (int64_t k = 0; k < n_out; k++) {
        collect(n, out_bytes, copy[k], out[k] + out_offset);
    }
}

/* Whether in all of n pairs of columns the two may go together. */
static bool are_pairs(const plait_rfft1_t *fft, int64_t n, const char *const in[],
                      int64_t in_offset, char *scratch)
{
    const int64_t n_rows = fft->to_complex ? fft->n : fft->n_half;
    const int64_t n_parts = fft->to_complex ? 1 : 2; /* of a number of the operand */
    double *sizes = (double *)(void *)(scratch + layout_of(fft).sizes);
    bool are_all = true;

    fft->all->kernels->column_sizes(n_rows, in, in_offset, 2 * n * n_parts, sizes);
    for (int64_t c = 0; c < 2 * n && n_parts == 2; c++) {
        sizes[c] = sizes[2 * c] + sizes[2 * c + 1];
    }
    for (int64_t c = 0; c < n; c++) {
        are_all = are_all && are_alike(sizes[2 * c], sizes[2 * c + 1]);
    }
    return are_all;
}

static void run_each(const plait_rfft1_t *fft, int64_t n, const char *const in[],
                     int64_t in_offset, char *const out[], int64_t out_offset,
                     char *scratch)
{
    const int64_t in_bytes = fft->to_complex ? fft->itemsize / 2 : fft->itemsize;
    const int64_t out_bytes = fft->to_complex ? fft->itemsize : fft->itemsize / 2;

    for (int64_t c = 0; c < n; c += n_alone(fft)) {
        run_alone(fft, plait_min(n_alone(fft), n - c), in, in_offset + c * in_bytes,
                  out, out_offset + c * out_bytes, scratch);
    }
}

void plait_rfft1_columns(const plait_rfft1_t *fft, int64_t n_columns,
                         const char *const in[], int64_t in_offset, char *const out[],
                         int64_t out_offset, void *scratch)
{
    const int64_t pair_in = (fft->to_complex ? 1 : 2) * fft->itemsize;
    const int64_t pair_out = (fft->to_complex ? 2 : 1) * fft->itemsize;
    const int64_t n_pairs = n_columns / 2;

    for (int64_t c = 0; c < n_pairs; c += fft->n_block) {
        const int64_t n = plait_min(fft->n_block, n_pairs - c);
        if (are_pairs(fft, n, in, in_offset + c * pair_in, scratch)) {
            run_pairs(fft, n, in, in_offset + c * pair_in, out,
                      out_offset + c * pair_out, scratch);
        } else {
            run_each(fft, 2 * n, in, in_offset + c * pair_in, out,
                     out_offset + c * pair_out, scratch);
        }
    }
    if (n_columns % 2 != 0) {
        run_alone(fft, 1, in, in_offset + n_pairs * pair_in, out,
                  out_offset + n_pairs * pair_out, scratch);
    }
}

/* ---- rows */

/* Transforms rows by n / 2 points. To real numbers it goes through scratch, since the spectrum must not
 * change. */
static void run_even(const plait_rfft1_t *fft, const plait_fft_rows_t *job,
                     char *scratch)
{
    const int64_t m = fft->n / 2, pitch = row_pitch(fft, m);
    const plait_fft_kernels_t *kernels = fft->half->kernels;
    char *rest = scratch + ROWS_AT_ONCE * pitch;

    for (int64_t r = 0; r < job->n_rows; r += ROWS_AT_ONCE) {
        const int64_t n = plait_min(ROWS_AT_ONCE, job->n_rows - r);
        const char *in = job->in + r * job->in_stride;
        char *out = job->out + r * job->out_stride;

        if (fft->to_complex) {
            plait_fft1_rows(fft->half, n, in, job->in_stride, out, job->out_stride,
                            rest, PLAIT_FFT_STORE);
            for (int64_t i = 0; i < n; i++) {
                kernels->split_row(m, fft->u, fft->edge, out + i * job->out_stride);
            }
        } else {
            for (int64_t i = 0; i < n; i++) {
                kernels->merge_row(m, fft->u, fft->edge, in + i * job->in_stride,
                                   scratch + i * pitch);
            }
            plait_fft1_rows(fft->half, n, scratch, pitch, out, job->out_stride, rest,
                            PLAIT_FFT_STORE);
        }
    }
}

/* From the complex row's z to the spectra a and b of two real rows; merge_pair: from a and b to z. */
static void split_pair(const plait_rfft1_t *fft, const char *z, char *a, char *b)
{
    for (int64_t k = 0; k < fft->n_half; k++) {
        char both[32];

        fft->all->kernels->split_columns(
            1, is_edge(fft, k) ? fft->edge / 2 : 1, z + k * fft->itemsize,
            z + (fft->n - k) % fft->n * fft->itemsize, both);
        copy_number(a + k * fft->itemsize, both, fft->itemsize);
        if (b != NULL) {
            copy_number(b + k * fft->itemsize, both + fft->itemsize, fft->itemsize);
        }
    }
}

static void merge_pair(const plait_rfft1_t *fft, const char *a, const char *b, char *z)
{
    for (int64_t k = 0; k < fft->n_half; k++) {
        char both[32] = {0};

        copy_number(both, a + k * fft->itemsize, fft->itemsize);
        if (b != NULL) {
            copy_number(both + fft->itemsize, b + k * fft->itemsize, fft->itemsize);
        }
        if (is_edge(fft, k)) {
            fft->all->kernels->merge_edge(1, fft->edge, both, z + k * fft->itemsize);
        } else {
            fft->all->kernels->merge_columns(1, both, z + k * fft->itemsize,
                                             z + (fft->n - k) * fft->itemsize);
        }
    }
}

/* Complex rows of scratch: each has the next real row, and also the row behind that, if the two are alike. */
typedef struct {
    int64_t n; /* of scratch */
    bool has_two[ROWS_AT_ONCE];
} shared_t;

/* Assigns rows to complex rows, from the first of n_left rows on. Returns how many rows are assigned. */
static int64_t share(const plait_rfft1_t *fft, const char *in, int64_t in_stride,
                     int64_t n_left, shared_t *shared)
{
    const plait_fft_kernels_t *kernels = fft->all->kernels;
    const int64_t n_reals = fft->to_complex ? fft->n : 2 * fft->n_half;
    int64_t r = 0;

    for (shared->n = 0; shared->n < ROWS_AT_ONCE && r < n_left; shared->n++) {
        const char *row = in + r * in_stride;
        const bool has_two =
            r + 1 < n_left && are_alike(kernels->row_size(row, n_reals),
                                        kernels->row_size(row + in_stride, n_reals));
        shared->has_two[shared->n] = has_two;
        r += has_two ? 2 : 1;
    }
    return r;
}

static void put_shared(const plait_rfft1_t *fft, const shared_t *shared, const char *in,
                       int64_t in_stride, char *scratch)
{
    const int64_t pitch = row_pitch(fft, fft->n), part = fft->itemsize / 2;

    memset(scratch, 0, (size_t)(shared->n * pitch));
    for (int64_t i = 0; i < shared->n; i++) {
        const char *other = shared->has_two[i] ? in + in_stride : NULL;
        char *z = scratch + i * pitch;

        if (!fft->to_complex) {
            merge_pair(fft, in, other, z);
        } else {
            spread(fft->n, part, in, z);
            if (other != NULL) {
                spread(fft->n, part, other, z + part);
            }
        }
        in += (other != NULL ? 2 : 1) * in_stride;
    }
}

static void take_shared(const plait_rfft1_t *fft, const shared_t *shared,
                        const char *scratch, char *out, int64_t out_stride)
{
    const int64_t pitch = row_pitch(fft, fft->n), part = fft->itemsize / 2;

    for (int64_t i = 0; i < shared->n; i++) {
        char *other = shared->has_two[i] ? out + out_stride : NULL;
        const char *z = scratch + i * pitch;

        if (fft->to_complex) {
            split_pair(fft, z, out, other);
        } else {
            collect(fft->n, part, z, out);
            if (other != NULL) {
                collect(fft->n, part, z + part, other);
            }
        }
        out += (other != NULL ? 2 : 1) * out_stride;
    }
}

/* Two rows in one complex row, or one row beside zeros. */
static void run_odd(const plait_rfft1_t *fft, const plait_fft_rows_t *job,
                    char *scratch)
{
    const int64_t pitch = row_pitch(fft, fft->n);
    char *rest = scratch + ROWS_AT_ONCE * pitch;
    shared_t shared;

    for (int64_t r = 0, n_rows; r < job->n_rows; r += n_rows) {
        const char *in = job->in + r * job->in_stride;

        n_rows = share(fft, in, job->in_stride, job->n_rows - r, &shared);
        put_shared(fft, &shared, in, job->in_stride, scratch);
        plait_fft1_rows(fft->all, shared.n, scratch, pitch, scratch, pitch, rest,
                        PLAIT_FFT_STORE);
        take_shared(fft, &shared, scratch, job->out + r * job->out_stride,
                    job->out_stride);
    }
}

void plait_rfft1_rows(const plait_rfft1_t *fft, int64_t n_rows, const char *in,
                      int64_t in_stride, char *out, int64_t out_stride, void *scratch)
{
    const plait_fft_rows_t job = {n_rows, in,         in_stride,
                                  out,    out_stride, PLAIT_FFT_STORE};

    if (fft->half != NULL) {
        run_even(fft, &job, scratch);
    } else {
        run_odd(fft, &job, scratch);
    }
}
