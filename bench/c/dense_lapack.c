#include "dense_lapack.h"

#include <stdlib.h>
#include <string.h>

/* In Fortran; the lengths of strings come last. */
void dpotrf_(const char *, const int *, double *, const int *, int *, size_t);
void dpotri_(const char *, const int *, double *, const int *, int *, size_t);
void dgetrf_(const int *, const int *, double *, const int *, int *, int *);
void dgeqrf_(const int *, const int *, double *, const int *, double *, double *,
             const int *, int *);
void dsyevd_(const char *, const char *, const int *, double *, const int *, double *,
             double *, const int *, int *, const int *, int *, size_t, size_t);

static void must(int info)
{
    bench_must(info == 0, "LAPACK: info is not 0");
}

static void potrf_run(void *state)
{
    dense_lapack_t *d = state;
    int info = -1;

    dpotrf_("L", &d->n, d->work.data, &d->n, &info, 1);
    must(info);
}

static void potri_run(void *state)
{
    dense_lapack_t *d = state;
    int info = -1;

    dpotri_("L", &d->n, d->work.data, &d->n, &info, 1);
    must(info);
}

static void getrf_run(void *state)
{
    dense_lapack_t *d = state;
    int info = -1;

    dgetrf_(&d->n, &d->n, d->work.data, &d->n, d->scratch.pivots, &info);
    must(info);
}

static void geqrf_run(void *state)
{
    dense_lapack_t *d = state;
    int info = -1;

    dgeqrf_(&d->n, &d->n, d->work.data, &d->n, d->scratch.side, d->scratch.work,
            &d->scratch.n_work, &info);
    must(info);
}

static void syevd_run(void *state)
{
    dense_lapack_t *d = state;
    int info = -1;

    dsyevd_("V", "L", &d->n, d->work.data, &d->n, d->scratch.side, d->scratch.work,
            &d->scratch.n_work, d->scratch.ints, &d->scratch.n_ints, &info, 1, 1);
    must(info);
}

static void (*const RUN[DENSE_N_OPS])(void *state) = {[DENSE_POTRF] = potrf_run,
                                                      [DENSE_POTRI] = potri_run,
                                                      [DENSE_GETRF] = getrf_run,
                                                      [DENSE_GEQRF] = geqrf_run,
                                                      [DENSE_SYEVD] = syevd_run};

void dense_lapack_create(dense_lapack_t *d, const char *op, int64_t n)
{
    *d = (dense_lapack_t){.op = dense_op(op), .n = (int)n, .n_threads = 1};
    d->operand = matrix_create_whole(n);
    d->work = matrix_create_whole(n);
    dense_scratch_create(&d->scratch, n);
    matrix_fill(&d->operand, d->op->kind);
    if (d->op->index == DENSE_POTRI) {
        int info = -1;
        dpotrf_("L", &d->n, d->operand.data, &d->n, &info, 1);
        must(info);
    }
    if (d->op->index == DENSE_GEQRF || d->op->index == DENSE_SYEVD) {
        dense_scratch_ask(&d->scratch, RUN[d->op->index], d, 1);
    }
}

void dense_lapack_destroy(dense_lapack_t *d)
{
    matrix_destroy(&d->operand);
    matrix_destroy(&d->work);
    dense_scratch_destroy(&d->scratch);
}

void dense_lapack_prepare(void *state)
{
    dense_lapack_t *d = state;

    memcpy(d->work.data, d->operand.data, d->operand.n_bytes);
}

void dense_lapack_run(void *state)
{
    dense_lapack_t *d = state;

    openblas_set_num_threads(d->n_threads);
    RUN[d->op->index](d);
    openblas_set_num_threads(1);
}

double dense_lapack_residual(const dense_lapack_t *d)
{
    team_t alone = team_alone();
    int32_t *pivots = calloc((size_t)d->n, sizeof(int32_t));

    bench_must(pivots != NULL, "out of memory");
    for (int i = 0; i < d->n; i++) {
        pivots[i] = d->scratch.pivots[i] - 1;
    }
    const double residual =
        d->op->residual(&alone, &(dense_result_t){.operand = &d->operand,
                                                  .result = &d->work,
                                                  .values = d->scratch.side,
                                                  .pivots = pivots});
    free(pivots);
    return residual;
}
