/* The cases of exec_cases.h and exec_halo.h in host memory; with the argument `past` as if there were no cache, so
 * that whatever may be written past it is. */
#include "device/host.h"
#include "exec_cases.h"
#include "exec_halo.h"

int64_t __real_plait_host_cache_bytes(void);
int64_t __wrap_plait_host_cache_bytes(void);

static bool goes_past = false;

int64_t __wrap_plait_host_cache_bytes(void)
{
    return goes_past ? 0 : __real_plait_host_cache_bytes();
}

int main(int n_arguments, char **arguments)
{
    goes_past = n_arguments > 1 && strcmp(arguments[1], "past") == 0;
    for (int n_ranks = 1; n_ranks <= (is_quick() || goes_past ? 4 : 8); n_ranks++) {
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
