/* The operations of plait/coll.h under mpiexec with arrays on a device of each process: by memory that is shown
 * to the others, by the host where it is not, and where ranks are on several nodes. Each way has a part of
 * dtypes and reductions, since it differs in how bytes travel. tests/c/run_mpi.py runs it on each MPI of the
 * machine. */
#include "coll_cases.h"
#include "device/pool.h"
#include "device_matched.h"
#include "mpi_aware.h"
#include "mpi_grid.h"
#include "mpi_nvshmem.h"
#include "mpi_world.h"
#include "on_device.h"
#include "plait/coll.h"
#include "plait/cuda.h"

static plait_device_t *device;

static plait_status_t find_mine(int ordinal, plait_device_t **device_p)
{
    *device_p = device;
    return (ordinal == device->ordinal) ? PLAIT_OK : PLAIT_ERR_UNSUPPORTED;
}

/* If memory is shown, collectives go from device to device, and no data goes through the host. */
static void check_all(uint64_t bits, bool is_shown)
{
    plait_comm_t *comm = NULL;
    double x = 1, sum = 0;

    CHECK(plait_comm_mpi(bits, &comm) == PLAIT_OK, "open");
    plait_device_set_finder(find_mine);
    CHECK(plait_comm_on_cuda(comm, device->ordinal, check_device_stream(device)) ==
              PLAIT_OK,
          "place");
    const int size = plait_comm_size(comm);
    const bool by_ipc = is_shown && !comm->end.caps.is_far;
    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 1, &x, &sum) == PLAIT_OK &&
              sum == size,
          "first");
    const check_device_counts_t before = check_device_counts(device);
    case_part(comm, host_next_part(), HOST_PARTS);
    const check_device_counts_t after = check_device_counts(device);
    if (size > 1) {
        CHECK((after.across_bytes > before.across_bytes) == by_ipc, "%lld bytes across",
              (long long)(after.across_bytes - before.across_bytes));
        CHECK((after.up_bytes == before.up_bytes) == by_ipc, "%lld bytes up",
              (long long)(after.up_bytes - before.up_bytes));
    }
    case_matched(comm);
    matched_all(comm, by_ipc);
    if (size > 1) {
        matched_failures(comm, false);
        matched_failures(comm, true);
    }
    plait_comm_destroy(&comm);
    plait_device_set_finder(NULL);
}

/* If one rank's memory is shown to nobody, no rank uses that way. Without direct access, matched transfers are
 * messages in chunks. */
static void check_hidden(uint64_t bits, int rank)
{
    if (rank == 0) {
        check_device_refuse(device, CHECK_DEVICE_SHOWS_NONE);
    }
    check_all(bits, false);
    (void)setenv("PLAIT_DIRECT", "off", 1);
    check_all(bits, false);
    (void)unsetenv("PLAIT_DIRECT");
    check_device_refuse(device, CHECK_DEVICE_SHOWS_ALL);
}

int main(int argc, char **argv)
{
    plait_comm_t *comm = NULL;
    const uint64_t world = mpi_world(argc, argv);

    CHECK(plait_comm_mpi(world, &comm) == PLAIT_OK, "open");
    const int rank = plait_comm_rank(comm);
    plait_comm_destroy(&comm);
    device = check_device_create(rank);
    check_all(world, true);
    (void)setenv("PLAIT_DIRECT", "off", 1);
    check_all(world, true);
    (void)unsetenv("PLAIT_DIRECT");
    check_hidden(world, rank);
    aware_all(world, rank, device);
    nvshmem_all(world, rank, device);
    grid_all(world, rank, device);
    (void)host.finalize();
    plait_staged_trim(device);
    CHECK(check_device_destroy(&device) == 0, "device");
    (void)plait_pool_trim();
    return mpi_report("mpi_device");
}
