/* Elements of arrays of the four dtypes that BLAS has, as double complex. */
#ifndef PLAIT_TESTS_ELEMENTS_H
#define PLAIT_TESTS_ELEMENTS_H

#include "check.h"
#include "dense/scalar.h"

#include <complex.h>
#include <math.h>

/* Distance from 1 to the next number. */
static inline double element_unit(plait_dtype_t dtype)
{
    return (dtype == PLAIT_F32 || dtype == PLAIT_C64) ? 0x1p-23 : 0x1p-52;
}

/* Pseudo-random values that float holds exactly; real if the dtype is real. */
static inline double complex element_sample(plait_dtype_t dtype, uint64_t seed,
                                            int64_t i)
{
    double re = rint(0x1p12 * sample(seed, (uint64_t)i)) * 0x1p-12;
    double im = rint(0x1p12 * sample(seed + 99, (uint64_t)i)) * 0x1p-12;

    return plait_is_complex(dtype) ? re + im * I : re;
}

#endif
