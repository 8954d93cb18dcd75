/* The range is that of LAPACK's heevd. */
#include "kernel/range.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

static bool is_single(plait_dtype_t dtype)
{
    return dtype == PLAIT_F32 || dtype == PLAIT_C64;
}

static int64_t n_reals(plait_dtype_t dtype, int64_t n)
{
    return (dtype == PLAIT_C64 || dtype == PLAIT_C128) ? 2 * n : n;
}

/* As many at once as fill a few vectors: one maximum alone would wait for itself at every step. */
enum { LANES = 16 };

static double largest_f32(int64_t n, const float *x)
{
    float most[LANES] = {0};

    for (int64_t i = 0; i < n / LANES * LANES; i += LANES) {
        for (int k = 0; k < LANES; k++) {
            const float size = fabsf(x[i + k]);
            most[k] = (size > most[k]) ? size : most[k];
        }
    }
    for (int64_t i = n / LANES * LANES; i < n; i++) {
        most[0] = (fabsf(x[i]) > most[0]) ? fabsf(x[i]) : most[0];
    }
    for (int k = 1; k < LANES; k++) {
        most[0] = (most[k] > most[0]) ? most[k] : most[0];
    }
    return most[0];
}

static double largest_f64(int64_t n, const double *x)
{
    double most[LANES] = {0};

    for (int64_t i = 0; i < n / LANES * LANES; i += LANES) {
        for (int k = 0; k < LANES; k++) {
            const double size = fabs(x[i + k]);
            most[k] = (size > most[k]) ? size : most[k];
        }
    }
    for (int64_t i = n / LANES * LANES; i < n; i++) {
        most[0] = (fabs(x[i]) > most[0]) ? fabs(x[i]) : most[0];
    }
    for (int k = 1; k < LANES; k++) {
        most[0] = (most[k] > most[0]) ? most[k] : most[0];
    }
    return most[0];
}

double plait_range_largest(plait_dtype_t dtype, int64_t n, const void *x)
{
    return is_single(dtype) ? largest_f32(n_reals(dtype, n), x)
                            : largest_f64(n_reals(dtype, n), x);
}

double plait_range_factor(plait_dtype_t dtype, double largest)
{
    const double least =
        is_single(dtype) ? (double)(FLT_MIN / FLT_EPSILON) : DBL_MIN / DBL_EPSILON;
    const double low = sqrt(least), high = 1 / low;
    double factor = 1;

    if (isfinite(largest) && largest > 0 && (largest < low || largest > high)) {
        factor = ldexp(1, ilogb(largest < low ? low : high) - ilogb(largest));
    }
    return factor;
}

void plait_range_multiply(plait_dtype_t dtype, int64_t n, void *x, double factor)
{
    const int64_t count = n_reals(dtype, n);

    if (is_single(dtype)) {
        float *real = x;
        for (int64_t i = 0; i < count; i++) {
            real[i] = (float)(real[i] * factor);
        }
    } else {
        double *real = x;
        for (int64_t i = 0; i < count; i++) {
            real[i] *= factor;
        }
    }
}
