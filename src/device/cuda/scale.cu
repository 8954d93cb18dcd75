// x[i] *= factor, rounded once; float16 and bfloat16 through float32.

#define F16_SCALED  plait_f16_of_f32(plait_f32_of_f16(x) * (float)p.factor)
#define BF16_SCALED plait_bf16_of_f32(plait_f32_of_bf16(x) * (float)p.factor)

#define SCALE_KERNEL(_s, _t, _expression)                                        \
    KERNEL plait_scale_##_s(PARAMS(plait_cuda_scale_t) p)                        \
    {                                                                            \
        typedef _t element_t ANY_TYPE;                                           \
        const int64_t i = this_thread();                                         \
                                                                                 \
        if (i < p.n_wide) {                                                      \
            wide_t a;                                                            \
                                                                                 \
            a.lane = load_wide(p.x + 16 * i);                                    \
            UNROLL                                                               \
            for (unsigned e = 0; e < 16 / sizeof(_t); e++) {                     \
                const _t x = a.of_##_t[e];                                       \
                                                                                 \
                a.of_##_t[e] = (_expression);                                    \
            }                                                                    \
            store_wide(p.x + 16 * i, a.lane);                                    \
        } else if (i - p.n_wide < p.n_rest) {                                    \
            element_t *at = (element_t *)(p.x + 16 * p.n_wide) + (i - p.n_wide); \
            const _t x = *at;                                                    \
                                                                                 \
            *at = (_expression);                                                 \
        }                                                                        \
    }

SCALE_KERNEL(f16, uint16_t, F16_SCALED)
SCALE_KERNEL(bf16, uint16_t, BF16_SCALED)
SCALE_KERNEL(f32, float, x *(float)p.factor)
SCALE_KERNEL(f64, double, x *p.factor)
