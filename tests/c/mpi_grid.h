/* For mpi_device.c: ranks that are processes find out whether their devices work as one, before the first
 * operation that can use it. The functions called here are of no library and compute nothing. */
#ifndef PLAIT_TESTS_MPI_GRID_H
#define PLAIT_TESTS_MPI_GRID_H

#include "check.h"
#include "check_device.h"
#include "comm/comm.h"
#include "plait/coll.h"
#include "plan/launch.h"
#include "transport/mpi.h"
#include "transport/process_grid.h"

struct plait_process_grid {
    int n_ranks, rank;
};

static struct plait_process_grid grid_seat;
static plait_status_t grid_may; /* this rank's own answer */
static int grid_n_asked, grid_n_joined, grid_n_closed, grid_n_aborted;
static bool grid_planned; /* the last plan could count on the grid */

static plait_status_t grid_create(plait_device_t *device, plait_stream_t stream,
                                  plait_process_grid_t **grid_p)
{
    (void)device;
    (void)stream;
    grid_n_asked++;
    *grid_p = (grid_may == PLAIT_OK) ? &grid_seat : NULL;
    return (grid_may == PLAIT_OK) ? PLAIT_OK : plait_fail(grid_may, "as it was told");
}

static plait_status_t grid_id(plait_nccl_id_t *id_p)
{
    memset(id_p, 42, sizeof(*id_p));
    return PLAIT_OK;
}

static plait_status_t grid_join(plait_process_grid_t *grid, const plait_nccl_id_t *id,
                                int n_ranks, int rank)
{
    CHECK(grid == &grid_seat && id->bytes[127] == 42, "rank 0's id");
    grid_seat = (struct plait_process_grid){n_ranks, rank};
    grid_n_joined++;
    return PLAIT_OK;
}

static void grid_close(plait_process_grid_t *grid)
{
    (void)grid;
    grid_n_closed++;
}

static void grid_abort(plait_process_grid_t *grid)
{
    (void)grid;
    grid_n_aborted++;
}

static bool grid_wanted(const void *params, int n_ranks, plait_choices_t choices)
{
    int64_t n = 0;

    (void)choices;
    memcpy(&n, params, sizeof(n));
    return n_ranks > 1 && n > 1;
}

static plait_status_t grid_plan(const void *params, const plait_problem_t *problem,
                                plait_plan_t **plan_p)
{
    (void)params;
    grid_planned = problem->caps.grid != NULL;
    return plait_plan_create(problem, plan_p, "nothing");
}

static plait_status_t grid_run(plait_comm_t *comm, plait_device_t *device, int64_t n)
{
    static const plait_attr_t attrs[] = {PLAIT_ATTR_END};
    static const plait_op_t op = {.name = "nothing",
                                  .params_size = sizeof(int64_t),
                                  .attrs = attrs,
                                  .alias = -1,
                                  .wants_grid = grid_wanted,
                                  .plan = grid_plan};
    const plait_call_t call = {.op = &op, .params = &n, .comm = comm, .device = device};

    return plait_op_run(&call);
}

static inline plait_comm_t *grid_open(uint64_t bits, plait_device_t *device,
                                      plait_status_t may)
{
    plait_comm_t *comm = NULL;

    grid_may = may;
    grid_n_asked = grid_n_joined = grid_n_closed = grid_n_aborted = 0;
    CHECK(plait_comm_mpi(bits, &comm) == PLAIT_OK, "open");
    comm->end.caps.device = device;
    return comm;
}

/* Ranks are asked once, when it is wanted. Later plans count on the answer. */
static inline void grid_check_asked(uint64_t bits, int rank, plait_device_t *device)
{
    plait_comm_t *comm = grid_open(bits, device, PLAIT_OK);
    const int size = plait_comm_size(comm);

    CHECK(grid_run(comm, device, 1) == PLAIT_OK && grid_n_asked == 0 && !grid_planned,
          "not wanted: %d", grid_n_asked);
    CHECK(grid_run(comm, NULL, 2) == PLAIT_OK && grid_n_asked == 0, "on the host");
    for (int64_t n = 2; n < 5; n++) {
        CHECK(grid_run(comm, device, n) == PLAIT_OK && grid_n_asked == 1 &&
                  grid_n_joined == 1 && grid_planned,
              "%lld: asked %d, joined %d", (long long)n, grid_n_asked, grid_n_joined);
    }
    CHECK(grid_seat.n_ranks == size && grid_seat.rank == rank, "rank %d of %d",
          grid_seat.rank, grid_seat.n_ranks);
    plait_comm_destroy(&comm);
    CHECK(grid_n_closed == 1 && grid_n_aborted == 0, "closed %d, aborted %d",
          grid_n_closed, grid_n_aborted);
}

/* If one rank cannot, no rank does, and no rank is asked again. */
static inline void grid_check_refused(uint64_t bits, int rank, plait_device_t *device)
{
    plait_comm_t *comm =
        grid_open(bits, device, (rank == 1) ? PLAIT_ERR_UNSUPPORTED : PLAIT_OK);

    for (int64_t n = 2; n < 5; n++) {
        CHECK(grid_run(comm, device, n) == PLAIT_OK && grid_n_asked == 1 &&
                  grid_n_joined == 0 && !grid_planned,
              "%lld: asked %d, joined %d", (long long)n, grid_n_asked, grid_n_joined);
    }
    plait_comm_destroy(&comm);
    CHECK(grid_n_closed == 0 && grid_n_aborted == (rank != 1), "closed %d, aborted %d",
          grid_n_closed, grid_n_aborted);
}

/* A rank that comes with another operation, and a device that fails: all ranks learn of it and go on. */
static inline void grid_check_failing(uint64_t bits, int rank, plait_device_t *device)
{
    plait_comm_t *comm = grid_open(bits, device, PLAIT_OK);
    const plait_status_t status =
        (rank == 0) ? plait_barrier(comm) : grid_run(comm, device, 2);

    CHECK(status == PLAIT_ERR_MISMATCH, "rank %d: %d, %s", rank, (int)status,
          plait_error_text());
    CHECK(plait_barrier(comm) == PLAIT_OK, "%s", plait_error_text());
    if (rank == 0) {
        check_device_fail_at(device, 1, false);
    }
    CHECK(grid_run(comm, device, 2) ==
                  ((rank == 0) ? PLAIT_ERR_INTERNAL : PLAIT_ERR_PEER) &&
              strstr(plait_error_text(), "check device") != NULL && grid_n_joined == 0,
          "rank %d: %s", rank, plait_error_text());
    check_device_fail_at(device, 0, false);
    CHECK(grid_run(comm, device, 2) == PLAIT_OK && grid_n_joined == 1 && grid_planned,
          "%s", plait_error_text());
    plait_comm_destroy(&comm);
}

static inline void grid_all(uint64_t bits, int rank, plait_device_t *device)
{
    static const plait_device_grid_t of_nothing = {.create = grid_create,
                                                   .id = grid_id,
                                                   .join = grid_join,
                                                   .close = grid_close,
                                                   .abort = grid_abort};
    plait_comm_t *comm = grid_open(bits, device, PLAIT_OK);
    const int size = plait_comm_size(comm);

    plait_comm_destroy(&comm);
    if (size > 1) {
        check_device_use_grid(&of_nothing);
        grid_check_asked(bits, rank, device);
        grid_check_refused(bits, rank, device);
        grid_check_failing(bits, rank, device);
        check_device_use_grid(NULL);
    }
}

#endif
