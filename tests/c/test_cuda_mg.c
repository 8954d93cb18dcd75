/* Eigenvalues, Cholesky factors, and solutions and inverses by these, by several CUDA devices at once, judged
 * by their residuals: all dtypes, blocks that do not divide the extent, 1 to 4 devices. On GPUs that reach each
 * other, of which one is taken several times where there are no more, or with the argument `host` on stand-ins
 * of CUDA's libraries, where every call fails in its turn. Without a GPU: skipped, with the reason. */
#include "fakes.h"
#include "mg_case.h"

static const plait_dtype_t dtypes[] = {PLAIT_F32, PLAIT_F64, PLAIT_C64, PLAIT_C128};

/* Device 2 of the stand-in reaches no other device. */
static const int ids_of_host[] = {0, 1, 3, 4};

static void check_case(int n_devices, const int ids[], plait_dtype_t dtype, int64_t n,
                       int64_t block, bool has_vectors, plait_joint_op_t op,
                       bool is_host)
{
    case_t c = case_of(n_devices, ids, dtype, n, block, has_vectors, op);
    int32_t info = -1;

    good(plan(&c), c.text);
    open_case(&c);
    const int n_before =
        is_host ? ask_fake("libcuda.so.1", "fake_cuda_n_synchronized") : 0;
    good(solve(&c, &info), c.text);
    CHECK(info == 0, "%s: info %d", c.text, info);
    if (is_host) {
        CHECK(ask_fake("libcuda.so.1", "fake_cuda_n_synchronized") ==
                  n_before + n_devices,
              "%s: not all devices were waited for", c.text);
        CHECK(ask_fake("libcuda.so.1", "fake_cuda_n_current") == 0,
              "%s: a context was left", c.text);
    }
    judge(&c);
    close_case(&c);
}

static void check_all(int n_devices, const int ids[], bool is_host)
{
    const int64_t sizes[] = {n_devices, 7, 13, is_host ? 24 : 200};
    const int64_t blocks[] = {1, 2, 3, is_host ? 5 : 32};

    for (int i = 0; i < 16; i++) {
        check_case(n_devices, ids, dtypes[i % 4], sizes[i / 4], blocks[i / 4],
                   i % 3 != 0, PLAIT_JOINT_HEEVD, is_host);
        for (int op = PLAIT_JOINT_POTRF; op <= PLAIT_JOINT_POTRI; op++) {
            check_case(n_devices, ids, dtypes[i % 4], sizes[i / 4], blocks[i / 4],
                       false, (plait_joint_op_t)op, is_host);
        }
    }
}

/* ---- Refusals and failures, on stand-ins ---------------------------------------------------- */

static void check_refusals(void)
{
    static const int apart[] = {0, 1, 2};
    int32_t info = 0;
    case_t c = case_of(3, apart, PLAIT_F64, 12, 2, true, PLAIT_JOINT_HEEVD);

    CHECK(plan(&c) == PLAIT_ERR_UNSUPPORTED &&
              says("CUDA device 0 does not reach the memory of device 2"),
          "%s", plait_error_text());
    c = case_of(2, ids_of_host, PLAIT_F64, INT64_C(1) << 31, 1024, true,
                PLAIT_JOINT_HEEVD);
    CHECK(plan(&c) == PLAIT_ERR_UNSUPPORTED && says("2147483648 columns"), "%s",
          plait_error_text());
    c = case_of(2, ids_of_host, PLAIT_F64, 12, 2048, true, PLAIT_JOINT_HEEVD);
    CHECK(plan(&c) == PLAIT_ERR_TRANSPORT &&
              says("cuSolverMg: describing a matrix: invalid value (3)"),
          "%s", plait_error_text());
    static const int other_order[] = {4, 1};
    c = case_of(2, other_order, PLAIT_F64, 12, 2, true, PLAIT_JOINT_HEEVD);
    open_case(&c);
    CHECK(solve(&c, &info) == PLAIT_ERR_INTERNAL && says("was not planned"), "%s",
          plait_error_text());
    close_case(&c);
}

/* The library finds no results, or wants more memory than before. */
static void check_outcomes(plait_joint_op_t op)
{
    case_t c = case_of(2, ids_of_host, PLAIT_C64, 9, 2, true, op);
    int32_t info = 0;

    good(plan(&c), c.text);
    open_case(&c);
    setenv("PLAIT_FAKE_MG_INFO", "5", 1);
    good(solve(&c, &info), c.text);
    CHECK(info == 5, "info %d", info);
    setenv("PLAIT_FAKE_MG_INFO", "-4", 1);
    CHECK(solve(&c, &info) == PLAIT_ERR_INTERNAL && says("argument 4 is wrong"), "%s",
          plait_error_text());
    unsetenv("PLAIT_FAKE_MG_INFO");
    setenv("PLAIT_FAKE_MG_MORE", "1", 1);
    CHECK(solve(&c, &info) == PLAIT_ERR_INTERNAL && says("when it was planned"), "%s",
          plait_error_text());
    unsetenv("PLAIT_FAKE_MG_MORE");
    close_case(&c);
}

/* One function of the library fails: while planning, which must leave nothing behind, or in the call. */
static void check_failing(plait_joint_op_t op, const int ids[])
{
    static const char *const calls[] = {"cusolverMgSyevd", "cusolverMgPotrf",
                                        "cusolverMgPotrs", "cusolverMgPotri"};
    static const char *const sizes[] = {
        "cusolverMgSyevd_bufferSize", "cusolverMgPotrf_bufferSize",
        "cusolverMgPotrs_bufferSize", "cusolverMgPotri_bufferSize"};
    const char *const asks = sizes[op];
    const char *const of_plan[] = {"cusolverMgCreate", "cusolverMgDeviceSelect",
                                   "cusolverMgCreateDeviceGrid",
                                   "cusolverMgCreateMatrixDesc", asks};
    const char *const of_call[] = {"cusolverMgCreateMatrixDesc", asks, calls[op]};
    case_t c = case_of(3, ids, PLAIT_F32, 10, 3, true, op);
    char fails[80], first[40];
    int32_t info = 0;

    (void)snprintf(first, sizeof(first), "CUDA device %d: cuSolverMg: ", ids[0]);
    for (size_t i = 0; i < sizeof(of_plan) / sizeof(of_plan[0]); i++) {
        (void)snprintf(fails, sizeof(fails), "%s:2", of_plan[i]);
        setenv("PLAIT_FAKE_MG_FAIL", fails, 1);
        CHECK(plan(&c) == PLAIT_ERR_NO_MEMORY && says(first) &&
                  says("allocation failed (2)"),
              "%s: %s", fails, plait_error_text());
    }
    unsetenv("PLAIT_FAKE_MG_FAIL");
    good(plan(&c), c.text);
    open_case(&c);
    for (size_t i = 0; i < sizeof(of_call) / sizeof(of_call[0]); i++) {
        (void)snprintf(fails, sizeof(fails), "%s:6", of_call[i]);
        setenv("PLAIT_FAKE_MG_FAIL", fails, 1);
        const int n_before = ask_fake("libcuda.so.1", "fake_cuda_n_synchronized");
        CHECK(solve(&c, &info) == PLAIT_ERR_TRANSPORT && says("execution failed (6)"),
              "%s: %s", fails, plait_error_text());
        CHECK(ask_fake("libcuda.so.1", "fake_cuda_n_synchronized") ==
                  n_before + ((i == 2) ? 3 : 0),
              "%s: devices that may be at it are waited for", fails);
    }
    unsetenv("PLAIT_FAKE_MG_FAIL");
    good(solve(&c, &info), "after failures");
    judge(&c);
    close_case(&c);
}

/* The driver fails at each of these functions, from its first or second call on. */
static void check_failing_driver(void)
{
    static const char *const functions[] = {"cuDeviceCanAccessPeer:101:0",
                                            "cuCtxEnablePeerAccess:101:0",
                                            "cuMemAlloc_v2:2:0", "cuMemAlloc_v2:2:1"};
    plait_device_t *device = NULL;

    setenv("PLAIT_FAKE_FORGIVES", "1", 1);
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        look_in(FAKES_DIR);
        setenv("PLAIT_FAKE_FAIL", functions[i], 1);
        case_t c = case_of(2, ids_of_host, PLAIT_F64, 6, 2, true, PLAIT_JOINT_HEEVD);
        CHECK(plan(&c) != PLAIT_OK && says("CUDA device "), "%s: %s", functions[i],
              plait_error_text());
        unsetenv("PLAIT_FAKE_FAIL");
    }
    look_in(FAKES_DIR);
    setenv("PLAIT_FAKE_FAIL", "cuCtxSynchronize:719:1", 1);
    case_t c = case_of(2, ids_of_host, PLAIT_F64, 6, 2, true, PLAIT_JOINT_HEEVD);
    int32_t info = 0;
    good(plan(&c), c.text);
    open_case(&c);
    CHECK(solve(&c, &info) == PLAIT_ERR_TRANSPORT &&
              says("CUDA device 1: waiting for it"),
          "%s", plait_error_text());
    unsetenv("PLAIT_FAKE_FAIL");
    close_case(&c);
    look_in(FAKES_DIR); /* gives back all that is left of the device that failed */
    unsetenv("PLAIT_FAKE_FORGIVES");
    good(plait_cuda_device(0, &device), "device");
}

/* A toolkit without cuSolverMg. */
static void check_absent(void)
{
    static const char *const there[] = {"libcuda.so.1", "libnvrtc.so.13",
                                        "libcublas.so.13", "libcusolver.so.12"};

    look_in(folder_of("without"));
    for (int i = 0; i < 4; i++) {
        put_fake(there[i], folder_of("without"), there[i]);
    }
    case_t c = case_of(2, ids_of_host, PLAIT_F64, 6, 2, true, PLAIT_JOINT_HEEVD);
    CHECK(plan(&c) == PLAIT_ERR_UNSUPPORTED && says("cuSolverMg was not found"), "%s",
          plait_error_text());
    look_in(NULL);
    remove_fakes();
}

/* ---- Real devices --------------------------------------------------------------------------- */

/* As many devices as there are; the library makes one GPU several devices. */
static void check_here(void)
{
    plait_device_t *device = NULL;
    int ids[MOST] = {0}, n_found = 0;

    while (n_found < MOST && plait_cuda_device(n_found, &device) == PLAIT_OK) {
        n_found++;
    }
    for (int n_devices = 1; n_devices <= MOST; n_devices++) {
        ids[n_devices - 1] = (n_devices - 1) % n_found;
        case_t c = case_of(n_devices, ids, PLAIT_F64, 64, 8, true, PLAIT_JOINT_HEEVD);
        if (plan(&c) == PLAIT_ERR_UNSUPPORTED) {
            printf("%d devices: %s\n", n_devices, plait_error_text());
        } else {
            check_all(n_devices, ids, false);
        }
    }
}

int main(int n_arguments, char **arguments)
{
    const machine_t m = machine_of(n_arguments, arguments);
    plait_device_t *device = NULL;

    if (m.is_host) {
        setenv("PLAIT_FAKE_DEVICES", "5", 1);
    }
    if (plait_cuda_device(0, &device) == PLAIT_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", plait_error_text());
        return SKIPPED;
    }
    if (m.is_host) {
        for (int n_devices = 1; n_devices <= MOST; n_devices++) {
            check_all(n_devices, ids_of_host, true);
        }
        check_refusals();
        for (int op = PLAIT_JOINT_HEEVD; op <= PLAIT_JOINT_POTRI; op++) {
            static const int sets[][3] = {{3, 0, 4}, {4, 0, 3}, {0, 4, 3}, {0, 3, 4}};
            check_outcomes((plait_joint_op_t)op);
            check_failing((plait_joint_op_t)op, sets[op]); /* each one's is another */
        }
        check_failing_driver();
        check_absent();
    } else {
        check_here();
    }
    plait_cuda_release();
    return report("test_cuda_mg");
}
