/* Elements of every dtype made of whole numbers, and their reductions by plain arithmetic. Both are exact in
 * every dtype, so that results are compared bit by bit. */
#ifndef PLAIT_TESTS_NUMBERS_H
#define PLAIT_TESTS_NUMBERS_H

#include "check.h"
#include "plait/dtype.h"
#include "plait/reduce.h"

#include <string.h>

typedef struct {
    int64_t re, im;
} number_t;

static inline int64_t cut(plait_dtype_t dtype, int64_t v)
{
    int shift = 64 - 8 * (int)plait_dtype_bytes(dtype);
    plait_kind_t kind = plait_dtype_kind(dtype);
    uint64_t up = (uint64_t)v << (shift & 63);

    if (kind == PLAIT_KIND_INT) {
        return (int64_t)up >> shift;
    }
    return (kind == PLAIT_KIND_UINT) ? (int64_t)(up >> shift) : v;
}

/* Integers cover their whole range, with zeros among them. Floats are positive, so that no sign of a zero
 * shows, and small if they are multiplied. */
static inline number_t number_of(plait_dtype_t dtype, plait_reduce_t op, int rank,
                                 int64_t i)
{
    int64_t v = (int64_t)((uint64_t)(i * 7 + rank + 1) * UINT64_C(0x9e3779b97f4a7c15));
    int64_t mask = (op == PLAIT_PROD) ? 1 : 7;
    plait_kind_t kind = plait_dtype_kind(dtype);
    number_t x = {0, 0};

    if (kind == PLAIT_KIND_BOOL) {
        x.re = v >> 40 & 1;
    } else if (kind == PLAIT_KIND_FLOAT || kind == PLAIT_KIND_COMPLEX) {
        x.re = (v >> 20 & mask) + 1;
        x.im = (kind == PLAIT_KIND_COMPLEX) ? (v >> 30 & mask) + 1 : 0;
    } else {
        x.re = (i % 3 == rank % 3) ? 0 : cut(dtype, v);
    }
    return x;
}

/* Bits of a whole number in a float of 16 bits. */
static inline uint64_t bits16(plait_dtype_t dtype, float f)
{
    uint32_t bits = 0;

    memcpy(&bits, &f, sizeof(bits));
    if (dtype == PLAIT_BF16 || bits == 0) {
        return bits >> 16;
    }
    uint32_t exponent = (bits >> 23 & 0xff) - 127 + 15;
    return (bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3ff);
}

static inline void put(plait_dtype_t dtype, char *data, int64_t i, number_t x)
{
    float f[2] = {(float)x.re, (float)x.im};
    double d[2] = {(double)x.re, (double)x.im};
    uint64_t h = bits16(dtype, f[0]);
    int64_t size = plait_dtype_bytes(dtype);
    plait_kind_t kind = plait_dtype_kind(dtype);
    const void *from = &x.re; /* little-endian */

    if (kind == PLAIT_KIND_FLOAT || kind == PLAIT_KIND_COMPLEX) {
        bool is_double = dtype == PLAIT_F64 || dtype == PLAIT_C128;
        from = (size == 2) ? (const void *)&h
               : is_double ? (const void *)d
                           : (const void *)f;
    }
    memcpy(data + i * size, from, (size_t)size);
}

static inline int64_t less_of(plait_dtype_t dtype, int64_t a, int64_t b)
{
    bool is_less = (plait_dtype_kind(dtype) == PLAIT_KIND_UINT)
                       ? (uint64_t)a < (uint64_t)b
                       : a < b;
    return is_less ? a : b;
}

static inline number_t combine(plait_reduce_t op, plait_dtype_t dtype, number_t a,
                               number_t b)
{
    uint64_t x = (uint64_t)a.re;
    uint64_t y = (uint64_t)b.re;
    number_t r = a;

    switch (op) {
    case PLAIT_SUM:
        r = (number_t){(int64_t)(x + y), a.im + b.im};
        break;
    case PLAIT_PROD:
        r.re = (int64_t)(x * y - (uint64_t)a.im * (uint64_t)b.im);
        r.im = (int64_t)(x * (uint64_t)b.im + (uint64_t)a.im * y);
        break;
    case PLAIT_MIN:
        r.re = less_of(dtype, a.re, b.re);
        break;
    case PLAIT_MAX:
        r.re = (less_of(dtype, a.re, b.re) == a.re) ? b.re : a.re;
        break;
    case PLAIT_LAND:
        r.re = (x != 0) && (y != 0);
        break;
    case PLAIT_LOR:
        r.re = (x != 0) || (y != 0);
        break;
    case PLAIT_LXOR:
        r.re = (x != 0) != (y != 0);
        break;
    case PLAIT_BAND:
        r.re = (int64_t)(x & y);
        break;
    case PLAIT_BOR:
        r.re = (int64_t)(x | y);
        break;
    case PLAIT_BXOR:
        r.re = (int64_t)(x ^ y);
        break;
    default:
        CHECK(false, "op %d", (int)op);
    }
    r.re = cut(dtype, r.re);
    return r;
}

/* The result over no elements: the value that changes no other. */
static inline void put_identity(plait_dtype_t dtype, plait_reduce_t op, char *data,
                                int64_t i)
{
    static const char *const infinities[] = {/* of MIN, and with a sign of MAX */
                                             [PLAIT_F16] = "\x00\x7c\x00\xfc",
                                             [PLAIT_BF16] = "\x80\x7f\x80\xff"};
    int64_t size = plait_dtype_bytes(dtype);
    bool is_extreme = op == PLAIT_MIN || op == PLAIT_MAX;
    number_t one = {op == PLAIT_PROD || op == PLAIT_LAND, 0};
    float f = (op == PLAIT_MIN) ? __builtin_inff() : -__builtin_inff();
    double d = f;
    char *at = data + i * size;

    put(dtype, data, i, one);
    if (is_extreme && plait_dtype_kind(dtype) == PLAIT_KIND_FLOAT) {
        const char *h =
            (size == 2) ? infinities[dtype] + ((op == PLAIT_MAX) ? 2 : 0) : NULL;
        memcpy(at,
               (size == 2)   ? (const void *)h
               : (size == 4) ? (const void *)&f
                             : (const void *)&d,
               (size_t)size);
    } else if (is_extreme) {
        bool is_signed = plait_dtype_kind(dtype) == PLAIT_KIND_INT;
        memset(at, (op == PLAIT_MIN) ? 0xff : 0, (size_t)size);
        at[size - 1] = (char)(at[size - 1] ^ (is_signed ? 0x80 : 0));
    } else if (op == PLAIT_BAND) {
        memset(at, (dtype == PLAIT_BOOL) ? 1 : 0xff, (size_t)size);
    }
}

#endif
