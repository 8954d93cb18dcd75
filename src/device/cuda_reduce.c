/* Elementwise work on whole arrays: reductions over pieces, identities, factors. */
#include "base/checked.h"
#include "base/status.h"
#include "device/cuda_state.h"
#include "device/identity.h"

#include <stdbool.h>
#include <string.h>

enum { WIDE = 16, NO_KERNEL = PLAIT_CUDA_N_KERNELS };

#define SAME_CODE(_name, _code) \
    _Static_assert((int)PLAIT_CUDA_##_name == (_code), "the kernels' codes");
PLAIT_REDUCE_FOR_EACH(SAME_CODE)

/* A dtype's kernels; NO_KERNEL: the operations do not exist. Sums of complex numbers are sums of twice as many
 * reals. */
typedef struct {
    plait_dtype_t dtype;
    int reduce; /* all but order and sum */
    int order;  /* MIN and MAX */
    int sum;
    int scale;
} kernels_t;

#define K(_name) ((int)PLAIT_CUDA_##_name)
static const kernels_t kernels[] = {
    {PLAIT_BOOL, K(REDUCE_U8), NO_KERNEL, NO_KERNEL, NO_KERNEL},
    {PLAIT_S8, K(REDUCE_U8), K(REDUCE_S8), K(REDUCE_U8), NO_KERNEL},
    {PLAIT_S16, K(REDUCE_U16), K(REDUCE_S16), K(REDUCE_U16), NO_KERNEL},
    {PLAIT_S32, K(REDUCE_U32), K(REDUCE_S32), K(REDUCE_U32), NO_KERNEL},
    {PLAIT_S64, K(REDUCE_U64), K(REDUCE_S64), K(REDUCE_U64), NO_KERNEL},
    {PLAIT_U8, K(REDUCE_U8), K(REDUCE_U8), K(REDUCE_U8), NO_KERNEL},
    {PLAIT_U16, K(REDUCE_U16), K(REDUCE_U16), K(REDUCE_U16), NO_KERNEL},
    {PLAIT_U32, K(REDUCE_U32), K(REDUCE_U32), K(REDUCE_U32), NO_KERNEL},
    {PLAIT_U64, K(REDUCE_U64), K(REDUCE_U64), K(REDUCE_U64), NO_KERNEL},
    {PLAIT_F16, K(REDUCE_F16), K(REDUCE_F16), K(REDUCE_F16), K(SCALE_F16)},
    {PLAIT_BF16, K(REDUCE_BF16), K(REDUCE_BF16), K(REDUCE_BF16), K(SCALE_BF16)},
    {PLAIT_F32, K(REDUCE_F32), K(REDUCE_F32), K(REDUCE_F32), K(SCALE_F32)},
    {PLAIT_F64, K(REDUCE_F64), K(REDUCE_F64), K(REDUCE_F64), K(SCALE_F64)},
    {PLAIT_C64, K(REDUCE_C64), NO_KERNEL, K(REDUCE_F32), K(SCALE_F32)},
    {PLAIT_C128, K(REDUCE_C128), NO_KERNEL, K(REDUCE_F64), K(SCALE_F64)},
};

static const kernels_t *kernels_of(plait_dtype_t dtype)
{
    const int n = (int)(sizeof(kernels) / sizeof(kernels[0]));
    int i = 0;

    while (i < n && kernels[i].dtype != dtype) {
        i++;
    }
    return (i < n) ? &kernels[i] : NULL;
}

static bool is_logical(plait_reduce_t op)
{
    return op == PLAIT_LAND || op == PLAIT_LOR || op == PLAIT_LXOR;
}

/* For bool, any byte but 0 is true, and results are 0 or 1. */
static plait_reduce_t op_of(plait_reduce_t op, plait_dtype_t dtype)
{
    return (dtype != PLAIT_BOOL) ? op
           : (op == PLAIT_BAND)  ? PLAIT_LAND
           : (op == PLAIT_BOR)   ? PLAIT_LOR
           : (op == PLAIT_BXOR)  ? PLAIT_LXOR
                                 : op;
}

static plait_status_t kernel_of(plait_reduce_t op, plait_dtype_t dtype, int *kernel_p)
{
    plait_status_t status = PLAIT_OK;
    const kernels_t *k = kernels_of(dtype);
    plait_kind_t kind = plait_dtype_kind(dtype);
    bool is_bool = kind == PLAIT_KIND_BOOL;
    bool is_whole = is_bool || kind == PLAIT_KIND_INT || kind == PLAIT_KIND_UINT;
    bool is_bits = op >= PLAIT_LAND && op < PLAIT_REDUCE_COUNT;
    int kernel = NO_KERNEL;

    if (k != NULL && (op == PLAIT_MIN || op == PLAIT_MAX)) {
        kernel = k->order;
    } else if (k != NULL && op == PLAIT_SUM) {
        kernel = k->sum;
    } else if (k != NULL && ((op == PLAIT_PROD && !is_bool) || (is_bits && is_whole))) {
        kernel = k->reduce;
    }
    PLAIT_CHECK(kernel != NO_KERNEL, PLAIT_ERR_INVALID, "CUDA: there is no %s of %s",
                plait_reduce_name(op), plait_dtype_name(dtype));
    *kernel_p = kernel;
done:
    return status;
}

static int64_t n_blocks_of(int64_t n_threads)
{
    return (n_threads + PLAIT_CUDA_THREADS - 1) / PLAIT_CUDA_THREADS;
}

/* The bits of all addresses or-ed: the lowest one gives their common alignment. */
static uint64_t bits_of(int n_pieces, const void *const pieces[], const void *dst)
{
    uint64_t bits = (uint64_t)(uintptr_t)dst;

    for (int q = 0; q < n_pieces; q++) {
        bits |= (uint64_t)(uintptr_t)pieces[q];
    }
    return bits;
}

static plait_status_t fill(plait_cuda_state_t *state, plait_stream_t stream,
                           plait_reduce_t op, plait_dtype_t dtype, int64_t n, void *dst)
{
    unsigned char element[PLAIT_ELEMENT_MAX_BYTES];
    const int64_t size = plait_dtype_bytes(dtype), n_bytes = n * size;
    plait_cuda_fill_t p = {.dst = dst, .n_rest = n_bytes};
    char *pattern = (char *)p.pattern;

    plait_identity(op, dtype, element);
    for (int64_t at = 0; at < WIDE; at += size) {
        memcpy(pattern + at, element, (size_t)size);
    }
    if ((uintptr_t)dst % WIDE == 0) {
        p.n_wide = n_bytes / WIDE;
        p.n_rest = n_bytes % WIDE;
    }
    return plait_cuda_launch(state, stream, PLAIT_CUDA_FILL,
                             n_blocks_of(p.n_wide + p.n_rest), &p);
}

/* At most PLAIT_CUDA_PIECES pieces. */
static plait_status_t reduce_some(plait_cuda_state_t *state, plait_stream_t stream,
                                  plait_reduce_t op, plait_dtype_t dtype, int64_t n,
                                  int n_pieces, const void *const pieces[], void *dst)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_reduce_t p = {.dst = dst, .n_pieces = (uint32_t)n_pieces};
    const uint64_t bits = bits_of(n_pieces, pieces, dst);
    int64_t item = plait_dtype_bytes(dtype);
    int kernel = NO_KERNEL;

    PLAIT_TRY(kernel_of(op, dtype, &kernel));
    if (plait_dtype_kind(dtype) == PLAIT_KIND_COMPLEX) {
        PLAIT_CHECK(bits % (uint64_t)(item / 2) == 0, PLAIT_ERR_INVALID,
                    "CUDA: pieces of %s are not aligned", plait_dtype_name(dtype));
        n *= (op == PLAIT_SUM) ? 2 : 1;
        item /= (op == PLAIT_SUM) ? 2 : 1;
    }
    PLAIT_CHECK(plait_dtype_kind(dtype) == PLAIT_KIND_COMPLEX ||
                    bits % (uint64_t)item == 0,
                PLAIT_ERR_INVALID, "CUDA: pieces of %s are not aligned",
                plait_dtype_name(dtype));
    bool is_wide =
        bits % WIDE == 0 && kernel != K(REDUCE_C64) && kernel != K(REDUCE_C128);

    p.n_wide = is_wide ? n * item / WIDE : 0;
    p.n_rest = n - p.n_wide * WIDE / item;
    p.op = (uint32_t)op_of(op, dtype);
    for (int q = 0; q < n_pieces; q++) {
        p.piece[q] = pieces[q];
    }
    PLAIT_TRY(plait_cuda_launch(state, stream, (plait_cuda_kernel_t)kernel,
                                n_blocks_of(p.n_wide + p.n_rest), &p));
done:
    return status;
}

/* For more pieces than a launch takes: the result so far is the first piece of the next launch. */
static plait_status_t reduce_many(plait_cuda_state_t *state, plait_stream_t stream,
                                  plait_reduce_t op, plait_dtype_t dtype, int64_t n,
                                  int n_pieces, const void *const pieces[], void *dst)
{
    plait_status_t status = PLAIT_OK;
    const void *some[PLAIT_CUDA_PIECES] = {dst};
    int at = 0;

    for (int q = PLAIT_CUDA_PIECES; q < n_pieces; q++) {
        PLAIT_CHECK(pieces[q] != dst, PLAIT_ERR_UNSUPPORTED,
                    "CUDA: the result is piece %d of %d, and only the first %d may be",
                    q, n_pieces, (int)PLAIT_CUDA_PIECES);
    }
    PLAIT_TRY(reduce_some(state, stream, op, dtype, n, PLAIT_CUDA_PIECES, pieces, dst));
    for (int q = PLAIT_CUDA_PIECES; q < n_pieces; q += at) {
        at = (int)plait_min(n_pieces - q, PLAIT_CUDA_PIECES - 1);
        memcpy((void *)(some + 1), (const void *)(pieces + q),
               (size_t)at * sizeof(some[0]));
        PLAIT_TRY(reduce_some(state, stream, op, dtype, n, at + 1, some, dst));
    }
done:
    return status;
}

/* With one piece the result is the operand, but the result of a logical operation is still 0 or 1. */
static plait_status_t reduce_alone(plait_cuda_state_t *state, plait_stream_t stream,
                                   plait_reduce_t op, plait_dtype_t dtype, int64_t n,
                                   const void *piece, void *dst)
{
    const void *const twice[] = {piece, piece};
    size_t n_bytes = (size_t)(n * plait_dtype_bytes(dtype));

    if (is_logical(op)) {
        return reduce_some(state, stream, PLAIT_LOR, dtype, n, 2, twice, dst);
    }
    return (dst == piece)
               ? PLAIT_OK
               : plait_cuda_must(state,
                                 state->cuda->cuMemcpyDtoDAsync_v2(
                                     plait_cu_address(dst), plait_cu_address(piece),
                                     n_bytes, stream),
                                 "copying the only piece");
}

plait_status_t plait_cuda_reduce(plait_device_t *device, plait_stream_t stream,
                                 plait_reduce_t op, plait_dtype_t dtype, int64_t n,
                                 int n_pieces, const void *const pieces[], void *dst)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_state_t *state = plait_cuda_state(device);
    int kernel = NO_KERNEL;

    PLAIT_TRY(kernel_of(op, dtype, &kernel));
    if (n == 0) {
        goto done;
    }
    if (n_pieces == 0) {
        PLAIT_TRY(fill(state, stream, op, dtype, n, dst));
    } else if (n_pieces == 1) {
        PLAIT_TRY(reduce_alone(state, stream, op, dtype, n, pieces[0], dst));
    } else if (n_pieces <= PLAIT_CUDA_PIECES) {
        PLAIT_TRY(reduce_some(state, stream, op, dtype, n, n_pieces, pieces, dst));
    } else {
        PLAIT_TRY(reduce_many(state, stream, op, dtype, n, n_pieces, pieces, dst));
    }
done:
    return status;
}

plait_status_t plait_cuda_scale(plait_device_t *device, plait_stream_t stream,
                                plait_dtype_t dtype, int64_t n, double factor, void *x)
{
    plait_status_t status = PLAIT_OK;
    const kernels_t *k = kernels_of(dtype);
    int64_t item = plait_dtype_bytes(dtype);
    plait_cuda_scale_t p = {.x = x, .factor = factor};

    PLAIT_CHECK(k != NULL && k->scale != NO_KERNEL, PLAIT_ERR_INVALID,
                "CUDA: %s is not scaled", plait_dtype_name(dtype));
    if (plait_dtype_kind(dtype) == PLAIT_KIND_COMPLEX) {
        item /= 2;
        n *= 2;
    }
    PLAIT_CHECK((uintptr_t)x % (uintptr_t)item == 0, PLAIT_ERR_INVALID,
                "CUDA: an array of %s is not aligned", plait_dtype_name(dtype));
    p.n_wide = ((uintptr_t)x % WIDE == 0) ? n * item / WIDE : 0;
    p.n_rest = n - p.n_wide * WIDE / item;
    if (n > 0) {
        PLAIT_TRY(plait_cuda_launch(plait_cuda_state(device), stream,
                                    (plait_cuda_kernel_t)k->scale,
                                    n_blocks_of(p.n_wide + p.n_rest), &p));
    }
done:
    return status;
}
