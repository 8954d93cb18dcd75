// Tables of boxes: copied, turned, zeroed, added. Adjacent threads have adjacent lanes of dst.

// A launch's boxes are a short table, and all threads of a block search it for the same box.
INLINE const plait_cuda_box_t *box_of_block(const plait_cuda_boxes_t *table)
{
    uint32_t b = table->n_boxes - 1;

    NO_UNROLL
    while (table->box[b].first_block > blockIdx.x) {
        b--;
    }
    return &table->box[b];
}

typedef struct {
    uint32_t lane[PLAIT_CUDA_LANES];
    int64_t src[PLAIT_CUDA_LANES], dst[PLAIT_CUDA_LANES];
} places_t;

// Lanes of this thread, PLAIT_CUDA_THREADS apart, and where they are. All four go through a dimension
// together, so that their arithmetic overlaps.
INLINE void find_places(const plait_cuda_box_t *box, places_t *at)
{
    uint32_t first =
        (blockIdx.x - box->first_block) * PLAIT_CUDA_THREADS * PLAIT_CUDA_LANES;
    uint32_t rest[PLAIT_CUDA_LANES];

    UNROLL
    for (int k = 0; k < PLAIT_CUDA_LANES; k++) {
        at->lane[k] = first + (uint32_t)k * PLAIT_CUDA_THREADS + threadIdx.x;
        at->src[k] = 0;
        at->dst[k] = 0;
        rest[k] = at->lane[k];
    }
    NO_UNROLL
    for (uint32_t d = box->n_dims - 1; d > 0; d--) {
        UNROLL
        for (int k = 0; k < PLAIT_CUDA_LANES; k++) {
            uint32_t whole =
                (uint32_t)(((uint64_t)rest[k] * box->magic[d]) >> box->shift[d]);
            uint32_t index = rest[k] - whole * box->count[d];

            at->src[k] += (int64_t)index * box->src_stride[d];
            at->dst[k] += (int64_t)index * box->dst_stride[d];
            rest[k] = whole;
        }
    }
    UNROLL
    for (int k = 0; k < PLAIT_CUDA_LANES; k++) {
        at->src[k] += (int64_t)rest[k] * box->src_stride[0];
        at->dst[k] += (int64_t)rest[k] * box->dst_stride[0];
    }
}

#define COPY_KERNEL(_bytes)                                                   \
    KERNEL plait_copy_##_bytes(PARAMS(plait_cuda_boxes_t) table)              \
    {                                                                         \
        const plait_cuda_box_t *box = box_of_block(&table);                   \
        lane##_bytes##_t value[PLAIT_CUDA_LANES];                             \
        places_t at;                                                          \
                                                                              \
        find_places(box, &at);                                                \
        UNROLL                                                                \
        for (int k = 0; k < PLAIT_CUDA_LANES; k++) {                          \
            if (at.lane[k] < box->n_lanes) {                                  \
                value[k] = *(const lane##_bytes##_t *)(box->src + at.src[k]); \
            }                                                                 \
        }                                                                     \
        UNROLL                                                                \
        for (int k = 0; k < PLAIT_CUDA_LANES; k++) {                          \
            if (at.lane[k] < box->n_lanes) {                                  \
                *(lane##_bytes##_t *)(box->dst + at.dst[k]) = value[k];       \
            }                                                                 \
        }                                                                     \
    }

COPY_KERNEL(1)
COPY_KERNEL(2)
COPY_KERNEL(4)
COPY_KERNEL(8)
COPY_KERNEL(16)

#define ZERO_KERNEL(_bytes)                                         \
    KERNEL plait_zero_##_bytes(PARAMS(plait_cuda_boxes_t) table)    \
    {                                                               \
        const plait_cuda_box_t *box = box_of_block(&table);         \
        const lane##_bytes##_t zero = {0};                          \
        places_t at;                                                \
                                                                    \
        find_places(box, &at);                                      \
        UNROLL                                                      \
        for (int k = 0; k < PLAIT_CUDA_LANES; k++) {                \
            if (at.lane[k] < box->n_lanes) {                        \
                *(lane##_bytes##_t *)(box->dst + at.dst[k]) = zero; \
            }                                                       \
        }                                                           \
    }

ZERO_KERNEL(1)
ZERO_KERNEL(2)
ZERO_KERNEL(4)
ZERO_KERNEL(8)
ZERO_KERNEL(16)

// The part of a box that one block turns: i is src's fast dimension, j is dst's.
typedef struct {
    const char *src;
    char *dst;
    int64_t src_i, src_j, dst_i, dst_j;
    uint32_t n_i, n_j; // from the tile's corner to the box's end
} tile_t;

INLINE tile_t find_tile(const plait_cuda_box_t *box, uint32_t side)
{
    const uint32_t i = box->n_dims - 2, j = box->n_dims - 1;
    const uint32_t tiles_i = (box->count[i] + side - 1) / side;
    const uint32_t tiles_j = (box->count[j] + side - 1) / side;
    uint32_t rest = blockIdx.x - box->first_block;
    const uint32_t j0 = rest % tiles_j * side;
    const uint32_t i0 = rest / tiles_j % tiles_i * side;
    tile_t t;

    t.n_i = box->count[i] - i0;
    t.n_j = box->count[j] - j0;
    t.src_i = box->src_stride[i];
    t.src_j = box->src_stride[j];
    t.dst_i = box->dst_stride[i];
    t.dst_j = box->dst_stride[j];
    t.src = box->src + i0 * t.src_i + j0 * t.src_j;
    t.dst = box->dst + i0 * t.dst_i + j0 * t.dst_j;
    rest = rest / tiles_j / tiles_i;
    NO_UNROLL
    for (uint32_t d = i; d-- > 0;) {
        const uint32_t index = rest % box->count[d];

        t.src += index * box->src_stride[d];
        t.dst += index * box->dst_stride[d];
        rest /= box->count[d];
    }
    return t;
}

// Step k of a thread through a tile: 32 threads along the fast side, 8 along the slow one.
#define TURN_STEPS(_side)    ((_side) * (_side) / PLAIT_CUDA_THREADS)
#define TURN_FAST(_k, _side) (threadIdx.x % 32 + (_k) % ((_side) / 32) * 32)
#define TURN_SLOW(_k, _side) \
    (threadIdx.x / 32 + (_k) / ((_side) / 32) * (PLAIT_CUDA_THREADS / 32))

// A tile goes through shared memory: adjacent threads read along i and write along j. One column more
// than the tile has keeps both off one bank. A block does one tile.
#define TURN_KERNEL(_bytes, _side)                                                     \
    KERNEL plait_turn_##_bytes(PARAMS(plait_cuda_boxes_t) table)                       \
    {                                                                                  \
        SHARED lane##_bytes##_t tile[_side][(_side) + 1];                              \
        const plait_cuda_box_t *box = box_of_block(&table);                            \
        const tile_t t = find_tile(box, _side);                                        \
        lane##_bytes##_t value[TURN_STEPS(_side)];                                     \
                                                                                       \
        UNROLL                                                                         \
        for (uint32_t k = 0; k < TURN_STEPS(_side); k++) {                             \
            const uint32_t b = TURN_SLOW(k, _side), a = TURN_FAST(k, _side);           \
                                                                                       \
            if (a < t.n_i && b < t.n_j) {                                              \
                value[k] =                                                             \
                    *(const lane##_bytes##_t *)(t.src + a * t.src_i + b * t.src_j);    \
            }                                                                          \
        }                                                                              \
        UNROLL                                                                         \
        for (uint32_t k = 0; k < TURN_STEPS(_side); k++) {                             \
            const uint32_t b = TURN_SLOW(k, _side), a = TURN_FAST(k, _side);           \
                                                                                       \
            if (a < t.n_i && b < t.n_j) {                                              \
                tile[b][a] = value[k];                                                 \
            }                                                                          \
        }                                                                              \
        __syncthreads();                                                               \
        UNROLL                                                                         \
        for (uint32_t k = 0; k < TURN_STEPS(_side); k++) {                             \
            const uint32_t a = TURN_SLOW(k, _side), b = TURN_FAST(k, _side);           \
                                                                                       \
            if (a < t.n_i && b < t.n_j) {                                              \
                *(lane##_bytes##_t *)(t.dst + a * t.dst_i + b * t.dst_j) = tile[b][a]; \
            }                                                                          \
        }                                                                              \
    }

TURN_KERNEL(1, PLAIT_CUDA_SIDE(1))
TURN_KERNEL(2, PLAIT_CUDA_SIDE(2))
TURN_KERNEL(4, PLAIT_CUDA_SIDE(4))
TURN_KERNEL(8, PLAIT_CUDA_SIDE(8))
TURN_KERNEL(16, PLAIT_CUDA_SIDE(16))

// dst += src, an element or 16 bytes of them at a time: x is dst's, y is src's, as in the host's sum. All are
// read before the first is written, since a compiler moves no read before a write that may hit the same place.
#define ADD_SUM(_s, _t, _expression)                                  \
    KERNEL plait_add_##_s(PARAMS(plait_cuda_boxes_t) table)           \
    {                                                                 \
        typedef _t element_t ANY_TYPE;                                \
        const plait_cuda_box_t *box = box_of_block(&table);           \
        _t a[PLAIT_CUDA_LANES], b[PLAIT_CUDA_LANES];                  \
        places_t at;                                                  \
                                                                      \
        find_places(box, &at);                                        \
        UNROLL                                                        \
        for (int k = 0; k < PLAIT_CUDA_LANES; k++) {                  \
            if (at.lane[k] < box->n_lanes) {                          \
                a[k] = *(const element_t *)(box->dst + at.dst[k]);    \
                b[k] = *(const element_t *)(box->src + at.src[k]);    \
            }                                                         \
        }                                                             \
        UNROLL                                                        \
        for (int k = 0; k < PLAIT_CUDA_LANES; k++) {                  \
            if (at.lane[k] < box->n_lanes) {                          \
                const _t x = a[k], y = b[k];                          \
                                                                      \
                *(element_t *)(box->dst + at.dst[k]) = (_expression); \
            }                                                         \
        }                                                             \
    }                                                                 \
    KERNEL plait_add_wide_##_s(PARAMS(plait_cuda_boxes_t) table)      \
    {                                                                 \
        const plait_cuda_box_t *box = box_of_block(&table);           \
        wide_t a[PLAIT_CUDA_LANES], b[PLAIT_CUDA_LANES];              \
        places_t at;                                                  \
                                                                      \
        find_places(box, &at);                                        \
        UNROLL                                                        \
        for (int k = 0; k < PLAIT_CUDA_LANES; k++) {                  \
            if (at.lane[k] < box->n_lanes) {                          \
                a[k].lane = load_wide(box->dst + at.dst[k]);          \
                b[k].lane = load_wide(box->src + at.src[k]);          \
            }                                                         \
        }                                                             \
        UNROLL                                                        \
        for (int k = 0; k < PLAIT_CUDA_LANES; k++) {                  \
            if (at.lane[k] < box->n_lanes) {                          \
                UNROLL                                                \
                for (unsigned e = 0; e < 16 / sizeof(_t); e++) {      \
                    const _t x = a[k].of_##_t[e];                     \
                    const _t y = b[k].of_##_t[e];                     \
                                                                      \
                    a[k].of_##_t[e] = (_expression);                  \
                }                                                     \
                store_wide(box->dst + at.dst[k], a[k].lane);          \
            }                                                         \
        }                                                             \
    }

// Only the sums of the lists are used.
#define ADD_PROD(_s, _t, _expression)
#define ADD_LAND(_s, _t, _expression)
#define ADD_LOR(_s, _t, _expression)
#define ADD_LXOR(_s, _t, _expression)
#define ADD_BAND(_s, _t, _expression)
#define ADD_BOR(_s, _t, _expression)
#define ADD_BXOR(_s, _t, _expression)
#define ADD(_op, _name, _s, _t, _expression) ADD_##_op(_s, _t, _expression)

PLAIT_UNSIGNED_FOR_EACH(ADD, u8, uint8_t, uint32_t)
PLAIT_UNSIGNED_FOR_EACH(ADD, u16, uint16_t, uint32_t)
PLAIT_UNSIGNED_FOR_EACH(ADD, u32, uint32_t, uint32_t)
PLAIT_UNSIGNED_FOR_EACH(ADD, u64, uint64_t, uint64_t)
PLAIT_HALF_FOR_EACH(ADD, f16)
PLAIT_HALF_FOR_EACH(ADD, bf16)
PLAIT_REAL_FOR_EACH(ADD, f32, float)
PLAIT_REAL_FOR_EACH(ADD, f64, double)
