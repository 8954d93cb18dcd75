#define _GNU_SOURCE
#include "dense_plait.h"

#include "kernel/blas.h"
#include "plait/dense.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(plait_status_t status)
{
    bench_must(status == PLAIT_OK, plait_error_text());
}

static void execute(const dense_plait_t *d, const void *const args[],
                    void *const rets[])
{
    must(plait_plan_execute(d->plan, d->comm, args, rets));
}

/* ---- The operations -------------------------------------------------------------------------- */

static void potrf_plan(dense_plait_t *d)
{
    const plait_potrf_problem_t problem = {
        .dtype = PLAIT_F64, .n = d->n, .block = d->block};

    must(plait_potrf_plan(d->comm, &problem, &d->plan));
}

static void potrf_run(dense_plait_t *d)
{
    int32_t info = -1;

    execute(d, (const void *[]){d->work.data}, (void *[]){d->result.data, &info});
    bench_must(info == 0, "potrf: info is not 0");
}

static void potri_plan(dense_plait_t *d)
{
    const plait_potri_problem_t problem = {
        .dtype = PLAIT_F64, .n = d->n, .block = d->block};

    must(plait_potri_plan(d->comm, &problem, &d->plan));
}

static void potri_run(dense_plait_t *d)
{
    execute(d, (const void *[]){d->operand.data}, (void *[]){d->result.data});
}

static void getrf_plan(dense_plait_t *d)
{
    const plait_panels_problem_t problem = {
        .dtype = PLAIT_F64, .m = d->n, .n = d->n, .block = d->block};

    must(plait_getrf_plan(d->comm, &problem, &d->plan));
}

static void getrf_run(dense_plait_t *d)
{
    int32_t info = -1;

    execute(d, (const void *[]){d->work.data},
            (void *[]){d->result.data, d->pivots, &info});
    bench_must(info == 0, "getrf: info is not 0");
}

static void geqrf_plan(dense_plait_t *d)
{
    const plait_panels_problem_t problem = {
        .dtype = PLAIT_F64, .m = d->n, .n = d->n, .block = d->block};

    must(plait_geqrf_plan(d->comm, &problem, &d->plan));
}

static void geqrf_run(dense_plait_t *d)
{
    execute(d, (const void *[]){d->work.data}, (void *[]){d->result.data, d->side});
}

static void syevd_plan(dense_plait_t *d)
{
    const plait_heevd_problem_t problem = {
        .dtype = PLAIT_F64, .n = d->n, .block = d->block, .n_vectors = d->n};

    must(plait_heevd_plan(d->comm, &problem, &d->plan));
}

static void syevd_run(dense_plait_t *d)
{
    int32_t info = -1;

    execute(d, (const void *[]){d->operand.data},
            (void *[]){d->side, d->result.data, &info});
    bench_must(info == 0, "syevd: info is not 0");
}

static const dense_steps_t STEPS[] = {{"potrf", true, potrf_plan, potrf_run},
                                      {"potri", false, potri_plan, potri_run},
                                      {"getrf", true, getrf_plan, getrf_run},
                                      {"geqrf", true, geqrf_plan, geqrf_run},
                                      {"syevd", false, syevd_plan, syevd_run}};

static const dense_steps_t *steps_of(const char *name)
{
    const dense_steps_t *found = NULL;

    for (size_t i = 0; i < sizeof(STEPS) / sizeof(STEPS[0]); i++) {
        found = (strcmp(STEPS[i].name, name) == 0) ? &STEPS[i] : found;
    }
    bench_must(found != NULL, name);
    return found;
}

/* ---- Problems -------------------------------------------------------------------------------- */

static matrix_t dealt(const dense_plait_t *d, int64_t block)
{
    const int size = plait_comm_size(d->comm);

    return matrix_create(d->n, (const int64_t[]){d->n, block}, (const int[]){1, size},
                         (const int[]){0, plait_comm_rank(d->comm)},
                         plait_dense_columns(d->n, block, size));
}

/* The operand becomes its factor. */
static void factor(const dense_plait_t *d)
{
    dense_plait_t f = *d;

    f.work = f.result = d->operand;
    potrf_plan(&f);
    potrf_run(&f);
    plait_plan_destroy(&f.plan);
}

void dense_plait_create(dense_plait_t *d, plait_comm_t *comm, const char *op, int64_t n,
                        int64_t block)
{
    *d = (dense_plait_t){.comm = comm,
                         .op = dense_op(op),
                         .steps = steps_of(op),
                         .n = n,
                         .block = block};
    d->side = calloc((size_t)n, sizeof(double));
    d->pivots = calloc((size_t)n, sizeof(int32_t));
    bench_must(d->side != NULL && d->pivots != NULL, "out of memory");
    d->operand = dealt(d, block);
    const int size = plait_comm_size(comm);
    const bool is_syevd = d->steps->plan == syevd_plan; /* vectors are in whole slabs */

    d->work = d->steps->is_in_place ? dealt(d, block) : (matrix_t){.n = n};
    d->result = d->steps->is_in_place
                    ? d->work
                    : dealt(d, is_syevd ? (n + size - 1) / size : block);
    matrix_fill(&d->operand, d->op->kind);
    if (strcmp(op, "potri") == 0) {
        factor(d);
    }
    (void)dense_plait_plan(d);
}

double dense_plait_plan(dense_plait_t *d)
{
    plait_plan_destroy(&d->plan);
    const double begin = bench_seconds();
    d->steps->plan(d);
    return bench_seconds() - begin;
}

void dense_plait_destroy(dense_plait_t *d)
{
    plait_plan_destroy(&d->plan);
    if (!d->steps->is_in_place) {
        matrix_destroy(&d->result);
    }
    matrix_destroy(&d->work);
    matrix_destroy(&d->operand);
    free(d->side);
    free(d->pivots);
}

void dense_plait_prepare(void *state)
{
    dense_plait_t *d = state;

    if (d->steps->is_in_place) {
        memcpy(d->work.data, d->operand.data, d->operand.n_bytes);
    }
}

void dense_plait_run(void *state)
{
    dense_plait_t *d = state;

    d->steps->run(d);
}

double dense_plait_residual(team_t *team, const dense_plait_t *d)
{
    return d->op->residual(team, &(dense_result_t){.operand = &d->operand,
                                                   .result = &d->result,
                                                   .values = d->side,
                                                   .pivots = d->pivots});
}

int64_t dense_plait_extra(const dense_plait_t *d)
{
    return plait_plan_cost(d->plan).work_bytes;
}

/* ---- The library of BLAS --------------------------------------------------------------------- */

void dgemm_(void);
void dpotrf_(void);
char *openblas_get_corename(void);

enum { PATH_BYTES = 1024 };

/* From several threads at once. */
static void file_of(void (*function)(void), char path[PATH_BYTES])
{
    void *address = NULL;
    Dl_info info = {0};

    memcpy(&address, (const void *)&function, sizeof(address));
    bench_must(dladdr(address, &info) != 0, "the library of BLAS has no file");
    char *real = realpath(info.dli_fname, NULL);
    bench_must(real != NULL, "no such library");
    (void)snprintf(path, PATH_BYTES, "%s", real);
    free(real);
}

void dense_blas_choose(void)
{
    char path[PATH_BYTES];

    file_of(dgemm_, path);
    bench_must(setenv("PLAIT_BLAS", path, 1) == 0, "setenv");
}

void dense_blas_facts(char *text, size_t n_text)
{
    const plait_blas_fn_t gemm = plait_blas_find(PLAIT_BLAS_GEMM, PLAIT_F64);
    const plait_blas_fn_t potrf = plait_blas_find(PLAIT_BLAS_POTRF, PLAIT_F64);
    char theirs[PATH_BYTES];
    char ours[PATH_BYTES];

    bench_must(gemm == dgemm_ && potrf == dpotrf_,
               "plait calls other functions of BLAS and LAPACK than its comparators");
    file_of(dgemm_, theirs);
    file_of(gemm, ours);
    (void)snprintf(text, n_text,
                   "\"blas\": \"%s\", \"core\": \"%s\", \"plait_blas\": \"%s\", "
                   "\"plait_core\": \"%s\"",
                   theirs, openblas_get_corename(), ours, plait_blas_core());
}
