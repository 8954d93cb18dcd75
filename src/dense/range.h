/* Matrices whose numbers are so large or small that squares of them would overflow or vanish: they are
 * multiplied by a power of two while something is computed. */
#ifndef PLAIT_DENSE_RANGE_H
#define PLAIT_DENSE_RANGE_H

#include "plait/dtype.h"

#include <stdint.h>

/* By the largest magnitude; 1 where nothing is to be done, and of what is not finite. */
double plait_range_factor(plait_dtype_t dtype, double largest);

void plait_range_multiply(plait_dtype_t dtype, int64_t n, void *x, double factor);

#endif
