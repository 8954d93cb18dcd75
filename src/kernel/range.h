/* Numbers so large or so small that their squares would overflow or vanish: arrays are multiplied by a power
 * of two for the time of a computation. For complex numbers both parts count. */
#ifndef PLAIT_KERNEL_RANGE_H
#define PLAIT_KERNEL_RANGE_H

#include "plait/dtype.h"

#include <stdint.h>

/* The largest magnitude of n numbers, NaN passed over; 0 of none. */
double plait_range_largest(plait_dtype_t dtype, int64_t n, const void *x);

/* By the largest magnitude; 1 where nothing is to be done, and of what is not finite. */
double plait_range_factor(plait_dtype_t dtype, double largest);

void plait_range_multiply(plait_dtype_t dtype, int64_t n, void *x, double factor);

#endif
