// dst[i] = op over the pieces' elements i, in the pieces' order. dst may be one of the pieces: each
// thread reads its elements of all pieces before it writes.

// Threads take 16 bytes each, then single elements: where the pieces are not aligned, all of them.
#define REDUCE_CASE(_op, _name, _s, _t, _expression)                                 \
    case PLAIT_CUDA_##_op:                                                           \
        if (i < p.n_wide) {                                                          \
            wide_t a, b;                                                             \
                                                                                     \
            a.lane = load_wide(p.piece[0] + 16 * i);                                 \
            NO_UNROLL                                                                \
            for (uint32_t q = 1; q < p.n_pieces; q++) {                              \
                b.lane = load_wide(p.piece[q] + 16 * i);                             \
                UNROLL                                                               \
                for (unsigned e = 0; e < 16 / sizeof(_t); e++) {                     \
                    const _t x = a.of_##_t[e];                                       \
                    const _t y = b.of_##_t[e];                                       \
                                                                                     \
                    a.of_##_t[e] = (_expression);                                    \
                }                                                                    \
            }                                                                        \
            store_wide(p.dst + 16 * i, a.lane);                                      \
        } else if (i - p.n_wide < p.n_rest) {                                        \
            typedef _t element_t ANY_TYPE;                                           \
            const int64_t at = 16 * p.n_wide + (i - p.n_wide) * (int64_t)sizeof(_t); \
            _t x = *(const element_t *)(p.piece[0] + at);                            \
                                                                                     \
            NO_UNROLL                                                                \
            for (uint32_t q = 1; q < p.n_pieces; q++) {                              \
                const _t y = *(const element_t *)(p.piece[q] + at);                  \
                                                                                     \
                x = (_expression);                                                   \
            }                                                                        \
            *(element_t *)(p.dst + at) = x;                                          \
        }                                                                            \
        break;

#define REDUCE_KERNEL(_s, _cases)                           \
    KERNEL plait_reduce_##_s(PARAMS(plait_cuda_reduce_t) p) \
    {                                                       \
        const int64_t i = this_thread();                    \
                                                            \
        switch (p.op) {                                     \
            _cases default : break;                         \
        }                                                   \
    }

#define UNSIGNED_CASES(_s, _t, _wide)                   \
    PLAIT_UNSIGNED_FOR_EACH(REDUCE_CASE, _s, _t, _wide) \
    PLAIT_ORDER_FOR_EACH(REDUCE_CASE, _s, _t)
#define HALF_CASES(_s)                   \
    PLAIT_HALF_FOR_EACH(REDUCE_CASE, _s) \
    PLAIT_FLOAT_ORDER_FOR_EACH(REDUCE_CASE, _s, uint16_t)
#define REAL_CASES(_s, _t, _bits)            \
    PLAIT_REAL_FOR_EACH(REDUCE_CASE, _s, _t) \
    PLAIT_FLOAT_ORDER_FOR_EACH(REDUCE_CASE, _s, _bits)

REDUCE_KERNEL(u8, UNSIGNED_CASES(u8, uint8_t, uint32_t))
REDUCE_KERNEL(u16, UNSIGNED_CASES(u16, uint16_t, uint32_t))
REDUCE_KERNEL(u32, UNSIGNED_CASES(u32, uint32_t, uint32_t))
REDUCE_KERNEL(u64, UNSIGNED_CASES(u64, uint64_t, uint64_t))
REDUCE_KERNEL(s8, PLAIT_ORDER_FOR_EACH(REDUCE_CASE, s8, int8_t))
REDUCE_KERNEL(s16, PLAIT_ORDER_FOR_EACH(REDUCE_CASE, s16, int16_t))
REDUCE_KERNEL(s32, PLAIT_ORDER_FOR_EACH(REDUCE_CASE, s32, int32_t))
REDUCE_KERNEL(s64, PLAIT_ORDER_FOR_EACH(REDUCE_CASE, s64, int64_t))
REDUCE_KERNEL(f16, HALF_CASES(f16))
REDUCE_KERNEL(bf16, HALF_CASES(bf16))
REDUCE_KERNEL(f32, REAL_CASES(f32, float, uint32_t))
REDUCE_KERNEL(f64, REAL_CASES(f64, double, uint64_t))

// Products of complex numbers, by the formulas of kernel/reduce.c; sums are those of reals. The program is
// compiled without fused multiply-add, since products would differ from the host's otherwise.
#define COMPLEX_KERNEL(_s, _t)                                             \
    KERNEL plait_reduce_##_s(PARAMS(plait_cuda_reduce_t) p)                \
    {                                                                      \
        typedef _t element_t ANY_TYPE;                                     \
        const int64_t i = this_thread();                                   \
                                                                           \
        if (i < p.n_rest) {                                                \
            const int64_t at = i * 2 * (int64_t)sizeof(_t);                \
            const element_t *a = (const element_t *)(p.piece[0] + at);     \
            element_t *dst = (element_t *)(p.dst + at);                    \
            _t re = a[0], im = a[1];                                       \
                                                                           \
            NO_UNROLL                                                      \
            for (uint32_t q = 1; q < p.n_pieces; q++) {                    \
                const element_t *b = (const element_t *)(p.piece[q] + at); \
                const _t b_re = b[0], b_im = b[1];                         \
                const _t next = re * b_re - im * b_im;                     \
                                                                           \
                im = re * b_im + im * b_re;                                \
                re = next;                                                 \
            }                                                              \
            dst[0] = re;                                                   \
            dst[1] = im;                                                   \
        }                                                                  \
    }

COMPLEX_KERNEL(c64, float)
COMPLEX_KERNEL(c128, double)

KERNEL plait_fill(PARAMS(plait_cuda_fill_t) p)
{
    const int64_t i = this_thread();

    if (i < p.n_wide) {
        wide_t a;

        a.of_uint64_t[0] = p.pattern[0];
        a.of_uint64_t[1] = p.pattern[1];
        store_wide(p.dst + 16 * i, a.lane);
    } else if (i - p.n_wide < p.n_rest) {
        const int64_t k = i - p.n_wide;

        p.dst[16 * p.n_wide + k] = (char)(p.pattern[k / 8 % 2] >> (8 * (k % 8)));
    }
}
