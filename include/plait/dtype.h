/* Element types. The codes are those of XLA's FFI, so that no translation is needed. */
#ifndef PLAIT_DTYPE_H
#define PLAIT_DTYPE_H

#include "plait/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The only list of dtypes: enumerator, code, NumPy's name, bytes, kind. */
#define PLAIT_DTYPE_FOR_EACH(_row)             \
    _row(BOOL, 1, "bool", 1, BOOL)             \
    _row(S8, 2, "int8", 1, INT)                \
    _row(S16, 3, "int16", 2, INT)              \
    _row(S32, 4, "int32", 4, INT)              \
    _row(S64, 5, "int64", 8, INT)              \
    _row(U8, 6, "uint8", 1, UINT)              \
    _row(U16, 7, "uint16", 2, UINT)            \
    _row(U32, 8, "uint32", 4, UINT)            \
    _row(U64, 9, "uint64", 8, UINT)            \
    _row(F16, 10, "float16", 2, FLOAT)         \
    _row(F32, 11, "float32", 4, FLOAT)         \
    _row(F64, 12, "float64", 8, FLOAT)         \
    _row(C64, 15, "complex64", 8, COMPLEX)     \
    _row(BF16, 16, "bfloat16", 2, FLOAT)       \
    _row(C128, 18, "complex128", 16, COMPLEX)  \
    _row(F8E5M2, 19, "float8_e5m2", 1, OPAQUE) \
    _row(F8E4M3FN, 20, "float8_e4m3fn", 1, OPAQUE)

typedef enum {
#define PLAIT_DTYPE_ENUM(_name, _code, _text, _bytes, _kind) PLAIT_##_name = (_code),
    PLAIT_DTYPE_FOR_EACH(PLAIT_DTYPE_ENUM)
#undef PLAIT_DTYPE_ENUM
        PLAIT_DTYPE_LAST = PLAIT_F8E4M3FN /* the largest code */
} plait_dtype_t;

typedef enum {
    PLAIT_KIND_BOOL,
    PLAIT_KIND_INT,
    PLAIT_KIND_UINT,
    PLAIT_KIND_FLOAT,
    PLAIT_KIND_COMPLEX,
    PLAIT_KIND_OPAQUE /* moved, never reduced */
} plait_kind_t;

/** Number of rows of the dtype table.
 *  Collective: no.  Shapes: none.  Owns: nothing.  Errors: none.  Source: own. */
PLAIT_EXPORT int plait_dtype_count(void);

/** The i-th dtype of the table, 0 <= i < plait_dtype_count().
 *  Collective: no.  Shapes: none.  Owns: nothing.
 *  Errors: none; an index outside gives 0, which is no dtype.  Source: own. */
PLAIT_EXPORT plait_dtype_t plait_dtype_at(int i);

/** NumPy's name of a dtype.
 *  Collective: no.  Shapes: none.  Owns: nothing; the text is static.
 *  Errors: none; "unknown" for a value that is no dtype.  Source: own. */
PLAIT_EXPORT const char *plait_dtype_name(plait_dtype_t dtype);

/** Bytes of one element.
 *  Collective: no.  Shapes: none.  Owns: nothing.
 *  Errors: none; 0 for a value that is no dtype.  Source: own. */
PLAIT_EXPORT int64_t plait_dtype_bytes(plait_dtype_t dtype);

/** Kind of a dtype. The kind decides which reductions exist.
 *  Collective: no.  Shapes: none.  Owns: nothing.
 *  Errors: none; OPAQUE for a value that is no dtype.  Source: own. */
PLAIT_EXPORT plait_kind_t plait_dtype_kind(plait_dtype_t dtype);

#ifdef __cplusplus
}
#endif
#endif
