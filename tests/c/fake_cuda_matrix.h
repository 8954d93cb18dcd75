/* Matrices of the four dtypes as double complex, for the stand-ins of cuBLAS and cuSOLVER, which work by
 * the definition. */
#ifndef PLAIT_TESTS_FAKE_CUDA_MATRIX_H
#define PLAIT_TESTS_FAKE_CUDA_MATRIX_H

#include "fake_cuda.h"

#include <complex.h>
#include <math.h>
#include <stdbool.h>

/* `type` is a cudaDataType. */
static inline bool is_complex_type(int type)
{
    return type == PLAIT_CUDA_C_32F || type == PLAIT_CUDA_C_64F;
}

/* The type of its real and imaginary parts. */
static inline int real_type(int type)
{
    return (type == PLAIT_CUDA_R_32F || type == PLAIT_CUDA_C_32F) ? PLAIT_CUDA_R_32F
                                                                  : PLAIT_CUDA_R_64F;
}

static inline double complex get(int type, const void *x, int64_t i)
{
    const float *f = x;
    const double *d = x;

    return (type == PLAIT_CUDA_R_32F)   ? (double)f[i]
           : (type == PLAIT_CUDA_R_64F) ? d[i]
           : (type == PLAIT_CUDA_C_32F) ? (double)f[2 * i] + (double)f[2 * i + 1] * I
                                        : d[2 * i] + d[2 * i + 1] * I;
}

static inline void put(int type, void *x, int64_t i, double complex z)
{
    float *f = x;
    double *d = x;

    if (type == PLAIT_CUDA_R_32F) {
        f[i] = (float)creal(z);
    } else if (type == PLAIT_CUDA_R_64F) {
        d[i] = creal(z);
    } else if (type == PLAIT_CUDA_C_32F) {
        f[2 * i] = (float)creal(z);
        f[2 * i + 1] = (float)cimag(z);
    } else {
        d[2 * i] = creal(z);
        d[2 * i + 1] = cimag(z);
    }
}

/* op(a)[i, j]. */
static inline double complex get_op(int type, const void *a, int64_t lda, int trans,
                                    int64_t i, int64_t j)
{
    const double complex z =
        get(type, a, (trans == PLAIT_CUBLAS_N) ? j * lda + i : i * lda + j);

    return (trans == PLAIT_CUBLAS_C) ? conj(z) : z;
}

/* For complex numbers 'T' and 'C' differ; for real ones only 'T' is allowed. */
static inline bool is_operation(int type, int trans)
{
    return trans == PLAIT_CUBLAS_N || trans == PLAIT_CUBLAS_T ||
           (trans == PLAIT_CUBLAS_C && is_complex_type(type));
}

/* Whether ld can be the leading dimension of n_rows rows. */
static inline bool is_leading(int64_t ld, int64_t n_rows)
{
    return ld >= n_rows && ld >= 1;
}

#endif
