/* The link `nvshmem` between processes, for mpi_device.c: fake_nvshmem.c in PLAIT_TEST_FAKES. */
#ifndef PLAIT_TESTS_MPI_NVSHMEM_H
#define PLAIT_TESTS_MPI_NVSHMEM_H

#include "check.h"
#include "check_device.h"
#include "coll_cases.h"
#include "comm/comm.h"
#include "mpi_host.h"
#include "nvshmem.h"
#include "plait/coll.h"
#include "transport/mpi.h"

#include <stdlib.h>

/* A communicator whose operations ask for NVSHMEM. */
static inline plait_comm_t *nvshmem_open(uint64_t bits, plait_device_t *device)
{
    plait_comm_t *comm = NULL;

    CHECK(plait_comm_mpi(bits, &comm) == PLAIT_OK, "open");
    comm->end.caps.device = device;
    comm->end.caps.reach = PLAIT_REACH_NVSHMEM;
    return comm;
}

static inline void nvshmem_expect_refusal(uint64_t bits, plait_device_t *device,
                                          const char *why)
{
    plait_comm_t *comm = nvshmem_open(bits, device);
    double x = 1, y = 0;

    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 1, &x, &y) ==
                  PLAIT_ERR_UNSUPPORTED &&
              strstr(plait_error_text(), why) != NULL,
          "not '%s': %s", why, plait_error_text());
    plait_comm_destroy(&comm);
}

/* All bytes go by copies on the device, and no host waits for them. */
static inline void nvshmem_values(uint64_t bits, plait_device_t *device)
{
    plait_comm_t *comm = nvshmem_open(bits, device);
    const int size = plait_comm_size(comm);
    double x = 1, sum = 0;

    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 1, &x, &sum) == PLAIT_OK &&
              sum == size,
          "first: %s", plait_error_text());
    const check_device_counts_t before = check_device_counts(device);
    case_movement(comm, PLAIT_F64, 500);
    case_movement(comm, PLAIT_S16, 90001);
    const check_device_counts_t after = check_device_counts(device);
    CHECK(after.across_bytes > before.across_bytes &&
              after.up_bytes == before.up_bytes && after.n_waits == before.n_waits,
          "%lld bytes across, %lld up, %lld waits",
          (long long)(after.across_bytes - before.across_bytes),
          (long long)(after.up_bytes - before.up_bytes),
          (long long)(after.n_waits - before.n_waits));
    case_part(comm, host_next_part(), HOST_PARTS);
    case_matched(comm);
    plait_comm_destroy(&comm);
}

/* Each call of one rank to its device fails once. Peers' streams that wait for it are released. */
static inline void nvshmem_failures(uint64_t bits, int rank, plait_device_t *device)
{
    enum { N = 3000 };
    plait_comm_t *comm = nvshmem_open(bits, device);
    const int size = plait_comm_size(comm);
    static double x[8 * N], y[8 * N];
    double one = 1, sum = 0;

    /* to enter, two copies for each peer, boxes of its own, an event */
    for (int64_t n = 1; n <= 3 + 2 * (size - 1) && size <= 8; n++) {
        CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 1, &one, &sum) == PLAIT_OK &&
                  sum == size,
              "before call %lld: %s", (long long)n, plait_error_text());
        if (rank == 0) {
            check_device_fail_at(device, n, false);
        }
        plait_status_t status = plait_alltoall(comm, PLAIT_F64, N, x, y);
        CHECK(status == ((rank == 0) ? PLAIT_ERR_INTERNAL : PLAIT_ERR_PEER) &&
                  strstr(plait_error_text(), "check device") != NULL,
              "call %lld, rank %d: %d, %s", (long long)n, rank, (int)status,
              plait_error_text());
        check_device_fail_at(device, 0, false);
    }
    plait_comm_destroy(&comm);
}

static inline void nvshmem_all(uint64_t bits, int rank, plait_device_t *device)
{
    plait_comm_t *comm = nvshmem_open(bits, device);
    const int size = plait_comm_size(comm);
    const char *fakes = getenv("PLAIT_TEST_FAKES");

    plait_comm_destroy(&comm);
    CHECK(fakes != NULL, "PLAIT_TEST_FAKES: where the stand-in is");
    if (size == 1 || fakes == NULL) {
        return;
    }
    (void)setenv("PLAIT_CUDA_DIR", "/nowhere", 1);
    nvshmem_expect_refusal(bits, device, "nvshmem: rank 0: NVSHMEM knows no check dev");
    check_device_use_nvshmem(&plait_cuda_nvshmem);
    nvshmem_expect_refusal(bits, device, "rank 0: CUDA's NVSHMEM was not found");
    plait_cuda_forget();
    (void)setenv("PLAIT_CUDA_DIR", fakes, 1);
    (void)setenv("PLAIT_FAKE_NVSHMEM_VERSION", (rank == 1) ? "2110" : "3040", 1);
    nvshmem_expect_refusal(bits, device, "rank 1: NVSHMEM 2.11 of ");
    (void)unsetenv("PLAIT_FAKE_NVSHMEM_VERSION");
    (void)setenv("PLAIT_NVSHMEM_BYTES", (rank == 0) ? "400000" : "500000", 1);
    nvshmem_expect_refusal(bits, device,
                           "PLAIT_NVSHMEM_BYTES is 399872 on rank 0, 499968 on rank 1");
    (void)setenv("PLAIT_NVSHMEM_BYTES", "400000", 1);
    nvshmem_values(bits, device);
    nvshmem_failures(bits, rank, device);
    nvshmem_values(bits, device);
    (void)unsetenv("PLAIT_NVSHMEM_BYTES");
    (void)unsetenv("PLAIT_CUDA_DIR");
    check_device_use_nvshmem(NULL);
    nvshmem_end(1, &device);
}

#endif
