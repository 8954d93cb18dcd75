/* Waits that end by themselves, which the guard must leave alone: ranks use several communicators, wait for
 * room that messages to other ranks hold, or have messages under way. Three ranks on one node;
 * tests/c/run_mpi.py runs it, with the guard. */
#include "base/status.h"
#include "comm/comm.h"
#include "device/pool.h"
#include "guard/guard.h"
#include "mpi_world.h"
#include "observed.h"
#include "plait/coll.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

/* The guard takes half a second to report a deadlock. */
enum { LATE_MS = 650, SOON_MS = 250 };

static plait_comm_t *open_on(uint64_t bits)
{
    plait_comm_t *comm = NULL;

    CHECK(plait_comm_mpi(bits, &comm) == PLAIT_OK, "open");
    return comm;
}

static plait_comm_t *open_by_messages(uint64_t bits)
{
    (void)setenv("PLAIT_SHARED", "off", 1);
    plait_comm_t *comm = open_on(bits);
    (void)unsetenv("PLAIT_SHARED");
    return comm;
}

static plait_status_t sum(plait_comm_t *comm, int64_t n)
{
    double x[8] = {1}, y[8];

    return plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, n, x, y);
}

/* Rank 0 waits for rank 1 in the first operation of one communicator. Rank 1 waits for rank 2 in the first
 * operation of another communicator, which is a different operation. */
static void check_other_number(uint64_t world, int rank)
{
    uint64_t low_bits = 0, high_bits = 0;

    (void)host.comm_split(world, rank < 2, rank, &low_bits);
    (void)host.comm_split(world, rank > 0, rank, &high_bits);
    plait_comm_t *low = open_on(low_bits), *high = open_on(high_bits);
    if (rank == 2) {
        nap(LATE_MS);
    }
    CHECK(sum(high, 8) == PLAIT_OK, "rank %d, ranks 1 and 2", rank);
    CHECK(sum(low, 4) == PLAIT_OK, "rank %d, ranks 0 and 1", rank);
    plait_comm_destroy(&low);
    plait_comm_destroy(&high);
    (void)host.comm_free(&low_bits);
    (void)host.comm_free(&high_bits);
}

static plait_status_t fail_to_read(const void *params, plait_exec_t *exec)
{
    (void)params;
    (void)exec;
    return plait_fail(PLAIT_ERR_TRANSPORT, "memory of another rank cannot be read");
}

/* An operation in which MPI or the system fails. */
static plait_status_t read_in_vain(plait_comm_t *comm)
{
    static const plait_kernel_t kernel = {
        .name = "a read", .run = fail_to_read, .touch = observed_touch_none};
    const int params = 0;

    return observed_kernel(comm, true, &kernel, &params, sizeof(params));
}

/* If all ranks are there, the failure is reported as it is. */
static void check_read(uint64_t world, int rank)
{
    plait_comm_t *comm = open_on(world);

    check_refused(read_in_vain(comm), PLAIT_ERR_TRANSPORT, "memory of another rank");
    CHECK(!plait_guard_late(), "rank %d: ended by the clock", rank);
    plait_comm_destroy(&comm);
}

/* Ranks that have given up one communicator are waited for on another communicator. */
static void check_given_up(uint64_t world, int rank)
{
    plait_comm_t *comm = open_on(world), *other = open_on(world);
    double y = 0;

    if (rank < 2) {
        check_refused(plait_recv(comm, 1 - rank, 0, PLAIT_F64, 1, &y, NULL),
                      PLAIT_ERR_MISMATCH, "wait for each other");
    }
    if (rank == 1) {
        nap(SOON_MS);
    }
    CHECK(sum(other, 4) == PLAIT_OK, "rank %d", rank);
    plait_comm_destroy(&comm);
    plait_comm_destroy(&other);
}

/* n buffered sends from rank 0, or the matching receives on another rank. */
static void transfer(plait_comm_t *comm, int peer, int64_t n)
{
    unsigned char *data = plait_alloc(PLAIT_SEND_BYTES, 1);
    plait_status_t status = PLAIT_OK;

    for (int64_t i = 0; i < n && status == PLAIT_OK; i++) {
        status =
            (plait_comm_rank(comm) == 0)
                ? plait_send(comm, peer, 0, PLAIT_U8, PLAIT_SEND_BYTES, data)
                : plait_recv(comm, peer, 0, PLAIT_U8, PLAIT_SEND_BYTES, data, NULL);
    }
    CHECK(status == PLAIT_OK, "%s, rank %d with rank %d, %lld messages",
          plait_comm_transport(comm), plait_comm_rank(comm), peer, (long long)n);
    plait_free(data);
}

/* Rank 2 waits for rank 0, and rank 0 waits for rank 1, which comes late: for room, or to meet it. */
static void meet_late(plait_comm_t *comm, int rank, int64_t n)
{
    if (rank == 0) {
        transfer(comm, 1, n);
        transfer(comm, 2, 1);
    } else if (rank == 1) {
        nap(LATE_MS);
        transfer(comm, 0, n);
    } else {
        transfer(comm, 0, 1);
    }
    CHECK(plait_barrier(comm) == PLAIT_OK, "%s, rank %d after %lld messages",
          plait_comm_transport(comm), rank, (long long)n);
}

static double thread_ms(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

/* Messages to rank 1 take all the room for buffered messages before rank 0 sends to rank 2. Rank 0 sleeps
 * meanwhile, even if rank 2 has received another message before. */
static void check_late_room(uint64_t world, int rank)
{
    plait_comm_t *comm = open_on(world);

    if (rank != 1) {
        transfer(comm, 2 - rank, 1);
    }
    CHECK(plait_barrier(comm) == PLAIT_OK, "rank %d", rank);
    const double begun_ms = thread_ms();
    meet_late(comm, rank, PLAIT_BUFFERED_BYTES / PLAIT_SEND_BYTES);
    CHECK(thread_ms() - begun_ms < LATE_MS / 2.0, "rank %d has computed for %g ms",
          rank, thread_ms() - begun_ms);
    plait_comm_destroy(&comm);
}

/* Messages through MPI have room, but have not left when rank 0 is in the barrier; nor has the message to rank
 * 2, which is behind them. */
static void check_under_way(uint64_t world, int rank)
{
    plait_comm_t *comm = open_by_messages(world);

    meet_late(comm, rank, 100);
    plait_comm_destroy(&comm);
}

/* ---- threads that send at once */

enum { N_SENDERS = 24, LONG_BYTES = 2 * PLAIT_SEND_BYTES };

typedef struct {
    plait_comm_t *comm;
    int tag;
} sender_t;

static void *send_long(void *argument)
{
    const sender_t *sender = argument;
    unsigned char *x = plait_alloc(LONG_BYTES, 1);

    memset(x, sender->tag, LONG_BYTES);
    CHECK(plait_send(sender->comm, 1, sender->tag, PLAIT_U8, LONG_BYTES, x) == PLAIT_OK,
          "send %d", sender->tag);
    plait_free(x);
    return NULL;
}

static void send_all(plait_comm_t *comm)
{
    pthread_t threads[N_SENDERS];
    sender_t senders[N_SENDERS];

    for (int i = 0; i < N_SENDERS; i++) {
        senders[i] = (sender_t){comm, i};
        if (pthread_create(&threads[i], NULL, send_long, &senders[i]) != 0) {
            abort();
        }
    }
    for (int i = 0; i < N_SENDERS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
}

/* Each message waits in the sender's memory until it is received; the last is received first. */
static void check_many_senders(uint64_t world, int rank)
{
    plait_comm_t *comm = open_on(world);
    unsigned char *y = plait_alloc(LONG_BYTES, 1);
    plait_status_t status = PLAIT_OK;

    if (rank == 0) {
        send_all(comm);
    }
    for (int i = N_SENDERS - 1; i >= 0 && rank == 1 && status == PLAIT_OK; i--) {
        status = plait_recv(comm, 0, i, PLAIT_U8, LONG_BYTES, y, NULL);
        CHECK(status == PLAIT_OK && y[0] == i && y[LONG_BYTES - 1] == i, "receive %d",
              i);
    }
    plait_free(y);
    plait_comm_destroy(&comm);
}

/* A call that this rank cannot plan: there is no such root. */
static plait_status_t call_wrongly(plait_comm_t *comm)
{
    double x[4] = {1}, y[4];

    return plait_bcast(comm, plait_comm_size(comm), PLAIT_F64, 4, x, y);
}

/* Rank 1's refused call is no mismatch: the others wait for rank 2, as rank 1 does. */
static void check_refused_call(uint64_t world, int rank)
{
    plait_comm_t *comm = open_by_messages(world);

    if (rank == 2) {
        nap(LATE_MS);
    }
    if (rank == 1) {
        check_refused(call_wrongly(comm), PLAIT_ERR_INVALID, "root");
    } else {
        check_refused(sum(comm, 8), PLAIT_ERR_PEER, "rank 1 failed");
    }
    CHECK(sum(comm, 8) == PLAIT_OK, "rank %d afterwards", rank);
    plait_comm_destroy(&comm);
}

/* After a failure on one rank, the ranks are not at the same place. */
static bool is_well(uint64_t world)
{
    double mine = n_failed, all = 0;

    (void)host.allreduce(&mine, &all, 1, host.f64, host.sum, world);
    return all == 0;
}

/* Ranks that once refused a collective, and told the others, still see a rank leave; later they refuse in
 * vain. */
static void check_left_by_refusers(plait_comm_t *comm, plait_comm_t *other)
{
    check_refused(sum(comm, 8), PLAIT_ERR_PEER, "rank 0: process");
    check_refused(call_wrongly(other), PLAIT_ERR_INVALID, "root");
    check_refused(sum(other, 8), PLAIT_ERR_COMM, "was given up: ");
    CHECK(!plait_guard_late(), "ended by the clock");
}

/* A rank has called MPI_Finalize, which may wait there for the ranks that wait for this rank. */
static void check_left(uint64_t world, int rank)
{
    plait_comm_t *comm = open_on(world), *closed = open_on(world);
    plait_comm_t *other = open_on(world), *messages = open_by_messages(world);
    plait_comm_t *read = open_on(world);
    const plait_status_t status =
        (rank == 0) ? sum(messages, 4) : call_wrongly(messages);

    CHECK(status == ((rank == 0) ? PLAIT_ERR_PEER : PLAIT_ERR_INVALID), "rank %d: %s",
          rank, plait_status_name(status));
    CHECK(sum(comm, 8) == PLAIT_OK && sum(closed, 8) == PLAIT_OK &&
              sum(other, 8) == PLAIT_OK && sum(messages, 8) == PLAIT_OK &&
              sum(read, 8) == PLAIT_OK,
          "rank %d", rank);
    if (rank == 0) {
        plait_comm_destroy(&closed);
        (void)host.finalize();
    } else {
        check_refused(sum(comm, 8), PLAIT_ERR_PEER, "rank 0: process");
        check_refused(sum(closed, 8), PLAIT_ERR_PEER, "rank 0: process");
        check_refused(read_in_vain(read), PLAIT_ERR_PEER, "rank 0: process");
        check_left_by_refusers(messages, other);
    }
    plait_comm_destroy(&comm);
    plait_comm_destroy(&closed);
    plait_comm_destroy(&other);
    plait_comm_destroy(&messages);
    plait_comm_destroy(&read);
    if (rank != 0) {
        (void)host.finalize();
    }
}

int main(int argc, char **argv)
{
    static void (*const checks[])(uint64_t, int) = {
        check_other_number, check_read,      check_given_up,    check_late_room,
        check_many_senders, check_under_way, check_refused_call};

    (void)setenv("PLAIT_TIMEOUT", "10", 0); /* what nobody ends is to fail soon, */
    (void)alarm(60);                        /* and what others compute beside, too */
    const uint64_t world = mpi_world(argc, argv);
    plait_comm_t *comm = open_on(world);
    const int rank = plait_comm_rank(comm);

    CHECK(plait_comm_size(comm) == 3, "%d ranks", plait_comm_size(comm));
    plait_comm_destroy(&comm);
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]) && is_well(world); i++) {
        checks[i](world, rank);
    }
    check_left(world, rank);
    (void)plait_pool_trim();
    return mpi_report("mpi_guard");
}
