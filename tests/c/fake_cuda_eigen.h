/* Eigenvalues by Jacobi's method, for the stand-ins of cuSOLVER and cuSolverMg. Matrices are n x n,
 * column-major. */
#ifndef PLAIT_TESTS_FAKE_CUDA_EIGEN_H
#define PLAIT_TESTS_FAKE_CUDA_EIGEN_H

#include <complex.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum { MAX_SWEEPS = 60 };

/* One rotation that makes a[p, q] zero. */
static inline void rotate(int64_t n, double complex *a, double complex *v, int64_t p,
                          int64_t q)
{
    const double size = cabs(a[q * n + p]);
    const double complex phase = a[q * n + p] / size;
    const double theta = (creal(a[q * n + q]) - creal(a[p * n + p])) / (2 * size);
    const double t = ((theta >= 0) ? 1 : -1) / (fabs(theta) + sqrt(theta * theta + 1));
    const double c = 1 / sqrt(t * t + 1), s = t * c;

    for (int64_t i = 0; i < n; i++) { /* columns, from the right */
        const double complex x = a[p * n + i], y = a[q * n + i];
        a[p * n + i] = c * x - s * conj(phase) * y;
        a[q * n + i] = s * phase * x + c * y;
        const double complex f = v[p * n + i], g = v[q * n + i];
        v[p * n + i] = c * f - s * conj(phase) * g;
        v[q * n + i] = s * phase * f + c * g;
    }
    for (int64_t j = 0; j < n; j++) { /* rows, from the left */
        const double complex x = a[j * n + p], y = a[j * n + q];
        a[j * n + p] = c * x - s * phase * y;
        a[j * n + q] = s * conj(phase) * x + c * y;
    }
}

/* Jacobi's method. */
static inline bool diagonalize(int64_t n, double complex *a, double complex *v)
{
    double off = 1;

    for (int sweep = 0; sweep < MAX_SWEEPS && off > 0; sweep++) {
        off = 0;
        for (int64_t q = 1; q < n; q++) {
            for (int64_t p = 0; p < q; p++) {
                const double least = 1e-18 * (cabs(a[p * n + p]) + cabs(a[q * n + q]));
                if (cabs(a[q * n + p]) > least) {
                    off += cabs(a[q * n + p]);
                    rotate(n, a, v, p, q);
                }
            }
        }
    }
    return !isnan(off);
}

/* The index of the i-th smallest eigenvalue. */
static inline int64_t smallest_from(int64_t n, const double complex *a,
                                    const bool *is_taken)
{
    int64_t best = -1;

    for (int64_t k = 0; k < n; k++) {
        if (!is_taken[k] &&
            (best < 0 || creal(a[k * n + k]) < creal(a[best * n + best]))) {
            best = k;
        }
    }
    return best;
}

#endif
