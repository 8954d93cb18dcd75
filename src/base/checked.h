/* Integer arithmetic that says when it overflows, and the one narrowing to int. */
#ifndef PLAIT_BASE_CHECKED_H
#define PLAIT_BASE_CHECKED_H

#include "base/status.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

static inline bool plait_mul(int64_t a, int64_t b, int64_t *product_p)
{
    return !__builtin_mul_overflow(a, b, product_p);
}

static inline bool plait_add(int64_t a, int64_t b, int64_t *sum_p)
{
    return !__builtin_add_overflow(a, b, sum_p);
}

static inline int64_t plait_min(int64_t a, int64_t b)
{
    return (a < b) ? a : b;
}

static inline int64_t plait_max(int64_t a, int64_t b)
{
    return (a > b) ? a : b;
}

/* The only place where a count becomes an int. */
static inline plait_status_t plait_int_of(int64_t n, int *n_p)
{
    if ((n < 0) || (n > INT_MAX)) {
        return plait_fail(PLAIT_ERR_OVERFLOW, "%lld does not fit an int", (long long)n);
    }
    *n_p = (int)n;
    return PLAIT_OK;
}

#endif
