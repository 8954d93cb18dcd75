/* The largest magnitude, wherever it is, and factors that bring it into the range and back. */
#include "check.h"
#include "dense/scalar.h"
#include "kernel/range.h"

#include <float.h>
#include <math.h>

enum { MOST = 70 }; /* more than a few turns of the loop, and all its tails */

static const plait_dtype_t dtypes[] = {PLAIT_F32, PLAIT_F64, PLAIT_C64, PLAIT_C128};

static double end_of(plait_dtype_t dtype, bool is_large)
{
    const bool is_single = plait_real_of(dtype) == PLAIT_F32;

    return is_large ? (is_single ? (double)FLT_MAX : DBL_MAX)
                    : (is_single ? (double)FLT_MIN : DBL_MIN);
}

static void check_largest(plait_dtype_t dtype)
{
    double complex room[MOST];
    char *x = (char *)room;

    for (int64_t n = 0; n < MOST; n++) {
        for (int64_t at = 0; at < n; at++) {
            for (int64_t i = 0; i < n; i++) {
                plait_scalar_put(dtype, x, i, sample(7, (uint64_t)i));
            }
            plait_scalar_put(dtype, x, (at + 1) % n, NAN);
            plait_scalar_put(dtype, x, at,
                             (plait_is_complex(dtype) && at % 2 == 0) ? -3 * I : -3);
            CHECK(plait_range_largest(dtype, n, x) == 3, "%s, %lld of %lld",
                  plait_dtype_name(dtype), (long long)at, (long long)n);
        }
    }
    CHECK(plait_range_largest(dtype, 0, NULL) == 0, "of none");
}

/* Scaling there and back is exact; scaled squares and reciprocals stay in the range. */
static void check_factors(plait_dtype_t dtype)
{
    const double large = end_of(dtype, true), small = end_of(dtype, false);
    const double sizes[] = {large,       large / 3,         sqrt(large), 1,
                            sqrt(small), 1e4 * sqrt(small), 3 * small,   small};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        double complex x[2];
        plait_scalar_put(dtype, x, 0, sizes[i]);
        const double size = creal(plait_scalar_get(dtype, x, 0));
        const double factor = plait_range_factor(dtype, size);
        int exponent = 0;
        CHECK(frexp(factor, &exponent) == 0.5, "%g: a power of two", size);
        plait_range_multiply(dtype, 1, x, factor);
        const double there = creal(plait_scalar_get(dtype, x, 0));
        CHECK(there * there < large * 1e-6 && there * there > small * 1e6, "%g: %g",
              size, there);
        plait_range_multiply(dtype, 1, x, 1 / factor);
        CHECK(creal(plait_scalar_get(dtype, x, 0)) == size, "%g: not back", size);
    }
    CHECK(plait_range_factor(dtype, 1) == 1 && plait_range_factor(dtype, 0) == 1 &&
              plait_range_factor(dtype, INFINITY) == 1 &&
              plait_range_factor(dtype, NAN) == 1,
          "nothing to be done");
}

int main(void)
{
    for (int d = 0; d < 4; d++) {
        check_largest(dtypes[d]);
        check_factors(dtypes[d]);
    }
    return report("test_range");
}
