/* Whole matrices of any of the four dtypes, dealing them out and gathering them, for tests that judge
 * results by residuals. */
#ifndef PLAIT_TESTS_DENSE_WHOLE_H
#define PLAIT_TESTS_DENSE_WHOLE_H

#include "check.h"
#include "dense/dealt.h"
#include "ops/list.h"
#include "plait/dense.h"
#include "plan/check.h"
#include "plan/launch.h"
#include "team.h"

#include <complex.h>
#include <math.h>
#include <string.h>

enum { DENSE_MAX_P = 17, DENSE_GUARD = 64 };

static const plait_dtype_t dense_dtypes[] = {PLAIT_F64, PLAIT_C128, PLAIT_F32,
                                             PLAIT_C64};
static const plait_direct_t dense_directs[] = {PLAIT_DIRECT_POINTER, PLAIT_DIRECT_READ,
                                               PLAIT_DIRECT_NONE};

/* ---- numbers ---- */

static inline double complex get(plait_dtype_t dtype, const void *x, int64_t i)
{
    return (dtype == PLAIT_F32)   ? (double)((const float *)x)[i]
           : (dtype == PLAIT_F64) ? ((const double *)x)[i]
           : (dtype == PLAIT_C64) ? (double complex)((const float complex *)x)[i]
                                  : ((const double complex *)x)[i];
}

static inline void put(plait_dtype_t dtype, void *x, int64_t i, double complex value)
{
    if (dtype == PLAIT_F32) {
        ((float *)x)[i] = (float)creal(value);
    } else if (dtype == PLAIT_F64) {
        ((double *)x)[i] = creal(value);
    } else if (dtype == PLAIT_C64) {
        ((float complex *)x)[i] = (float complex)value;
    } else {
        ((double complex *)x)[i] = value;
    }
}

static inline bool is_complex(plait_dtype_t dtype)
{
    return dtype == PLAIT_C64 || dtype == PLAIT_C128;
}

/* Distance from 1 to the next number. */
static inline double ulp(plait_dtype_t dtype)
{
    return (dtype == PLAIT_F32 || dtype == PLAIT_C64) ? 0x1p-23 : 0x1p-52;
}

/* Pseudo-random, and the same in every dtype but for the imaginary part. */
static inline double complex number(plait_dtype_t dtype, uint64_t seed, int64_t i)
{
    double re = rint(0x1p12 * sample(seed, (uint64_t)i)) * 0x1p-12;
    double im = rint(0x1p12 * sample(seed + 1000, (uint64_t)i)) * 0x1p-12;

    return is_complex(dtype) ? re + im * I : re;
}

/* ---- whole matrices ---- */

typedef struct {
    int64_t m, n;
    double complex *x; /* column-major */
} matrix_t;

static inline matrix_t matrix_make(int64_t m, int64_t n)
{
    return (matrix_t){m, n, plait_alloc(m * n + 1, sizeof(double complex))};
}

static inline void matrix_free(matrix_t *a)
{
    plait_free(a->x);
    *a = (matrix_t){0};
}

static inline double complex *at(const matrix_t *a, int64_t i, int64_t j)
{
    return &a->x[j * a->m + i];
}

static inline matrix_t matrix_random(plait_dtype_t dtype, uint64_t seed, int64_t m,
                                     int64_t n)
{
    matrix_t a = matrix_make(m, n);

    for (int64_t i = 0; i < m * n; i++) {
        a.x[i] = number(dtype, seed, i);
    }
    return a;
}

/* ---- dealt matrices ---- */

static inline plait_dealt_t dealt_of(const matrix_t *a, plait_dtype_t dtype,
                                     int64_t block, int n_ranks)
{
    return (plait_dealt_t){
        .m = a->m, .n = a->n, .block = block, .n_ranks = n_ranks, .dtype = dtype};
}

/* Column j of the whole matrix in its owner's array, counted by the definition. */
static inline int64_t place_of(const plait_dealt_t *d, int64_t j, int *owner_p)
{
    int64_t k = j / d->block;

    *owner_p = (int)(k % d->n_ranks);
    return k / d->n_ranks * d->block + j % d->block;
}

/* A rank's array, with NaN behind its columns. */
static inline char *deal(const matrix_t *a, const plait_dealt_t *d, int rank)
{
    int64_t n_local = plait_dealt_stored(d) * d->m;
    char *local = plait_alloc(n_local + 1, plait_dealt_item(d));
    int owner = 0;

    for (int64_t i = 0; i < n_local; i++) {
        put(d->dtype, local, i, (double complex)NAN);
    }
    for (int64_t j = 0; j < d->n; j++) {
        int64_t to = place_of(d, j, &owner);
        for (int64_t i = 0; i < d->m && owner == rank; i++) {
            put(d->dtype, local, to * d->m + i, *at(a, i, j));
        }
    }
    return local;
}

/* Puts a rank's columns into the whole matrix; whether what is behind them is zero. */
static inline bool gather(matrix_t *a, const plait_dealt_t *d, int rank,
                          const char *local)
{
    int64_t n_local = plait_dealt_stored(d) * d->m;
    bool *is_owned = plait_alloc(n_local + 1, sizeof(*is_owned));
    bool is_zero = true;
    int owner = 0;

    for (int64_t j = 0; j < d->n; j++) {
        int64_t from = place_of(d, j, &owner);
        for (int64_t i = 0; i < d->m && owner == rank; i++) {
            *at(a, i, j) = get(d->dtype, local, from * d->m + i);
            is_owned[from * d->m + i] = true;
        }
    }
    for (int64_t i = 0; i < n_local; i++) {
        is_zero = is_zero && (is_owned[i] || get(d->dtype, local, i) == 0);
    }
    plait_free(is_owned);
    return is_zero;
}

/* Memory of a rank's result: what is not written stays NaN, and so does the guard behind it. */
static inline char *blank(const plait_dealt_t *d)
{
    int64_t n_bytes = plait_dealt_stored(d) * plait_dealt_ld_bytes(d);
    char *local = plait_alloc(n_bytes + DENSE_GUARD, 1);

    memset(local, 0xff, (size_t)(n_bytes + DENSE_GUARD));
    return local;
}

static inline bool is_guarded(const plait_dealt_t *d, const char *local)
{
    const char *guard = local + plait_dealt_stored(d) * plait_dealt_ld_bytes(d);
    bool is = true;

    for (int i = 0; i < DENSE_GUARD; i++) {
        is = is && guard[i] == (char)0xff;
    }
    return is;
}

#endif
