/* The cases of exec_cases.h and exec_halo.h in host memory; with the argument `past` as if there were no cache,
 * so that whatever may be written past it is. */
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

/* Rows that go through scratch a few at a time. */
static void check_long_rows(int n_ranks)
{
    static const int64_t shapes[][3] = {{2, 40, 301}, {2, 35, 320}};
    const int line[] = {n_ranks};

    for (int i = 0; i < 8; i++) {
        const int over[2][3] = {{0, -1, -1}, {(i % 2 == 0) ? 0 : -1, i % 2 - 1, -1}};
        check_fft(n_ranks, 3, shapes[i / 4], 1, line, code_of(1, 3, over[0]),
                  code_of(1, 3, over[1]), 1 + i % 4 / 2, -1, directs[i % 3],
                  PLAIT_C128);
    }
}

int main(int n_arguments, char **arguments)
{
    goes_past = n_arguments > 1 && strcmp(arguments[1], "past") == 0;
    for (int n_ranks = 1; n_ranks <= (is_quick() || goes_past ? 4 : 8); n_ranks++) {
        exec_cases(n_ranks);
        exec_halo_cases(n_ranks);
        if (goes_past) {
            check_long_rows(n_ranks);
        }
    }
    check_turned_large(2, PLAIT_C128);
    check_turned_large(3, PLAIT_F32);
    team_run(3, PLAIT_DIRECT_POINTER, halo_defaults, NULL);
    oracles_forget();
    (void)plait_pool_trim();
    return report("test_exec");
}
