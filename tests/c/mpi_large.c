/* Arrays of 2 GiB on two MPI ranks. Half of the operations go through shared memory, half through messages, in
 * turns: PLAIT_TEST_TURN, another turn for each MPI. Does nothing with other numbers of ranks, or if there is
 * no room. */
#include "comm/comm.h"
#include "device/pool.h"
#include "large_cases.h"
#include "mpi_world.h"

int main(int argc, char **argv)
{
    const uint64_t world = mpi_world(argc, argv);
    unsigned char *x = NULL; /* for both: new pages are what takes the time */
    plait_comm_t *comm = NULL;
    const char *text = getenv("PLAIT_TEST_TURN");
    const int turn = (text != NULL) ? atoi(text) : 0;

    for (int is_off = 0; is_off < 2; is_off++) {
        (void)setenv("PLAIT_SHARED", is_off ? "off" : "on", 1);
        CHECK(plait_comm_mpi(world, &comm) == PLAIT_OK, "comm");
        int32_t have_room = (x != NULL || large_fits()) ? 1 : 0;
        int32_t all_have = 0;
        CHECK(plait_allreduce(comm, PLAIT_MIN, PLAIT_S32, 1, &have_room, &all_have) ==
                  PLAIT_OK,
              "room");
        if (plait_comm_size(comm) == 2 && all_have && x == NULL) {
            x = plait_alloc_aligned(LARGE_N);
            CHECK(x != NULL, "no memory");
        }
        if (x != NULL) {
            large_some(comm, x, (turn + is_off) % 2, 2);
        } else if (plait_comm_size(comm) == 2) {
            printf("less than 7 GiB are free: no arrays of 2 GiB\n");
        }
        plait_comm_destroy(&comm);
    }
    plait_free(x);
    (void)host.finalize();
    (void)plait_pool_trim();
    return mpi_report("mpi_large");
}
