/* The cases of exec_cases.h with arrays on a device. */
#include "exec_cases.h"
#include "on_device.h"

int main(void)
{
    for (int n_ranks = 1; n_ranks <= (is_quick() ? 3 : 4); n_ranks++) {
        on_device_begin(n_ranks);
        exec_cases(n_ranks);
        on_device_end(n_ranks);
    }
    on_device_begin(3);
    check_turned_large(2, PLAIT_C128);
    check_turned_large(3, PLAIT_F32);
    team_run(3, PLAIT_DIRECT_NONE, halo_defaults, NULL);
    on_device_end(3);
    (void)plait_pool_trim();
    return report("test_device_exec");
}
