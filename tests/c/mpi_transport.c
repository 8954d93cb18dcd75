/* The transports `mpi` and `node` under mpiexec: every function of transport.h against
 * what it should give, on COMM_WORLD with and without direct access. tests/c/run_mpi.py
 * runs it on each MPI of the machine. */
#include "base/clock.h"
#include "base/wait.h"
#include "check.h"
#include "mpi_host.h"
#include "mpi_latency.h"
#include "mpi_maps.h"
#include "mpi_matched.h"
#include "mpi_world.h"
#include "transport/mpi.h"
#include "transport/mpi_link.h"
#include "transport/node_copy.h"

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* PLAIT_TEST_LEVEL 1 (FUNNELED) or 2 (SERIALIZED) asks MPI for less than MULTIPLE. */
static bool test_bind(void)
{
    const char *level = getenv("PLAIT_TEST_LEVEL");
    int wanted = (level != NULL) ? atoi(level) : 3;

    CHECK(plait_mpi_bind("/no/such/file") == PLAIT_ERR_UNSUPPORTED,
          "file that is not there");
    CHECK(strstr(plait_error_text(), "/no/such/file") != NULL, "text");
    CHECK(plait_mpi_bind(NULL) == PLAIT_ERR_UNSUPPORTED, "before MPI_Init");
    CHECK(strstr(plait_error_text(), "not initialised") != NULL, "text");
    host_init();
    if (wanted == 1) {
        CHECK(plait_mpi_bind(NULL) == PLAIT_ERR_UNSUPPORTED, "FUNNELED");
        CHECK(strstr(plait_error_text(), "mpi4py.rc.thread_level") != NULL, "text");
        return false;
    }
    CHECK(plait_mpi_bind(NULL) == PLAIT_OK, "by the mapped libraries");
    CHECK(plait_mpi_bind(NULL) == PLAIT_OK, "again");
    CHECK(plait_mpi_bind(plait_mpi_library_path()) == PLAIT_OK, "by path");
    CHECK(strlen(plait_mpi_library_version()) > 0, "version");
    CHECK(strcmp(plait_mpi_thread_level(), wanted == 2 ? "SERIALIZED" : "MULTIPLE") ==
              0,
          "level %s", plait_mpi_thread_level());
    return true;
}

static plait_endpoint_t open_on(uint64_t comm, const char **why_p)
{
    plait_endpoint_t end = {0};
    int64_t id = 0;

    CHECK(plait_mpi_open(comm, -1, -1, &id, &end, why_p) == PLAIT_OK, "open");
    return end;
}

static void test_open(uint64_t world)
{
    plait_endpoint_t end = {0};
    const char *why = NULL;
    int64_t id = 0;
    const bool has_input = fcntl(STDIN_FILENO, F_GETFD) >= 0;

    end = open_on(world, &why);
    id = 100 + end.rank;
    int size = end.size;
    int rank = end.rank;
    CHECK(!*end.freed_p, "nobody has freed it");
    end.transport->close(&end);
    CHECK(plait_mpi_open(world, size + 1, rank, &id, &end, &why) == PLAIT_ERR_COMM,
          "another size");
    CHECK(plait_mpi_open(0, size, rank, &id, &end, &why) == PLAIT_ERR_COMM, "null");
    CHECK(plait_mpi_open(world, size, rank, &id, &end, &why) == PLAIT_OK, "open");
    CHECK(id == 100 + size - 1, "id %lld is the maximum", (long long)id);
    end.transport->close(&end);
    end.transport = NULL;
    CHECK(has_input == (fcntl(STDIN_FILENO, F_GETFD) >= 0),
          "a descriptor of another's was closed");
}

static void test_freed(uint64_t world)
{
    plait_endpoint_t end[2];
    const char *why = NULL;
    uint64_t user = 0;
    uint64_t next = 0;

    (void)host.comm_dup(world, &user);
    end[0] = open_on(user, &why);
    end[1] = open_on(user, &why);
    CHECK(!*end[0].freed_p && !*end[1].freed_p, "two endpoints on one communicator");
    (void)host.comm_free(&user);
    CHECK(*end[0].freed_p && *end[1].freed_p, "both are told that it was freed");
    test_barrier(&end[0]); /* plait's duplicates live on */
    (void)host.comm_dup(world, &next);
    end[0].transport->close(&end[0]);
    end[0] = open_on(next, &why);
    CHECK(!*end[0].freed_p && *end[1].freed_p, "the handle's next owner");
    end[1].transport->close(&end[1]);
    CHECK(!*end[0].freed_p,
          "closing the old endpoint leaves the next communicator alone");
    end[0].transport->close(&end[0]);
    (void)host.comm_free(&next); /* nobody is told after close */
}

static void test_single(void)
{
    const char *why = NULL;
    plait_endpoint_t end = open_on(host.self, &why);

    CHECK(end.size == 1 && end.rank == 0, "size");
    test_fence(&end);
    test_collectives(&end);
    test_matched(&end);
    end.transport->close(&end);
}

/* Halves of the ranks: the partner of a communicator's rank 0 need not be the world's rank 0. */
static void test_split(uint64_t world, int rank)
{
    const char *why = NULL;
    uint64_t half = 0;

    (void)host.comm_split(world, rank % 2, -rank, &half);
    plait_endpoint_t end = open_on(half, &why);
    test_fence(&end);
    test_collectives(&end);
    test_matched(&end);
    end.transport->close(&end);
    (void)host.comm_free(&half);
}

static plait_status_t end_wait(const plait_wait_t *wait)
{
    (void)wait;
    return PLAIT_ERR_TIMEOUT;
}

/* A receive without a sender ends with the hook's status, and the endpoint goes on. */
static void test_give_up(plait_endpoint_t *end)
{
    plait_session_t session = {.end = end};
    int32_t place = 7;
    plait_half_t recv = {PLAIT_ANY, PLAIT_ANY, &place, sizeof(place),
                         PLAIT_S32, 0,         NULL};
    plait_matched_t matched;

    plait_wait_set_hook(end_wait);
    CHECK(end->transport->begin(&session, false) == PLAIT_OK, "begin");
    CHECK(end->transport->sendrecv(&session, NULL, &recv, &matched) ==
              PLAIT_ERR_TIMEOUT,
          "recv from nobody");
    end->transport->end(&session);
    plait_wait_set_hook(NULL);
    CHECK(place == 7, "untouched");
    test_barrier(end);
    test_matched(end);
}

/* If fences publish, a rank that gives up ends the fence of all ranks: of ranks that wait already, and of a
 * rank that comes later. On other nodes the next fence may end instead. */
static void test_deserter(uint64_t world, int who, int late)
{
    const char *why = NULL;
    plait_endpoint_t end = open_on(world, &why);
    plait_session_t session = {.end = &end};
    plait_record_t mine = {0};
    char word[2] = {0, 0};

    if (end.caps.publish_bytes >= 0 && who != late) {
        CHECK(end.transport->begin(&session, true) == PLAIT_OK, "begin");
        plait_wait_set_hook((end.rank == who) ? end_wait : NULL);
        if (end.rank == late) {
            (void)host.sendrecv(word, 0, host.f64, who, 8, word, 0, host.f64, who, 8,
                                world, host.status_ignore);
        }
        plait_status_t status = end.transport->fence(&session, &mine, NULL, 0);
        if (status == PLAIT_OK && end.caps.is_far && end.rank != who) {
            status = end.transport->fence(&session, &mine, NULL, 0);
        }
        CHECK(status == PLAIT_ERR_TIMEOUT, "rank %d has given up, rank %d has not come",
              who, late);
        CHECK(end.rank == who || strstr(plait_error_text(), "has given up") != NULL,
              "text: %s", plait_error_text());
        plait_wait_set_hook(NULL);
        if (end.rank == who) {
            (void)host.sendrecv(word, 0, host.f64, late, 8, word, 0, host.f64, late, 8,
                                world, host.status_ignore);
        }
        end.transport->end(&session);
        CHECK(end.transport->begin(&session, true) == PLAIT_ERR_COMM, "then");
    }
    (void)host.barrier(world);
    end.transport->close(&end);
}

static int64_t patient_until_ns;

static plait_status_t impatient(const plait_wait_t *wait)
{
    return (plait_clock_ns() < patient_until_ns)
               ? PLAIT_OK
               : plait_fail(PLAIT_ERR_TIMEOUT, "%s: nobody comes", wait->what);
}

/* A message goes by MPI from one node to the next, and from there back to the first rank of the first node,
 * which is then late for a fence of its node. The first sender sleeps in that fence, but its message still
 * leaves. */
static void test_sleeper(uint64_t world)
{
    const char *nodes = getenv("PLAIT_TEST_NODES"), *why = NULL;
    plait_endpoint_t end = open_on(world, &why);
    plait_session_t session = {.end = &end};
    const int n_nodes = (nodes != NULL) ? atoi(nodes) : end.size;
    const int chain[] = {n_nodes, 1, 0};
    uint64_t here = 0;
    char word = (char)(end.rank == n_nodes);

    (void)host.comm_split(world, end.rank % n_nodes, end.rank, &here);
    plait_endpoint_t near = open_on(here, &why);
    patient_until_ns = plait_clock_ns() + INT64_C(10000000000);
    plait_wait_set_hook(impatient);
    CHECK(end.transport->begin(&session, false) == PLAIT_OK, "begin");
    for (int i = 0; i < 2 && n_nodes < end.size; i++) {
        const plait_half_t send = {chain[i + 1], 5, &word, 1, PLAIT_U8, 0, NULL};
        const plait_half_t recv = {chain[i], 5, &word, 1, PLAIT_U8, 0, NULL};
        if (end.rank == chain[i]) {
            CHECK(end.transport->send(&session, &send) == PLAIT_OK, "send");
        } else if (end.rank == chain[i + 1]) {
            CHECK(end.transport->sendrecv(&session, NULL, &recv, NULL) == PLAIT_OK &&
                      word == 1,
                  "recv: %s", plait_error_text());
        }
    }
    end.transport->end(&session);
    session.end = &near;
    CHECK(near.transport->begin(&session, true) == PLAIT_OK &&
              near.transport->fence(&session, &(plait_record_t){0}, NULL, 0) ==
                  PLAIT_OK,
          "fence: %s", plait_error_text());
    near.transport->end(&session);
    plait_wait_set_hook(NULL);
    near.transport->close(&near);
    end.transport->close(&end);
    (void)host.comm_free(&here);
}

static void say_to(uint64_t world, int peer)
{
    char word[2] = {0, 0};

    (void)host.sendrecv(word, 0, host.f64, peer, 8, word, 0, host.f64, peer, 8, world,
                        host.status_ignore);
}

/* The last rank is in the middle of a write to rank 0, which gives up a fence. Rank 0 has the bytes once it has
 * given up; nothing is written later. */
static void test_late_write(uint64_t world)
{
    static const struct timespec moment = {.tv_nsec = 50000000};
    const char *why = NULL;
    plait_endpoint_t end = open_on(world, &why);
    plait_session_t session = {.end = &end};
    const int last = end.size - 1;
    uint64_t word = 1;
    plait_record_t mine = {.n_slots = 1, .slot = {(uint64_t)(uintptr_t)&word}};
    uint64_t value = 2;
    const struct iovec local = {&value, sizeof(value)};

    if (!end.caps.can_write || last == 0) {
        goto done;
    }
    plait_mpi_link_t *link = end.state;
    plait_node_rank_t *writer = plait_node_rank(&link->segment, last);
    CHECK(end.transport->begin(&session, true) == PLAIT_OK, "begin");
    CHECK(end.transport->fence(&session, &mine, NULL, 0) == PLAIT_OK, "fence");
    /* who is slow to leave it would learn there of the next one */
    (void)host.barrier(world);
    const struct iovec remote = {
        (void *)(uintptr_t)plait_peer_record(&session, 0)->slot[0], sizeof(value)};
    if (end.rank == last) {
        atomic_store(&writer->n_writing, 1);
        say_to(world, 0);
        (void)nanosleep(&moment, NULL);
        CHECK(plait_node_write(last, 0, link->cards[0].process.pid, &local, 1, &remote,
                               1) == PLAIT_OK,
              "a write that has begun");
        atomic_store(&writer->n_writing, 0);
        say_to(world, 0);
        value = 3;
        CHECK(end.transport->write(&session, 0, &local, 1, &remote, 1) ==
                      PLAIT_ERR_TIMEOUT &&
                  strstr(plait_error_text(), "has given up") != NULL,
              "a later write: %s", plait_error_text());
        CHECK(atomic_load(&writer->n_writing) == 0, "it is over");
    } else if (end.rank == 0) {
        say_to(world, last);
        plait_wait_set_hook(end_wait);
        CHECK(end.transport->fence(&session, &mine, NULL, 0) == PLAIT_ERR_TIMEOUT,
              "fence alone");
        plait_wait_set_hook(NULL);
        CHECK(word == 2, "rank 0 has left in the middle of a write");
        say_to(world, last);
    }
    end.transport->end(&session);
done:
    (void)host.barrier(world);
    CHECK(word == ((end.rank == 0 && last > 0 && end.caps.can_write) ? 2 : 1),
          "rank %d: %d", end.rank, (int)word);
    end.transport->close(&end);
}

/* If one of two ranks leaves a fence, the endpoint ends there. */
static void test_broken(uint64_t world)
{
    const char *why = NULL;
    plait_endpoint_t end = open_on(world, &why);
    plait_session_t session = {.end = &end};
    plait_record_t mine = {0};

    if (end.size == 2 && end.rank == 0) {
        CHECK(end.transport->begin(&session, true) == PLAIT_OK, "begin");
        plait_wait_set_hook(end_wait);
        CHECK(end.transport->fence(&session, &mine, NULL, 0) == PLAIT_ERR_TIMEOUT,
              "fence alone");
        plait_wait_set_hook(NULL);
        end.transport->end(&session);
        CHECK(end.transport->begin(&session, true) == PLAIT_ERR_COMM, "then");
    }
    (void)host.barrier(world); /* its record has arrived, and nobody will receive it */
    end.transport->close(&end);
}

static void test_fork(plait_endpoint_t *end)
{
    plait_session_t session = {.end = end};
    int code = -1;
    pid_t child = fork();

    if (child == 0) {
        _exit(end->transport->begin(&session, true) == PLAIT_ERR_COMM ? 0 : 1);
    }
    (void)waitpid(child, &code, 0);
    CHECK(code == 0, "a forked child is refused");
    test_barrier(end);
}

/* With PLAIT_DIRECT=read. */
static void test_read_only(uint64_t world)
{
    const char *why = NULL;
    plait_endpoint_t end = open_on(world, &why);

    CHECK(end.caps.direct == PLAIT_DIRECT_READ && !end.caps.can_write, "%s", why);
    end.transport->close(&end);
}

/* True if peers' memory can be read. */
static bool test_all(uint64_t world)
{
    const char *why = NULL;
    plait_endpoint_t end = open_on(world, &why);

    if (end.rank == 0) {
        printf("%s %s, %d ranks, %s: direct access %s\n", plait_mpi_abi(),
               plait_mpi_library_version(), end.size, end.transport->name, why);
    }
    if (getenv("PLAIT_TEST_NODES") != NULL && getenv("PLAIT_SHARED") == NULL) {
        bool is_mixed = end.size > atoi(getenv("PLAIT_TEST_NODES"));
        CHECK(strcmp(end.transport->name, is_mixed ? "cluster" : "mpi") == 0 &&
                  strstr(why, "several nodes") != NULL,
              "%s: %s", end.transport->name, why);
    }
    if (getenv("PLAIT_TEST_LATENCY") != NULL) {
        test_latency(&end, world);
        end.transport->close(&end);
        return true;
    }
    test_fence(&end);
    test_publish(&end);
    test_data(&end);
    test_collectives(&end);
    test_matched(&end);
    test_threads(&end);
    test_give_up(&end);
    test_fork(&end);
    test_maps(&end);
    if (getenv("PLAIT_TEST_LARGE") != NULL) {
        test_large(&end);
    }
    bool is_read = end.caps.direct == PLAIT_DIRECT_READ;
    end.transport->close(&end);
    CHECK(count_maps() == 0, "%d mappings are left", count_maps());
    return is_read;
}

int main(int argc, char **argv)
{
    const char *why = NULL;
    uint64_t world = 0;
    plait_session_t session = {0};

    CHECK(plait_mpi_bind(NULL) == PLAIT_ERR_UNSUPPORTED, "no MPI is loaded");
    host_load(argc, argv);
    if (!test_bind()) {
        (void)host.finalize();
        return mpi_report("mpi_transport");
    }
    CHECK(plait_mpi_world(&world) == PLAIT_OK, "world");
    test_sleeper(world); /* while ranks have no connection yet */
    test_open(world);
    test_freed(world);
    if (test_all(world)) {
        (void)setenv("PLAIT_DIRECT", "off", 1);
        (void)test_all(world);
        (void)setenv("PLAIT_DIRECT", "read", 1);
        test_read_only(world);
        (void)unsetenv("PLAIT_DIRECT");
    }
    (void)setenv("PLAIT_SHARED", "off", 1);
    (void)test_all(world);
    (void)unsetenv("PLAIT_SHARED");
    test_single();
    test_broken(world);
    test_late_write(world);
    plait_endpoint_t last = open_on(world, &why);
    for (int who = 0; who < last.size; who++) {
        test_deserter(world, who, last.size - 1);
        test_deserter(world, who, 0);
    }
    test_split(world, last.rank);
    (void)host.finalize();
    session.end = &last;
    CHECK(last.transport->begin(&session, true) == PLAIT_ERR_COMM,
          "after MPI_Finalize");
    last.transport->close(&last);
    CHECK(plait_mpi_open(world, -1, -1, &(int64_t){0}, &last, &why) == PLAIT_ERR_COMM,
          "open after MPI_Finalize");
    return mpi_report("mpi_transport");
}
