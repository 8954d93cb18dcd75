/* Elements of arrays of the four dtypes that BLAS has, as double complex. */
#ifndef PLAIT_TESTS_ELEMENTS_H
#define PLAIT_TESTS_ELEMENTS_H

#include "check.h"
#include "plait/dtype.h"

#include <complex.h>
#include <math.h>

static inline bool element_is_complex(plait_dtype_t dtype)
{
    return dtype == PLAIT_C64 || dtype == PLAIT_C128;
}

/* Distance from 1 to the next number. */
static inline double element_unit(plait_dtype_t dtype)
{
    return (dtype == PLAIT_F32 || dtype == PLAIT_C64) ? 0x1p-23 : 0x1p-52;
}

static inline double complex element_get(plait_dtype_t dtype, const void *x, int64_t i)
{
    return (dtype == PLAIT_F32)   ? (double)((const float *)x)[i]
           : (dtype == PLAIT_F64) ? ((const double *)x)[i]
           : (dtype == PLAIT_C64) ? (double complex)((const float complex *)x)[i]
                                  : ((const double complex *)x)[i];
}

static inline void element_put(plait_dtype_t dtype, void *x, int64_t i,
                               double complex value)
{
    if (dtype == PLAIT_F32) {
        ((float *)x)[i] = (float)creal(value);
    } else if (dtype == PLAIT_F64) {
        ((double *)x)[i] = creal(value);
    } else if (dtype == PLAIT_C64) {
        ((float complex *)x)[i] = (float complex)value;
    } else {
        ((double complex *)x)[i] = value;
    }
}

/* Pseudo-random, of values that float holds exactly; real where the dtype is. */
static inline double complex element_sample(plait_dtype_t dtype, uint64_t seed,
                                            int64_t i)
{
    double re = rint(0x1p12 * sample(seed, (uint64_t)i)) * 0x1p-12;
    double im = rint(0x1p12 * sample(seed + 99, (uint64_t)i)) * 0x1p-12;

    return element_is_complex(dtype) ? re + im * I : re;
}

#endif
