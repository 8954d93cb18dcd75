/* Reductions: one loop per (operation, dtype), and the table that decides which exist.
 * Source: MPI 4.0, 6.9.2; float16 and bfloat16 by IEEE 754, round to nearest even. */
#include "kernel/reduce.h"

#include "base/checked.h"
#include "device/box.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Iterations are independent also where out is a or b; they never overlap otherwise. */
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

/* For an element in memory: bytes may lie at any address and have had any type. */
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

/* Integers by their unsigned type _t: sums wrap. _wide does not promote to int, where
 * the product of two uint16_t overflows. */
#define UNSIGNED_LOOPS(_s, _t, _wide)                      \
    LOOP(sum_##_s, _t, (_t)((_wide)x + (_wide)y))          \
    LOOP(prod_##_s, _t, (_t)((_wide)x * (_wide)y))         \
    LOOP(land_##_s, _t, (_t)((_t)(x != 0) & (_t)(y != 0))) \
    LOOP(lor_##_s, _t, (_t)((_t)(x != 0) | (_t)(y != 0)))  \
    LOOP(lxor_##_s, _t, (_t)((_t)(x != 0) ^ (_t)(y != 0))) \
    LOOP(band_##_s, _t, (_t)(x & y))                       \
    LOOP(bor_##_s, _t, (_t)(x | y))                        \
    LOOP(bxor_##_s, _t, (_t)(x ^ y))

UNSIGNED_LOOPS(u8, uint8_t, uint32_t)
UNSIGNED_LOOPS(u16, uint16_t, uint32_t)
UNSIGNED_LOOPS(u32, uint32_t, uint32_t)
UNSIGNED_LOOPS(u64, uint64_t, uint64_t)

#define ORDER_LOOPS(_s, _t)                   \
    LOOP(min_##_s, _t, (_t)((y < x) ? y : x)) \
    LOOP(max_##_s, _t, (_t)((y > x) ? y : x))

ORDER_LOOPS(s8, int8_t)
ORDER_LOOPS(s16, int16_t)
ORDER_LOOPS(s32, int32_t)
ORDER_LOOPS(s64, int64_t)
ORDER_LOOPS(u8, uint8_t)
ORDER_LOOPS(u16, uint16_t)
ORDER_LOOPS(u32, uint32_t)
ORDER_LOOPS(u64, uint64_t)

static inline uint32_t bits_of_f32(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float f32_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* For values below 2^31: SSE2 compares signed integers only. */
static inline bool is_below(uint32_t x, uint32_t limit)
{
    return (int32_t)x < (int32_t)limit;
}

/* By a mask: gcc sinks arithmetic that only one side of ?: needs into a branch, and
 * then does not vectorise because floating-point operations may trap. */
static inline uint32_t pick(bool condition, uint32_t yes, uint32_t no)
{
    const uint32_t mask = 0u - (uint32_t)condition;

    return (yes & mask) | (no & ~mask);
}

static inline float f32_of_bf16(uint16_t h)
{
    return f32_of_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_of_f32(float x)
{
    uint32_t bits = bits_of_f32(x);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40;

    return (uint16_t)pick(is_below(0x7f800000, bits & 0x7fffffff), quiet, rounded);
}

/* Both conversions of float16 select among three results without a branch, so that the
 * loops vectorise, and never touch a float32 subnormal: XLA runs its handlers with
 * flush-to-zero. */
static inline float f32_of_f16(uint16_t h)
{
    const uint32_t smallest = 113u << 23; /* 2^-14, the least normal float16 */
    uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13;
    uint32_t normal = magnitude + (112u << 23);
    uint32_t special = magnitude | 0x7f800000;
    uint32_t subnormal =
        bits_of_f32(f32_of_bits(magnitude + smallest) - f32_of_bits(smallest));
    uint32_t bits = pick(is_below(magnitude, 31u << 23), normal, special);

    bits = pick(is_below(magnitude, 1u << 23), subnormal, bits);
    return f32_of_bits(bits | ((uint32_t)(h & 0x8000) << 16));
}

static inline uint16_t f16_of_f32(float x)
{
    const uint32_t infinity = 0x7f800000;
    uint32_t magnitude = bits_of_f32(x) & 0x7fffffff;
    uint32_t normal =
        (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    /* the unit in the last place of 0.5f is 2^-24, that of float16's subnormals */
    uint32_t subnormal = bits_of_f32(f32_of_bits(magnitude) + 0.5f) - bits_of_f32(0.5f);
    uint32_t special =
        pick(is_below(infinity, magnitude), 0x7e00 | (magnitude >> 13 & 0x3ff), 0x7c00);
    uint32_t h = pick(is_below(magnitude, 143u << 23), normal, special); /* 65536 */

    h = pick(is_below(magnitude, 113u << 23), subnormal, h);
    return (uint16_t)(h | (bits_of_f32(x) >> 16 & 0x8000));
}

LOOP(sum_f16, uint16_t, f16_of_f32(f32_of_f16(x) + f32_of_f16(y)))
LOOP(prod_f16, uint16_t, f16_of_f32(f32_of_f16(x) * f32_of_f16(y)))
LOOP(sum_bf16, uint16_t, bf16_of_f32(f32_of_bf16(x) + f32_of_bf16(y)))
LOOP(prod_bf16, uint16_t, bf16_of_f32(f32_of_bf16(x) * f32_of_bf16(y)))
LOOP(sum_f32, float, x + y)
LOOP(prod_f32, float, (x * y))
LOOP(sum_f64, double, x + y)
LOOP(prod_f64, double, (x * y))

/* Floating-point numbers are compared by their bits: -0 < +0, subnormals are told apart
 * whatever the flush-to-zero mode, and NaN wins: the one from lower ranks, bit for bit.
 */
#define FLOAT_ORDER_LOOPS(_s, _signed, _t, _infinity)                                \
    static inline bool is_nan_##_s(_t bits)                                          \
    {                                                                                \
        return (_t)(bits & ((_t)-1 >> 1)) > (_infinity);                             \
    }                                                                                \
    static inline _signed key_##_s(_t bits)                                          \
    {                                                                                \
        const _signed sign = (_signed)((_signed)bits >> (8 * sizeof(bits) - 1));     \
                                                                                     \
        return (_signed)(bits ^ ((_t)sign & ((_t)-1 >> 1)));                         \
    }                                                                                \
    static inline _t nan_or_##_s(_t x, _t y, _t extreme)                             \
    {                                                                                \
        extreme = is_nan_##_s(y) ? y : extreme;                                      \
        return is_nan_##_s(x) ? x : extreme;                                         \
    }                                                                                \
    LOOP(min_##_s, _t, nan_or_##_s(x, y, (_t)((key_##_s(y) < key_##_s(x)) ? y : x))) \
    LOOP(max_##_s, _t, nan_or_##_s(x, y, (_t)((key_##_s(y) > key_##_s(x)) ? y : x)))

FLOAT_ORDER_LOOPS(f16, int16_t, uint16_t, 0x7c00)
FLOAT_ORDER_LOOPS(bf16, int16_t, uint16_t, 0x7f80)
FLOAT_ORDER_LOOPS(f32, int32_t, uint32_t, UINT32_C(0x7f800000))
FLOAT_ORDER_LOOPS(f64, int64_t, uint64_t, UINT64_C(0x7ff0000000000000))

/* Complex numbers by plain formulas, where C99's product looks for lost infinities. */
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
/* Any byte but 0 is true and results are 0 or 1, so the logical loops serve. */
#define BITWISE_BOOL(_dtype)                                                      \
    [PLAIT_BAND][PLAIT_##_dtype] = land_u8, [PLAIT_BOR][PLAIT_##_dtype] = lor_u8, \
    [PLAIT_BXOR][PLAIT_##_dtype] = lxor_u8

enum { N_DTYPES = PLAIT_F8E4M3FN + 1 };

/* What is defined, and by which loops; what is not listed is NULL. */
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

enum {
    SHORT_ROW = 64,    /* below, the call costs more than the row ... */
    MIN_STAGED = 16,   /* ... if there are enough to share three copies */
    STAGE_BYTES = 4096 /* two of them stay in the first-level cache */
};

/* A line of short rows, brought together piece by piece. `line` has one dimension. */
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
