/* Redistribution of the C library on MPI ranks, beside memcpy of the local data.
 *
 *   ranks op=redist|redist_02 n=256 rounds=15 limit=60 seconds=60 out=FILE */
#include "mpi_team.h"
#include "problems.h"

int main(int argc, char **argv)
{
    const bench_options_t options = bench_options(argc, argv);
    plait_comm_t *comm = NULL;
    team_t team = mpi_team_start(&argc, &argv, &comm);
    problem_t p;
    char facts[768];

    problem_create(&p, comm, options.op, options.n);
    problem_facts(&p, facts, sizeof(facts));
    const bench_case_t cases[] = {
        {.name = "plait", .run = problem_run, .state = &p},
        {.name = "memcpy", .run = problem_memcpy, .state = &p}};
    bench_rounds(&team, &options, options.op, facts, 2, cases);
    problem_destroy(&p);
    plait_comm_destroy(&comm);
    MPI_Finalize();
    return 0;
}
