// Work on matrices that the libraries lack: triangles, outcomes that decide about later work, pivots. A thread
// has one element of a column-major matrix, or one column. Blocks of elements have 2^log_rows rows and as many
// columns as there is room for, so that no thread divides; n_down blocks are below each other.

#define MATRIX_KERNEL(_name, _t, _is_wanted, _body)                                 \
    KERNEL _name(PARAMS(plait_cuda_matrix_t) p)                                     \
    {                                                                               \
        typedef _t element_t ANY_TYPE;                                              \
        if (!(_is_wanted)) {                                                        \
            return;                                                                 \
        }                                                                           \
        const uint32_t right = blockIdx.x / p.n_down;                               \
        const uint32_t down = blockIdx.x - right * p.n_down;                        \
        const uint32_t n_rows = 1u << p.log_rows;                                   \
        const uint32_t n_columns = PLAIT_CUDA_THREADS >> p.log_rows;                \
        const int64_t i = (int64_t)down * n_rows + (threadIdx.x & (n_rows - 1));    \
        const int64_t j = (int64_t)right * n_columns + (threadIdx.x >> p.log_rows); \
                                                                                    \
        if (i < p.m && j < p.n) {                                                   \
            element_t *dst = (element_t *)p.dst + (j * p.dst_ld + i) * p.n_parts;   \
                                                                                    \
            _body                                                                   \
        }                                                                           \
    }

// Elements that are not kept are not read either.
#define TRIM(_t)                                                                      \
    const element_t *src = (const element_t *)p.src + (j * p.src_ld + i) * p.n_parts; \
    const int is_kept = i >= p.row + j && i < p.end;                                  \
    const int is_first = i == p.row + j;                                              \
    const int is_whole = !is_first || !(p.is_real || p.is_unit);                      \
                                                                                      \
    dst[0] = !is_kept ? (_t)0 : (is_first && p.is_unit) ? (_t)1 : src[0];             \
    if (p.n_parts == 2) {                                                             \
        dst[1] = (is_kept && is_whole) ? src[1] : (_t)0;                              \
    }

#define SPOIL(_t)                \
    if (i >= p.row + j) {        \
        dst[0] = (_t)p.fill;     \
        if (p.n_parts == 2) {    \
            dst[1] = (_t)p.fill; \
        }                        \
    }

// All threads that write, write the same. x - x is 0 for finite numbers alone.
#define SCREEN(_t)                                   \
    if (i >= p.row + j) {                            \
        const _t x = dst[0], y = dst[p.n_parts - 1]; \
                                                     \
        if (x - x != 0 || y - y != 0) {              \
            *p.info = p.value;                       \
        }                                            \
    }

MATRIX_KERNEL(plait_trim_f32, float, 1, TRIM(float))
MATRIX_KERNEL(plait_trim_f64, double, 1, TRIM(double))
MATRIX_KERNEL(plait_spoil_f32, float, *p.info != 0, SPOIL(float))
MATRIX_KERNEL(plait_spoil_f64, double, *p.info != 0, SPOIL(double))
MATRIX_KERNEL(plait_screen_f32, float, *p.info == 0, SCREEN(float))
MATRIX_KERNEL(plait_screen_f64, double, *p.info == 0, SCREEN(double))

// One block: each thread looks at every 256th element of the diagonal.
#define JUDGE_KERNEL(_s, _t)                                               \
    KERNEL plait_judge_##_s(PARAMS(plait_cuda_judge_t) p)                  \
    {                                                                      \
        typedef _t element_t ANY_TYPE;                                     \
        SHARED int64_t first[PLAIT_CUDA_THREADS];                          \
        const element_t *diagonal = (const element_t *)p.diagonal;         \
        int64_t bad = p.n;                                                 \
                                                                           \
        NO_UNROLL                                                          \
        for (int64_t i = threadIdx.x; i < p.n; i += PLAIT_CUDA_THREADS) {  \
            const element_t *at = diagonal + i * (p.ld + 1) * p.n_parts;   \
            const _t x = at[0];                                            \
            const _t y = p.found_pivots ? at[p.n_parts - 1] : x;           \
            const int is_bad = x - x != 0 || y - y != 0;                   \
                                                                           \
            bad = (is_bad && i < bad) ? i : bad;                           \
            if (p.found_pivots) {                                          \
                const int64_t pivot = p.found_pivots[i];                   \
                const int is_row = pivot >= 1 && pivot <= p.m;             \
                                                                           \
                p.pivots[i] = (int32_t)(p.row + (is_row ? pivot - 1 : i)); \
            }                                                              \
        }                                                                  \
        first[threadIdx.x] = bad;                                          \
        __syncthreads();                                                   \
        if (threadIdx.x == 0) {                                            \
            int64_t found = *p.found;                                      \
                                                                           \
            NO_UNROLL                                                      \
            for (int t = 0; t < PLAIT_CUDA_THREADS; t++) {                 \
                bad = (first[t] < bad) ? first[t] : bad;                   \
            }                                                              \
            if (bad < p.n && (found <= 0 || bad + 1 < found)) {            \
                found = bad + 1;                                           \
            }                                                              \
            if (found > 0 && *p.info == 0) {                               \
                *p.info = (int32_t)(p.row + found);                        \
            }                                                              \
        }                                                                  \
    }

JUDGE_KERNEL(f32, float)
JUDGE_KERNEL(f64, double)

// If a number exceeds FAR, all are multiplied by 1 / STEP; if all are below 1 / FAR, by STEP. Squares of the
// numbers are normal afterwards, scaled or not. FAR and STEP are 2^60 and 2^75, 2^480 and 2^600. All threads
// that write, write the same.
#define FAR_f32  1152921504606846976.f
#define STEP_f32 37778931862957161709568.f
#define FAR_f64  3.1217485503159922e144
#define STEP_f64 4.149515568880993e180
#define STRETCHED_BY(_s, _sizes) \
    ((_sizes)[0] ? 1 / STEP_##_s : (_sizes)[1] ? 1 : STEP_##_s)

#define MEASURE(_s, _t)                                     \
    if (i >= j) {                                           \
        const _t x = dst[0] < 0 ? -dst[0] : dst[0];         \
        const _t z = (i > j) ? dst[p.n_parts - 1] : dst[0]; \
        const _t y = z < 0 ? -z : z;                        \
                                                            \
        if (x > FAR_##_s || y > FAR_##_s) {                 \
            p.info[0] = 1;                                  \
        }                                                   \
        if (x >= 1 / FAR_##_s || y >= 1 / FAR_##_s) {       \
            p.info[1] = 1;                                  \
        }                                                   \
    }

#define STRETCH(_s, _t)                                 \
    if (i >= j) {                                       \
        const _t factor = (_t)STRETCHED_BY(_s, p.info); \
                                                        \
        dst[0] *= factor;                               \
        if (p.n_parts == 2) {                           \
            dst[1] *= factor;                           \
        }                                               \
    }

MATRIX_KERNEL(plait_measure_f32, float, 1, MEASURE(f32, float))
MATRIX_KERNEL(plait_measure_f64, double, 1, MEASURE(f64, double))
MATRIX_KERNEL(plait_stretch_f32, float, STRETCHED_BY(f32, p.info) != 1,
              STRETCH(f32, float))
MATRIX_KERNEL(plait_stretch_f64, double, STRETCHED_BY(f64, p.info) != 1,
              STRETCH(f64, double))

// One block: each number becomes the largest number up to it. Each thread has equally many numbers, in order.
// NaN stays where it is, and is less than any number.
#define IS_MORE(_x, _most) ((_x) > (_most) || (_most) != (_most))
#define ASCEND_KERNEL(_s, _t)                                             \
    KERNEL plait_ascend_##_s(PARAMS(plait_cuda_ascend_t) p)               \
    {                                                                     \
        typedef _t element_t ANY_TYPE;                                    \
        SHARED element_t largest[PLAIT_CUDA_THREADS];                     \
        element_t *values = (element_t *)p.values;                        \
        const element_t factor = (element_t)STRETCHED_BY(_s, p.sizes);    \
        const int64_t each = (p.n - 1) / PLAIT_CUDA_THREADS + 1;          \
        const int64_t begin = (int64_t)threadIdx.x * each;                \
        const int64_t end = (begin + each < p.n) ? begin + each : p.n;    \
        element_t most = (begin < end) ? values[begin] : (element_t)0;    \
                                                                          \
        NO_UNROLL                                                         \
        for (int64_t i = begin; i < end; i++) {                           \
            most = IS_MORE(values[i], most) ? values[i] : most;           \
        }                                                                 \
        largest[threadIdx.x] = most;                                      \
        __syncthreads();                                                  \
        most = (begin < end) ? values[begin] : (element_t)0;              \
        NO_UNROLL                                                         \
        for (int t = 0; t < (int)threadIdx.x && begin < end; t++) {       \
            most = IS_MORE(largest[t], most) ? largest[t] : most;         \
        }                                                                 \
        NO_UNROLL                                                         \
        for (int64_t i = begin; i < end; i++) {                           \
            most = IS_MORE(values[i], most) ? values[i] : most;           \
            values[i] = ((values[i] < most) ? most : values[i]) / factor; \
        }                                                                 \
    }

ASCEND_KERNEL(f32, float)
ASCEND_KERNEL(f64, double)

#define SWAP_KERNEL(_bytes)                                              \
    KERNEL plait_swap_##_bytes(PARAMS(plait_cuda_swap_t) p)              \
    {                                                                    \
        const int64_t j = this_thread();                                 \
        lane##_bytes##_t *column = (lane##_bytes##_t *)p.dst + j * p.ld; \
                                                                         \
        NO_UNROLL                                                        \
        for (int64_t i = 0; j < p.n && i < p.n_pivots; i++) {            \
            const int64_t other = p.pivots[i] - p.row;                   \
                                                                         \
            if (other > i && other < p.m) {                              \
                const lane##_bytes##_t kept = column[i];                 \
                                                                         \
                column[i] = column[other];                               \
                column[other] = kept;                                    \
            }                                                            \
        }                                                                \
    }

SWAP_KERNEL(4)
SWAP_KERNEL(8)
SWAP_KERNEL(16)
