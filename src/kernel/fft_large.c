/* n = n1 * n2 for lengths whose blocks would leave the cache. With j = j1 n2 + j2 and k = k1 + n1 k2 the steps
 * are: transforms of n1 points over j1, a multiplication by w^(k1 j2), transforms of n2 points over j2. A row
 * is a matrix of n1 rows and n2 columns. The lanes of the last step are its rows k1, which lie side by side in
 * the result, so that no transpose is left. */
#include "base/alloc.h"
#include "base/checked.h"
#include "kernel/fft_plan.h"
#include "kernel/fft_twiddle.h"

#include <string.h>

enum { CHUNK_BYTES = 256, /* of each row of the matrix at a time */ BAD_STRIDE = 1024 };

/* Bytes between the rows of a single row's matrix. */
static int64_t matrix_pitch(const plait_fft1_t *fft)
{
    int64_t pitch = plait_fft_line_up(fft->u.large.second->n * fft->itemsize);

    return pitch + ((pitch % BAD_STRIDE == 0) ? 64 : 0);
}

static plait_status_t fill_twiddle(plait_fft1_t *fft)
{
    plait_status_t status = PLAIT_OK;
    plait_fft_large_t *large = &fft->u.large;
    const int64_t n1 = large->first->n, n2 = large->second->n;
    plait_roots_t roots = {0};
    double *row = plait_alloc(n2, 2 * sizeof *row);

    PLAIT_TRY(plait_roots_create(fft->n, &roots));
    large->twiddle = plait_alloc_aligned(fft->n * fft->itemsize);
    PLAIT_CHECK((row != NULL) && (large->twiddle != NULL), PLAIT_ERR_NO_MEMORY,
                "no memory for %lld twiddles", (long long)fft->n);
    for (int64_t k1 = 0; k1 < n1; k1++) {
        plait_fft_powers(fft, &roots, k1, n2, row,
                         (char *)large->twiddle + k1 * n2 * fft->itemsize);
    }
done:
    plait_roots_destroy(&roots);
    plait_free(row);
    return status;
}

/* Scratch: pointers of both steps, the matrix of one row or of `lanes` columns, and what the two transforms
 * need. */
static int64_t pointer_bytes(const plait_fft1_t *fft)
{
    const int64_t n = plait_max(fft->u.large.first->n, fft->u.large.second->n);

    return plait_fft_line_up(n * (int64_t)sizeof(char *));
}

static int64_t matrix_bytes(const plait_fft1_t *fft)
{
    return plait_fft_line_up(plait_max(fft->u.large.first->n * matrix_pitch(fft),
                                       fft->n * fft->u.large.n_block * fft->itemsize));
}

static plait_status_t create(plait_fft1_t *fft)
{
    plait_status_t status = PLAIT_OK;
    plait_fft_large_t *large = &fft->u.large;
    const int64_t n1 = plait_fft_divisor(fft->n);

    large->n_block = plait_fft_block_columns(fft, fft->n);
    PLAIT_TRY(plait_fft1_create(n1, fft->dtype, fft->sign, 1.0, &large->first));
    PLAIT_TRY(plait_fft1_create(fft->n / n1, fft->dtype, fft->sign, fft->scale,
                                &large->second));
    PLAIT_TRY(fill_twiddle(fft));
    fft->scratch_bytes =
        2 * pointer_bytes(fft) + matrix_bytes(fft) +
        plait_max(large->first->scratch_bytes, large->second->scratch_bytes);
done:
    return status;
}

static void destroy(plait_fft1_t *fft)
{
    plait_fft1_destroy(&fft->u.large.first);
    plait_fft1_destroy(&fft->u.large.second);
    plait_free(fft->u.large.twiddle);
}

typedef struct {
    const char **in;
    char **out;
    char *matrix, *rest;
} areas_t;

static areas_t areas_of(const plait_fft1_t *fft, char *scratch)
{
    areas_t areas = {.in = (const char **)(void *)scratch};

    areas.out = (char **)(void *)(scratch + pointer_bytes(fft));
    areas.matrix = scratch + 2 * pointer_bytes(fft);
    areas.rest = areas.matrix + matrix_bytes(fft);
    return areas;
}

static void first_step(const plait_fft1_t *fft, const char *row, const areas_t *areas)
{
    const plait_fft_large_t *large = &fft->u.large;
    const int64_t n1 = large->first->n, n2 = large->second->n, itemsize = fft->itemsize;
    const int64_t pitch = matrix_pitch(fft), n_chunk = CHUNK_BYTES / itemsize;

    for (int64_t j1 = 0; j1 < n1; j1++) {
        areas->in[j1] = row + j1 * n2 * itemsize;
        areas->out[j1] = areas->matrix + j1 * pitch;
    }
    for (int64_t c = 0; c < n2; c += n_chunk) {
        const int64_t n_columns = plait_min(n_chunk, n2 - c), at = c * itemsize;

        plait_fft1_columns(large->first, n_columns, areas->in, at, areas->out, at,
                           areas->rest, PLAIT_FFT_STORE);
        for (int64_t k1 = 1; k1 < n1; k1++) {
            const char *twiddle =
                (const char *)large->twiddle + (k1 * n2 + c) * itemsize;

            fft->kernels->multiply(n_columns, twiddle, areas->out[k1] + at);
        }
    }
}

static void transpose(const plait_fft1_t *fft, const char *matrix, char *out)
{
    const int64_t n1 = fft->u.large.first->n, n2 = fft->u.large.second->n;
    const int64_t pitch = matrix_pitch(fft);

    for (int64_t k2 = 0; k2 < n2; k2++) {
        for (int64_t k1 = 0; k1 < n1; k1++) {
            memcpy(out + (k1 + n1 * k2) * fft->itemsize,
                   matrix + k1 * pitch + k2 * fft->itemsize, (size_t)fft->itemsize);
        }
    }
}

static void rows(const plait_fft1_t *fft, const plait_fft_rows_t *job, char *scratch)
{
    const plait_fft_large_t *large = &fft->u.large;
    const areas_t areas = areas_of(fft, scratch);
    const int64_t n1 = large->first->n, pitch = matrix_pitch(fft);

    for (int64_t r = 0; r < job->n_rows; r++) {
        char *out = job->out + r * job->out_stride;

        first_step(fft, job->in + r * job->in_stride, &areas);
        if (large->second->method == &plait_fft_direct) {
            const plait_fft_rows_t second = {n1, areas.matrix, pitch, out,
                                             0,  job->store};

            plait_fft_direct_transposed(large->second, &second, areas.rest);
        } else {
            plait_fft1_rows(large->second, n1, areas.matrix, pitch, areas.matrix, pitch,
                            areas.rest, PLAIT_FFT_STORE);
            transpose(fft, areas.matrix, out);
        }
    }
}

/* At most n_block columns. Element (k1, j2) of the matrix is a row of n_block numbers. */
static void run_columns(const plait_fft1_t *fft, const plait_fft_columns_t *job,
                        const areas_t *areas)
{
    const plait_fft_large_t *large = &fft->u.large;
    const int64_t n1 = large->first->n, n2 = large->second->n,
                  lanes = fft->kernels->lanes;
    const int64_t pitch = large->n_block * fft->itemsize;
    const int64_t n_padded = (job->n_columns + lanes - 1) / lanes * lanes;
    const char *const *matrix = (const char *const *)areas->out;

    for (int64_t j2 = 0; j2 < n2; j2++) {
        for (int64_t j1 = 0; j1 < n1; j1++) {
            areas->in[j1] = job->in[j1 * n2 + j2];
            areas->out[j1] = areas->matrix + (j1 * n2 + j2) * pitch;
        }
        plait_fft1_columns(large->first, job->n_columns, areas->in, job->in_offset,
                           areas->out, 0, areas->rest, PLAIT_FFT_STORE);
    }
    for (int64_t k1 = 0; k1 < n1; k1++) {
        for (int64_t j2 = 0; j2 < n2; j2++) {
            areas->out[j2] = areas->matrix + (k1 * n2 + j2) * pitch;
        }
        fft->kernels->scale_rows(n2, n_padded, matrix, 0,
                                 (const char *)large->twiddle + k1 * n2 * fft->itemsize,
                                 areas->out, 0);
        for (int64_t j2 = 0; j2 < n2; j2++) {
            areas->in[j2] = areas->out[j2];
            areas->out[j2] = job->out[k1 + n1 * j2];
        }
        plait_fft1_columns(large->second, job->n_columns, areas->in, 0, areas->out,
                           job->out_offset, areas->rest, job->store);
    }
}

static void columns(const plait_fft1_t *fft, const plait_fft_columns_t *job,
                    char *scratch)
{
    const int64_t n_block = fft->u.large.n_block;
    const areas_t areas = areas_of(fft, scratch);
    plait_fft_columns_t part = *job;

    for (int64_t c = 0; c < job->n_columns; c += n_block) {
        part.n_columns = plait_min(n_block, job->n_columns - c);
        run_columns(fft, &part, &areas);
        part.in_offset += n_block * fft->itemsize;
        part.out_offset += n_block * fft->itemsize;
    }
}

const plait_fft_method_t plait_fft_large = {.name = "large",
                                            .create = create,
                                            .destroy = destroy,
                                            .columns = columns,
                                            .rows = rows};
