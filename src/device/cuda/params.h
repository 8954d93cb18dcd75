/* Parameters of kernel launches, and the list of kernels: the same text for C, nvcc and NVRTC. */
#ifndef PLAIT_DEVICE_CUDA_PARAMS_H
#define PLAIT_DEVICE_CUDA_PARAMS_H

#ifndef __CUDACC_RTC__
#include <stdint.h>
#endif

enum {
    PLAIT_CUDA_THREADS = 256, /* of a block, of every kernel */
    PLAIT_CUDA_LANES = 4,     /* that a thread of a box kernel copies */
    PLAIT_CUDA_DIMS = 6,      /* of a box, the lanes of a row included */
    PLAIT_CUDA_BOXES = 20,    /* per launch: parameters have 4096 bytes at most */
    PLAIT_CUDA_PIECES = 480
};

/* Side of the square tiles in which lanes are turned. */
#define PLAIT_CUDA_SIDE(_lane_bytes) (((_lane_bytes) <= 4) ? 64 : 32)

/* The codes of plait_reduce_t, whose header NVRTC cannot read. */
enum {
    PLAIT_CUDA_SUM,
    PLAIT_CUDA_PROD,
    PLAIT_CUDA_MIN,
    PLAIT_CUDA_MAX,
    PLAIT_CUDA_LAND,
    PLAIT_CUDA_LOR,
    PLAIT_CUDA_LXOR,
    PLAIT_CUDA_BAND,
    PLAIT_CUDA_BOR,
    PLAIT_CUDA_BXOR
};

/* A box as lanes: elements of one size, all aligned to it. Lane l, counted with the last dimension fastest, is
 * at sum_d i_d stride[d]. l / count[d] is (l * magic[d]) >> shift[d] for l < 2^31. */
typedef struct {
    const char *src;
    char *dst;
    int64_t src_stride[PLAIT_CUDA_DIMS];
    int64_t dst_stride[PLAIT_CUDA_DIMS];
    uint32_t count[PLAIT_CUDA_DIMS];
    uint32_t magic[PLAIT_CUDA_DIMS];
    uint32_t shift[PLAIT_CUDA_DIMS];
    uint32_t n_dims;
    uint32_t n_lanes; /* < 2^31 */
    uint32_t first_block;
} plait_cuda_box_t;

typedef struct {
    uint32_t n_boxes;
    plait_cuda_box_t box[PLAIT_CUDA_BOXES];
} plait_cuda_boxes_t;

/* n_wide times 16 bytes, then n_rest elements. */
typedef struct {
    int64_t n_wide, n_rest;
    char *dst;
    uint32_t op; /* plait_reduce_t */
    uint32_t n_pieces;
    const char *piece[PLAIT_CUDA_PIECES];
} plait_cuda_reduce_t;

typedef struct {
    int64_t n_wide, n_rest;
    char *x;
    double factor;
} plait_cuda_scale_t;

/* dst[k] = pattern[k % 16], n_wide times 16 bytes, then n_rest bytes. */
typedef struct {
    int64_t n_wide, n_rest;
    char *dst;
    uint64_t pattern[2];
} plait_cuda_fill_t;

/* m x n elements of n_parts reals each, column-major, ld of them from column to column. */
typedef struct {
    const char *src; /* only for TRIM */
    char *dst;
    int64_t m, n, src_ld, dst_ld;
    /* the first row that counts in column 0; one row further down in each column */
    int64_t row;
    int64_t end; /* TRIM: rows from there on become 0 */
    /* MEASURE, STRETCH: two flags: some number is far above 1; some number is not far below 1 */
    int32_t *info;
    double fill;   /* SPOIL: the new value if *info is not 0 */
    int32_t value; /* SCREEN: of *info, if it was 0 and an element is not finite */
    uint32_t log_rows, n_down; /* of a block: rows, and blocks for all rows */
    uint32_t n_parts;
    uint32_t is_real; /* TRIM: the first element that counts loses its imaginary part */
    uint32_t is_unit; /* TRIM: it becomes 1 */
} plait_cuda_matrix_t;

/* Puts a library's outcome of a factorization together with *info. `found` counts from 1. If one of n
 * diagonal elements is not finite and comes before `found`, it takes the place of `found`. Pivots get the
 * table's form. */
typedef struct {
    const char *diagonal;
    int64_t n, ld, m, row;
    const int32_t *found;
    int32_t *info;
    const int64_t *found_pivots; /* rows from 1 to m, or NULL */
    int32_t *pivots;
    uint32_t n_parts;
} plait_cuda_judge_t;

/* n real numbers of a matrix that was stretched as `sizes` says. The stretch is undone, and numbers that
 * ascend except for rounding become ascending. */
typedef struct {
    char *values;
    const int32_t *sizes;
    int64_t n;
} plait_cuda_ascend_t;

/* Row i and row pivots[i] - row of n columns are exchanged, for i = 0, 1, ..., n_pivots - 1. */
typedef struct {
    char *dst;
    int64_t m, n, ld, row, n_pivots;
    const int32_t *pivots;
} plait_cuda_swap_t;

/* The only list: enumerator, name in the module, type of the parameters. TURN: the last two dimensions of a
 * box are turned; the last but one is src's fast dimension. */
#define PLAIT_CUDA_KERNEL_FOR_EACH(_row)                         \
    _row(COPY_1, plait_copy_1, plait_cuda_boxes_t)               \
    _row(COPY_2, plait_copy_2, plait_cuda_boxes_t)               \
    _row(COPY_4, plait_copy_4, plait_cuda_boxes_t)               \
    _row(COPY_8, plait_copy_8, plait_cuda_boxes_t)               \
    _row(COPY_16, plait_copy_16, plait_cuda_boxes_t)             \
    _row(TURN_1, plait_turn_1, plait_cuda_boxes_t)               \
    _row(TURN_2, plait_turn_2, plait_cuda_boxes_t)               \
    _row(TURN_4, plait_turn_4, plait_cuda_boxes_t)               \
    _row(TURN_8, plait_turn_8, plait_cuda_boxes_t)               \
    _row(TURN_16, plait_turn_16, plait_cuda_boxes_t)             \
    _row(ZERO_1, plait_zero_1, plait_cuda_boxes_t)               \
    _row(ZERO_2, plait_zero_2, plait_cuda_boxes_t)               \
    _row(ZERO_4, plait_zero_4, plait_cuda_boxes_t)               \
    _row(ZERO_8, plait_zero_8, plait_cuda_boxes_t)               \
    _row(ZERO_16, plait_zero_16, plait_cuda_boxes_t)             \
    _row(ADD_U8, plait_add_u8, plait_cuda_boxes_t)               \
    _row(ADD_U16, plait_add_u16, plait_cuda_boxes_t)             \
    _row(ADD_U32, plait_add_u32, plait_cuda_boxes_t)             \
    _row(ADD_U64, plait_add_u64, plait_cuda_boxes_t)             \
    _row(ADD_F16, plait_add_f16, plait_cuda_boxes_t)             \
    _row(ADD_BF16, plait_add_bf16, plait_cuda_boxes_t)           \
    _row(ADD_F32, plait_add_f32, plait_cuda_boxes_t)             \
    _row(ADD_F64, plait_add_f64, plait_cuda_boxes_t)             \
    _row(ADD_WIDE_U8, plait_add_wide_u8, plait_cuda_boxes_t)     \
    _row(ADD_WIDE_U16, plait_add_wide_u16, plait_cuda_boxes_t)   \
    _row(ADD_WIDE_U32, plait_add_wide_u32, plait_cuda_boxes_t)   \
    _row(ADD_WIDE_U64, plait_add_wide_u64, plait_cuda_boxes_t)   \
    _row(ADD_WIDE_F16, plait_add_wide_f16, plait_cuda_boxes_t)   \
    _row(ADD_WIDE_BF16, plait_add_wide_bf16, plait_cuda_boxes_t) \
    _row(ADD_WIDE_F32, plait_add_wide_f32, plait_cuda_boxes_t)   \
    _row(ADD_WIDE_F64, plait_add_wide_f64, plait_cuda_boxes_t)   \
    _row(REDUCE_U8, plait_reduce_u8, plait_cuda_reduce_t)        \
    _row(REDUCE_U16, plait_reduce_u16, plait_cuda_reduce_t)      \
    _row(REDUCE_U32, plait_reduce_u32, plait_cuda_reduce_t)      \
    _row(REDUCE_U64, plait_reduce_u64, plait_cuda_reduce_t)      \
    _row(REDUCE_S8, plait_reduce_s8, plait_cuda_reduce_t)        \
    _row(REDUCE_S16, plait_reduce_s16, plait_cuda_reduce_t)      \
    _row(REDUCE_S32, plait_reduce_s32, plait_cuda_reduce_t)      \
    _row(REDUCE_S64, plait_reduce_s64, plait_cuda_reduce_t)      \
    _row(REDUCE_F16, plait_reduce_f16, plait_cuda_reduce_t)      \
    _row(REDUCE_BF16, plait_reduce_bf16, plait_cuda_reduce_t)    \
    _row(REDUCE_F32, plait_reduce_f32, plait_cuda_reduce_t)      \
    _row(REDUCE_F64, plait_reduce_f64, plait_cuda_reduce_t)      \
    _row(REDUCE_C64, plait_reduce_c64, plait_cuda_reduce_t)      \
    _row(REDUCE_C128, plait_reduce_c128, plait_cuda_reduce_t)    \
    _row(SCALE_F16, plait_scale_f16, plait_cuda_scale_t)         \
    _row(SCALE_BF16, plait_scale_bf16, plait_cuda_scale_t)       \
    _row(SCALE_F32, plait_scale_f32, plait_cuda_scale_t)         \
    _row(SCALE_F64, plait_scale_f64, plait_cuda_scale_t)         \
    _row(FILL, plait_fill, plait_cuda_fill_t)                    \
    _row(TRIM_F32, plait_trim_f32, plait_cuda_matrix_t)          \
    _row(TRIM_F64, plait_trim_f64, plait_cuda_matrix_t)          \
    _row(SPOIL_F32, plait_spoil_f32, plait_cuda_matrix_t)        \
    _row(SPOIL_F64, plait_spoil_f64, plait_cuda_matrix_t)        \
    _row(SCREEN_F32, plait_screen_f32, plait_cuda_matrix_t)      \
    _row(SCREEN_F64, plait_screen_f64, plait_cuda_matrix_t)      \
    _row(JUDGE_F32, plait_judge_f32, plait_cuda_judge_t)         \
    _row(JUDGE_F64, plait_judge_f64, plait_cuda_judge_t)         \
    _row(MEASURE_F32, plait_measure_f32, plait_cuda_matrix_t)    \
    _row(MEASURE_F64, plait_measure_f64, plait_cuda_matrix_t)    \
    _row(STRETCH_F32, plait_stretch_f32, plait_cuda_matrix_t)    \
    _row(STRETCH_F64, plait_stretch_f64, plait_cuda_matrix_t)    \
    _row(ASCEND_F32, plait_ascend_f32, plait_cuda_ascend_t)      \
    _row(ASCEND_F64, plait_ascend_f64, plait_cuda_ascend_t)      \
    _row(SWAP_4, plait_swap_4, plait_cuda_swap_t)                \
    _row(SWAP_8, plait_swap_8, plait_cuda_swap_t)                \
    _row(SWAP_16, plait_swap_16, plait_cuda_swap_t)

#endif
