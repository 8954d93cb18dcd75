/* Which of MPI's reductions give the results that plait defines. The table says what the standard promises. The
 * probe says what this library does: Open MPI 4 and 5 saturate sums of 8- and 16-bit integers on CPUs with AVX,
 * and MPICH 4.0 compares unsigned integers as signed (both measured). */
#include "kernel/reduce.h"
#include "transport/mpi_link.h"

#include <string.h>

/* Long enough for the widest vector loop over one-byte elements, and a remainder. */
enum { N_PROBE = 64 + 64 + 21, MAX_BYTES = 16 };

#define BIT(_dtype) (UINT32_C(1) << PLAIT_##_dtype)
#define INTS                                                                    \
    (BIT(S8) | BIT(S16) | BIT(S32) | BIT(S64) | BIT(U8) | BIT(U16) | BIT(U32) | \
     BIT(U64))
#define REALS   (INTS | BIT(F32) | BIT(F64))
#define NUMBERS (REALS | BIT(C64) | BIT(C128))

/* Not MIN and MAX of floats: MPI may lose a NaN. Not products of complex numbers: if a part is infinite, some
 * compilers make them infinite, and plait's are NaN. MPI has no 16-bit floats. */
static const uint32_t promised[PLAIT_REDUCE_COUNT] = {
    [PLAIT_SUM] = NUMBERS,
    [PLAIT_PROD] = REALS,
    [PLAIT_MIN] = INTS,
    [PLAIT_MAX] = INTS,
    [PLAIT_LAND] = INTS | BIT(BOOL),
    [PLAIT_LOR] = INTS | BIT(BOOL),
    [PLAIT_LXOR] = INTS | BIT(BOOL),
    [PLAIT_BAND] = INTS | BIT(BOOL),
    [PLAIT_BOR] = INTS | BIT(BOOL),
    [PLAIT_BXOR] = INTS | BIT(BOOL),
};

/* C_BOOL has these instead of the bitwise operations. */
static const plait_reduce_t logical[PLAIT_REDUCE_COUNT] = {
    [PLAIT_LAND] = PLAIT_LAND, [PLAIT_LOR] = PLAIT_LOR, [PLAIT_LXOR] = PLAIT_LXOR,
    [PLAIT_BAND] = PLAIT_LAND, [PLAIT_BOR] = PLAIT_LOR, [PLAIT_BXOR] = PLAIT_LXOR,
};

static uint32_t probed[PLAIT_REDUCE_COUNT];

plait_reduce_t plait_mpi_op(plait_reduce_t op, plait_dtype_t dtype)
{
    return (dtype == PLAIT_BOOL) ? logical[op] : op;
}

/* Integers cover their whole range, with zeros among them; floats are small whole numbers, exact in every type;
 * booleans are 0 and 1. */
static void fill(plait_dtype_t dtype, uint64_t seed, unsigned char data[])
{
    int64_t size = plait_dtype_bytes(dtype);
    uint64_t x = seed;

    for (int64_t i = 0; i < N_PROBE; i++) {
        unsigned char *at = data + i * size;
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t word = (x >> 61 == 0) ? 0 : x ^ x >> 32;
        float f[2] = {(float)(1 + (x >> 60)), (float)(1 + (x >> 50 & 7))};
        double d[2] = {f[0], f[1]};
        bool is_double = (dtype == PLAIT_F64) || (dtype == PLAIT_C128);
        bool is_float = (dtype == PLAIT_F32) || (dtype == PLAIT_C64);
        unsigned char bit = (x >> 63 != 0);
        memcpy(at,
               (dtype == PLAIT_BOOL) ? (const void *)&bit
               : is_double           ? (const void *)d
               : is_float            ? (const void *)f
                                     : (const void *)&word,
               (size_t)size);
    }
}

static bool agrees(const plait_mpi_backend_t *mpi, plait_reduce_t op,
                   plait_dtype_t dtype)
{
    unsigned char x[N_PROBE * MAX_BYTES];
    unsigned char y[N_PROBE * MAX_BYTES];
    unsigned char expected[N_PROBE * MAX_BYTES];
    plait_reduce_fn_t fn = plait_reduce_find(op, dtype);
    size_t n_bytes = (size_t)(N_PROBE * plait_dtype_bytes(dtype));

    fill(dtype, 1, x);
    fill(dtype, 2, y);
    if (fn != NULL) {
        fn(N_PROBE, expected, x, y);
    }
    return (fn != NULL) &&
           (mpi->reduce_local(x, y, N_PROBE, dtype, plait_mpi_op(op, dtype)) == 0) &&
           (memcmp(y, expected, n_bytes) == 0);
}

void plait_mpi_native_probe(const plait_mpi_backend_t *mpi)
{
    for (int op = 0; op < PLAIT_REDUCE_COUNT; op++) {
        probed[op] = 0;
        for (int i = 0; i < plait_dtype_count(); i++) {
            plait_dtype_t dtype = plait_dtype_at(i);
            uint32_t bit = UINT32_C(1) << dtype;
            if ((promised[op] & bit) != 0 && agrees(mpi, (plait_reduce_t)op, dtype)) {
                probed[op] |= bit;
            }
        }
    }
}

/* With one rank MPI copies, which does not make a logical result 0 or 1. */
void plait_mpi_native_masks(int size, uint32_t masks[PLAIT_REDUCE_COUNT])
{
    memcpy(masks, probed, sizeof(probed));
    if (size == 1) {
        masks[PLAIT_LAND] &= BIT(BOOL);
        masks[PLAIT_LOR] &= BIT(BOOL);
        masks[PLAIT_LXOR] &= BIT(BOOL);
    }
}
