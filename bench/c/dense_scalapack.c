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

static void potrf_run(void *state)
{
    dense_scalapack_t *d = state;
    int info = -1;

    pdpotrf_("L", &d->n, d->work.data, &ONE, &ONE, d->desc, &info, 1);
    must(info);
}

static void potri_run(void *state)
{
    dense_scalapack_t *d = state;
    int info = -1;

    pdpotri_("L", &d->n, d->work.data, &ONE, &ONE, d->desc, &info, 1);
    must(info);
}

static void getrf_run(void *state)
{
    dense_scalapack_t *d = state;
    int info = -1;

    pdgetrf_(&d->n, &d->n, d->work.data, &ONE, &ONE, d->desc, d->scratch.pivots, &info);
    must(info);
}

static void geqrf_run(void *state)
{
    dense_scalapack_t *d = state;
    int info = -1;

    pdgeqrf_(&d->n, &d->n, d->work.data, &ONE, &ONE, d->desc, d->scratch.side,
             d->scratch.work, &d->scratch.n_work, &info);
    must(info);
}

static void syevd_run(void *state)
{
    dense_scalapack_t *d = state;
    int info = -1;

    pdsyevd_("V", "L", &d->n, d->work.data, &ONE, &ONE, d->desc, d->scratch.side,
             d->vectors.data, &ONE, &ONE, d->desc, d->scratch.work, &d->scratch.n_work,
             d->scratch.ints, &d->scratch.n_ints, &info, 1, 1);
    must(info);
}

static void (*const RUN[DENSE_N_OPS])(void *state) = {[DENSE_POTRF] = potrf_run,
                                                      [DENSE_POTRI] = potri_run,
                                                      [DENSE_GETRF] = getrf_run,
                                                      [DENSE_GEQRF] = geqrf_run,
                                                      [DENSE_SYEVD] = syevd_run};

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
    *d = (dense_scalapack_t){.op = dense_op(op), .n = (int)n};
    make_grid(d, grid, block);
    dense_scratch_create(&d->scratch, n + block);
    matrix_fill(&d->operand, d->op->kind);
    if (d->op->index == DENSE_POTRI) {
        int info = -1;
        pdpotrf_("L", &d->n, d->operand.data, &ONE, &ONE, d->desc, &info, 1);
        must(info);
    }
    if (d->op->index == DENSE_SYEVD) {
        d->vectors = matrix_create(n, d->work.block, grid, d->work.at, 0);
    }
    if (d->op->index == DENSE_GEQRF || d->op->index == DENSE_SYEVD) {
        /* pdsyevd forgets what pdlasrt wants, rows times a block */
        dense_scratch_ask(&d->scratch, RUN[d->op->index], d, (block + 8) * n);
    }
}

void dense_scalapack_destroy(dense_scalapack_t *d)
{
    Cblacs_gridexit(d->context);
    matrix_destroy(&d->operand);
    matrix_destroy(&d->work);
    matrix_destroy(&d->vectors);
    dense_scratch_destroy(&d->scratch);
}

void dense_scalapack_prepare(void *state)
{
    dense_scalapack_t *d = state;

    memcpy(d->work.data, d->operand.data, d->operand.n_bytes);
}

void dense_scalapack_run(void *state)
{
    dense_scalapack_t *d = state;

    RUN[d->op->index](d);
}

/* Each process has the pivots of its rows, counted from 1. */
static int32_t *whole_pivots(const dense_scalapack_t *d)
{
    int32_t *pivots = calloc((size_t)d->n, sizeof(int32_t));

    bench_must(pivots != NULL, "out of memory");
    for (int64_t i = 0; i < d->work.local[0]; i++) {
        pivots[matrix_index(&d->work, 0, i)] = d->scratch.pivots[i] - 1;
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
                          .values = d->scratch.side,
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
