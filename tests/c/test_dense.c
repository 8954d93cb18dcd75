/* Dense operations on dealt matrices: plans proven for P = 1..17 in every way of reaching a peer's memory, and
 * executed by threads, against sums over whole matrices in long double. Elements that must not be read are
 * NaN. Without a BLAS library: skipped, with the reason. */
#include "dense_gemm.h"
#include "dense_main.h"
#include "dense_trsm.h"

static void check_on_devices(void)
{
    for (int n_ranks = 1; n_ranks <= 4; n_ranks++) {
        on_device_begin(n_ranks);
        if (n_ranks != 2) {
            gemm_execute_all(n_ranks);
        }
        if (n_ranks != 4) {
            trsm_execute_all(n_ranks);
        }
        few_execute_all(n_ranks);
        on_device_end(n_ranks);
    }
    on_device_begin(2);
    gemm_execute_tiles();
    trsm_execute_tiles();
    team_run(1, PLAIT_DIRECT_POINTER, gemm_alone, NULL);
    team_run(1, PLAIT_DIRECT_POINTER, trsm_alone, NULL);
    team_run(2, PLAIT_DIRECT_READ, trsm_singular, NULL);
    team_run(2, PLAIT_DIRECT_POINTER, gemm_mismatch, NULL);
    team_run(2, PLAIT_DIRECT_READ, trsm_wrong_array, NULL);
    on_device_end(2);
}

static void check_on_host(void)
{
    static const int sizes[] = {1, 2, 3, 4, 7};

    for (int n_ranks = 1; n_ranks <= DEALT_MAX_RANKS; n_ranks += is_quick() ? 4 : 1) {
        gemm_prove_all(n_ranks);
        trsm_prove_all(n_ranks);
        few_prove_all(n_ranks);
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        gemm_execute_all(sizes[i]);
        trsm_execute_all(sizes[i]);
        few_execute_all(sizes[i]);
    }
    gemm_execute_tiles();
    trsm_execute_tiles();
    team_run(1, PLAIT_DIRECT_POINTER, gemm_alone, NULL);
    team_run(1, PLAIT_DIRECT_POINTER, trsm_alone, NULL);
    team_run(2, PLAIT_DIRECT_READ, trsm_singular, NULL);
    team_run(2, PLAIT_DIRECT_POINTER, gemm_mismatch, NULL);
    team_run(1, PLAIT_DIRECT_POINTER, gemm_refusals, NULL);
    team_run(1, PLAIT_DIRECT_POINTER, trsm_refusals, NULL);
    team_run(2, PLAIT_DIRECT_READ, trsm_wrong_array, NULL);
}

int main(int n_arguments, char **arguments)
{
    return dense_main("test_dense", n_arguments, arguments, check_on_devices,
                      check_on_host);
}
