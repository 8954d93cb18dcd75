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

/* Maxima that are kept at once, to fill a few vectors: with a single one each step would wait for the step
 * before. */
enum { LANES = 16 };

#define OF_REALS(_s, _real, _abs)                                    \
    static double largest_##_s(int64_t n, const _real *x)            \
    {                                                                \
        _real most[LANES] = {0};                                     \
        for (int64_t i = 0; i < n / LANES * LANES; i += LANES) {     \
            for (int k = 0; k < LANES; k++) {                        \
                const _real size = _abs(x[i + k]);                   \
                most[k] = (size > most[k]) ? size : most[k];         \
            }                                                        \
        }                                                            \
        for (int64_t i = n / LANES * LANES; i < n; i++) {            \
            most[0] = (_abs(x[i]) > most[0]) ? _abs(x[i]) : most[0]; \
        }                                                            \
        for (int k = 1; k < LANES; k++) {                            \
            most[0] = (most[k] > most[0]) ? most[k] : most[0];       \
        }                                                            \
        return most[0];                                              \
    }                                                                \
    static void multiply_##_s(int64_t n, _real *x, double factor)    \
    {                                                                \
        for (int64_t i = 0; i < n; i++) {                            \
            x[i] = (_real)(x[i] * factor);                           \
        }                                                            \
    }

OF_REALS(f32, float, fabsf)
OF_REALS(f64, double, fabs)

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
    if (is_single(dtype)) {
        multiply_f32(n_reals(dtype, n), x, factor);
    } else {
        multiply_f64(n_reals(dtype, n), x, factor);
    }
}
