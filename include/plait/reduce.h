/* Reduction operations of plait_allreduce and similar functions. */
#ifndef PLAIT_REDUCE_H
#define PLAIT_REDUCE_H

#include "plait/dtype.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The only list of reductions: enumerator and code. plait_reduce_is_defined tells for which dtypes each is
 * defined. SUM and PROD: all numbers except float8. MIN and MAX: all numbers except float8 and complex; NaN
 * stays NaN. The others: integers and BOOL; LAND, LOR and LXOR give 0 or 1, also of a single element. */
#define PLAIT_REDUCE_FOR_EACH(_row) \
    _row(SUM, 0)                    \
    _row(PROD, 1)                   \
    _row(MIN, 2)                    \
    _row(MAX, 3)                    \
    _row(LAND, 4)                   \
    _row(LOR, 5)                    \
    _row(LXOR, 6)                   \
    _row(BAND, 7)                   \
    _row(BOR, 8)                    \
    _row(BXOR, 9)

typedef enum {
#define PLAIT_REDUCE_ENUM(_name, _code) PLAIT_##_name = (_code),
    PLAIT_REDUCE_FOR_EACH(PLAIT_REDUCE_ENUM)
#undef PLAIT_REDUCE_ENUM
        PLAIT_REDUCE_COUNT
} plait_reduce_t;

/** Name of a reduction as in MPI, without prefix.
 *  Collective: no.  Shapes: none.  Owns: nothing; the text is static.
 *  Errors: none; "unknown" for a value outside the list.  Source: MPI 4.0, 6.9.2. */
PLAIT_EXPORT const char *plait_reduce_name(plait_reduce_t op);

/** Whether a reduction is defined for a dtype.
 *  Collective: no.  Shapes: none.  Owns: nothing.
 *  Errors: none; false for values outside the lists.  Source: own. */
PLAIT_EXPORT bool plait_reduce_is_defined(plait_reduce_t op, plait_dtype_t dtype);

#ifdef __cplusplus
}
#endif
#endif
