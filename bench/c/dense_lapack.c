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

static void potrf_run(dense_lapack_t *d)
{
    int info = -1;

    dpotrf_("L", &d->n, d->work.data, &d->n, &info, 1);
    must(info);
}

static void potri_run(dense_lapack_t *d)
{
    int info = -1;

    dpotri_("L", &d->n, d->work.data, &d->n, &info, 1);
    must(info);
}

static void getrf_run(dense_lapack_t *d)
{
    int info = -1;

    dgetrf_(&d->n, &d->n, d->work.data, &d->n, d->pivots, &info);
    must(info);
}

static void geqrf_run(dense_lapack_t *d)
{
    int info = -1;

    dgeqrf_(&d->n, &d->n, d->work.data, &d->n, d->side, d->scratch, &d->n_scratch,
            &info);
    must(info);
}

static void syevd_run(dense_lapack_t *d)
{
    int info = -1;

    dsyevd_("V", "L", &d->n, d->work.data, &d->n, d->side, d->scratch, &d->n_scratch,
            d->int_scratch, &d->n_int_scratch, &info, 1, 1);
    must(info);
}

static const dense_lapack_call_t CALLS[] = {{"potrf", potrf_run},
                                            {"potri", potri_run},
                                            {"getrf", getrf_run},
                                            {"geqrf", geqrf_run},
                                            {"syevd", syevd_run}};

static const dense_lapack_call_t *call_of(const char *name)
{
    const dense_lapack_call_t *found = NULL;

    for (size_t i = 0; i < sizeof(CALLS) / sizeof(CALLS[0]); i++) {
        found = (strcmp(CALLS[i].name, name) == 0) ? &CALLS[i] : found;
    }
    bench_must(found != NULL, name);
    return found;
}

/* Asks once, as those that need it want to be asked. */
static void make_scratch(dense_lapack_t *d)
{
    double size = 0;
    int int_size = 1;

    d->scratch = &size;
    d->int_scratch = &int_size;
    d->n_scratch = d->n_int_scratch = -1;
    d->call->run(d);
    d->n_scratch = (int)size + 1;
    d->scratch = bench_alloc((size_t)d->n_scratch * sizeof(double));
    d->n_int_scratch = int_size;
    d->int_scratch = calloc((size_t)d->n_int_scratch, sizeof(int));
    bench_must(d->int_scratch != NULL, "out of memory");
}

void dense_lapack_create(dense_lapack_t *d, const char *op, int64_t n)
{
    *d = (dense_lapack_t){
        .op = dense_op(op), .call = call_of(op), .n = (int)n, .n_threads = 1};
    d->operand = matrix_create_whole(n);
    d->work = matrix_create_whole(n);
    d->side = calloc((size_t)n, sizeof(double));
    d->pivots = calloc((size_t)n, sizeof(int));
    bench_must(d->side != NULL && d->pivots != NULL, "out of memory");
    matrix_fill(&d->operand, d->op->kind);
    if (d->call->run == potri_run) {
        int info = -1;
        dpotrf_("L", &d->n, d->operand.data, &d->n, &info, 1);
        must(info);
    }
    if (d->call->run == geqrf_run || d->call->run == syevd_run) {
        make_scratch(d);
    }
}

void dense_lapack_destroy(dense_lapack_t *d)
{
    matrix_destroy(&d->operand);
    matrix_destroy(&d->work);
    free(d->side);
    free(d->pivots);
    free(d->scratch);
    free(d->int_scratch);
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
    d->call->run(d);
    openblas_set_num_threads(1);
}

double dense_lapack_residual(const dense_lapack_t *d)
{
    team_t alone = team_alone();
    int32_t *pivots = calloc((size_t)d->n, sizeof(int32_t));

    bench_must(pivots != NULL, "out of memory");
    for (int i = 0; i < d->n; i++) {
        pivots[i] = d->pivots[i] - 1;
    }
    const double residual =
        d->op->residual(&alone, &(dense_result_t){.operand = &d->operand,
                                                  .result = &d->work,
                                                  .values = d->side,
                                                  .pivots = pivots});
    free(pivots);
    return residual;
}
