#include "dense_scalapack.h"

#include <mpi.h>

#include <stdlib.h>
#include <string.h>

/* BLACS in C, ScaLAPACK in Fortran: the lengths of strings come last. */
int Csys2blacs_handle(MPI_Comm);
void Cblacs_gridinit(int *, const char *, int, int);
void Cblacs_gridinfo(int, int *, int *, int *, int *);
void Cblacs_gridexit(int);
void descinit_(int *, const int *, const int *, const int *, const int *, const int *,
               const int *, const int *, const int *, int *);
void pdpotrf_(const char *, const int *, double *, const int *, const int *,
              const int *, int *, size_t);
void pdpotri_(const char *, const int *, double *, const int *, const int *,
              const int *, int *, size_t);
void pdgetrf_(const int *, const int *, double *, const int *, const int *, const int *,
              int *, int *);
void pdgeqrf_(const int *, const int *, double *, const int *, const int *, const int *,
              double *, double *, const int *, int *);
void pdsyevd_(const char *, const char *, const int *, double *, const int *,
              const int *, const int *, double *, double *, const int *, const int *,
              const int *, double *, const int *, int *, const int *, int *, size_t,
              size_t);

static const int ZERO = 0, ONE = 1;

static void must(int info)
{
    bench_must(info == 0, "ScaLAPACK: info is not 0");
}

static void potrf_run(dense_scalapack_t *d)
{
    int info = -1;

    pdpotrf_("L", &d->n, d->work.data, &ONE, &ONE, d->desc, &info, 1);
    must(info);
}

static void potri_run(dense_scalapack_t *d)
{
    int info = -1;

    pdpotri_("L", &d->n, d->work.data, &ONE, &ONE, d->desc, &info, 1);
    must(info);
}

static void getrf_run(dense_scalapack_t *d)
{
    int info = -1;

    pdgetrf_(&d->n, &d->n, d->work.data, &ONE, &ONE, d->desc, d->pivots, &info);
    must(info);
}

static void geqrf_run(dense_scalapack_t *d)
{
    int info = -1;

    pdgeqrf_(&d->n, &d->n, d->work.data, &ONE, &ONE, d->desc, d->side, d->scratch,
             &d->n_scratch, &info);
    must(info);
}

static void syevd_run(dense_scalapack_t *d)
{
    int info = -1;

    pdsyevd_("V", "L", &d->n, d->work.data, &ONE, &ONE, d->desc, d->side,
             d->vectors.data, &ONE, &ONE, d->desc, d->scratch, &d->n_scratch,
             d->int_scratch, &d->n_int_scratch, &info, 1, 1);
    must(info);
}

static const dense_scalapack_call_t CALLS[] = {{"potrf", potrf_run},
                                               {"potri", potri_run},
                                               {"getrf", getrf_run},
                                               {"geqrf", geqrf_run},
                                               {"syevd", syevd_run}};

static const dense_scalapack_call_t *call_of(const char *name)
{
    const dense_scalapack_call_t *found = NULL;

    for (size_t i = 0; i < sizeof(CALLS) / sizeof(CALLS[0]); i++) {
        found = (strcmp(CALLS[i].name, name) == 0) ? &CALLS[i] : found;
    }
    bench_must(found != NULL, name);
    return found;
}

/* More than it asks for: pdsyevd forgets what pdlasrt wants, rows times a block. */
static void make_scratch(dense_scalapack_t *d)
{
    double size = 0;
    int int_size = 1;

    d->scratch = &size;
    d->int_scratch = &int_size;
    d->n_scratch = d->n_int_scratch = -1;
    d->call->run(d);
    d->n_scratch = (int)size + (int)((d->work.block[1] + 8) * d->n);
    d->scratch = bench_alloc((size_t)d->n_scratch * sizeof(double));
    d->n_int_scratch = int_size;
    d->int_scratch = calloc((size_t)d->n_int_scratch, sizeof(int));
    bench_must(d->int_scratch != NULL, "out of memory");
}

/* Context, this process's place, and the descriptor of the matrices. */
static void make_grid(dense_scalapack_t *d, const int grid[2], int64_t block)
{
    const int nb = (int)block;
    int extents[2];
    int at[2];
    int info = -1;

    d->context = Csys2blacs_handle(MPI_COMM_WORLD);
    Cblacs_gridinit(&d->context, "R", grid[0], grid[1]);
    Cblacs_gridinfo(d->context, &extents[0], &extents[1], &at[0], &at[1]);
    d->operand = matrix_create(d->n, (const int64_t[]){block, block}, grid, at, 0);
    d->work = matrix_create(d->n, (const int64_t[]){block, block}, grid, at, 0);
    const int ld = (int)d->work.ld;
    descinit_(d->desc, &d->n, &d->n, &nb, &nb, &ZERO, &ZERO, &d->context, &ld, &info);
    must(info);
}

void dense_scalapack_create(dense_scalapack_t *d, const char *op, int64_t n,
                            const int grid[2], int64_t block)
{
    *d = (dense_scalapack_t){.op = dense_op(op), .call = call_of(op), .n = (int)n};
    make_grid(d, grid, block);
    const size_t n_side = (size_t)(n + block);
    d->side = calloc(n_side, sizeof(double));
    d->pivots = calloc(n_side, sizeof(int));
    bench_must(d->side != NULL && d->pivots != NULL, "out of memory");
    matrix_fill(&d->operand, d->op->kind);
    if (d->call->run == potri_run) {
        int info = -1;
        pdpotrf_("L", &d->n, d->operand.data, &ONE, &ONE, d->desc, &info, 1);
        must(info);
    }
    if (d->call->run == syevd_run) {
        d->vectors = matrix_create(n, d->work.block, grid, d->work.at, 0);
    }
    if (d->call->run == geqrf_run || d->call->run == syevd_run) {
        make_scratch(d);
    }
}

void dense_scalapack_destroy(dense_scalapack_t *d)
{
    Cblacs_gridexit(d->context);
    matrix_destroy(&d->operand);
    matrix_destroy(&d->work);
    matrix_destroy(&d->vectors);
    free(d->side);
    free(d->pivots);
    free(d->scratch);
    free(d->int_scratch);
}

void dense_scalapack_prepare(void *state)
{
    dense_scalapack_t *d = state;

    memcpy(d->work.data, d->operand.data, d->operand.n_bytes);
}

void dense_scalapack_run(void *state)
{
    dense_scalapack_t *d = state;

    d->call->run(d);
}

/* Each process has the pivots of its rows, counted from 1. */
static int32_t *whole_pivots(const dense_scalapack_t *d)
{
    int32_t *pivots = calloc((size_t)d->n, sizeof(int32_t));

    bench_must(pivots != NULL, "out of memory");
    for (int64_t i = 0; i < d->work.local[0]; i++) {
        pivots[matrix_index(&d->work, 0, i)] = d->pivots[i] - 1;
    }
    MPI_Allreduce(MPI_IN_PLACE, pivots, d->n, MPI_INT32_T, MPI_MAX, MPI_COMM_WORLD);
    return pivots;
}

double dense_scalapack_residual(team_t *team, const dense_scalapack_t *d)
{
    int32_t *pivots = whole_pivots(d);
    const double residual = d->op->residual(
        team,
        &(dense_result_t){.operand = &d->operand,
                          .result = (d->vectors.data != NULL) ? &d->vectors : &d->work,
                          .values = d->side,
                          .pivots = pivots});
    free(pivots);
    return residual;
}

/* ---- As a side ------------------------------------------------------------------------------- */

static void of_scalapack_create(void *state, const dense_problem_t *p,
                                const dense_choice_t *c)
{
    dense_scalapack_create(state, p->op, p->n, c->grid, c->block);
}

static void of_scalapack_destroy(void *state)
{
    dense_scalapack_destroy(state);
}

static double of_scalapack_residual(team_t *team, void *state)
{
    return dense_scalapack_residual(team, state);
}

static int of_scalapack_choices(int n_ranks, const dense_problem_t *p,
                                dense_choice_t choices[])
{
    int64_t blocks[DENSE_MAX_CHOICES];
    const int n_blocks = dense_blocks(p, blocks);

    for (int i = 0; i < n_blocks; i++) {
        choices[2 * i] = (dense_choice_t){.block = blocks[i], .grid = {1, n_ranks}};
        choices[2 * i + 1] = (dense_choice_t){.block = blocks[i], .grid = {n_ranks, 1}};
    }
    return 2 * n_blocks;
}

const dense_kind_t dense_of_scalapack = {.name = "scalapack",
                                         .n_bytes = sizeof(dense_scalapack_t),
                                         .create = of_scalapack_create,
                                         .destroy = of_scalapack_destroy,
                                         .prepare = dense_scalapack_prepare,
                                         .run = dense_scalapack_run,
                                         .residual = of_scalapack_residual,
                                         .choices = of_scalapack_choices};
