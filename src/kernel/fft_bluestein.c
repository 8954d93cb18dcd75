/* Any length as a convolution: j k = (j^2 + k^2 - (k - j)^2) / 2, so that with the chirp
 * b_j = exp(sign pi i j^2 / n) the result is b_k sum_j (x_j b_j) conj(b_(k - j)). The inverse transform of
 * the product of transforms is the forward transform once more, read from the end. */
#include "base/alloc.h"
#include "base/checked.h"
#include "kernel/fft_plan.h"
#include "kernel/fft_twiddle.h"

#include <string.h>

/* chirp: exp(sign 2 pi i (j^2 mod 2 n) / (2 n)). The phase is exact, in integers. */
static plait_status_t make_chirp(int64_t n, int sign, double *chirp)
{
    plait_status_t status = PLAIT_OK;
    plait_roots_t roots = {0};
    int64_t phase = 0;

    PLAIT_TRY(plait_roots_create(2 * n, &roots));
    for (int64_t j = 0; j < n; j++) {
        plait_roots_get(&roots, phase, chirp + 2 * j);
        chirp[2 * j + 1] *= (sign < 0) ? 1.0 : -1.0;
        phase = (phase + 2 * j + 1) % (2 * n);
    }
done:
    plait_roots_destroy(&roots);
    return status;
}

/* The transform of conj(chirp), wrapped around n_conv points; in double for both types. */
static plait_status_t make_filter(int64_t n, int64_t n_conv, const double *chirp,
                                  double *filter)
{
    plait_status_t status = PLAIT_OK;
    plait_fft1_t *fft = NULL;
    void *scratch = NULL;

    PLAIT_TRY(plait_fft1_create(n_conv, PLAIT_C128, -1, 1.0 / (double)n_conv, &fft));
    scratch = plait_alloc_aligned(fft->scratch_bytes);
    PLAIT_CHECK(scratch != NULL, PLAIT_ERR_NO_MEMORY, "no memory to plan %lld points",
                (long long)n);
    for (int64_t j = 0; j < n; j++) {
        int64_t mirror = (n_conv - j) % n_conv;

        filter[2 * j] = filter[2 * mirror] = chirp[2 * j];
        filter[2 * j + 1] = filter[2 * mirror + 1] = -chirp[2 * j + 1];
    }
    plait_fft1_rows(fft, 1, (const char *)filter, 0, (char *)filter, 0, scratch,
                    PLAIT_FFT_STORE);
done:
    plait_free(scratch);
    plait_fft1_destroy(&fft);
    return status;
}

static plait_status_t fill_tables(plait_fft1_t *fft)
{
    plait_status_t status = PLAIT_OK;
    plait_fft_bluestein_t *b = &fft->u.bluestein;
    double *chirp = plait_alloc(fft->n, 2 * sizeof *chirp);
    double *filter = plait_alloc(b->n_conv, 2 * sizeof *filter);

    b->chirp_in = plait_alloc(fft->n, fft->itemsize);
    b->chirp_out = plait_alloc(fft->n, fft->itemsize);
    b->filter = plait_alloc(b->n_conv, fft->itemsize);
    PLAIT_CHECK((chirp != NULL) && (filter != NULL) && (b->chirp_in != NULL) &&
                    (b->chirp_out != NULL) && (b->filter != NULL),
                PLAIT_ERR_NO_MEMORY, "no memory for a convolution of %lld points",
                (long long)b->n_conv);
    PLAIT_TRY(make_chirp(fft->n, fft->sign, chirp));
    PLAIT_TRY(make_filter(fft->n, b->n_conv, chirp, filter));
    for (int64_t i = 0; i < b->n_conv; i++) {
        plait_fft_set(fft->dtype, b->filter, i, filter + 2 * i);
    }
    for (int64_t j = 0; j < fft->n; j++) {
        const double scaled[2] = {chirp[2 * j] * fft->scale,
                                  chirp[2 * j + 1] * fft->scale};

        plait_fft_set(fft->dtype, b->chirp_in, j, chirp + 2 * j);
        plait_fft_set(fft->dtype, b->chirp_out, j, scaled);
    }
done:
    plait_free(chirp);
    plait_free(filter);
    return status;
}

/* Scratch: first, copies of rows. Then pointers to the rows of the convolution, in order and in reverse; its
 * n_conv rows of n_block numbers; what the inner transform needs. */
static int64_t matrix_bytes(const plait_fft1_t *fft)
{
    const plait_fft_bluestein_t *b = &fft->u.bluestein;

    return plait_fft_line_up(b->n_conv * b->n_block * fft->itemsize);
}

static plait_status_t create(plait_fft1_t *fft)
{
    plait_status_t status = PLAIT_OK;
    plait_fft_bluestein_t *b = &fft->u.bluestein;

    b->n_conv = plait_fft_chirp_length(fft->n);
    b->n_block = plait_fft_block_columns(fft, b->n_conv);
    PLAIT_TRY(plait_fft1_create(b->n_conv, fft->dtype, -1, 1.0, &b->inner));
    PLAIT_TRY(fill_tables(fft));
    fft->scratch_bytes = 2 * plait_fft_line_up(b->n_conv * (int64_t)sizeof(char *)) +
                         matrix_bytes(fft) + b->inner->scratch_bytes +
                         plait_fft_rows_bytes(fft);
done:
    return status;
}

static void destroy(plait_fft1_t *fft)
{
    plait_fft_bluestein_t *b = &fft->u.bluestein;

    plait_fft1_destroy(&b->inner);
    plait_free(b->chirp_in);
    plait_free(b->chirp_out);
    plait_free(b->filter);
}

typedef struct {
    char **forth, **back;
    char *matrix, *rest;
} areas_t;

static areas_t areas_of(const plait_fft1_t *fft, char *scratch)
{
    const int64_t n = fft->u.bluestein.n_conv;
    const int64_t pitch = fft->u.bluestein.n_block * fft->itemsize;
    const int64_t pointer_bytes = plait_fft_line_up(n * (int64_t)sizeof(char *));
    areas_t areas = {.forth = (char **)(void *)scratch};

    areas.back = (char **)(void *)(scratch + pointer_bytes);
    areas.matrix = scratch + 2 * pointer_bytes;
    areas.rest = areas.matrix + matrix_bytes(fft);
    for (int64_t k = 0; k < n; k++) {
        areas.forth[k] = areas.matrix + k * pitch;
        areas.back[k] = areas.matrix + ((n - k) % n) * pitch;
    }
    return areas;
}

/* From rows with the input times the chirp to rows with the result, before the last multiplication by the
 * chirp. */
static void convolve(const plait_fft1_t *fft, int64_t n_columns, const areas_t *areas)
{
    const plait_fft_bluestein_t *b = &fft->u.bluestein;
    const char *const *in = (const char *const *)areas->forth;

    for (int64_t j = fft->n; j < b->n_conv; j++) {
        memset(areas->forth[j], 0, (size_t)(n_columns * fft->itemsize));
    }
    plait_fft1_columns(b->inner, n_columns, in, 0, areas->forth, 0, areas->rest,
                       PLAIT_FFT_STORE);
    fft->kernels->scale_rows(b->n_conv, n_columns, in, 0, b->filter, areas->forth, 0);
    plait_fft1_columns(b->inner, n_columns, in, 0, areas->back, 0, areas->rest,
                       PLAIT_FFT_STORE);
}

/* At most n_block columns. Lanes without a column compute with zeros. */
static void run_columns(const plait_fft1_t *fft, const plait_fft_columns_t *job,
                        const areas_t *areas)
{
    const plait_fft_bluestein_t *b = &fft->u.bluestein;
    const plait_fft_kernels_t *kernels = fft->kernels;
    const int64_t n_padded =
        (job->n_columns + kernels->lanes - 1) / kernels->lanes * kernels->lanes;
    const char *const *matrix = (const char *const *)areas->forth;
    const size_t n_bytes = (size_t)(job->n_columns * fft->itemsize);

    if (n_padded == job->n_columns) {
        kernels->scale_rows(fft->n, n_padded, job->in, job->in_offset, b->chirp_in,
                            areas->forth, 0);
        convolve(fft, n_padded, areas);
        kernels->scale_rows(fft->n, n_padded, matrix, 0, b->chirp_out, job->out,
                            job->out_offset);
        return;
    }
    for (int64_t j = 0; j < fft->n; j++) {
        memcpy(areas->forth[j], job->in[j] + job->in_offset, n_bytes);
        memset(areas->forth[j] + n_bytes, 0,
               (size_t)(n_padded * fft->itemsize) - n_bytes);
    }
    kernels->scale_rows(fft->n, n_padded, matrix, 0, b->chirp_in, areas->forth, 0);
    convolve(fft, n_padded, areas);
    kernels->scale_rows(fft->n, n_padded, matrix, 0, b->chirp_out, areas->forth, 0);
    for (int64_t k = 0; k < fft->n; k++) {
        memcpy(job->out[k] + job->out_offset, areas->forth[k], n_bytes);
    }
}

static void columns(const plait_fft1_t *fft, const plait_fft_columns_t *job,
                    char *scratch)
{
    const int64_t n_block = fft->u.bluestein.n_block;
    const areas_t areas = areas_of(fft, scratch);
    plait_fft_columns_t part = *job;

    for (int64_t c = 0; c < job->n_columns; c += n_block) {
        part.n_columns = plait_min(n_block, job->n_columns - c);
        run_columns(fft, &part, &areas);
        part.in_offset += n_block * fft->itemsize;
        part.out_offset += n_block * fft->itemsize;
    }
}

/* One long row by itself, so that its convolution stays as near as possible. */
static void run_row(const plait_fft1_t *fft, const char *in, char *out,
                    const areas_t *areas)
{
    const plait_fft_bluestein_t *b = &fft->u.bluestein;
    const int64_t itemsize = fft->itemsize;
    char *row = areas->matrix;

    memcpy(row, in, (size_t)(fft->n * itemsize));
    memset(row + fft->n * itemsize, 0, (size_t)((b->n_conv - fft->n) * itemsize));
    fft->kernels->multiply(fft->n, b->chirp_in, row);
    plait_fft1_rows(b->inner, 1, row, 0, row, 0, areas->rest, PLAIT_FFT_STORE);
    fft->kernels->multiply(b->n_conv, b->filter, row);
    plait_fft1_rows(b->inner, 1, row, 0, row, 0, areas->rest, PLAIT_FFT_STORE);
    memcpy(out, row, (size_t)itemsize);
    for (int64_t k = 1; k < fft->n; k++) {
        memcpy(out + k * itemsize, row + (b->n_conv - k) * itemsize, (size_t)itemsize);
    }
    fft->kernels->multiply(fft->n, b->chirp_out, out);
}

static void rows(const plait_fft1_t *fft, const plait_fft_rows_t *job, char *scratch)
{
    if (fft->u.bluestein.inner->method == &plait_fft_direct) {
        plait_fft_rows_by_columns(fft, job, scratch);
    } else {
        const areas_t areas = areas_of(fft, scratch);

        for (int64_t r = 0; r < job->n_rows; r++) {
            run_row(fft, job->in + r * job->in_stride, job->out + r * job->out_stride,
                    &areas);
        }
    }
}

const plait_fft_method_t plait_fft_bluestein = {.name = "bluestein",
                                                .create = create,
                                                .destroy = destroy,
                                                .columns = columns,
                                                .rows = rows};
