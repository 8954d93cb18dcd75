/* The ranks of MPI's world as the team that times. */
#ifndef BENCH_MPI_TEAM_H
#define BENCH_MPI_TEAM_H

#include "plait/comm.h"
#include "rounds.h"

#include <mpi.h>

static inline void mpi_team_barrier(team_t *team)
{
    (void)team;
    MPI_Barrier(MPI_COMM_WORLD);
}

/* With naps: who waits for a solo run leaves the core free. */
static inline double mpi_team_max(team_t *team, double value)
{
    MPI_Request request;
    double largest = 0;
    int is_done = 0;

    (void)team;
    MPI_Iallreduce(&value, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &request);
    MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
    while (!is_done) {
        bench_nap(20e-6);
        MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
    }
    return largest;
}

static inline void mpi_team_sum(team_t *team, int64_t n, double values[])
{
    (void)team;
    MPI_Allreduce(MPI_IN_PLACE, values, (int)n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* Starts MPI and plait on it. */
static inline team_t mpi_team_start(int *argc, char ***argv, plait_comm_t **comm_p)
{
    team_t team = {
        .barrier = mpi_team_barrier, .max = mpi_team_max, .sum = mpi_team_sum};
    MPI_Comm world = MPI_COMM_WORLD;
    int provided = 0;

    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(world, &team.rank);
    MPI_Comm_size(world, &team.size);
    bench_must(plait_comm_mpi(PLAIT_MPI_COMM_BITS(world), comm_p) == PLAIT_OK,
               plait_error_text());
    return team;
}

#endif
