#include "dense_elpa.h"

#include "dense_scalapack.h"

#include <mpi.h>

#include <elpa/elpa.h>

typedef struct {
    dense_scalapack_t arrays;
    elpa_t solver;
} dense_elpa_t;

static void must(int error)
{
    bench_must(error == ELPA_OK, elpa_strerr(error));
}

static void set(elpa_t solver, const char *name, int64_t value)
{
    int error = ELPA_OK;

    elpa_set_integer(solver, name, (int)value, &error);
    must(error);
}

static void of_elpa_create(void *state, const dense_problem_t *p,
                           const dense_choice_t *c)
{
    dense_elpa_t *d = state;
    const matrix_t *m = &d->arrays.work;
    int error = ELPA_OK;

    dense_of_scalapack.create(&d->arrays, p, c);
    must(elpa_init(ELPA_API_VERSION));
    d->solver = elpa_allocate(&error);
    must(error);
    set(d->solver, "na", p->n);
    set(d->solver, "nev", p->n);
    set(d->solver, "local_nrows", m->ld);
    set(d->solver, "local_ncols", m->local[1]);
    set(d->solver, "nblk", c->block);
    set(d->solver, "mpi_comm_parent", MPI_Comm_c2f(MPI_COMM_WORLD));
    set(d->solver, "process_row", m->at[0]);
    set(d->solver, "process_col", m->at[1]);
    must(elpa_setup(d->solver));
    set(d->solver, "solver", ELPA_SOLVER_1STAGE);
}

static void of_elpa_destroy(void *state)
{
    dense_elpa_t *d = state;
    int error = ELPA_OK;

    elpa_deallocate(d->solver, &error);
    elpa_uninit(&error);
    dense_scalapack_destroy(&d->arrays);
}

static void of_elpa_prepare(void *state)
{
    dense_elpa_t *d = state;

    dense_scalapack_prepare(&d->arrays);
}

static void of_elpa_run(void *state)
{
    dense_elpa_t *d = state;
    int error = -1;

    elpa_eigenvectors(d->solver, d->arrays.work.data, d->arrays.scratch.side,
                      d->arrays.vectors.data, &error);
    must(error);
}

static double of_elpa_residual(team_t *team, void *state)
{
    const dense_elpa_t *d = state;

    return dense_scalapack_residual(team, &d->arrays);
}

/* As dense_of_scalapack's. */
static int of_elpa_choices(int n_ranks, const dense_problem_t *p,
                           dense_choice_t choices[])
{
    return dense_of_scalapack.choices(n_ranks, p, choices);
}

const dense_kind_t dense_of_elpa = {.name = "elpa",
                                    .n_bytes = sizeof(dense_elpa_t),
                                    .create = of_elpa_create,
                                    .destroy = of_elpa_destroy,
                                    .prepare = of_elpa_prepare,
                                    .run = of_elpa_run,
                                    .residual = of_elpa_residual,
                                    .choices = of_elpa_choices};
