/* Fourier transforms by their definition, in long double, as a reference. */
#ifndef PLAIT_TESTS_DFT_H
#define PLAIT_TESTS_DFT_H

#include "base/alloc.h"

#include <complex.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* cos and sin of 2 pi j / n, for all 0 <= j < n. The last few tables are kept; not for threads. */
static const long double (*roots(int64_t n))[2]
{
    enum { KNOWN = 512 };
    static long double(*known[KNOWN])[2];
    static int64_t known_n[KNOWN];
    const long double turn = 2 * 3.14159265358979323846264338327950288L;
    const int place = (int)(n % KNOWN);

    if (known_n[place] != n) {
        free(known[place]);
        known[place] = malloc((size_t)n * sizeof(*known[place]));
        known_n[place] = n;
        for (int64_t j = 0; j < n && known[place] != NULL; j++) {
            const long double phase = turn * (long double)j / (long double)n;
            known[place][j][0] = cosl(phase);
            known[place][j][1] = sinl(phase);
        }
    }
    if (known[place] == NULL) {
        abort();
    }
    return (const long double(*)[2])known[place];
}

/* j + step modulo n, of both below n. */
static inline int64_t turned(int64_t j, int64_t step, int64_t n)
{
    return (j + step < n) ? j + step : j + step - n;
}

/* Long loops over arrays of one thread: there is no race to find. */
#define DFT_ALONE __attribute__((no_sanitize("thread")))

/* The definition, axis after axis, in long double. */
DFT_ALONE
static void dft_axis(double complex *data, int ndim, const int64_t shape[], int axis,
                     int sign)
{
    int64_t n = shape[axis];
    int64_t inner = 1;
    int64_t outer = 1;
    const long double(*w)[2] = roots(n);
    double complex *line = plait_alloc(n, sizeof(*line));

    for (int a = 0; a < ndim; a++) {
        inner *= (a > axis) ? shape[a] : 1;
        outer *= (a < axis) ? shape[a] : 1;
    }
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < inner; i++) {
            double complex *at = data + o * n * inner + i;
            for (int64_t k = 0; k < n; k++) {
                long double re = 0;
                long double im = 0;
                for (int64_t j = 0, jk = 0; j < n; j++, jk = turned(jk, k, n)) {
                    const long double c = w[jk][0], s = sign * w[jk][1];
                    const long double x = (long double)creal(at[j * inner]);
                    const long double y = (long double)cimag(at[j * inner]);
                    re += x * c - y * s;
                    im += x * s + y * c;
                }
                line[k] = (double)re + (double)im * I;
            }
            for (int64_t k = 0; k < n; k++) {
                at[k * inner] = line[k];
            }
        }
    }
    plait_free(line);
}

static int64_t n_elements(int ndim, const int64_t shape[])
{
    int64_t n = 1;

    for (int a = 0; a < ndim; a++) {
        n *= shape[a];
    }
    return n;
}

/* Lines along `axis` of n_from elements become lines of n_to. */
typedef void line_fn_t(int64_t n_from, const double complex from[], int64_t n_to,
                       double complex to[], int sign);

static inline double complex *map_lines(const double complex *data, int ndim,
                                        int64_t shape[], int axis, int64_t n_to,
                                        line_fn_t *fn, int sign)
{
    int64_t n_from = shape[axis];
    int64_t inner = n_elements(ndim - axis - 1, shape + axis + 1);
    int64_t outer = n_elements(axis, shape);
    double complex *from = plait_alloc(n_from, sizeof(*from));
    double complex *to = plait_alloc(n_to, sizeof(*to));
    double complex *result = plait_alloc(outer * n_to * inner, sizeof(*result));

    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < inner; i++) {
            for (int64_t j = 0; j < n_from; j++) {
                from[j] = data[(o * n_from + j) * inner + i];
            }
            fn(n_from, from, n_to, to, sign);
            for (int64_t k = 0; k < n_to; k++) {
                result[(o * n_to + k) * inner + i] = to[k];
            }
        }
    }
    shape[axis] = n_to;
    plait_free(from);
    plait_free(to);
    return result;
}

static inline void keep_half(int64_t n_from, const double complex from[], int64_t n_to,
                             double complex to[], int sign)
{
    (void)n_from;
    (void)sign;
    memcpy(to, from, (size_t)n_to * sizeof(*to));
}

/* The definition: elements but 0 and n / 2 count twice. */
DFT_ALONE
static inline void half_to_real(int64_t n_half, const double complex from[], int64_t n,
                                double complex to[], int sign)
{
    const long double(*w)[2] = roots(n);

    for (int64_t j = 0; j < n; j++) {
        long double sum = 0;
        for (int64_t k = 0, jk = 0; k < n_half; k++, jk = turned(jk, j, n)) {
            const bool is_edge = 2 * k % n == 0;
            const long double re = (long double)creal(from[k]);
            const long double im = is_edge ? 0 : (long double)cimag(from[k]);
            sum += (is_edge ? 1 : 2) * (re * w[jk][0] - im * sign * w[jk][1]);
        }
        to[j] = (double)sum;
    }
}

#endif
