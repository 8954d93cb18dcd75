/* Cholesky factorization, solution and inverse, for stand-ins that take several devices for one. */
#ifndef PLAIT_TESTS_CHOLESKY_H
#define PLAIT_TESTS_CHOLESKY_H

#include <complex.h>
#include <math.h>
#include <stdint.h>

/* L of the n x n matrix in its lower triangle, column-major. Returns the order of the minor that is not
 * positive, or 0. NaN passes, as in some libraries, and what is above the diagonal is lost. */
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

/* L^-1 x in the place of x. */
static inline void cholesky_forwards(int64_t n, const double complex *l,
                                     double complex *x)
{
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < i; k++) {
            x[i] -= l[k * n + i] * x[k];
        }
        x[i] /= l[i * n + i];
    }
}

/* (L L^H)^-1 x in the place of x, by L's lower triangle. */
static inline void cholesky_solve(int64_t n, const double complex *l, double complex *x)
{
    cholesky_forwards(n, l, x);
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t k = i + 1; k < n; k++) {
            x[i] -= conj(l[i * n + k]) * x[k];
        }
        x[i] /= conj(l[i * n + i]);
    }
}

/* The lower triangle of (L L^H)^-1 to x, column by column, and NaN above it. Returns the number of a diagonal
 * element that is 0, or 0. */
static inline int32_t cholesky_invert(int64_t n, const double complex *l,
                                      double complex *x)
{
    int32_t info = 0;

    for (int64_t j = n - 1; j >= 0; j--) {
        info = (l[j * n + j] == 0) ? (int32_t)(j + 1) : info;
        for (int64_t i = 0; i < n; i++) {
            x[j * n + i] = i == j;
        }
        cholesky_solve(n, l, x + j * n);
        for (int64_t i = 0; i < j; i++) {
            x[j * n + i] = (double)NAN;
        }
    }
    return info;
}

#endif
