#include "base/checked.h"
#include "kernel/fft_plan.h"

#include <float.h>
#include <string.h>

/* Nanoseconds per element and pass for a vector of lanes, measured in cache on Zen 3 with AVX2; only ratios
 * count. 0: no kernel. A pass of radix 1 only moves data. */
static const double pass_cost[PLAIT_FFT_MAX_RADIX + 1] = {
    [1] = 1.3,  [2] = 1.5,  [3] = 1.6,   [4] = 1.55, [5] = 2.0,  [6] = 2.0,
    [7] = 2.85, [8] = 1.95, [9] = 2.3,   [10] = 2.3, [11] = 4.3, [12] = 2.3,
    [13] = 5.2, [14] = 3.0, [15] = 2.85, [16] = 2.7};

static double cost_of(int radix)
{
    return (radix <= PLAIT_FFT_MAX_RADIX && pass_cost[radix] > 0) ? pass_cost[radix]
                                                                  : 3.0 + 0.27 * radix;
}

/* First and last passes exist only for these radices. */
static bool is_end(int radix)
{
    return (radix <= PLAIT_FFT_MAX_RADIX) && (radix != 11) && (radix != 13);
}

typedef struct {
    int radix[PLAIT_FFT_MAX_PASSES];
    int n_radices;
    int n_ends;
    double cost;
} choice_t;

/* Whether a single pass is enough. */
static bool is_single(const choice_t *choice)
{
    return choice->n_radices == 0 ||
           (choice->n_radices == 1 && choice->radix[0] <= PLAIT_FFT_MAX_RADIX);
}

/* Passes of radix 1 stand in for missing ends. */
static double total_cost(const choice_t *choice)
{
    const int n_missing = is_single(choice) ? 0 : 2 - (int)plait_min(choice->n_ends, 2);

    return choice->cost + n_missing * cost_of(1);
}

/* Tries all products of kernels' radices, in falling order, that make n. */
static void search(int64_t n, int largest, choice_t *now, choice_t *best)
{
    if (n == 1 && total_cost(now) < total_cost(best)) {
        *best = *now;
    }
    for (int r = largest; r > 1 && n > 1 && now->n_radices < PLAIT_FFT_MAX_PASSES - 2;
         r--) {
        if (pass_cost[r] > 0 && n % r == 0) {
            choice_t before = *now;

            now->radix[now->n_radices++] = r;
            now->n_ends += is_end(r);
            now->cost += cost_of(r);
            search(n / r, r, now, best);
            *now = before;
        }
    }
}

/* Two passes: the larger radix first. More passes: rising, except radices that cannot be at an end (measured
 * for lengths from 128 to 1024: up to a tenth better than falling). */
static int arrange(const choice_t *choice, int radix[])
{
    const int n = choice->n_radices;
    int n_passes = 0, largest = -1, smallest = -1;

    if (is_single(choice)) {
        radix[0] = (n == 0) ? 1 : choice->radix[0];
        return 1;
    }
    for (int i = 0; i < n; i++) { /* the ends; choice falls, except for large radices */
        if (is_end(choice->radix[i])) {
            largest = (largest < 0) ? i : largest;
            smallest = (i > largest) ? i : smallest;
        }
    }
    radix[n_passes++] = (smallest >= 0) ? choice->radix[smallest] : 1;
    for (int i = n - 1; i >= 0; i--) {
        if (i != largest && i != smallest) {
            radix[n_passes++] = choice->radix[i];
        }
    }
    radix[n_passes++] = (largest >= 0) ? choice->radix[largest] : 1;
    if (n_passes == 2) {
        const int first = radix[0];

        radix[0] = radix[1];
        radix[1] = first;
    }
    return n_passes;
}

bool plait_fft_choose_radices(int64_t n, int radix[PLAIT_FFT_MAX_PASSES],
                              int *n_passes_p, double *cost_p)
{
    choice_t now = {.n_radices = 0}, best = {.cost = DBL_MAX};

    for (int p = 17; p <= PLAIT_FFT_MAX_ODD; p += 2) {
        while (n % p == 0 && p % 3 != 0 && p % 5 != 0 && p % 7 != 0) {
            now.radix[now.n_radices++] = p;
            now.cost += cost_of(p);
            n /= p;
        }
    }
    search(n, PLAIT_FFT_MAX_RADIX, &now, &best);
    if (best.cost < DBL_MAX) {
        *n_passes_p = arrange(&best, radix);
        *cost_p = total_cost(&best);
    }
    return best.cost < DBL_MAX;
}
