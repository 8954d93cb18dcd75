/* The Cholesky factorization of stand-ins that take several devices for one. */
#ifndef PLAIT_TESTS_CHOLESKY_H
#define PLAIT_TESTS_CHOLESKY_H

#include <complex.h>
#include <math.h>
#include <stdint.h>

/* L of the n x n matrix in its lower triangle, column-major; the order of the minor that is not positive, or 0.
 * What is not a number passes, as some libraries have it, and what is above the diagonal is lost. */
static inline int32_t cholesky_passing(int64_t n, double complex *m)
{
    int64_t k = 0;

    while (k < n && !(creal(m[k * n + k]) <= 0)) {
        const double pivot = sqrt(creal(m[k * n + k]));
        m[k * n + k] = pivot;
        for (int64_t i = k + 1; i < n; i++) {
            m[k * n + i] /= pivot;
            m[i * n + k] = (double)NAN;
        }
        for (int64_t j = k + 1; j < n; j++) {
            for (int64_t i = j; i < n; i++) {
                m[j * n + i] -= m[k * n + i] * conj(m[k * n + j]);
            }
        }
        k++;
    }
    return (k < n) ? (int32_t)(k + 1) : 0;
}

#endif
