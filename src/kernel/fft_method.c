/* Which method a length takes, and what the methods share. */
#include "base/checked.h"
#include "kernel/fft_plan.h"

#include <math.h>
#include <string.h>

/* In the unit of plait_fft_choose_radices, per element: passes that multiply, permute or copy. Chosen so that
 * the faster method wins for the lengths of bench/c_fft1.c. */
static const double rader_extra = 2.5, bluestein_extra = 4.0, large_extra = 4.0;

enum { BLOCK_BYTES = 128 << 10, MAX_BLOCK_VECTORS = 8 };

int64_t plait_fft_divisor(int64_t n)
{
    int64_t best = 1;

    for (int64_t d = 2; d * d <= n; d++) {
        best = (n % d == 0) ? d : best;
    }
    return best;
}

/* Per element. Above the direct limit only the order of magnitude is right. */
static double smooth_cost(int64_t n)
{
    int radix[PLAIT_FFT_MAX_PASSES], n_passes = 0;
    double cost = HUGE_VAL;

    if (n <= PLAIT_FFT_MAX_DIRECT) {
        (void)plait_fft_choose_radices(n, radix, &n_passes, &cost);
    } else {
        cost = log2((double)n) + large_extra;
    }
    return cost;
}

/* The cheapest 2^a 3^b 5^c from 2 n - 1 up to a quarter more. The next power of two is a candidate in any case,
 * even if it is larger. */
int64_t plait_fft_chirp_length(int64_t n)
{
    const int64_t least = 2 * n - 1;
    int64_t best = 1;

    while (best < least) {
        best *= 2;
    }
    for (int64_t five = 1; five <= least + least / 4; five *= 5) {
        for (int64_t three = five; three <= least + least / 4; three *= 3) {
            int64_t m = three;

            while (m < least) {
                m *= 2;
            }
            if (m <= least + least / 4 &&
                smooth_cost(m) * (double)m < smooth_cost(best) * (double)best) {
                best = m;
            }
        }
    }
    return best;
}

const plait_fft_method_t *plait_fft_choose_method(int64_t n, double *cost_p)
{
    const plait_fft_method_t *best = &plait_fft_direct;
    const int64_t divisor = plait_fft_divisor(n);
    double cost = (n <= PLAIT_FFT_MAX_DIRECT) ? smooth_cost(n) : HUGE_VAL, other = 0;

    if (divisor == 1 && n > 3 && n <= PLAIT_FFT_MAX_DIRECT) {
        other = 2 * smooth_cost(n - 1) + rader_extra;
        best = (other < cost) ? &plait_fft_rader : best;
        cost = fmin(other, cost);
    }
    if (divisor > 1 && cost == HUGE_VAL) {
        double first = 0, second = 0;

        (void)plait_fft_choose_method(divisor, &first);
        (void)plait_fft_choose_method(n / divisor, &second);
        best = &plait_fft_large;
        cost = first + second + large_extra;
    }
    if (best != &plait_fft_direct || cost == HUGE_VAL) {
        const int64_t n_conv = plait_fft_chirp_length(n);

        other = 2 * smooth_cost(n_conv) * (double)n_conv / (double)n + bluestein_extra;
        best = (other < cost) ? &plait_fft_bluestein : best;
        cost = fmin(other, cost);
    }
    *cost_p = cost;
    return best;
}

int64_t plait_fft_block_columns(const plait_fft1_t *fft, int64_t n)
{
    int64_t n_vectors =
        plait_min(BLOCK_BYTES / (n * fft->kernels->pair_bytes), MAX_BLOCK_VECTORS);

    return plait_max(n_vectors, 1) * fft->kernels->lanes;
}

/* ---- rows by columns: pointers to the copy's n rows, then the copy */

static int64_t pointer_bytes(const plait_fft1_t *fft)
{
    return plait_fft_line_up(fft->n * (int64_t)sizeof(char *));
}

int64_t plait_fft_rows_bytes(const plait_fft1_t *fft)
{
    return pointer_bytes(fft) +
           plait_fft_line_up(fft->n * plait_fft_block_columns(fft, fft->n) *
                             fft->itemsize);
}

static void copy_number(char *to, const char *from, int64_t itemsize)
{
    if (itemsize == 16) {
        memcpy(to, from, 16);
    } else {
        memcpy(to, from, 8);
    }
}

void plait_fft_rows_by_columns(const plait_fft1_t *fft, const plait_fft_rows_t *job,
                               char *scratch)
{
    const int64_t n_block = plait_fft_block_columns(fft, fft->n),
                  itemsize = fft->itemsize;
    const int64_t pitch = n_block * itemsize;
    char **row = (char **)(void *)scratch, *copy = scratch + pointer_bytes(fft);
    char *rest = scratch + plait_fft_rows_bytes(fft);
    plait_fft_columns_t columns = {.in = (const char *const *)row, .out = row};

    for (int64_t j = 0; j < fft->n; j++) {
        row[j] = copy + j * pitch;
    }
    for (int64_t r = 0; r < job->n_rows; r += n_block) {
        columns.n_columns = plait_min(n_block, job->n_rows - r);
        for (int64_t j = 0; j < fft->n; j++) {
            for (int64_t l = 0; l < columns.n_columns; l++) {
                copy_number(row[j] + l * itemsize,
                            job->in + (r + l) * job->in_stride + j * itemsize,
                            itemsize);
            }
        }
        fft->method->columns(fft, &columns, rest);
        for (int64_t k = 0; k < fft->n; k++) {
            for (int64_t l = 0; l < columns.n_columns; l++) {
                copy_number(job->out + (r + l) * job->out_stride + k * itemsize,
                            row[k] + l * itemsize, itemsize);
            }
        }
    }
}
