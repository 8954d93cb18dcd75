/* Reductions: one loop per (operation, dtype), from the lists of device/element.h, and the table that decides
 * which reductions exist.
 * Source: MPI 4.0, 6.9.2; float16 and bfloat16 by IEEE 754, round to nearest even. */
#include "kernel/reduce.h"

#include "base/checked.h"
#include "device/box.h"
#include "device/element.h"
#include "device/identity.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Iterations are independent, also if out is a or b; other overlaps do not occur. */
#if defined(__clang__)
#pragma clang diagnostic ignored \
    "-Wpass-failed" /* sanitized builds do not vectorise \
                                                  */
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

/* For an element in memory: bytes may lie at any address and may have had any type. */
#define IN_MEMORY __attribute__((aligned(1), may_alias))

/* _expression is in x (from lower ranks) and y, of type _t. */
#define LOOP(_name, _t, _expression)                                      \
    static void _name(int64_t n, void *out, const void *a, const void *b) \
    {                                                                     \
        typedef _t memory_t IN_MEMORY;                                    \
        const memory_t *p = a;                                            \
        const memory_t *q = b;                                            \
        memory_t *r = out;                                                \
                                                                          \
        INDEPENDENT                                                       \
        for (int64_t i = 0; i < n; i++) {                                 \
            const _t x = p[i];                                            \
            const _t y = q[i];                                            \
                                                                          \
            r[i] = (_expression);                                         \
        }                                                                 \
    }

#define ROW(_op, _name, _s, _t, _expression) LOOP(_name##_##_s, _t, _expression)

PLAIT_UNSIGNED_FOR_EACH(ROW, u8, uint8_t, uint32_t)
PLAIT_UNSIGNED_FOR_EACH(ROW, u16, uint16_t, uint32_t)
PLAIT_UNSIGNED_FOR_EACH(ROW, u32, uint32_t, uint32_t)
PLAIT_UNSIGNED_FOR_EACH(ROW, u64, uint64_t, uint64_t)

PLAIT_ORDER_FOR_EACH(ROW, s8, int8_t)
PLAIT_ORDER_FOR_EACH(ROW, s16, int16_t)
PLAIT_ORDER_FOR_EACH(ROW, s32, int32_t)
PLAIT_ORDER_FOR_EACH(ROW, s64, int64_t)
PLAIT_ORDER_FOR_EACH(ROW, u8, uint8_t)
PLAIT_ORDER_FOR_EACH(ROW, u16, uint16_t)
PLAIT_ORDER_FOR_EACH(ROW, u32, uint32_t)
PLAIT_ORDER_FOR_EACH(ROW, u64, uint64_t)

PLAIT_HALF_FOR_EACH(ROW, f16)
PLAIT_HALF_FOR_EACH(ROW, bf16)
PLAIT_REAL_FOR_EACH(ROW, f32, float)
PLAIT_REAL_FOR_EACH(ROW, f64, double)

PLAIT_FLOAT_ORDER_FOR_EACH(ROW, f16, uint16_t)
PLAIT_FLOAT_ORDER_FOR_EACH(ROW, bf16, uint16_t)
PLAIT_FLOAT_ORDER_FOR_EACH(ROW, f32, uint32_t)
PLAIT_FLOAT_ORDER_FOR_EACH(ROW, f64, uint64_t)

/* Complex numbers by plain formulas; C99's product would look for lost infinities. */
#define COMPLEX_LOOPS(_s, _real, _t)                                          \
    static void sum_##_s(int64_t n, void *out, const void *a, const void *b)  \
    {                                                                         \
        sum_##_real(2 * n, out, a, b);                                        \
    }                                                                         \
    static void prod_##_s(int64_t n, void *out, const void *a, const void *b) \
    {                                                                         \
        typedef _t memory_t IN_MEMORY;                                        \
        const memory_t *p = a;                                                \
        const memory_t *q = b;                                                \
        memory_t *r = out;                                                    \
                                                                              \
        INDEPENDENT                                                           \
        for (int64_t i = 0; i < 2 * n; i += 2) {                              \
            const _t re = p[i] * q[i] - p[i + 1] * q[i + 1];                  \
            const _t im = p[i] * q[i + 1] + p[i + 1] * q[i];                  \
                                                                              \
            r[i] = re;                                                        \
            r[i + 1] = im;                                                    \
        }                                                                     \
    }

COMPLEX_LOOPS(c64, f32, float)
COMPLEX_LOOPS(c128, f64, double)

/* clang-format off: the table is to be read by rows */
#define ARITHMETIC(_dtype, _s) \
    [PLAIT_SUM][PLAIT_##_dtype] = sum_##_s, [PLAIT_PROD][PLAIT_##_dtype] = prod_##_s
#define ORDER(_dtype, _s) \
    [PLAIT_MIN][PLAIT_##_dtype] = min_##_s, [PLAIT_MAX][PLAIT_##_dtype] = max_##_s
#define LOGICAL(_dtype, _s)                                                           \
    [PLAIT_LAND][PLAIT_##_dtype] = land_##_s, [PLAIT_LOR][PLAIT_##_dtype] = lor_##_s, \
    [PLAIT_LXOR][PLAIT_##_dtype] = lxor_##_s
#define BITWISE(_dtype, _s)                                                           \
    [PLAIT_BAND][PLAIT_##_dtype] = band_##_s, [PLAIT_BOR][PLAIT_##_dtype] = bor_##_s, \
    [PLAIT_BXOR][PLAIT_##_dtype] = bxor_##_s
/* Any byte other than 0 is true, and results are 0 or 1. So the logical loops serve. */
#define BITWISE_BOOL(_dtype)                                                      \
    [PLAIT_BAND][PLAIT_##_dtype] = land_u8, [PLAIT_BOR][PLAIT_##_dtype] = lor_u8, \
    [PLAIT_BXOR][PLAIT_##_dtype] = lxor_u8

enum { N_DTYPES = PLAIT_DTYPE_LAST + 1 };

/* The operations that are defined, and their loops; others are NULL. */
static const plait_reduce_fn_t table[PLAIT_REDUCE_COUNT][N_DTYPES] = {
    LOGICAL(BOOL, u8),      BITWISE_BOOL(BOOL),     ARITHMETIC(S8, u8),
    ORDER(S8, s8),          LOGICAL(S8, u8),        BITWISE(S8, u8),
    ARITHMETIC(S16, u16),   ORDER(S16, s16),        LOGICAL(S16, u16),
    BITWISE(S16, u16),      ARITHMETIC(S32, u32),   ORDER(S32, s32),
    LOGICAL(S32, u32),      BITWISE(S32, u32),      ARITHMETIC(S64, u64),
    ORDER(S64, s64),        LOGICAL(S64, u64),      BITWISE(S64, u64),
    ARITHMETIC(U8, u8),     ORDER(U8, u8),          LOGICAL(U8, u8),
    BITWISE(U8, u8),        ARITHMETIC(U16, u16),   ORDER(U16, u16),
    LOGICAL(U16, u16),      BITWISE(U16, u16),      ARITHMETIC(U32, u32),
    ORDER(U32, u32),        LOGICAL(U32, u32),      BITWISE(U32, u32),
    ARITHMETIC(U64, u64),   ORDER(U64, u64),        LOGICAL(U64, u64),
    BITWISE(U64, u64),      ARITHMETIC(F16, f16),   ORDER(F16, f16),
    ARITHMETIC(BF16, bf16), ORDER(BF16, bf16),      ARITHMETIC(F32, f32),
    ORDER(F32, f32),        ARITHMETIC(F64, f64),   ORDER(F64, f64),
    ARITHMETIC(C64, c64),   ARITHMETIC(C128, c128),
};
/* clang-format on */

#define NAME(_name, _code) [PLAIT_##_name] = #_name,
static const char *const names[PLAIT_REDUCE_COUNT] = {PLAIT_REDUCE_FOR_EACH(NAME)};

static bool is_op(plait_reduce_t op)
{
    return ((int)op >= 0) && (op < PLAIT_REDUCE_COUNT);
}

const char *plait_reduce_name(plait_reduce_t op)
{
    return is_op(op) ? names[op] : "unknown";
}

bool plait_reduce_is_defined(plait_reduce_t op, plait_dtype_t dtype)
{
    return plait_reduce_find(op, dtype) != NULL;
}

plait_reduce_fn_t plait_reduce_find(plait_reduce_t op, plait_dtype_t dtype)
{
    bool is_dtype = ((int)dtype >= 0) && ((int)dtype < N_DTYPES);

    return (is_op(op) && is_dtype) ? table[op][dtype] : NULL;
}

void plait_reduce_fill(plait_reduce_t op, plait_dtype_t dtype, int64_t n, void *out)
{
    unsigned char element[PLAIT_ELEMENT_MAX_BYTES];
    int64_t size = plait_dtype_bytes(dtype);
    unsigned char *at = out;

    plait_identity(op, dtype, element);
    for (int64_t i = 0; i < n; i++) {
        memcpy(at + i * size, element, (size_t)size);
    }
}

enum {
    SHORT_ROW = 64,    /* below, the call costs more than the row ... */
    MIN_STAGED = 16,   /* ... if there are enough to share three copies */
    STAGE_BYTES = 4096 /* two of them stay in the first-level cache */
};

/* A line of short rows, which are brought together piece by piece. `line` has one dimension. */
static void reduce_line(plait_reduce_fn_t fn, int64_t element_bytes,
                        const plait_box_copy_t *line, const char *src, char *dst)
{
    _Alignas(64) char a[STAGE_BYTES];
    _Alignas(64) char b[STAGE_BYTES];
    const int64_t row_bytes = line->row_bytes;
    const int64_t piece = STAGE_BYTES / row_bytes;
    plait_box_copy_t box = *line;

    for (int64_t i = 0; i < line->count[0]; i += piece) {
        const char *s = src + i * line->src_stride[0];
        char *d = dst + i * line->dst_stride[0];

        box.count[0] = plait_min(piece, line->count[0] - i);
        box.src_stride[0] = line->src_stride[0];
        box.dst_stride[0] = row_bytes;
        plait_host_copy_box(&box, s, b);
        box.src_stride[0] = line->dst_stride[0];
        plait_host_copy_box(&box, d, a);
        fn(box.count[0] * row_bytes / element_bytes, a, a, b);
        box.src_stride[0] = row_bytes;
        box.dst_stride[0] = line->dst_stride[0];
        plait_host_copy_box(&box, a, d);
    }
}

static void reduce_lines(plait_reduce_fn_t fn, int64_t element_bytes,
                         const plait_box_copy_t *box, const char *src, char *dst)
{
    const int last = box->n_dims - 1;
    plait_box_walk_t walk = {0};
    plait_box_copy_t line = {.n_dims = 1, .row_bytes = box->row_bytes};

    line.count[0] = box->count[last];
    line.src_stride[0] = box->src_stride[last];
    line.dst_stride[0] = box->dst_stride[last];
    do {
        reduce_line(fn, element_bytes, &line, src + walk.src, dst + walk.dst);
    } while (plait_box_next(box, last, &walk));
}

static void reduce_rows(plait_reduce_fn_t fn, int64_t element_bytes,
                        const plait_box_copy_t *box, const char *src, char *dst)
{
    const int64_t n = box->row_bytes / element_bytes;
    plait_box_walk_t walk = {0};

    do {
        fn(n, dst + walk.dst, dst + walk.dst, src + walk.src);
    } while (plait_box_next(box, box->n_dims, &walk));
}

void plait_reduce_box(plait_reduce_fn_t fn, int64_t element_bytes,
                      const plait_box_copy_t *box, const void *src, void *dst)
{
    plait_box_copy_t simple = *box;

    if (plait_box_bytes(box) == 0) {
        return;
    }
    plait_box_simplify(&simple);
    const int last = simple.n_dims - 1;
    if ((simple.n_dims > 0) && (simple.row_bytes < SHORT_ROW) &&
        (simple.count[last] >= MIN_STAGED) && (simple.dst_stride[last] != 0)) {
        reduce_lines(fn, element_bytes, &simple, src, dst);
    } else {
        reduce_rows(fn, element_bytes, &simple, src, dst);
    }
}
