/* How a program of MPI ranks begins and ends. */
#ifndef PLAIT_TESTS_MPI_WORLD_H
#define PLAIT_TESTS_MPI_WORLD_H

#include "check.h"
#include "mpi_host.h"
#include "transport/mpi.h"
#include "transport/mpi_link.h"

#include <time.h>

/* Starts MPI, as plait's host would; returns all ranks as plait knows them. */
static inline uint64_t mpi_world(int argc, char **argv)
{
    uint64_t world = 0;

    host_load(argc, argv);
    host_init();
    CHECK(plait_mpi_bind(NULL) == PLAIT_OK, "bind");
    CHECK(plait_mpi_world(&world) == PLAIT_OK, "world");
    return world;
}

static inline void nap(int ms)
{
    const struct timespec time = {.tv_sec = ms / 1000,
                                  .tv_nsec = ms % 1000 * INT64_C(1000000)};

    (void)nanosleep(&time, NULL);
}

/* As report, but memory that MPI may still write to is kept, which the log then says. */
static inline int mpi_report(const char *name)
{
    return report_but(name, plait_mpi_keeps_memory());
}

#endif
