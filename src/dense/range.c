/* The range is that of LAPACK's heevd. */
#include "dense/range.h"

#include "dense/scalar.h"

#include <float.h>
#include <math.h>

double plait_range_factor(plait_dtype_t dtype, double largest)
{
    const bool is_single = plait_real_of(dtype) == PLAIT_F32;
    const double least =
        is_single ? (double)(FLT_MIN / FLT_EPSILON) : DBL_MIN / DBL_EPSILON;
    const double low = sqrt(least), high = 1 / low;
    double factor = 1;

    if (isfinite(largest) && largest > 0 && (largest < low || largest > high)) {
        factor = ldexp(1, ilogb(largest < low ? low : high) - ilogb(largest));
    }
    return factor;
}

void plait_range_multiply(plait_dtype_t dtype, int64_t n, void *x, double factor)
{
    const int64_t n_reals = plait_is_complex(dtype) ? 2 * n : n;

    if (plait_real_of(dtype) == PLAIT_F32) {
        float *real = x;
        for (int64_t i = 0; i < n_reals; i++) {
            real[i] = (float)(real[i] * factor);
        }
    } else {
        double *real = x;
        for (int64_t i = 0; i < n_reals; i++) {
            real[i] *= factor;
        }
    }
}
