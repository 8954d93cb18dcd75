/* The cases of exec_cases.h and exec_halo.h in host memory. */
#include "exec_cases.h"
#include "exec_halo.h"

int main(void)
{
    for (int n_ranks = 1; n_ranks <= (is_quick() ? 4 : 8); n_ranks++) {
        exec_cases(n_ranks);
        exec_halo_cases(n_ranks);
    }
    check_turned_large(2, PLAIT_C128);
    check_turned_large(3, PLAIT_F32);
    team_run(3, PLAIT_DIRECT_POINTER, halo_defaults, NULL);
    oracles_forget();
    (void)plait_pool_trim();
    return report("test_exec");
}
