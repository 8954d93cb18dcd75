/* Numbers so large or so small that their squares would overflow or vanish: arrays are multiplied by a power
 * of two for the time of a computation. For complex numbers both parts count. */
#ifndef PLAIT_KERNEL_RANGE_H
#define PLAIT_KERNEL_RANGE_H

#include "plait/dtype.h"

#include <stdint.h>

/* The largest magnitude of n numbers; passes over NaN. 0 if n is 0. */
double plait_range_largest(plait_dtype_t dtype, int64_t n, const void *x);

/* The factor for a largest magnitude; 1 if nothing is to be done, or if the magnitude is not finite. */
double plait_range_factor(plait_dtype_t dtype, double largest);

void plait_range_multiply(plait_dtype_t dtype, int64_t n, void *x, double factor);

#endif
