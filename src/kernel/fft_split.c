/* Rows by the direct method without a copy that puts rows into lanes: n = n1 n2 with j = j1 n2 + j2 and
 * k = k1 + n1 k2, where n2 is a radix and a multiple of the lanes. Columns j2 lie side by side in the row,
 * rows k1 lie side by side in the result, and intermediate data stay in the first-level cache.
 * (Gentleman and Sande, 1966; Bailey, J. Supercomputing 4, 1990.) */
#include "base/alloc.h"
#include "base/checked.h"
#include "kernel/fft_plan.h"
#include "kernel/fft_twiddle.h"

#include <math.h>

/* In the unit of plait_fft_choose_radices, chosen so that the faster way wins for most lengths of
 * bench/c/fft1.c. A copy to lanes and back costs near_copy in the first-level cache, far_copy beyond it.
 * Factors and calls cost one_pass with one first pass, `passes` with several. */
static const double near_copy = 1.7, far_copy = 2.1, one_pass = 0.9, passes = 1.0;

/* Largest work area that is near: the copy has the same size, and both together fit into the first-level
 * cache. */
enum { NEAR_WORK_BYTES = 16 << 10 };

/* Cost of a split by n2. The last rows of the matrix may be done twice. */
static double split_cost(const plait_fft1_t *fft, int n2)
{
    const int64_t n1 = fft->n / n2, lanes = fft->kernels->lanes;
    const int64_t n_done = (n1 + lanes - 1) / lanes * lanes;
    const double waste = (double)n_done / (double)n1;
    int radix[PLAIT_FFT_MAX_PASSES], n_passes = 0;
    double first = 0, second = 0;

    (void)plait_fft_choose_radices(n2, radix, &n_passes, &second);
    if (!plait_fft_choose_radices(n1, radix, &n_passes, &first)) {
        return HUGE_VAL;
    }
    return first + waste * second + (n_passes == 1 ? one_pass : passes);
}

/* n2, or 0 if rows are not split. */
static int second_radix(const plait_fft1_t *fft)
{
    const int lanes = fft->kernels->lanes;
    const bool is_near = fft->n * fft->kernels->pair_bytes <= NEAR_WORK_BYTES;
    int radix[PLAIT_FFT_MAX_PASSES], n_passes = 0, found = 0;
    double least = 0;

    (void)plait_fft_choose_radices(fft->n, radix, &n_passes, &least);
    least += is_near ? near_copy : far_copy;
    for (int n2 = lanes; n2 <= PLAIT_FFT_MAX_RADIX; n2 += lanes) {
        const bool is_possible = (fft->n % n2 == 0) && (fft->n / n2 >= lanes) &&
                                 (fft->kernels->short_turned[n2] != NULL);
        const double cost = is_possible ? split_cost(fft, n2) : HUGE_VAL;

        if (cost < least) {
            least = cost;
            found = n2;
        }
    }
    return found;
}

static plait_status_t create_first(plait_fft1_t *fft, int64_t n1)
{
    plait_status_t status = PLAIT_OK;
    plait_fft_split_t *split = &fft->u.direct.split;

    split->first = plait_alloc(1, sizeof *split->first);
    PLAIT_CHECK(split->first != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a plan");
    *split->first = (plait_fft1_t){.n = n1,
                                   .dtype = fft->dtype,
                                   .itemsize = fft->itemsize,
                                   .sign = fft->sign,
                                   .scale = 1,
                                   .kernels = fft->kernels,
                                   .method = &plait_fft_direct};
    PLAIT_TRY(plait_fft_direct_passes(split->first));
done:
    return status;
}

/* w^(k1 j2) for all j2, with k1 in the order of positions. */
static plait_status_t fill_factors(plait_fft1_t *fft)
{
    plait_status_t status = PLAIT_OK;
    plait_fft_split_t *split = &fft->u.direct.split;
    const int64_t n1 = split->first->n, n2 = split->second.radix;
    plait_roots_t roots = {0};
    double *row = plait_alloc(n2, 2 * sizeof *row);
    char *numbers = plait_alloc_aligned(n2 * fft->itemsize);

    PLAIT_TRY(plait_roots_create(fft->n, &roots));
    split->factors = plait_alloc_aligned(fft->n * fft->itemsize);
    PLAIT_CHECK((row != NULL) && (numbers != NULL) && (split->factors != NULL),
                PLAIT_ERR_NO_MEMORY, "no memory for %lld twiddles", (long long)fft->n);
    for (int64_t i = 0; i < n1; i++) {
        plait_fft_powers(fft, &roots, split->first->u.direct.order[i], n2, row,
                         numbers);
        fft->kernels->pairs_of(split->n_vectors, numbers,
                               (char *)split->factors + i * n2 * fft->itemsize);
    }
done:
    plait_roots_destroy(&roots);
    plait_free(row);
    plait_free(numbers);
    return status;
}

/* Scratch: n1 pointers for results, n1 for sources, the work areas, the matrix. */
static int64_t pointer_bytes(const plait_fft_split_t *split)
{
    return plait_fft_line_up(split->first->n * (int64_t)sizeof(char *));
}

static int64_t work_bytes(const plait_fft_split_t *split)
{
    return split->n_vectors * split->first->u.direct.work_bytes;
}

plait_status_t plait_fft_split_create(plait_fft1_t *fft)
{
    plait_status_t status = PLAIT_OK;
    plait_fft_split_t *split = &fft->u.direct.split;
    const int n2 = (fft->u.direct.n_passes > 1) ? second_radix(fft) : 0;

    if (n2 > 0) {
        split->second = (plait_fft_pass_t){.radix = n2, .m = 1, .scale = fft->scale};
        split->n_vectors = n2 / fft->kernels->lanes;
        PLAIT_TRY(create_first(fft, fft->n / n2));
        PLAIT_TRY(fill_factors(fft));
        fft->scratch_bytes =
            plait_max(fft->scratch_bytes, 2 * pointer_bytes(split) + work_bytes(split) +
                                              fft->n * fft->itemsize);
    }
done:
    return status;
}

void plait_fft_split_destroy(plait_fft_split_t *split)
{
    if (split->first != NULL) {
        split->first->method->destroy(split->first);
    }
    plait_free(split->first);
    plait_free(split->factors);
    *split = (plait_fft_split_t){0};
}

void plait_fft_split_rows(const plait_fft1_t *fft, const plait_fft_rows_t *job,
                          char *scratch)
{
    const plait_fft_split_t *split = &fft->u.direct.split;
    const plait_fft1_t *first = split->first;
    const int64_t n1 = first->n, pitch = split->second.radix * fft->itemsize;
    plait_fft_short_fn *const second = fft->kernels->short_turned[split->second.radix];
    char **out = (char **)(void *)scratch;
    const char **in = (const char **)(void *)(scratch + pointer_bytes(split));
    char *work = scratch + 2 * pointer_bytes(split), *matrix = work + work_bytes(split);
    plait_fft_block_t block = {.in = in,
                               .out = out,
                               .work = work,
                               .work_stride = first->u.direct.work_bytes,
                               .n_vectors = split->n_vectors,
                               .factors = split->factors};
    plait_fft_rows_t rows = {
        .n_rows = n1, .in = matrix, .in_stride = pitch, .out = job->out};

    for (int64_t i = 0; i < n1; i++) {
        in[i] = job->in + i * pitch;
        out[i] = matrix + first->u.direct.order[i] * pitch;
    }
    for (int64_t r = 0; r < job->n_rows; r++) {
        block.ahead = (r + 1 < job->n_rows) ? job->in_stride : 0;
        plait_fft_direct_block(first, &block);
        second(&split->second, fft->sign, &rows);
        block.in_offset += job->in_stride;
        rows.out += job->out_stride;
    }
}
