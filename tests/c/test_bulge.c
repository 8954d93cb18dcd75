/* Steps of chasing a bulge, for every instruction set, against plain loops in double. Numbers around a block,
 * and above a diagonal, keep their bits. */
#include "check.h"
#include "dense/scalar.h"
#include "isa.h"
#include "kernel/bulge.h"

#include <float.h>
#include <math.h>

enum { N = PLAIT_BULGE_ROWS, LD = 2 * N - 1, BEFORE = N, ROOM = BEFORE + N * LD + N };

/* A block within other numbers, as computed by the kernels and by plain loops. */
typedef struct {
    plait_dtype_t dtype;
    double room[ROOM]; /* of either precision */
    double a[ROOM];
    double v[N], w[N], before[N], tau;
} block_t;

static double rounded(plait_dtype_t dtype, double x)
{
    return (dtype == PLAIT_F32) ? (double)(float)x : x;
}

static block_t make(plait_dtype_t dtype, uint64_t seed)
{
    block_t b = {.dtype = dtype, .tau = rounded(dtype, 1.3)};

    for (int i = 0; i < ROOM; i++) {
        b.a[i] = rounded(dtype, sample(seed, (uint64_t)i));
        plait_scalar_put(dtype, b.room, i, b.a[i]);
    }
    for (int i = 0; i < N; i++) {
        b.v[i] = rounded(dtype, (i == 0) ? 1 : sample(seed + 1, (uint64_t)i));
        b.w[i] = rounded(dtype, sample(seed + 2, (uint64_t)i));
        b.before[i] = rounded(dtype, sample(seed + 3, (uint64_t)i));
    }
    return b;
}

static double *at(block_t *b, int i, int j)
{
    return &b->a[BEFORE + j * LD + i];
}

/* Stores the numbers in the dtype. */
static void put(plait_dtype_t dtype, const double *x, double *to)
{
    for (int i = 0; i < N; i++) {
        plait_scalar_put(dtype, to, i, x[i]);
    }
}

static void check_near(const block_t *b, const char *what)
{
    const double unit = (b->dtype == PLAIT_F32) ? (double)FLT_EPSILON : DBL_EPSILON;
    double worst = 0;

    for (int i = 0; i < ROOM; i++) {
        const double got = creal(plait_scalar_get(b->dtype, b->room, i));
        worst = fmax(worst, fabs(got - b->a[i]));
    }
    CHECK(worst <= 2000 * unit, "%s %s %s: %g", what, plait_dtype_name(b->dtype),
          getenv("PLAIT_ISA"), worst);
}

static void check_same_outside(const block_t *b, const block_t *before, bool is_lower,
                               int first_column, int n_columns, const char *what)
{
    int64_t n_changed = 0;

    for (int i = 0; i < ROOM; i++) {
        const int row = (i - BEFORE + LD) % LD, column = (i - BEFORE + LD) / LD - 1;
        const bool is_inside = row < N && column >= first_column &&
                               column < first_column + n_columns &&
                               (!is_lower || row >= column);
        n_changed += !is_inside && plait_scalar_get(b->dtype, b->room, i) !=
                                       plait_scalar_get(b->dtype, before->room, i);
    }
    CHECK(n_changed == 0, "%s %s %s: %lld outside", what, plait_dtype_name(b->dtype),
          getenv("PLAIT_ISA"), (long long)n_changed);
}

static void *place(block_t *b)
{
    return (char *)b->room + BEFORE * plait_dtype_bytes(b->dtype);
}

/* A H: w for all columns, and the first column. */
static void check_right(plait_dtype_t dtype)
{
    const plait_bulge_t *kernels = plait_bulge(dtype);
    block_t b = make(dtype, 11), old = b;
    double v[N], w[N], tau[2], wrong = 0;

    put(dtype, b.v, v);
    plait_scalar_put(dtype, tau, 0, b.tau);
    kernels->right(place(&b), LD, v, tau, w);
    for (int i = 0; i < N; i++) {
        double want = 0;
        for (int j = 0; j < N; j++) {
            want += b.tau * *at(&b, i, j) * b.v[j];
        }
        wrong = fmax(wrong, fabs(creal(plait_scalar_get(dtype, w, i)) - want));
        *at(&b, i, 0) -= want;
    }
    CHECK(wrong <= ((dtype == PLAIT_F32) ? 1e-4 : 1e-13), "w %s: %g",
          plait_dtype_name(dtype), wrong);
    check_near(&b, "right");
    check_same_outside(&b, &old, false, 0, 1, "right");
}

/* H^T (A - w before^T) for all columns but the first. */
static void check_left(plait_dtype_t dtype)
{
    const plait_bulge_t *kernels = plait_bulge(dtype);
    block_t b = make(dtype, 23), old = b;
    double v[N], w[N], before[N], tau[2];

    put(dtype, b.v, v);
    put(dtype, b.w, w);
    put(dtype, b.before, before);
    plait_scalar_put(dtype, tau, 0, b.tau);
    kernels->left(place(&b), LD, w, before, v, tau);
    for (int j = 1; j < N; j++) {
        double inner = 0;
        for (int i = 0; i < N; i++) {
            *at(&b, i, j) -= b.w[i] * b.before[j];
            inner += b.v[i] * *at(&b, i, j);
        }
        for (int i = 0; i < N; i++) {
            *at(&b, i, j) -= b.tau * inner * b.v[i];
        }
    }
    check_near(&b, "left");
    check_same_outside(&b, &old, false, 1, N - 1, "left");
}

/* H^T A H for the lower triangle, against both sides applied to a whole matrix. */
static void check_both(plait_dtype_t dtype)
{
    const plait_bulge_t *kernels = plait_bulge(dtype);
    block_t b = make(dtype, 37), old = b;
    static double x[N][N]; /* columns */
    double v[N], w[N], tau[2];

    put(dtype, b.v, v);
    plait_scalar_put(dtype, tau, 0, b.tau);
    kernels->both(place(&b), LD, v, tau, w);
    for (int j = 0; j < N; j++) {
        for (int i = 0; i < N; i++) {
            x[j][i] = (i >= j) ? *at(&b, i, j) : *at(&b, j, i);
        }
    }
    for (int side = 0; side < 2; side++) { /* H^T X, then its transpose */
        for (int j = 0; j < N; j++) {
            double inner = 0;
            for (int i = 0; i < N; i++) {
                inner += b.v[i] * x[j][i];
            }
            for (int i = 0; i < N; i++) {
                x[j][i] -= b.tau * inner * b.v[i];
            }
        }
        for (int j = 0; j < N; j++) {
            for (int i = 0; i < j; i++) {
                const double other = x[j][i];
                x[j][i] = x[i][j];
                x[i][j] = other;
            }
        }
    }
    for (int j = 0; j < N; j++) {
        for (int i = j; i < N; i++) {
            *at(&b, i, j) = x[j][i];
        }
    }
    check_near(&b, "both");
    check_same_outside(&b, &old, true, 0, N, "both");
}

int main(void)
{
    static const plait_dtype_t dtypes[] = {PLAIT_F32, PLAIT_F64};

    for (int l = 0; l < N_ISAS; l++) {
        for (int d = 0; d < 2 && isa_use(l); d++) {
            check_right(dtypes[d]);
            check_left(dtypes[d]);
            check_both(dtypes[d]);
        }
    }
    CHECK(plait_bulge(PLAIT_C64) == NULL && plait_bulge(PLAIT_C128) == NULL, "complex");
    return report("test_bulge");
}
