/* Roots of unity. Each is computed on its own from tables, without a recurrence. */
#ifndef PLAIT_KERNEL_FFT_TWIDDLE_H
#define PLAIT_KERNEL_FFT_TWIDDLE_H

#include "plait/status.h"

#include <float.h>
#include <stdint.h>

/* x87's fraction of 64 bits hides all rounding of a product. Elsewhere long double is double or slow software;
 * double costs one more unit in the last place. */
#if LDBL_MANT_DIG == 64
typedef long double plait_wide_t;
#else
typedef double plait_wide_t;
#endif

/* cos and sin of 2 pi a / (8 n), 0 <= a <= n, as products of two table entries. */
typedef struct {
    int64_t n;
    int shift;
    plait_wide_t *coarse, *fine;
} plait_roots_t;

/* Costs O(sqrt(n)). */
plait_status_t plait_roots_create(int64_t n, plait_roots_t *roots_p);
void plait_roots_destroy(plait_roots_t *roots);

/* exp(-2 pi i t / n), 0 <= t < n. */
void plait_roots_get(const plait_roots_t *roots, int64_t t, double w[2]);

/* exp(-2 pi i step j / n) for 0 <= j < count, step * (count - 1) < n. Each is a product of two roots: several
 * times faster than plait_roots_get for each. */
void plait_roots_powers(const plait_roots_t *roots, int64_t step, int64_t count,
                        double *w);

#endif
