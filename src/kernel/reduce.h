/* Elementwise reductions: one function per (operation, dtype) that the table defines. */
#ifndef PLAIT_KERNEL_REDUCE_H
#define PLAIT_KERNEL_REDUCE_H

#include "device/host.h"
#include "plait/dtype.h"
#include "plait/reduce.h"

#include <stdint.h>

/* out[i] = a[i] op b[i]; out may be a or b. Operands are in the order of ranks: a comes from lower ranks.
 * float16 and bfloat16 are combined in float32 and rounded each time. In MIN and MAX NaN wins, as in
 * jnp.minimum and jnp.maximum. */
typedef void (*plait_reduce_fn_t)(int64_t n, void *out, const void *a, const void *b);

/* NULL if the operation is not defined for the dtype. */
plait_reduce_fn_t plait_reduce_find(plait_reduce_t op, plait_dtype_t dtype);

/* Whether results are 0 or 1, even for a single operand. */
static inline bool plait_reduce_is_logical(plait_reduce_t op)
{
    return op == PLAIT_LAND || op == PLAIT_LOR || op == PLAIT_LXOR;
}

/* out[i] = e such that e op a is a, or for logical operations 0 or 1. Integer MIN and MAX: the type's other
 * end; floats: the infinity (so that a NaN still wins). The operation is defined for the dtype. */
void plait_reduce_fill(plait_reduce_t op, plait_dtype_t dtype, int64_t n, void *out);

/* dst[i] = dst[i] op src[i] over the rows of a box; row_bytes is a multiple of
 * element_bytes. fn is what plait_reduce_find returned for that element. */
void plait_reduce_box(plait_reduce_fn_t fn, int64_t element_bytes,
                      const plait_box_copy_t *box, const void *src, void *dst);

#endif
