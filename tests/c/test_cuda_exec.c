/* Transforms, halos and redistributions by ranks that are threads, with arrays on CUDA devices that the ranks
 * share, by the devices' own copies and staged. Runs on the GPUs that there are, or with the argument `host`
 * on stand-ins of CUDA's libraries. Without a GPU: skipped, with the reason. */
#include "cuda_stand_in.h"
#include "device/pool.h"
#include "exec_cases.h"
#include "exec_halo.h"
#include "on_device.h"

enum { SKIPPED = 77 };

static void check_link(const plait_device_link_t *link, int n_ranks)
{
    team_link = link;
    on_device_begin(n_ranks);
    exec_cases(n_ranks);
    exec_halo_cases(n_ranks);
    if (n_ranks == 3) { /* what they are written for */
        team_run(n_ranks, PLAIT_DIRECT_NONE, halo_defaults, NULL);
    }
    if (link == NULL) {
        check_turned_large(n_ranks, (n_ranks % 2 == 0) ? PLAIT_C128 : PLAIT_F32);
    }
    on_device_end(n_ranks);
}

int main(int n_arguments, char **arguments)
{
    const bool is_host = cuda_stands_in(n_arguments, arguments, FAKES_DIR, "2");

    if (!on_device_use_cuda()) {
        return SKIPPED;
    }
    if (is_host) { /* kernels are run thread by thread */
        check_link(NULL, is_quick() ? 2 : 3);
    }
    for (int n_ranks = 1; n_ranks <= 4 && !is_host; n_ranks += is_quick() ? 2 : 1) {
        check_link(NULL, n_ranks);
        check_link(&plait_link_staged, n_ranks);
    }
    oracles_forget();
    plait_cuda_release();
    (void)plait_pool_trim();
    return report("test_cuda_exec");
}
