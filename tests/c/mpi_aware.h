/* MPI that reads device memory, for mpi_device.c. Its stand-in is the real MPI while a check device lets its
 * memory be read. If the device does not, MPI would end the program. */
#ifndef PLAIT_TESTS_MPI_AWARE_H
#define PLAIT_TESTS_MPI_AWARE_H

#include "check.h"
#include "check_device.h"
#include "coll_cases.h"
#include "comm/comm.h"
#include "device/find.h"
#include "device_matched.h"
#include "folder.h"
#include "mpi_host.h"
#include "plait/coll.h"
#include "transport/device_link.h"
#include "transport/gpu_aware.h"
#include "transport/mpi.h"
#include "transport/mpi_link.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    plait_device_t *device;
    bool can;      /* MPI reads the device's memory */
    bool is_wrong; /* but gets other bytes than were there */
    int says;      /* what the library says about itself */
    char folder[256];
} aware;

static int aware_query(int kind, int *can_p)
{
    *can_p = kind == 0 && aware.says;
    return 0;
}

void *__wrap_plait_mpi_symbol(const char *name);
void *__wrap_plait_mpi_symbol(const char *name)
{
    int (*query)(int, int *) = aware_query;
    void *address = NULL;

    memcpy(&address, &query, sizeof(address));
    return (strcmp(name, "MPIX_GPU_query_support") == 0) ? address : NULL;
}

static inline void aware_open_all(int n, const plait_message_t messages[], bool is_open)
{
    for (int i = 0; i < n && aware.can; i++) {
        check_device_open(aware.device, messages[i].data, messages[i].n_bytes, is_open);
    }
}

plait_status_t __real_plait_mpi_exchange(plait_session_t *session, int n_sends,
                                         const plait_message_t *sends, int n_recvs,
                                         const plait_message_t *recvs);
plait_status_t __wrap_plait_mpi_exchange(plait_session_t *session, int n_sends,
                                         const plait_message_t *sends, int n_recvs,
                                         const plait_message_t *recvs);
plait_status_t __wrap_plait_mpi_exchange(plait_session_t *session, int n_sends,
                                         const plait_message_t *sends, int n_recvs,
                                         const plait_message_t *recvs)
{
    aware_open_all(n_sends, sends, true);
    aware_open_all(n_recvs, recvs, true);
    plait_status_t status =
        __real_plait_mpi_exchange(session, n_sends, sends, n_recvs, recvs);
    if (aware.is_wrong && n_recvs > 0) {
        ((char *)recvs[0].data)[recvs[0].n_bytes - 1] ^= 1;
    }
    aware_open_all(n_sends, sends, false);
    aware_open_all(n_recvs, recvs, false);
    return status;
}

/* Opens or closes a half whose bytes MPI itself is to find. */
static inline void aware_open_half(const plait_half_t *half, bool is_open)
{
    if (aware.can && plait_half_is_given(half) && half->parcel == NULL &&
        half->n_bytes > PLAIT_MATCHED_STAGED_BYTES) {
        check_device_open(aware.device, half->data, half->n_bytes, is_open);
    }
}

plait_status_t __real_plait_mpi_sendrecv(plait_session_t *session,
                                         const plait_half_t *send,
                                         const plait_half_t *recv,
                                         plait_matched_t *matched_p);
plait_status_t __wrap_plait_mpi_sendrecv(plait_session_t *session,
                                         const plait_half_t *send,
                                         const plait_half_t *recv,
                                         plait_matched_t *matched_p);
plait_status_t __wrap_plait_mpi_sendrecv(plait_session_t *session,
                                         const plait_half_t *send,
                                         const plait_half_t *recv,
                                         plait_matched_t *matched_p)
{
    aware_open_half(send, true);
    aware_open_half(recv, true);
    plait_status_t status = __real_plait_mpi_sendrecv(session, send, recv, matched_p);
    aware_open_half(send, false);
    aware_open_half(recv, false);
    return status;
}

static inline plait_status_t aware_find(int ordinal, plait_device_t **device_p)
{
    (void)ordinal;
    *device_p = aware.device;
    return PLAIT_OK;
}

/* Makes the rank forget all answers. */
static inline void aware_begin(plait_device_t *device)
{
    aware.device = device;
    plait_device_set_finder(aware_find);
    make_folder("plait-aware", aware.folder, sizeof(aware.folder));
    (void)setenv("XDG_CACHE_HOME", aware.folder, 1);
}

static inline void aware_end(void)
{
    char command[320];

    (void)snprintf(command, sizeof(command), "rm -r %s", aware.folder);
    CHECK(system(command) == 0, "%s", command);
    plait_device_set_finder(NULL);
}

/* Remembers an answer as a proof does. */
static inline void aware_remember(plait_aware_distance_t distance, const char *answer)
{
    char key[4096], file[PATH_MAX], folder[PATH_MAX];

    CHECK(plait_gpu_aware_key(0, (int)distance, key, sizeof(key), file, sizeof(file)) ==
              PLAIT_OK,
          "key");
    (void)snprintf(folder, sizeof(folder), "%s/plait", aware.folder);
    (void)mkdir(folder, S_IRWXU);
    (void)snprintf(folder, sizeof(folder), "%s/plait/gpu-aware", aware.folder);
    (void)mkdir(folder, S_IRWXU);
    FILE *out = fopen(file, "w");
    CHECK(out != NULL, "%s", file);
    if (out != NULL) {
        (void)fprintf(out, "%s\n%s\nby a test\n", key, answer);
        (void)fclose(out);
    }
}

static inline plait_comm_t *aware_open(uint64_t bits)
{
    plait_comm_t *comm = NULL;

    CHECK(plait_comm_mpi(bits, &comm) == PLAIT_OK, "open");
    comm->end.caps.device = aware.device;
    return comm;
}

/* The way of a new communicator, told by what it copies between host and device, and on the device. */
typedef enum { BY_STAGING, BY_MPI, BY_MPI_ASIDE } aware_way_t;

static inline void aware_expect(plait_comm_t *comm, aware_way_t way, const char *what)
{
    const int size = plait_comm_size(comm);
    double x = 1, sum = 0;

    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 1, &x, &sum) == PLAIT_OK &&
              sum == size,
          "%s: first: %s", what, plait_error_text());
    const check_device_counts_t before = check_device_counts(aware.device);
    case_movement(comm, PLAIT_F64, 500);
    case_movement(comm, PLAIT_S16, 9001);
    const check_device_counts_t after = check_device_counts(aware.device);
    if (size > 1) {
        CHECK((after.up_bytes > before.up_bytes) == (way == BY_STAGING),
              "%s: %lld bytes up", what, (long long)(after.up_bytes - before.up_bytes));
        CHECK((after.across_bytes > before.across_bytes) == (way == BY_MPI_ASIDE),
              "%s: %lld bytes across", what,
              (long long)(after.across_bytes - before.across_bytes));
    }
}

static inline void aware_expect_new(uint64_t bits, aware_way_t way, const char *what)
{

    plait_comm_t *comm = aware_open(bits);

    aware_expect(comm, way, what);
    plait_comm_destroy(&comm);
}

/* All ranks are refused, with the reason of the rank that is not as it should be. */
static inline void aware_expect_refusal(uint64_t bits, const char *why)
{
    plait_comm_t *comm = aware_open(bits);
    double x = 1, y = 0;

    if (plait_comm_size(comm) > 1) {
        CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 1, &x, &y) ==
                      PLAIT_ERR_UNSUPPORTED &&
                  strstr(plait_error_text(), why) != NULL &&
                  strstr(plait_error_text(), "staged: rank ") != NULL,
              "%s: %s", why, plait_error_text());
    }
    plait_comm_destroy(&comm);
}

/* Who is asked, in order: the user, the library, the proof. Nothing is shown to other processes. So none of
 * the earlier ways is taken, and all bytes go by copies on the device. */
static inline void aware_choices(uint64_t bits, int rank)
{
    check_device_refuse(aware.device, CHECK_DEVICE_SHOWS_NONE);
    aware.says = 1;
    aware_expect_new(bits, BY_STAGING, "nothing was proved");
    (void)setenv("PLAIT_GPU_AWARE", "1", 1);
    aware_expect_refusal(bits, "mpi: rank 0: not proved for ranks of ");
    (void)setenv("PLAIT_GPU_AWARE", "yes", 1);
    aware_expect_refusal(bits, "mpi: rank 0: PLAIT_GPU_AWARE is 'yes': expected auto");
    aware_remember(PLAIT_AWARE_NEAR, "yes");
    aware_remember(PLAIT_AWARE_FAR, "yes");
    (void)setenv("PLAIT_GPU_AWARE", "auto", 1);
    aware.can = true;
    aware_expect_new(bits, BY_MPI_ASIDE, "proved");
    (void)setenv("PLAIT_GPU_AWARE", "1", 1);
    aware_expect_new(bits, BY_MPI_ASIDE, "proved, and nothing else");
    aware.says = rank != 0;
    aware_expect_refusal(bits, "mpi: rank 0: MPI says that it does not read GPUs'");
    (void)unsetenv("PLAIT_GPU_AWARE");
    aware.can = false;
    aware_expect_new(bits, BY_STAGING, "the library of one rank says no");
    aware.says = 1;
    (void)setenv("PLAIT_GPU_AWARE", (rank == 0) ? "0" : "auto", 1);
    aware_expect_new(bits, BY_STAGING, "one rank shall not");
    (void)unsetenv("PLAIT_GPU_AWARE");
    check_device_set_driver(aware.device, 2);
    aware_expect_new(bits, BY_STAGING, "another driver");
    check_device_set_driver(aware.device, 0);
    aware_remember(PLAIT_AWARE_NEAR, "no");
    aware_remember(PLAIT_AWARE_FAR, "no");
    aware_expect_new(bits, BY_STAGING, "disproved");
    aware.says = 0;
    aware.can = true;
    (void)setenv("PLAIT_GPU_AWARE", "force", 1);
    aware_expect_new(bits, BY_MPI_ASIDE, "forced");
    (void)unsetenv("PLAIT_GPU_AWARE");
    check_device_refuse(aware.device, CHECK_DEVICE_SHOWS_ALL);
}

/* A user who asks for MPI gets it from device memory where that is possible, even if there is a shorter way. */
static inline void aware_asked_for(uint64_t bits)
{
    for (int may = 0; may < 2; may++) {
        plait_comm_t *comm = aware_open(bits);
        (void)setenv("PLAIT_GPU_AWARE", may ? "force" : "auto", 1);
        comm->end.caps.reach = PLAIT_REACH_MPI;
        aware_expect(comm, may ? BY_MPI : BY_STAGING, "asked for");
        plait_comm_destroy(&comm);
    }
    (void)unsetenv("PLAIT_GPU_AWARE");
}

/* Memory that MPI is to read is not copied, on the device or elsewhere. */
static inline void aware_places(uint64_t bits)
{
    plait_comm_t *comm = aware_open(bits);

    CHECK(plait_device_force_link(&comm->end, &plait_link_mpi) == PLAIT_OK, "force");
    aware_expect(comm, BY_MPI, "in place");
    case_part(comm, host_next_part(), HOST_PARTS);
    case_matched(comm);
    plait_comm_destroy(&comm);
}

/* A matched transfer before any collective: checks the copies between host and device, and on the device. */
static inline void aware_expect_matched(uint64_t bits, aware_way_t way)
{
    enum { N = 40000 };
    plait_comm_t *comm = aware_open(bits);
    const check_device_counts_t before = check_device_counts(aware.device);

    matched_ring(comm, N, 21, true);
    const check_device_counts_t after = check_device_counts(aware.device);
    const int64_t n_staged = (way == BY_STAGING) ? N * 8 : 0;
    const int64_t n_aside = (way == BY_MPI_ASIDE) ? 2 * N * 8 : 0;
    CHECK(plait_comm_size(comm) == 1 ||
              (after.up_bytes - before.up_bytes == n_staged &&
               after.down_bytes - before.down_bytes == n_staged &&
               after.across_bytes - before.across_bytes == n_aside),
          "ring of %d: %lld bytes up, %lld down, %lld across", N,
          (long long)(after.up_bytes - before.up_bytes),
          (long long)(after.down_bytes - before.down_bytes),
          (long long)(after.across_bytes - before.across_bytes));
    CHECK(plait_barrier(comm) == PLAIT_OK, "any source was of this");
    plait_comm_destroy(&comm);
}

/* When MPI carries the messages: in one node without direct access. Ranks may also differ. */
static inline void aware_matched(uint64_t bits, int rank)
{
    plait_comm_t *comm = NULL;

    (void)setenv("PLAIT_DIRECT", "off", 1);
    aware_expect_matched(bits, BY_STAGING);
    (void)setenv("PLAIT_GPU_AWARE", "force", 1);
    aware_expect_matched(bits, BY_MPI);
    check_device_refuse(aware.device, CHECK_DEVICE_SHOWS_NONE);
    aware_expect_matched(bits, BY_MPI_ASIDE);
    comm = aware_open(bits);
    if (plait_comm_size(comm) > 1) {
        matched_failures(comm, false);
    }
    plait_comm_destroy(&comm);
    check_device_refuse(aware.device, CHECK_DEVICE_SHOWS_ALL);
    (void)setenv("PLAIT_GPU_AWARE", (rank == 0) ? "auto" : "force", 1);
    comm = aware_open(bits);
    comm->end.caps.reach = PLAIT_REACH_MPI;
    matched_transfers(comm);
    if (plait_comm_size(comm) > 1) {
        matched_pair(comm, 30000);
        matched_faults(comm);
        CHECK(plait_barrier(comm) == PLAIT_OK, "barrier");
        matched_mixed(comm, 0);
        matched_mixed(comm, plait_comm_size(comm) - 1);
        matched_failures(comm, false);
        matched_failures(comm, true);
    }
    plait_comm_destroy(&comm);
    (void)unsetenv("PLAIT_GPU_AWARE");
    (void)unsetenv("PLAIT_DIRECT");
}

/* Each call to one rank's device fails once. The other ranks learn of it, and later operations are right. */
static inline void aware_failures(uint64_t bits)
{
    enum { N = 3000 };
    plait_comm_t *comm = aware_open(bits);
    const int rank = plait_comm_rank(comm);
    const int size = plait_comm_size(comm);
    int64_t n_calls = 0;
    static double x[8 * N], y[8 * N];

    CHECK(plait_device_force_link(&comm->end, &plait_link_mpi) == PLAIT_OK, "force");
    for (int64_t n = -1; n <= n_calls && size > 1 && size <= 8; n++) {
        const bool is_failing = n > 0;
        const int64_t before = check_device_counts(aware.device).n_calls;
        double calls = 0, n_here = 0;
        if (is_failing && rank == 0) {
            check_device_fail_at(aware.device, n, n % 2 == 0);
        }
        plait_status_t status = plait_alltoall(comm, PLAIT_F64, N, x, y);
        const char *text = plait_error_text();
        CHECK(!is_failing
                  ? status == PLAIT_OK
                  : status == ((rank == 0) ? PLAIT_ERR_INTERNAL : PLAIT_ERR_PEER) &&
                        strstr(text, "check device") != NULL,
              "call %lld, rank %d: %d, %s", (long long)n, rank, (int)status, text);
        check_device_fail_at(aware.device, 0, false);
        calls = (double)(check_device_counts(aware.device).n_calls - before);
        CHECK(plait_bcast(comm, 0, PLAIT_F64, 1, &calls, &n_here) == PLAIT_OK,
              "after it");
        n_calls = (n == 0) ? (int64_t)n_here : n_calls; /* the way is open by then */
    }
    plait_comm_destroy(&comm);
}

/* The proof itself, by a library that reads device memory, and by one that does something else. */
static inline void aware_proof(uint64_t bits)
{
    plait_comm_t *comm = aware_open(bits);
    const int rank = plait_comm_rank(comm);
    const bool is_two = plait_comm_size(comm) == 2;

    plait_comm_destroy(&comm);
    if (!is_two) {
        return;
    }
    CHECK(plait_gpu_aware_prove(0) == PLAIT_OK, "%s", plait_error_text());
    aware.is_wrong = rank == 1;
    CHECK(plait_gpu_aware_prove(0) == ((rank == 1) ? PLAIT_ERR_UNSUPPORTED : PLAIT_OK),
          "%s", plait_error_text());
    CHECK(rank != 1 || strstr(plait_error_text(),
                              "from device memory of rank 0 are wrong") != NULL,
          "%s", plait_error_text());
    aware.is_wrong = false;
    for (int64_t n = 1; n < 40; n++) {
        if (rank == 0) {
            check_device_fail_at(aware.device, n, true);
        }
        plait_status_t status = plait_gpu_aware_prove(0);
        CHECK(status == PLAIT_OK ||
                  strstr(plait_error_text(), (rank == 0) ? "check device" : "wrong") !=
                      NULL,
              "call %lld: %s", (long long)n, plait_error_text());
        check_device_fail_at(aware.device, 0, false);
    }
}

static inline void aware_all(uint64_t bits, int rank, plait_device_t *device)
{
    aware_begin(device);
    aware_choices(bits, rank);
    aware_asked_for(bits);
    aware_places(bits);
    aware_matched(bits, rank);
    aware_failures(bits);
    aware_proof(bits);
    aware.can = false;
    aware_end();
}

#endif
