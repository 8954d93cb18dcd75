/* Eigendecompositions of dealt Hermitian matrices: plans proven for P = 1..17 in every way of
 * reaching a peer's memory, and executed by threads, judged by their residuals. The triangle that
 * is not to be read is NaN. Without a LAPACK library: skipped, with the reason. */
#include "dense/whole.h"
#include "dense_main.h"
#include "device/cuda_mp.h"
#include "heevd_cases.h"
#include "plan/ask_grid.h"
#include "transport/process_grid.h"

/* Some of the vectors: fewer than ranks, the lowest, the highest, across the merges, a part of a cluster; dealt
 * out, or whole on one rank. */
static void check_parts(int n_ranks)
{
    static const int64_t n = 84,
                         parts[][2] = {{0, 1}, {83, 1}, {0, 83}, {1, 83}, {31, 9}};

    for (int i = 0; i < 10; i += is_quick() ? 3 : 1) {
        const case_t c = {.dtype = dealt_dtypes[(i + n_ranks) % 4],
                          .n = n,
                          .block = (i % 3 == 0) ? 64 : 5,
                          .first = parts[i % 5][0],
                          .n_vectors = parts[i % 5][1],
                          .n_ranks = n_ranks,
                          .direct = dealt_directs[(i + n_ranks) % 3]};
        plait_dense_choose_whole((i < 5) ? 0 : n);
        check_case((i % 2 == 0) ? RANDOM : CLUSTERED, &c);
        plait_dense_choose_whole(0);
    }
}

static void execute_all(int n_ranks)
{
    static const int64_t blocks[] = {1, 3, 32, 64, 1000};
    const int64_t sizes[] = {0, 1, 2, 3, n_ranks, n_ranks + 1, 33, 70, 100};
    int turn = n_ranks;

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (int b = 0; b < 5; b++) {
            for (int d = 0; d < 3; d++, turn++) {
                const bool has_ways = n_ranks <= 2 && team_devices[0] == NULL;
                const bool is_turn = has_ways || d == ((int)s + b) % 3;
                if (!is_turn || (is_quick() && (turn % 2 == 0 || sizes[s] > 70))) {
                    continue;
                }
                check_kind(RANDOM, dealt_dtypes[turn / 2 % 4], sizes[s], blocks[b],
                           turn % 5 != 0, n_ranks, dealt_directs[d]);
            }
        }
    }
    for (int kind = 0; kind < N_KINDS; kind++) {
        for (int d = 0; d < 4; d++, turn++) {
            check_kind((kind_t)kind, dealt_dtypes[d], is_quick() ? 42 : 84, 8, true,
                       n_ranks, dealt_directs[turn % 3]);
        }
    }
    for (int d = 0; d < 8; d++) { /* eigenvalues alone, dealt and by one rank */
        const int64_t n = is_single(dealt_dtypes[d % 4]) ? 5 : 10;
        plait_dense_choose_whole((d < 4) ? 0 : n);
        check_kind(FAINT, dealt_dtypes[d % 4], n, 8, false, n_ranks,
                   dealt_directs[d % 3]);
    }
    plait_dense_choose_whole(0);
}

/* Several panels of reflectors, and several levels of merges. */
static void check_larger(void)
{
    const int64_t n = is_quick() ? 90 : 200;

    for (int d = 0; d < (is_quick() ? 1 : 3); d++) { /* long sums are shared out */
        check_kind(RANDOM, PLAIT_C128, 330, 32, d < 2, 8, dealt_directs[d]);
    }
    for (int n_ranks = 2; n_ranks <= 3; n_ranks++) {
        for (int kind = 0; kind < N_KINDS; kind++) {
            check_kind((kind_t)kind, dealt_dtypes[kind % 4], n, 64, true, n_ranks,
                       PLAIT_DIRECT_POINTER);
            check_kind((kind_t)kind, PLAIT_F64, n + 1, 100, true, n_ranks,
                       PLAIT_DIRECT_POINTER);
        }
    }
}

/* Complex eigenvectors: their conjugates are no solution. */
static void check_conjugation(int n_ranks)
{
    matrix_t a = matrix_make(2);

    *at(&a, 0, 0) = *at(&a, 1, 1) = 2;
    *at(&a, 0, 1) = I;
    *at(&a, 1, 0) = -I;
    check_run(&a, "2 i -i 2",
              &(case_t){PLAIT_C128, 2, 1, 0, 2, n_ranks, PLAIT_DIRECT_POINTER});
    check_run(&a, "2 i -i 2",
              &(case_t){PLAIT_C64, 2, 2, 0, 2, n_ranks, PLAIT_DIRECT_NONE});
    plait_free(a.x);
}

/* ---- plans ---- */

static void prove(int n_ranks, int64_t n, int64_t block, bool has_vectors,
                  plait_dtype_t dtype)
{
    prove_part(n_ranks, n, block, 0, has_vectors ? n : 0, dtype);
}

/* A matrix of at most 40 rows is whole on one rank. */
static void prove_all(int n_ranks)
{
    static const int64_t blocks[] = {1, 3, 32, 64};

    plait_dense_choose_whole(40);
    prove(n_ranks, 37, blocks[n_ranks % 4], true, dealt_dtypes[n_ranks % 4]);
    prove(n_ranks, 4, blocks[n_ranks % 4], false, dealt_dtypes[n_ranks % 3]);
    prove_part(n_ranks, 31, blocks[n_ranks % 4], n_ranks, 3, dealt_dtypes[n_ranks % 4]);
    plait_dense_choose_whole(0);
    prove_part(n_ranks, 31, blocks[n_ranks % 4], 12, 7, dealt_dtypes[n_ranks % 4]);
    prove_part(n_ranks, 31, blocks[n_ranks % 4], 30, 1, dealt_dtypes[n_ranks % 3]);
    for (int b = 0; b < 4; b++) {
        for (int64_t n = 0; n < 4; n++) {
            prove(n_ranks, n, blocks[b], true, dealt_dtypes[n % 4]);
        }
    }
    prove(n_ranks, 37, blocks[n_ranks % 3], true, dealt_dtypes[n_ranks % 4]);
    prove(n_ranks, 21, 4, false, dealt_dtypes[n_ranks / 2 % 4]);
    if (n_ranks == 8 && !is_quick()) { /* sums of long vectors are shared out */
        prove(n_ranks, 270, 16, false, PLAIT_C128);
    }
}

static void check_refusals(plait_comm_t *comm, void *context)
{
    plait_heevd_problem_t problem = {.dtype = PLAIT_F64, .n = 4, .block = 2};
    const plait_heevd_params_t params = {4, 2, 0, 4};
    const int64_t three = 3, dims[] = {4, 4}, one = 1;
    plait_array_t a = {.dtype = PLAIT_F64, .ndim = 2, .dims = dims};
    plait_array_t rets[] = {{.dtype = PLAIT_F64, .ndim = 1, .dims = &three},
                            {.dtype = PLAIT_F64, .ndim = 2, .dims = dims},
                            {.dtype = PLAIT_S32, .ndim = 1, .dims = &one}};
    const plait_endpoint_t end = {.size = 1, .caps = {.publish_bytes = -1}};
    plait_plan_t *plan = NULL;

    (void)context;
    CHECK(plait_op_plan(&plait_op_heevd, &params, &end, &a, rets, &plan) ==
              PLAIT_ERR_INVALID,
          "w");
    rets[0].dims = dims;
    rets[1].dtype = PLAIT_F32;
    CHECK(plait_op_plan(&plait_op_heevd, &params, &end, &a, rets, &plan) ==
              PLAIT_ERR_INVALID,
          "v");
    rets[1].dtype = PLAIT_F64;
    rets[2].dims = &three;
    CHECK(plait_op_plan(&plait_op_heevd, &params, &end, &a, rets, &plan) ==
              PLAIT_ERR_INVALID,
          "info");
    problem.dtype = PLAIT_S32;
    check_refused(plait_heevd_plan(comm, &problem, &plan), PLAIT_ERR_INVALID,
                  "heevd: a is int32");
    problem.dtype = PLAIT_F64;
    problem.block = 0;
    check_refused(plait_heevd_plan(comm, &problem, &plan), PLAIT_ERR_INVALID,
                  "blocks of 0 columns");
    problem.block = 2;
    problem.first = 2;
    problem.n_vectors = 3;
    check_refused(plait_heevd_plan(comm, &problem, &plan), PLAIT_ERR_INVALID,
                  "3 eigenvectors from 2 on; there are 4");
    problem.n_vectors = INT64_MAX;
    check_refused(plait_heevd_plan(comm, &problem, &plan), PLAIT_ERR_INVALID,
                  "9223372036854775807 eigenvectors");
    check_refused(plait_heevd_plan(NULL, &problem, &plan), PLAIT_ERR_COMM,
                  "communicator");
}

/* By all devices at once: ranks know each other's devices. Blocks stay as they are, or move to other blocks. */
static void check_at_once(int n_ranks)
{
    static const int64_t blocks[] = {1, 5, 32, 1030};

    team_knows_devices = true;
    plait_dense_choose_whole(0);
    for (int b = 0; b < 4; b++) {
        prove(n_ranks, n_ranks, blocks[b], true, dealt_dtypes[b]);
        prove(n_ranks, 37, blocks[b], b % 2 == 0, dealt_dtypes[(b + n_ranks) % 4]);
    }
    prove(n_ranks, 2200, 1030, true, PLAIT_F32);
    execute_all(n_ranks);
    check_kind(RANDOM, PLAIT_F64, 33 * n_ranks + 5, 33, true, n_ranks,
               PLAIT_DIRECT_POINTER);
    check_conjugation(n_ranks);
    check_parts(n_ranks);
    check_not_finite(n_ranks, PLAIT_DIRECT_POINTER);
    plait_dense_choose_whole(-1);
    team_knows_devices = false;
}

/* ---- ranks as if they were processes ---- */

static void take_seat(plait_comm_t *comm, void *context)
{
    plait_device_t *device = comm->end.caps.device;

    (void)context;
    CHECK(plait_grid_ask(comm, 0, device, check_device_stream(device)) == PLAIT_OK,
          "%s", plait_error_text());
    comm->end.caps.grid = plait_process_grid(&comm->end, device);
    CHECK(comm->end.caps.grid != NULL, "rank %d has no seat", comm->end.rank);
}

static plait_status_t plan_nothing(plait_process_grid_t *grid,
                                   const plait_joint_problem_t *heevd,
                                   int64_t *work_bytes_p)
{
    (void)grid;
    *work_bytes_p = 16 * heevd->n;
    return PLAIT_OK;
}

/* By the devices of all processes at once, with a call in each process: blocks of a power of two stay, other
 * blocks move. */
static void check_by_processes(int n_ranks)
{
    static const plait_device_grid_t of_plans = {.heevd_plan = plan_nothing};
    static const int64_t blocks[] = {1, 32, 33, 4};

    plait_dense_choose_whole(0);
    check_device_use_grid(&of_plans);
    dealt_grid = (void *)team_devices; /* any address */
    for (int b = 0; b < 4; b++) {
        prove(n_ranks, n_ranks + b, blocks[b], true, dealt_dtypes[b]);
        prove(n_ranks, 70, blocks[b], b % 2 == 0, dealt_dtypes[(b + n_ranks) % 4]);
    }
    dealt_grid = NULL;
    check_device_use_grid(&plait_cuda_grid);
    team_before = take_seat;
    for (int i = 0; i < 16; i++) {
        const int64_t sizes[] = {n_ranks, 7, 13, 33 * n_ranks + 2};
        check_kind(RANDOM, dealt_dtypes[i % 4], sizes[i / 4], blocks[i % 3], i % 5 != 0,
                   n_ranks, PLAIT_DIRECT_POINTER);
    }
    check_conjugation(n_ranks);
    check_parts(n_ranks);
    check_not_finite(n_ranks, PLAIT_DIRECT_POINTER);
    team_before = NULL;
    plait_cuda_grid_release();
    check_device_use_grid(NULL);
    plait_dense_choose_whole(-1);
}

static void check_on_devices(void)
{
    if (on_device_n_cuda == 0) {
        (void)setenv("PLAIT_CUDA_DIR", FAKES_DIR, 1);
    }
    for (int n_ranks = 1; n_ranks <= 4; n_ranks += is_quick() ? 2 : 1) {
        on_device_begin(n_ranks);
        for (int n = n_ranks; n <= DEALT_MAX_RANKS; n += 4) {
            prove_all(n);
        }
        execute_all(n_ranks);
        check_conjugation(n_ranks);
        check_parts(n_ranks);
        check_not_finite(n_ranks, PLAIT_DIRECT_POINTER);
        if (n_ranks > 1 && on_device_n_cuda == 0) {
            check_at_once(n_ranks);
            check_by_processes(n_ranks);
        }
        on_device_end(n_ranks);
    }
}

static void check_on_host(void)
{
    static const int sizes[] = {1, 2, 3, 4, 7};

    for (int n_ranks = 1; n_ranks <= DEALT_MAX_RANKS; n_ranks += is_quick() ? 4 : 1) {
        prove_all(n_ranks);
    }
    plait_dense_choose_whole(0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i += is_quick() ? 2 : 1) {
        execute_all(sizes[i]);
        check_conjugation(sizes[i]);
        check_parts(sizes[i]);
        for (int d = 0; d < 3; d++) {
            check_not_finite(sizes[i], dealt_directs[d]);
        }
    }
    check_larger();
    plait_dense_choose_whole(-1);
    execute_all(1);
    execute_all(2);
    check_not_finite(2, PLAIT_DIRECT_READ);
    team_run(1, PLAIT_DIRECT_POINTER, check_refusals, NULL);
}

int main(int n_arguments, char **arguments)
{
#ifdef __SANITIZE_THREAD__ /* does not see how the library's own threads meet */
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
#endif
    return dense_main("test_heevd", n_arguments, arguments, check_on_devices,
                      check_on_host);
}
