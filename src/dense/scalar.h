/* Reads and writes single numbers of the four dtypes of matrices as complex double. */
#ifndef PLAIT_DENSE_SCALAR_H
#define PLAIT_DENSE_SCALAR_H

#include "plait/dtype.h"

#include <complex.h>
#include <stdbool.h>
#include <stdint.h>

static inline bool plait_is_complex(plait_dtype_t dtype)
{
    return dtype == PLAIT_C64 || dtype == PLAIT_C128;
}

static inline plait_dtype_t plait_real_of(plait_dtype_t dtype)
{
    return (dtype == PLAIT_F32 || dtype == PLAIT_C64) ? PLAIT_F32 : PLAIT_F64;
}

static inline double complex plait_scalar_get(plait_dtype_t dtype, const void *x,
                                              int64_t i)
{
    return (dtype == PLAIT_F32)   ? (double)((const float *)x)[i]
           : (dtype == PLAIT_F64) ? ((const double *)x)[i]
           : (dtype == PLAIT_C64) ? (double complex)((const float complex *)x)[i]
                                  : ((const double complex *)x)[i];
}

static inline void plait_scalar_put(plait_dtype_t dtype, void *x, int64_t i,
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

#endif
