/* Started operations on devices, under mpiexec, through memory that processes of a node show each other, and
 * through the host between nodes. tests/c/run_mpi.py runs it. */
#include "device/pool.h"
#include "device_beside.h"
#include "mpi_world.h"
#include "transport/device_link.h"

int main(int argc, char **argv)
{
    plait_comm_t *comm = NULL;
    const uint64_t world = mpi_world(argc, argv);

    CHECK(plait_comm_mpi(world, &comm) == PLAIT_OK, "open");
    plait_device_t *device = check_device_create(plait_comm_rank(comm));
    beside_all(comm, device, plait_comm_size(comm) > 1 && !comm->end.caps.is_far);
    CHECK(plait_started_count() == 0 && plait_in_flight() == 0, "left");
    plait_comm_destroy(&comm);
    (void)host.finalize();
    plait_side_trim(device);
    plait_staged_trim(device);
    CHECK(check_device_destroy(&device) == 0, "device");
    (void)plait_pool_trim();
    return mpi_report("mpi_started");
}
