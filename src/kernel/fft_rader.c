/* A prime n: with a generator g of the numbers modulo n, result g^i is x_0 plus the cyclic convolution of
 * x_(g^j) with the roots. Both permutations are permutations of row pointers. The inverse transform of the
 * product of transforms is the forward transform once more; its reversed order g^-(-i) is the order of the
 * input again. x_0 is added to the product at frequency 0. */
#include "base/alloc.h"
#include "base/checked.h"
#include "kernel/fft_plan.h"
#include "kernel/fft_twiddle.h"

#include <string.h>

static int64_t order_of(int64_t g, int64_t n)
{
    int64_t order = 1;

    for (int64_t x = g; x != 1; x = x * g % n) {
        order++;
    }
    return order;
}

static plait_status_t fill_powers(plait_fft1_t *fft)
{
    plait_status_t status = PLAIT_OK;
    plait_fft_rader_t *rader = &fft->u.rader;
    int64_t g = 2;

    while (order_of(g, fft->n) < fft->n - 1) {
        g++;
    }
    rader->power = plait_alloc(fft->n - 1, sizeof *rader->power);
    PLAIT_CHECK(rader->power != NULL, PLAIT_ERR_NO_MEMORY, "no memory for %lld indices",
                (long long)fft->n);
    rader->power[0] = 1;
    for (int64_t i = 1; i < fft->n - 1; i++) {
        rader->power[i] = rader->power[i - 1] * g % fft->n;
    }
done:
    return status;
}

/* The transform of the roots w^(g^-q); in double for both types. */
static plait_status_t fill_filter(plait_fft1_t *fft)
{
    plait_status_t status = PLAIT_OK;
    plait_fft_rader_t *rader = &fft->u.rader;
    const int64_t n_conv = fft->n - 1;
    plait_fft1_t *transform = NULL;
    plait_roots_t roots = {0};
    void *scratch = NULL;
    double *filter = plait_alloc(n_conv, 2 * sizeof *filter);

    PLAIT_TRY(plait_roots_create(fft->n, &roots));
    PLAIT_TRY(plait_fft1_create(n_conv, PLAIT_C128, -1, fft->scale / (double)n_conv,
                                &transform));
    scratch = plait_alloc_aligned(transform->scratch_bytes);
    rader->filter = plait_alloc(n_conv, fft->itemsize);
    PLAIT_CHECK((filter != NULL) && (scratch != NULL) && (rader->filter != NULL),
                PLAIT_ERR_NO_MEMORY, "no memory for a convolution of %lld points",
                (long long)n_conv);
    for (int64_t q = 0; q < n_conv; q++) {
        const int64_t t = rader->power[(n_conv - q) % n_conv];

        plait_roots_get(&roots, (fft->sign < 0) ? t : fft->n - t, filter + 2 * q);
    }
    plait_fft1_rows(transform, 1, (const char *)filter, 0, (char *)filter, 0, scratch,
                    PLAIT_FFT_STORE);
    for (int64_t q = 0; q < n_conv; q++) {
        plait_fft_set(fft->dtype, rader->filter, q, filter + 2 * q);
    }
done:
    plait_roots_destroy(&roots);
    plait_fft1_destroy(&transform);
    plait_free(scratch);
    plait_free(filter);
    return status;
}

/* Scratch: first, copies of rows. Then pointers to permuted rows of input and output, and to the rows of the
 * convolution; these rows and one more, each of n_block numbers; what the inner transform needs. */
static int64_t pointer_bytes(const plait_fft1_t *fft)
{
    return plait_fft_line_up(fft->n * (int64_t)sizeof(char *));
}

static int64_t matrix_bytes(const plait_fft1_t *fft)
{
    return plait_fft_line_up((fft->n + 1) * fft->u.rader.n_block * fft->itemsize);
}

static plait_status_t create(plait_fft1_t *fft)
{
    plait_status_t status = PLAIT_OK;
    plait_fft_rader_t *rader = &fft->u.rader;
    const double scale[2] = {fft->scale, 0.0};

    rader->n_block = plait_fft_block_columns(fft, fft->n);
    PLAIT_TRY(plait_fft1_create(fft->n - 1, fft->dtype, -1, 1.0, &rader->inner));
    PLAIT_TRY(fill_powers(fft));
    PLAIT_TRY(fill_filter(fft));
    rader->scale = plait_alloc(1, fft->itemsize);
    PLAIT_CHECK(rader->scale != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a transform");
    plait_fft_set(fft->dtype, rader->scale, 0, scale);
    fft->scratch_bytes = 3 * pointer_bytes(fft) + matrix_bytes(fft) +
                         rader->inner->scratch_bytes + plait_fft_rows_bytes(fft);
done:
    return status;
}

static void destroy(plait_fft1_t *fft)
{
    plait_fft_rader_t *rader = &fft->u.rader;

    plait_fft1_destroy(&rader->inner);
    plait_free(rader->power);
    plait_free(rader->filter);
    plait_free(rader->scale);
}

typedef struct {
    const char **in;
    char **out, **row; /* row: n - 1 of the convolution, then x_0 and its result */
    char *rest;
} areas_t;

static areas_t areas_of(const plait_fft1_t *fft, const plait_fft_columns_t *job,
                        char *scratch)
{
    const plait_fft_rader_t *rader = &fft->u.rader;
    areas_t areas = {.in = (const char **)(void *)scratch};
    char *matrix = scratch + 3 * pointer_bytes(fft);

    areas.out = (char **)(void *)(scratch + pointer_bytes(fft));
    areas.row = (char **)(void *)(scratch + 2 * pointer_bytes(fft));
    areas.rest = matrix + matrix_bytes(fft);
    for (int64_t i = 0; i < fft->n - 1; i++) {
        areas.in[i] = job->in[rader->power[i]];
        areas.out[i] = job->out[rader->power[i]];
        areas.row[i] = matrix + i * rader->n_block * fft->itemsize;
    }
    areas.row[fft->n - 1] = matrix + (fft->n - 1) * rader->n_block * fft->itemsize;
    return areas;
}

/* At most n_block columns. Values in lanes without a column do not leave these lanes. */
static void run_columns(const plait_fft1_t *fft, const plait_fft_columns_t *job,
                        const areas_t *areas)
{
    const plait_fft_rader_t *rader = &fft->u.rader;
    const plait_fft_kernels_t *kernels = fft->kernels;
    const int64_t n = job->n_columns, n_conv = fft->n - 1, lanes = kernels->lanes;
    const int64_t n_padded = (n + lanes - 1) / lanes * lanes;
    const char *const *in = (const char *const *)areas->row;
    char *sum = areas->row[0], *x0 = areas->row[n_conv];
    char *result = x0 + rader->n_block * fft->itemsize;

    plait_fft1_columns(rader->inner, n, areas->in, job->in_offset, areas->row, 0,
                       areas->rest, PLAIT_FFT_STORE);
    memset(x0, 0, (size_t)(n_padded * fft->itemsize));
    memcpy(x0, job->in[0] + job->in_offset, (size_t)(n * fft->itemsize));
    memset(result, 0, (size_t)(n_padded * fft->itemsize));
    kernels->add_scaled(n_padded, sum, rader->scale, result);
    kernels->add_scaled(n_padded, x0, rader->scale, result);
    kernels->scale_rows(n_conv, n_padded, in, 0, rader->filter, areas->row, 0);
    kernels->add_scaled(n_padded, x0, rader->scale, sum);
    plait_fft1_columns(rader->inner, n, in, 0, areas->out, job->out_offset, areas->rest,
                       job->store);
    memcpy(job->out[0] + job->out_offset, result, (size_t)(n * fft->itemsize));
}

static void columns(const plait_fft1_t *fft, const plait_fft_columns_t *job,
                    char *scratch)
{
    const int64_t n_block = fft->u.rader.n_block;
    const areas_t areas = areas_of(fft, job, scratch);
    plait_fft_columns_t part = *job;

    for (int64_t c = 0; c < job->n_columns; c += n_block) {
        part.n_columns = plait_min(n_block, job->n_columns - c);
        run_columns(fft, &part, &areas);
        part.in_offset += n_block * fft->itemsize;
        part.out_offset += n_block * fft->itemsize;
    }
}

const plait_fft_method_t plait_fft_rader = {.name = "rader",
                                            .create = create,
                                            .destroy = destroy,
                                            .columns = columns,
                                            .rows = plait_fft_rows_by_columns};
