#include "check_dense.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_VECTORS = 4 };

/* Vectors of n numbers, all zero but the first. */
typedef struct {
    int64_t n;
    double *v[N_VECTORS];
} vectors_t;

static vectors_t vectors_create(int64_t n)
{
    vectors_t u = {.n = n};

    for (int i = 0; i < N_VECTORS; i++) {
        u.v[i] = calloc((size_t)n, sizeof(double));
        bench_must(u.v[i] != NULL, "out of memory");
    }
    for (int64_t i = 0; i < n; i++) {
        u.v[0][i] = cos((double)(i * i % 1009 + i));
    }
    return u;
}

static void vectors_destroy(vectors_t *u)
{
    for (int i = 0; i < N_VECTORS; i++) {
        free(u->v[i]);
    }
}

/* v[to] = (part of m) v[from], or with its transpose. */
static void times(team_t *team, vectors_t *u, const matrix_t *m, matrix_part_t part,
                  int is_transposed, int from, int to)
{
    memset(u->v[to], 0, (size_t)u->n * sizeof(double));
    matrix_times(m, part, is_transposed, u->v[from], u->v[to]);
    team->sum(team, u->n, u->v[to]);
}

static double distance(const vectors_t *u, int y, int z)
{
    double apart = 0;
    double whole = 0;

    for (int64_t i = 0; i < u->n; i++) {
        apart += (u->v[y][i] - u->v[z][i]) * (u->v[y][i] - u->v[z][i]);
        whole += u->v[y][i] * u->v[y][i];
    }
    return sqrt(apart / whole);
}

/* A x and L (L^T x) */
static double potrf_residual(team_t *team, const dense_result_t *r)
{
    vectors_t u = vectors_create(r->operand->n);

    times(team, &u, r->operand, MATRIX_MIRRORED, 0, 0, 1);
    times(team, &u, r->result, MATRIX_LOWER, 1, 0, 2);
    times(team, &u, r->result, MATRIX_LOWER, 0, 2, 3);
    const double residual = distance(&u, 1, 3);
    vectors_destroy(&u);
    return residual;
}

/* x and X (L (L^T x)) */
static double potri_residual(team_t *team, const dense_result_t *r)
{
    vectors_t u = vectors_create(r->operand->n);

    times(team, &u, r->operand, MATRIX_LOWER, 1, 0, 1);
    times(team, &u, r->operand, MATRIX_LOWER, 0, 1, 2);
    times(team, &u, r->result, MATRIX_MIRRORED, 0, 2, 3);
    const double residual = distance(&u, 0, 3);
    vectors_destroy(&u);
    return residual;
}

/* P A x and L (U x) */
static double getrf_residual(team_t *team, const dense_result_t *r)
{
    vectors_t u = vectors_create(r->operand->n);

    times(team, &u, r->operand, MATRIX_FULL, 0, 0, 1);
    for (int64_t i = 0; i < u.n; i++) {
        const double kept = u.v[1][i];
        u.v[1][i] = u.v[1][r->pivots[i]];
        u.v[1][r->pivots[i]] = kept;
    }
    times(team, &u, r->result, MATRIX_UPPER, 0, 0, 2);
    times(team, &u, r->result, MATRIX_UNIT_LOWER, 0, 2, 3);
    const double residual = distance(&u, 1, 3);
    vectors_destroy(&u);
    return residual;
}

/* A^T A x and R^T (R x) */
static double geqrf_residual(team_t *team, const dense_result_t *r)
{
    vectors_t u = vectors_create(r->operand->n);

    times(team, &u, r->operand, MATRIX_FULL, 0, 0, 2);
    times(team, &u, r->operand, MATRIX_FULL, 1, 2, 1);
    times(team, &u, r->result, MATRIX_UPPER, 0, 0, 2);
    times(team, &u, r->result, MATRIX_UPPER, 1, 2, 3);
    const double residual = distance(&u, 1, 3);
    vectors_destroy(&u);
    return residual;
}

/* x and V^T (V x); V (w x) and A (V x) */
static double syevd_residual(team_t *team, const dense_result_t *r)
{
    vectors_t u = vectors_create(r->operand->n);

    times(team, &u, r->result, MATRIX_FULL, 0, 0, 1);
    times(team, &u, r->result, MATRIX_FULL, 1, 1, 2);
    const double of_basis = distance(&u, 0, 2);
    times(team, &u, r->operand, MATRIX_MIRRORED, 0, 1, 2);
    for (int64_t i = 0; i < u.n; i++) {
        u.v[0][i] *= r->values[i];
    }
    times(team, &u, r->result, MATRIX_FULL, 0, 0, 3);
    const double residual = fmax(of_basis, distance(&u, 3, 2));
    vectors_destroy(&u);
    return residual;
}

static const dense_op_t OPS[] = {
    {DENSE_POTRF, "potrf", MATRIX_POSITIVE, potrf_residual},
    {DENSE_POTRI, "potri", MATRIX_POSITIVE, potri_residual},
    {DENSE_GETRF, "getrf", MATRIX_GENERAL, getrf_residual},
    {DENSE_GEQRF, "geqrf", MATRIX_GENERAL, geqrf_residual},
    {DENSE_SYEVD, "syevd", MATRIX_SYMMETRIC, syevd_residual}};

const dense_op_t *dense_op(const char *name)
{
    const dense_op_t *found = NULL;

    for (size_t i = 0; i < sizeof(OPS) / sizeof(OPS[0]); i++) {
        found = (strcmp(OPS[i].name, name) == 0) ? &OPS[i] : found;
    }
    bench_must(found != NULL, "op is potrf, potri, getrf, geqrf or syevd");
    return found;
}

static void no_barrier(team_t *team)
{
    (void)team;
}

static double own_value(team_t *team, double value)
{
    (void)team;
    return value;
}

static void own_sum(team_t *team, int64_t n, double values[])
{
    (void)team;
    (void)n;
    (void)values;
}

team_t team_alone(void)
{
    return (team_t){.size = 1, .barrier = no_barrier, .max = own_value, .sum = own_sum};
}
