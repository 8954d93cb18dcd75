/* Dense operations of the C library on MPI ranks, beside ScaLAPACK and ELPA (compiled with
 * BENCH_ELPA) in the same processes, and LAPACK in one of them: all by the same BLAS, of whose
 * threads each rank uses one.
 *
 *   dense op=potrf|potri|getrf|geqrf|syevd n=4096 rounds=15 limit=60 seconds=60 out=FILE
 *   dense op=plan n=8192 rounds=15 out=FILE       time and memory of plans */
#include "dense_lapack.h"
#include "dense_plait.h"
#include "dense_scalapack.h"
#include "dense_sides.h"
#include "mpi_team.h"
#ifdef BENCH_ELPA
#include "dense_elpa.h"
#endif

#include <inttypes.h>
#include <string.h>

enum { MAX_SIDES = 4, N_FACTS = 4096, PLAN_BLOCK = 128 };

/* ---- ScaLAPACK ------------------------------------------------------------------------------- */

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

static const dense_kind_t of_scalapack = {.name = "scalapack",
                                          .n_bytes = sizeof(dense_scalapack_t),
                                          .create = of_scalapack_create,
                                          .destroy = of_scalapack_destroy,
                                          .prepare = dense_scalapack_prepare,
                                          .run = dense_scalapack_run,
                                          .residual = of_scalapack_residual,
                                          .choices = of_scalapack_choices};

/* ---- Measuring ------------------------------------------------------------------------------- */

static void measure(team_t *team, const bench_options_t *o, plait_comm_t *comm)
{
    const dense_kind_t *kinds[MAX_SIDES] = {&dense_of_plait, &of_scalapack,
                                            &dense_of_lapack};
    const dense_problem_t p = {.comm = comm, .op = o->op, .n = o->n};
    dense_side_t sides[MAX_SIDES];
    bench_case_t cases[MAX_SIDES];
    char facts[N_FACTS];
    char name[64];
    int n_sides = 3;

#ifdef BENCH_ELPA
    if (strcmp(o->op, "syevd") == 0) {
        kinds[n_sides++] = &dense_of_elpa;
    }
#endif
    for (int i = 0; i < n_sides; i++) {
        dense_side_create(&sides[i], team, kinds[i], &p);
        cases[i] = dense_side_case(&sides[i]);
    }
    dense_problem_facts(&p, facts, sizeof(facts));
    for (int i = 0; i < n_sides; i++) {
        dense_side_facts(&sides[i], facts, sizeof(facts));
    }
    (void)snprintf(name, sizeof(name), "%s %d", o->op, o->n);
    bench_rounds(team, o, name, facts, n_sides, cases);
    for (int i = 0; i < n_sides; i++) {
        dense_side_destroy(&sides[i], team);
    }
}

/* A line: seconds of planning, and bytes of this rank. */
static void plan_one(const bench_options_t *o, plait_comm_t *comm, const char *op,
                     FILE *file)
{
    dense_plait_t d;

    dense_plait_create(&d, comm, op, o->n, PLAN_BLOCK);
    (void)fprintf(file, "{\"name\": \"%s\", \"plan_s\": [", op);
    for (int k = 0; k < o->n_rounds; k++) {
        (void)fprintf(file, "%s%.6e", (k == 0) ? "" : ", ", dense_plait_plan(&d));
    }
    (void)fprintf(file,
                  "], \"facts\": {\"n\": %d, \"block\": %d, \"extra_bytes\": %" PRId64
                  ", \"local_bytes\": %zu, \"panel_bytes\": %zu}}\n",
                  o->n, PLAN_BLOCK, dense_plait_extra(&d), d.operand.n_bytes,
                  (size_t)o->n * PLAN_BLOCK * sizeof(double));
    dense_plait_destroy(&d);
}

static void plan_all(const team_t *team, const bench_options_t *o, plait_comm_t *comm)
{
    static const char *const ops[] = {"potrf", "potri", "getrf", "geqrf"};
    const char *path = (team->rank == 0) ? o->out : "/dev/null";
    FILE *file = (path == NULL) ? stdout : fopen(path, "a");

    bench_must(file != NULL, "cannot write the file of out=");
    for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++) {
        plan_one(o, comm, ops[k], file);
    }
    if (file != stdout) {
        (void)fclose(file);
    }
}

int main(int argc, char **argv)
{
    const bench_options_t options = bench_options(argc, argv);
    plait_comm_t *comm = NULL;
    team_t team = mpi_team_start(&argc, &argv, &comm);

    openblas_set_num_threads(1);
    dense_blas_choose();
    if (strcmp(options.op, "plan") == 0) {
        plan_all(&team, &options, comm);
    } else {
        measure(&team, &options, comm);
    }
    plait_comm_destroy(&comm);
    MPI_Finalize();
    return 0;
}
