/* Collectives and matched transfers of ranks that are threads, with arrays on CUDA devices that the ranks
 * share, by the devices' own copies and staged. Runs on the GPUs that there are, or with the argument `host`
 * on stand-ins of CUDA's libraries. Without a GPU: skipped, with the reason. */
#include "coll_cases.h"
#include "cuda_stand_in.h"
#include "device/pool.h"
#include "device_matched.h"
#include "on_device.h"

enum { SKIPPED = 77, N_PARTS = 2 };

static void collectives_rank(plait_comm_t *comm, void *context)
{
    const int *part = context;

    case_part(comm, *part, N_PARTS);
    case_matched(comm);
    CHECK(plait_barrier(comm) == PLAIT_OK, "barrier");
}

static void matched_rank(plait_comm_t *comm, void *context)
{
    (void)context;
    matched_open(comm);
    matched_transfers(comm);
    if (plait_comm_size(comm) > 1) {
        matched_faults(comm);
        matched_pair(comm, matched_counts[1]);
        matched_mixed(comm, 0);
        matched_mixed(comm, 1);
    }
}

static void mismatch_rank(plait_comm_t *comm, void *context)
{
    (void)context;
    case_mismatch(comm);
}

static void check_link(const plait_device_link_t *link, int n_ranks)
{
    static int n_runs = 0;
    int part = n_runs++ / 2 % N_PARTS;

    team_link = link;
    on_device_begin(n_ranks);
    team_run(n_ranks, PLAIT_DIRECT_NONE, collectives_rank, &part);
    team_run(n_ranks, PLAIT_DIRECT_NONE, matched_rank, NULL);
    if (n_ranks > 1) {
        team_run(n_ranks, PLAIT_DIRECT_NONE, mismatch_rank, NULL);
    }
    on_device_end(n_ranks);
}

int main(int n_arguments, char **arguments)
{
    const bool is_host = cuda_stands_in(n_arguments, arguments, FAKES_DIR, "2");

    if (!on_device_use_cuda()) {
        return SKIPPED;
    }
    for (int n_ranks = 1; n_ranks <= 4; n_ranks += (is_host || is_quick()) ? 2 : 1) {
        check_link(NULL, n_ranks);
        check_link(&plait_link_staged, n_ranks);
    }
    plait_cuda_release();
    (void)plait_pool_trim();
    return report("test_cuda_coll");
}
