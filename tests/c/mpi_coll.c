/* The operations of plait/coll.h under mpiexec, on COMM_WORLD with and without direct access
 * and on a communicator with the ranks turned round. tests/c/run_mpi.py runs it on each MPI
 * of the machine. */
#include "coll/coll.h"
#include "coll_cases.h"
#include "comm/comm.h"
#include "device/pool.h"
#include "mpi_world.h"
#include "observed.h"
#include "ops/list.h"
#include "plan/launch.h"

#include <time.h>

static plait_comm_t *open_on(uint64_t bits)
{
    plait_comm_t *comm = NULL;

    CHECK(plait_comm_mpi(bits, &comm) == PLAIT_OK, "open");
    return comm;
}

/* Fences tell all ranks that they disagree. */
static void check_disagreement(plait_comm_t *comm)
{
    bool is_odd = plait_comm_rank(comm) == 1;
    double x[8] = {0};
    double y[64] = {0};

    CHECK(plait_allgather(comm, PLAIT_F64, 2 + is_odd, x, y) == PLAIT_ERR_MISMATCH,
          "n");
    CHECK(plait_scan(comm, PLAIT_SUM, is_odd, PLAIT_F64, 2, x, y) == PLAIT_ERR_MISMATCH,
          "flags");
    CHECK(plait_allgather(comm, PLAIT_F64, 2, x, y) == PLAIT_OK, "and on");
}

/* A plan is valid for communicators whose ranks reach each other as on the communicator that it was made
 * for. */
static plait_status_t gather_as(plait_comm_t *comm, const plait_comm_t *made_for)
{
    const plait_allgather_params_t params = {0};
    const int64_t n = 1000, rows[] = {plait_comm_size(comm), n};
    const int64_t n_all = rows[0] * n;
    const plait_array_t x = {.dtype = PLAIT_S64, .ndim = 1, .dims = &n};
    const plait_array_t y = {.dtype = PLAIT_S64, .ndim = 2, .dims = rows};
    int64_t *in = plait_alloc(n, sizeof(*in)), *out = plait_alloc(n_all, sizeof(*out));
    plait_plan_t *plan = NULL;
    int64_t n_wrong = 0;

    for (int64_t i = 0; i < n; i++) {
        in[i] = plait_comm_rank(comm) * n + i;
    }
    CHECK(plait_op_plan(&plait_op_allgather, &params, &made_for->end, &x, &y, &plan) ==
              PLAIT_OK,
          "plan");
    plait_status_t status = observed_execute(plan, comm, in, out);
    for (int64_t i = 0; i < n_all && status == PLAIT_OK; i++) {
        n_wrong += out[i] != i;
    }
    CHECK(n_wrong == 0, "%lld are wrong", (long long)n_wrong);
    plait_plan_destroy(&plan);
    plait_free(in);
    plait_free(out);
    return status;
}

static void check_foreign_plans(uint64_t world)
{
    enum { MAX_RANKS = 64 };
    plait_comm_t *comm = open_on(world), *other = open_on(world);
    plait_comm_t *threads[MAX_RANKS] = {NULL};
    const int size = plait_comm_size(comm);

    CHECK(plait_comm_threads(size, threads) == PLAIT_OK, "threads");
    check_refused(gather_as(comm, threads[plait_comm_rank(comm)]), PLAIT_ERR_INVALID,
                  "reach each other");
    CHECK(gather_as(comm, other) == PLAIT_OK, "of its own kind");
    for (int r = 0; r < size; r++) {
        plait_comm_destroy(&threads[r]);
    }
    plait_comm_destroy(&comm);
    plait_comm_destroy(&other);
}

/* One rank starts a plan before it tells the others to start; calls in between run as usual. */
static void check_started(uint64_t world)
{
    enum { N = 3000, N_STARTED = 5 };
    plait_comm_t *comm = open_on(world);
    const int rank = plait_comm_rank(comm), size = plait_comm_size(comm);
    const plait_allreduce_params_t params = {.reduce = PLAIT_SUM};
    const int64_t n = N;
    const plait_array_t array = {.dtype = PLAIT_F64, .ndim = 1, .dims = &n};
    double *x = plait_alloc(N, sizeof(*x)), *y = plait_alloc(N_STARTED * N, sizeof(*y));
    double one = 1, sum = 0;
    int64_t ids[N_STARTED], n_wrong = 0;
    plait_plan_t *plan = NULL;

    for (int64_t i = 0; i < N; i++) {
        x[i] = (double)(rank + i);
    }
    CHECK(plait_op_plan(&plait_op_allreduce, &params, &comm->end, &array, &array,
                        &plan) == PLAIT_OK,
          "plan");
    for (int k = 0; k < N_STARTED; k++) {
        if (rank > 0) {
            CHECK(plait_recv(comm, 0, k, PLAIT_F64, 1, &sum, NULL) == PLAIT_OK, "go");
        }
        CHECK(plait_op_start(plan, comm, (const void *[]){x}, (void *[]){y + k * N},
                             &ids[k]) == PLAIT_OK,
              "start");
        for (int r = 1; r < size && rank == 0; r++) {
            CHECK(plait_send(comm, r, k, PLAIT_F64, 1, &one) == PLAIT_OK, "go");
        }
    }
    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 1, &one, &sum) == PLAIT_OK &&
              sum == size,
          "beside them: %g", sum);
    for (int k = N_STARTED - 1; k >= 0; k--) {
        CHECK(plait_started_wait(ids[k]) == PLAIT_OK, "wait");
        for (int64_t i = 0; i < N; i++) {
            n_wrong +=
                y[k * N + i] != size * (size - 1) / 2.0 + (double)size * (double)i;
        }
    }
    CHECK(n_wrong == 0, "%lld are wrong", (long long)n_wrong);
    plait_plan_destroy(&plan);
    plait_comm_destroy(&comm);
    plait_free(x);
    plait_free(y);
}

/* A buffered send whose receiver comes late: close waits for it. */
static void check_late_receiver(uint64_t world)
{
    const struct timespec nap = {.tv_nsec = 50000000};
    plait_comm_t *comm = open_on(world);
    char *data = plait_alloc(PLAIT_SEND_BYTES, 1);
    int64_t n_wrong = 0;

    if (plait_comm_rank(comm) == 0) {
        memset(data, 3, PLAIT_SEND_BYTES);
        CHECK(plait_send(comm, 1, 0, PLAIT_U8, PLAIT_SEND_BYTES, data) == PLAIT_OK,
              "send");
        memset(data, 4, PLAIT_SEND_BYTES);
    } else if (plait_comm_rank(comm) == 1) {
        (void)nanosleep(&nap, NULL);
        CHECK(plait_recv(comm, 0, 0, PLAIT_U8, PLAIT_SEND_BYTES, data, NULL) ==
                  PLAIT_OK,
              "recv");
        for (int64_t i = 0; i < PLAIT_SEND_BYTES; i++) {
            n_wrong += data[i] != 3;
        }
        CHECK(n_wrong == 0, "%lld bytes are wrong", (long long)n_wrong);
    }
    plait_comm_destroy(&comm);
    plait_free(data);
}

/* A buffered send without a receiver does not keep close from returning. */
static void check_lost(uint64_t world)
{
    const char *level = getenv("PLAIT_LOG");
    plait_comm_t *comm = open_on(world);
    double x[1000] = {0};

    (void)setenv("PLAIT_LOG", "error", 1);
    if (plait_comm_rank(comm) == 0) {
        CHECK(plait_send(comm, 1, 0, PLAIT_F64, 1000, x) == PLAIT_OK, "send");
    }
    plait_comm_destroy(&comm);
    if (level != NULL) {
        (void)setenv("PLAIT_LOG", level, 1);
    } else {
        (void)unsetenv("PLAIT_LOG");
    }
}

/* MPI_Finalize meets a buffered send under way, on a communicator that is still open. */
static void send_and_finalize(uint64_t world)
{
    const struct timespec nap = {.tv_nsec = 200000000};
    plait_comm_t *comm = open_on(world);
    int64_t x[4000] = {0};

    for (int64_t i = 0; i < 4000 && plait_comm_rank(comm) == 0; i++) {
        x[i] = i;
    }
    if (plait_comm_rank(comm) == 0 && plait_comm_size(comm) > 1) {
        CHECK(plait_send(comm, 1, 0, PLAIT_S64, 4000, x) == PLAIT_OK, "send");
    } else if (plait_comm_rank(comm) == 1) {
        (void)nanosleep(&nap, NULL);
        CHECK(plait_recv(comm, 0, 0, PLAIT_S64, 4000, x, NULL) == PLAIT_OK &&
                  x[3999] == 3999,
              "recv");
    }
    (void)host.finalize();
    CHECK(plait_barrier(comm) == PLAIT_ERR_COMM, "after MPI_Finalize");
    plait_comm_destroy(&comm);
}

static bool reads_peers(uint64_t bits)
{
    plait_comm_t *comm = open_on(bits);
    bool is_read = comm->end.caps.direct == PLAIT_DIRECT_READ;

    plait_comm_destroy(&comm);
    return is_read;
}

static void check_all(uint64_t bits)
{
    plait_comm_t *comm = open_on(bits);

    if (plait_comm_rank(comm) == 0) {
        printf("%d ranks, %s: direct access %s\n", plait_comm_size(comm),
               plait_comm_transport(comm), plait_comm_direct(comm));
    }
    case_all(comm);
    case_matched(comm);
    if (plait_comm_size(comm) > 1 && comm->end.caps.publish_bytes >= 0) {
        check_disagreement(comm);
    }
    plait_comm_destroy(&comm);
}

int main(int argc, char **argv)
{
    const uint64_t world = mpi_world(argc, argv);
    uint64_t turned = 0;

    plait_comm_t *comm = open_on(world);
    int size = plait_comm_size(comm);
    int rank = plait_comm_rank(comm);
    plait_comm_destroy(&comm);
    check_all(world);
    if (reads_peers(world)) {
        (void)setenv("PLAIT_DIRECT", "off", 1);
        check_all(world);
        (void)unsetenv("PLAIT_DIRECT");
    }
    (void)host.comm_split(world, 0, -rank, &turned);
    check_all(turned);
    if (size > 1) {
        check_late_receiver(world);
        check_lost(world);
        check_foreign_plans(world);
        check_started(world);
    }
    (void)host.comm_free(&turned);
    send_and_finalize(world);
    (void)plait_pool_trim();
    return mpi_report("mpi_coll");
}
