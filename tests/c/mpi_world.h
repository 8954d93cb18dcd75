/* How a program of MPI ranks begins. */
#ifndef PLAIT_TESTS_MPI_WORLD_H
#define PLAIT_TESTS_MPI_WORLD_H

#include "check.h"
#include "mpi_host.h"
#include "transport/mpi.h"

/* Starts MPI, as the host of plait would; all its ranks, as plait knows them. */
static inline uint64_t mpi_world(int argc, char **argv)
{
    uint64_t world = 0;

    host_load(argc, argv);
    host_init();
    CHECK(plait_mpi_bind(NULL) == PLAIT_OK, "bind");
    CHECK(plait_mpi_world(&world) == PLAIT_OK, "world");
    return world;
}

#endif
