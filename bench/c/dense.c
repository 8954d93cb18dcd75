/* Dense operations of the C library on MPI ranks, beside ScaLAPACK (compiled with BENCH_SCALAPACK)
 * and ELPA (BENCH_ELPA) in the same processes, and LAPACK in one of them: all by the same BLAS, of
 * whose threads each rank uses one.
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

enum { MAX_SIDES = DENSE_MAX_SIDES, PLAN_BLOCK = 128 };

static int choose_kinds(const char *op, const dense_kind_t *kinds[MAX_SIDES])
{
    int n_kinds = 0;

    kinds[n_kinds++] = &dense_of_plait;
#ifdef BENCH_SCALAPACK
    kinds[n_kinds++] = &dense_of_scalapack;
#endif
    kinds[n_kinds++] = &dense_of_lapack;
#ifdef BENCH_ELPA
    if (strcmp(op, "syevd") == 0) {
        kinds[n_kinds++] = &dense_of_elpa;
    }
#endif
    (void)op;
    return n_kinds;
}

static void measure(team_t *team, const bench_options_t *o, plait_comm_t *comm)
{
    const dense_kind_t *kinds[MAX_SIDES];
    const dense_problem_t p = {.comm = comm, .op = o->op, .n = o->n};
    const int n_sides = choose_kinds(o->op, kinds);

    dense_sides_measure(team, o, &p, n_sides, kinds);
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
    static const char *const ops[] = {"potrf", "potri", "getrf", "geqrf", "syevd"};
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
