/* Matrices on a CUDA device beside their earlier contents, and tiles run on them, for the tests of work on
 * matrices. */
#ifndef PLAIT_TESTS_CUDA_MATRICES_H
#define PLAIT_TESTS_CUDA_MATRICES_H

#include "cuda_arrays.h"
#include "dense/scalar.h"
#include "elements.h"

#include <math.h>

enum { GAP = 3 }; /* rows between columns */

static const plait_dtype_t dtypes[] = {PLAIT_F32, PLAIT_F64, PLAIT_C64, PLAIT_C128};

typedef struct {
    plait_dtype_t dtype;
    int64_t m, n, ld;
    array_t a;
} matrix_t;

static inline int64_t place(const matrix_t *x, int64_t i, int64_t j)
{
    return j * x->ld + i;
}

static inline double complex before(const matrix_t *x, int64_t i, int64_t j)
{
    return plait_scalar_get(x->dtype, x->a.expected, place(x, i, j));
}

static inline double complex now(const matrix_t *x, int64_t i, int64_t j)
{
    return plait_scalar_get(x->dtype, x->a.pinned, place(x, i, j));
}

static inline void set(matrix_t *x, int64_t i, int64_t j, double complex z)
{
    plait_scalar_put(x->dtype, x->a.pinned, place(x, i, j), z);
}

/* Noise everywhere, even between columns. */
static inline matrix_t create(const machine_t *m, plait_dtype_t dtype, int64_t n_rows,
                              int64_t n_columns, uint64_t seed)
{
    const int64_t ld = n_rows + GAP;
    matrix_t x = {dtype, n_rows, n_columns, ld,
                  array_create(m, ld * n_columns * plait_dtype_bytes(dtype))};

    for (int64_t i = 0; i < ld * n_columns; i++) {
        plait_scalar_put(dtype, x.a.pinned, i, element_sample(dtype, seed, i));
    }
    array_put(m, &x.a);
    return x;
}

static inline void set_all(const machine_t *m, matrix_t *x)
{
    array_put(m, &x->a);
}

/* Checks that nothing has changed between the columns and, with `below`, above the diagonal. */
static inline void check_kept(const matrix_t *x, bool below, const char *what)
{
    bool is_kept = true;

    for (int64_t j = 0; j < x->n; j++) {
        for (int64_t i = 0; i < x->ld; i++) {
            if (i >= x->m || (below && i < j)) {
                is_kept = is_kept && now(x, i, j) == before(x, i, j);
            }
        }
    }
    CHECK(is_kept, "%s %s: something beside it has changed", what,
          plait_dtype_name(x->dtype));
}

/* Runs the tile with no more work memory than it asked for. */
static inline void run(const machine_t *m, const plait_device_tile_t *tile,
                       const char *what)
{
    plait_device_tile_t bare = *tile;
    int64_t n_work = 0;
    void *work = NULL;

    bare.a = bare.b = NULL;
    bare.c = bare.extra = NULL;
    bare.info = NULL;
    good(m->call->tile_plan(m->device, &bare, &n_work), what);
    good(m->call->take(m->device, m->stream, n_work + 1, &work), what);
    good(m->call->tile(m->device, m->stream, tile, work), what);
    m->call->give(m->device, m->stream, work);
}

static inline void judge(double error, double bound, plait_dtype_t dtype,
                         const char *what)
{
    CHECK(error <= bound * element_unit(dtype), "%s %s: error %g of %g", what,
          plait_dtype_name(dtype), error, bound * element_unit(dtype));
}

/* An int32 on the device, as *info. */
static inline array_t word_create(const machine_t *m, int32_t value)
{
    array_t a = array_create(m, sizeof(value));

    memcpy(a.pinned, &value, sizeof(value));
    array_put(m, &a);
    return a;
}

static inline int32_t word_get(const machine_t *m, array_t *a)
{
    int32_t value = 0;

    array_get(m, a);
    memcpy(&value, a->pinned, sizeof(value));
    return value;
}

#endif
