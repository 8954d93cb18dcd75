/* The reductions of two elements: the same text for the host's loops (kernel/reduce.c) and for CUDA's
 * kernels, so that both give the same bits. C compilers, nvcc and NVRTC read it.
 *
 * A row of the lists has: operation, its name, the dtype's name, type in memory, and an expression in x, which
 * comes from lower ranks, and y. */
#ifndef PLAIT_DEVICE_ELEMENT_H
#define PLAIT_DEVICE_ELEMENT_H

#ifdef __CUDACC_RTC__ /* has no headers; the types of Linux on 64 bits */
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
#else
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#endif

#ifdef __CUDACC__
#define PLAIT_ELEMENT_INLINE static __device__ __forceinline__
#else
#define PLAIT_ELEMENT_INLINE static inline
#endif

/* ---- Integers by their unsigned type _t: sums wrap. _wide does not promote to int, where the
 * product of two uint16_t overflows. */
#define PLAIT_UNSIGNED_FOR_EACH(_row, _s, _t, _wide)            \
    _row(SUM, sum, _s, _t, (_t)((_wide)x + (_wide)y))           \
    _row(PROD, prod, _s, _t, (_t)((_wide)x * (_wide)y))         \
    _row(LAND, land, _s, _t, (_t)((_t)(x != 0) & (_t)(y != 0))) \
    _row(LOR, lor, _s, _t, (_t)((_t)(x != 0) | (_t)(y != 0)))   \
    _row(LXOR, lxor, _s, _t, (_t)((_t)(x != 0) ^ (_t)(y != 0))) \
    _row(BAND, band, _s, _t, (_t)(x & y))                       \
    _row(BOR, bor, _s, _t, (_t)(x | y))                         \
    _row(BXOR, bxor, _s, _t, (_t)(x ^ y))

#define PLAIT_ORDER_FOR_EACH(_row, _s, _t)        \
    _row(MIN, min, _s, _t, (_t)((y < x) ? y : x)) \
    _row(MAX, max, _s, _t, (_t)((y > x) ? y : x))

/* ---- Floats: sums and products. float16 and bfloat16 are combined in float32 and rounded each
 * time, to nearest even. */
#define PLAIT_REAL_FOR_EACH(_row, _s, _t) \
    _row(SUM, sum, _s, _t, x + y)         \
    _row(PROD, prod, _s, _t, (x * y))

#define PLAIT_HALF_FOR_EACH(_row, _s)                                      \
    _row(SUM, sum, _s, uint16_t,                                           \
         plait_##_s##_of_f32(plait_f32_of_##_s(x) + plait_f32_of_##_s(y))) \
    _row(PROD, prod, _s, uint16_t,                                         \
         plait_##_s##_of_f32(plait_f32_of_##_s(x) * plait_f32_of_##_s(y)))

PLAIT_ELEMENT_INLINE uint32_t plait_bits_of_f32(float x)
{
#ifdef __CUDACC__
    return __float_as_uint(x);
#else
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
#endif
}

PLAIT_ELEMENT_INLINE float plait_f32_of_bits(uint32_t bits)
{
#ifdef __CUDACC__
    return __uint_as_float(bits);
#else
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
#endif
}

/* For values below 2^31: SSE2 compares signed integers only. */
PLAIT_ELEMENT_INLINE bool plait_is_below(uint32_t x, uint32_t limit)
{
    return (int32_t)x < (int32_t)limit;
}

/* By a mask: gcc sinks arithmetic that only one side of ?: needs into a branch, and
 * then does not vectorise because floating-point operations may trap. */
PLAIT_ELEMENT_INLINE uint32_t plait_pick(bool condition, uint32_t yes, uint32_t no)
{
    const uint32_t mask = 0u - (uint32_t)condition;

    return (yes & mask) | (no & ~mask);
}

PLAIT_ELEMENT_INLINE float plait_f32_of_bf16(uint16_t h)
{
    return plait_f32_of_bits((uint32_t)h << 16);
}

PLAIT_ELEMENT_INLINE uint16_t plait_bf16_of_f32(float x)
{
    uint32_t bits = plait_bits_of_f32(x);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40;

    return (uint16_t)plait_pick(plait_is_below(0x7f800000, bits & 0x7fffffff), quiet,
                                rounded);
}

/* Both conversions of float16 select among three results without a branch, so that the
 * loops vectorise, and never touch a float32 subnormal: XLA runs its handlers with
 * flush-to-zero. */
PLAIT_ELEMENT_INLINE float plait_f32_of_f16(uint16_t h)
{
    const uint32_t smallest = 113u << 23; /* 2^-14, the least normal float16 */
    uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13;
    uint32_t normal = magnitude + (112u << 23);
    uint32_t special = magnitude | 0x7f800000;
    uint32_t subnormal = plait_bits_of_f32(plait_f32_of_bits(magnitude + smallest) -
                                           plait_f32_of_bits(smallest));
    uint32_t bits = plait_pick(plait_is_below(magnitude, 31u << 23), normal, special);

    bits = plait_pick(plait_is_below(magnitude, 1u << 23), subnormal, bits);
    return plait_f32_of_bits(bits | ((uint32_t)(h & 0x8000) << 16));
}

PLAIT_ELEMENT_INLINE uint16_t plait_f16_of_f32(float x)
{
    const uint32_t infinity = 0x7f800000;
    uint32_t magnitude = plait_bits_of_f32(x) & 0x7fffffff;
    uint32_t normal =
        (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    /* the unit in the last place of 0.5f is 2^-24, that of float16's subnormals */
    uint32_t subnormal = plait_bits_of_f32(plait_f32_of_bits(magnitude) + 0.5f) -
                         plait_bits_of_f32(0.5f);
    uint32_t special = plait_pick(plait_is_below(infinity, magnitude),
                                  0x7e00 | (magnitude >> 13 & 0x3ff), 0x7c00);
    uint32_t h =
        plait_pick(plait_is_below(magnitude, 143u << 23), normal, special); /* 65536 */

    h = plait_pick(plait_is_below(magnitude, 113u << 23), subnormal, h);
    return (uint16_t)(h | (plait_bits_of_f32(x) >> 16 & 0x8000));
}

/* ---- Floats: order, by their bits: -0 < +0, subnormals are told apart whatever the
 * flush-to-zero mode, and NaN wins: the one from lower ranks, bit for bit. */
#define PLAIT_FLOAT_ORDER_FOR_EACH(_row, _s, _t)                                   \
    _row(MIN, min, _s, _t,                                                         \
         plait_nan_or_##_s(x, y,                                                   \
                           (_t)((plait_key_##_s(y) < plait_key_##_s(x)) ? y : x))) \
    _row(MAX, max, _s, _t,                                                         \
         plait_nan_or_##_s(x, y,                                                   \
                           (_t)((plait_key_##_s(y) > plait_key_##_s(x)) ? y : x)))

#define PLAIT_FLOAT_ORDER(_s, _signed, _t, _infinity)                            \
    PLAIT_ELEMENT_INLINE bool plait_is_nan_##_s(_t bits)                         \
    {                                                                            \
        return (_t)(bits & ((_t)-1 >> 1)) > (_infinity);                         \
    }                                                                            \
    PLAIT_ELEMENT_INLINE _signed plait_key_##_s(_t bits)                         \
    {                                                                            \
        const _signed sign = (_signed)((_signed)bits >> (8 * sizeof(bits) - 1)); \
                                                                                 \
        return (_signed)(bits ^ ((_t)sign & ((_t)-1 >> 1)));                     \
    }                                                                            \
    PLAIT_ELEMENT_INLINE _t plait_nan_or_##_s(_t x, _t y, _t extreme)            \
    {                                                                            \
        extreme = plait_is_nan_##_s(y) ? y : extreme;                            \
        return plait_is_nan_##_s(x) ? x : extreme;                               \
    }

PLAIT_FLOAT_ORDER(f16, int16_t, uint16_t, 0x7c00)
PLAIT_FLOAT_ORDER(bf16, int16_t, uint16_t, 0x7f80)
PLAIT_FLOAT_ORDER(f32, int32_t, uint32_t, 0x7f800000u)
PLAIT_FLOAT_ORDER(f64, int64_t, uint64_t, 0x7ff0000000000000u)

#endif
