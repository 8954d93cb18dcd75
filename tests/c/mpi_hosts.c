/* The transport `hosts` under mpiexec: ranks are threads of several processes, in equal and in
 * unequal numbers and in every order. Its functions against what they should give, all
 * collectives of plait/coll.h, ranks that disagree or give up. tests/c/run_mpi.py runs it on each
 * MPI of the machine. */
#include "base/wait.h"
#include "coll_cases.h"
#include "comm/comm.h"
#include "device/pool.h"
#include "mpi_collective.h"
#include "mpi_world.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

enum { MAX_RANKS = 128, MAX_HERE = 72 };

static uint64_t world;
static int n_processes, here;

/* A communicator as given: the places of its ranks. */
typedef struct {
    const char *name;
    int n_ranks;
    plait_place_t places[MAX_RANKS];
} given_t;

/* One rank, on its own thread. */
typedef struct rank {
    plait_comm_t *comm;
    void (*fn)(struct rank *rank);
    int process, late_process; /* of test_deserter: of who gives up, who comes late */
    int who, late;
    _Atomic bool *has_given_up;
} rank_t;

static void add(given_t *given, int process)
{
    given->places[given->n_ranks++] = (plait_place_t){process, given->n_ranks % 7};
}

/* Every process has two ranks. */
static given_t even(void)
{
    given_t given = {.name = "even"};

    for (int r = 0; r < 2 * n_processes; r++) {
        add(&given, r / 2);
    }
    return given;
}

/* Processes have three ranks, two, three, ..., dealt out in turns, the last process first. */
static given_t uneven(void)
{
    given_t given = {.name = "uneven"};

    for (int k = 0; k < 3; k++) {
        for (int p = n_processes - 1; p >= 0; p--) {
            if (k < 3 - p % 2) {
                add(&given, p);
            }
        }
    }
    return given;
}

/* The first process has four ranks, the others one each, in between. */
static given_t lopsided(void)
{
    given_t given = {.name = "lopsided"};

    add(&given, 0);
    for (int p = 1; p < n_processes; p++) {
        add(&given, p);
    }
    for (int k = 0; k < 3; k++) {
        add(&given, 0);
    }
    return given;
}

/* The last process has twelve ranks, the others one each. */
static given_t crowded(void)
{
    given_t given = {.name = "crowded"};

    for (int p = 0; p < n_processes; p++) {
        for (int k = 0; k < ((p == n_processes - 1) ? 12 : 1); k++) {
            add(&given, p);
        }
    }
    return given;
}

static int count_here(const given_t *given)
{
    int n = 0;

    for (int r = 0; r < given->n_ranks; r++) {
        n += given->places[r].process == here;
    }
    return n;
}

static plait_status_t open_given(const given_t *given, int64_t id,
                                 plait_comm_t *comms[])
{
    const int n = count_here(given);
    const plait_comm_devices_t devices = {.mpi_comm_bits = world,
                                          .n_ranks = given->n_ranks,
                                          .n_members = n,
                                          .n_here = n,
                                          .is_one_each = given->n_ranks == n_processes,
                                          .places = given->places};

    return plait_comm_open_devices(&devices, id, comms);
}

static void *rank_main(void *argument)
{
    rank_t *rank = argument;

    rank->fn(rank);
    return NULL;
}

/* Runs a function on all ranks of this process at once; each gets a copy of `like`. */
static void run_on(plait_comm_t *comms[], int n, const rank_t *like)
{
    pthread_t threads[MAX_HERE];
    rank_t ranks[MAX_HERE];

    for (int i = 0; i < n; i++) {
        ranks[i] = *like;
        ranks[i].comm = comms[i];
        if (pthread_create(&threads[i], NULL, rank_main, &ranks[i]) != 0) {
            abort();
        }
    }
    for (int i = 0; i < n; i++) {
        (void)pthread_join(threads[i], NULL);
    }
}

static void run_given(const given_t *given, const rank_t *like)
{
    plait_comm_t *comms[MAX_HERE] = {NULL};
    int n = count_here(given);

    CHECK(open_given(given, 1, comms) == PLAIT_OK, "%s", given->name);
    for (int i = 0; i < n; i++) {
        int rank = plait_comm_rank(comms[i]);
        CHECK(given->places[rank].process == here &&
                  comms[i]->track == given->places[rank].track &&
                  comms[i]->end.peers[rank].track == comms[i]->track,
              "%s: rank %d is here", given->name, rank);
        CHECK(plait_comm_size(comms[i]) == given->n_ranks, "size");
    }
    run_on(comms, n, like);
    for (int i = 0; i < n; i++) {
        plait_comm_destroy(&comms[i]);
    }
}

/* Fences and messages in turns; some ranks are ahead, other ones each time. */
static void test_turns(plait_endpoint_t *end)
{
    enum { MOST = 20000 };
    plait_session_t session = begin(end);
    int32_t *out = plait_alloc(MOST, sizeof(*out));
    int32_t *in = plait_alloc(MOST, sizeof(*in));

    for (int round = 0; round < (is_quick() ? 60 : 200); round++) {
        int step = 1 + round % (end->size - 1);
        int to = (end->rank + step) % end->size;
        int from = (end->rank - step + end->size) % end->size;
        int64_t n = (round % 5 == 0) ? MOST : 1 + round % 40;
        plait_message_t send = {to, out, n * (int64_t)sizeof(*out)};
        plait_message_t recv = {from, in, n * (int64_t)sizeof(*in)};
        int64_t n_wrong = 0;
        for (int64_t i = 0; i < n; i++) {
            out[i] = (int32_t)(i + 1000 * round + end->rank);
        }
        if ((round + end->rank) % 7 == 0) {
            (void)sched_yield();
        }
        CHECK(end->transport->exchange(&session, 1, &send, 1, &recv) == PLAIT_OK,
              "exchange");
        for (int64_t i = 0; i < n; i++) {
            n_wrong += in[i] != (int32_t)(i + 1000 * round + from);
        }
        CHECK(n_wrong == 0, "round %d from rank %d", round, from);
        if (round % 3 == 0) {
            const plait_record_t mine = {.agree = (uint64_t)(round + end->rank)};
            CHECK(end->transport->fence(&session, &mine, &round, sizeof(round)) ==
                      PLAIT_OK,
                  "fence");
            CHECK(plait_peer_record(&session, from)->agree == (uint64_t)(round + from),
                  "record");
        }
    }
    plait_free(in);
    plait_free(out);
    end->transport->end(&session);
}

/* Messages to and from all other ranks at once, as when ranks tell each other their way to devices. */
static void test_all_at_once(plait_endpoint_t *end)
{
    plait_session_t session = begin(end);
    plait_message_t sends[MAX_RANKS], recvs[MAX_RANKS];
    int64_t mine = 1000 + end->rank, got[MAX_RANKS] = {0};
    int n = 0;

    for (int r = 0; r < end->size; r++) {
        if (r != end->rank) {
            sends[n] = (plait_message_t){r, &mine, sizeof(mine)};
            recvs[n++] = (plait_message_t){r, &got[r], sizeof(got[r])};
        }
    }
    CHECK(end->transport->exchange(&session, n, sends, n, recvs) == PLAIT_OK, "%s",
          plait_error_text());
    for (int i = 0; i < n; i++) {
        int r = recvs[i].peer;
        CHECK(got[r] == 1000 + r, "from rank %d: %lld", r, (long long)got[r]);
    }
    end->transport->end(&session);
}

static void check_all_at_once(rank_t *rank)
{
    test_all_at_once(&rank->comm->end);
}

static void check_transport(rank_t *rank)
{
    plait_endpoint_t *end = &rank->comm->end;
    plait_session_t session = begin(end);
    plait_half_t half = {0, 0, &session, 1, PLAIT_U8, 0, NULL};
    plait_matched_t matched;

    CHECK(end->caps.direct == PLAIT_DIRECT_NONE && !end->caps.has_native &&
              end->caps.publish_bytes >= 256,
          "caps");
    CHECK(end->transport->sendrecv(&session, &half, &half, &matched) ==
                  PLAIT_ERR_UNSUPPORTED &&
              end->transport->send(&session, &half) == PLAIT_ERR_UNSUPPORTED &&
              end->transport->refusal(&session) == PLAIT_OK,
          "matched transfers");
    end->transport->end(&session);
    test_fence(end);
    test_publish(end);
    test_data(end);
    test_all_at_once(end);
    test_turns(end);
}

/* All ranks learn that they disagree. */
static void check_disagreement(plait_comm_t *comm)
{
    bool is_odd = plait_comm_rank(comm) == plait_comm_size(comm) - 1;
    double x[8] = {0};
    double y[8 * MAX_RANKS] = {0};

    CHECK(plait_allgather(comm, PLAIT_F64, 2 + is_odd, x, y) == PLAIT_ERR_MISMATCH,
          "n");
    CHECK(plait_allreduce(comm, PLAIT_SUM, PLAIT_F64, 3 + is_odd, x, y) ==
              PLAIT_ERR_MISMATCH,
          "n");
    CHECK(plait_allgather(comm, PLAIT_F64, 2, x, y) == PLAIT_OK, "and on");
}

static void check_collectives(rank_t *rank)
{
    case_all(rank->comm);
    check_disagreement(rank->comm);
}

static _Thread_local bool gives_up;

static plait_status_t end_wait(const plait_wait_t *wait)
{
    (void)wait;
    return gives_up ? PLAIT_ERR_TIMEOUT : PLAIT_OK;
}

/* The late rank comes after the other rank has given up. */
static void wait_for_giving_up(const rank_t *rank)
{
    char word[2] = {0, 0};

    if (rank->process == rank->late_process) {
        while (!atomic_load(rank->has_given_up)) {
            (void)sched_yield();
        }
    } else {
        (void)host.sendrecv(word, 0, host.f64, rank->process, 8, word, 0, host.f64,
                            rank->process, 8, world, host.status_ignore);
    }
}

static void tell_giving_up(const rank_t *rank)
{
    char word[2] = {0, 0};

    atomic_store(rank->has_given_up, true);
    if (rank->process != rank->late_process) {
        (void)host.sendrecv(word, 0, host.f64, rank->late_process, 8, word, 0, host.f64,
                            rank->late_process, 8, world, host.status_ignore);
    }
}

/* A rank that leaves a fence ends this fence, or the next one, for all ranks. */
static void check_deserter(rank_t *rank)
{
    plait_endpoint_t *end = &rank->comm->end;
    plait_session_t session = begin(end);
    const plait_record_t mine = {0};

    gives_up = end->rank == rank->who;
    if (end->rank == rank->late) {
        wait_for_giving_up(rank);
    }
    plait_status_t status = end->transport->fence(&session, &mine, NULL, 0);
    if (gives_up) {
        CHECK(status == PLAIT_ERR_TIMEOUT, "who gives up");
        tell_giving_up(rank);
    } else if (status == PLAIT_OK) {
        status = end->transport->fence(&session, &mine, NULL, 0);
    }
    CHECK(status == PLAIT_ERR_TIMEOUT, "rank %d has given up, rank %d has not come",
          rank->who, rank->late);
    CHECK(gives_up || strstr(plait_error_text(), "has given up") != NULL, "text: %s",
          plait_error_text());
    end->transport->end(&session);
    CHECK(end->transport->begin(&session, true) == PLAIT_ERR_COMM, "then");
}

static void test_deserters(const given_t *given)
{
    for (int who = 0; who < given->n_ranks; who++) {
        for (int late = 0; late < given->n_ranks; late += given->n_ranks - 1) {
            _Atomic bool has_given_up = false;
            const rank_t like = {.fn = check_deserter,
                                 .who = who,
                                 .late = late,
                                 .process = given->places[who].process,
                                 .late_process = given->places[late].process,
                                 .has_given_up = &has_given_up};
            if (who != late) {
                plait_wait_set_hook(end_wait);
                run_given(given, &like);
                plait_wait_set_hook(NULL);
            }
        }
    }
}

/* The same verdict on all processes. */
static void test_refused(void)
{
    plait_comm_t *comms[MAX_HERE] = {NULL};
    plait_endpoint_t ends[4];
    given_t given = even();

    given.places[0].process = n_processes;
    CHECK(open_given(&given, 1, comms) == PLAIT_ERR_INVALID, "no such process");
    given = even();
    for (int r = 0; r < 2; r++) { /* of the first process */
        given.places[r].process = n_processes - 1;
    }
    CHECK(plait_hosts_open(world, given.n_ranks, given.places, 1, ends) ==
              PLAIT_ERR_INVALID,
          "without ranks");
    given = even();
    while (count_here(&given) < 65 && given.n_ranks < MAX_RANKS) {
        add(&given, 0);
    }
    CHECK(open_given(&given, 1, comms) == PLAIT_ERR_UNSUPPORTED &&
              strstr(plait_error_text(), "64") != NULL,
          "too many");
    CHECK(comms[0] == NULL, "nothing is left");
}

/* All ranks of a process learn that the communicator was freed. */
static void test_freed(void)
{
    plait_comm_t *comms[MAX_HERE] = {NULL};
    const given_t given = even();
    const int n_here = count_here(&given);
    const uint64_t before = world;

    (void)host.comm_dup(before, &world);
    CHECK(open_given(&given, 1, comms) == PLAIT_OK, "%s", plait_error_text());
    (void)host.comm_free(&world);
    world = before;
    for (int i = 0; i < n_here; i++) {
        CHECK(plait_comm_is_freed(comms[i]) &&
                  plait_barrier(comms[i]) == PLAIT_ERR_COMM,
              "rank %d", plait_comm_rank(comms[i]));
    }
    for (int i = 0; i < n_here; i++) {
        plait_comm_destroy(&comms[i]);
    }
}

/* Two communicators at once; one has one thread of each process. */
static void test_one_each(void)
{
    const rank_t like = {.fn = check_collectives};
    given_t given = {.name = "one each"};

    for (int p = n_processes - 1; p >= 0; p--) {
        given.places[given.n_ranks++] = (plait_place_t){n_processes - 1 - p, 3 + p};
    }
    run_given(&given, &like);
}

static void check_end(rank_t *rank)
{
    CHECK(plait_barrier(rank->comm) == PLAIT_ERR_COMM, "after MPI_Finalize");
}

int main(int argc, char **argv)
{
    const rank_t transport = {.fn = check_transport};
    const rank_t collectives = {.fn = check_collectives};
    const rank_t at_once = {.fn = check_all_at_once};
    const rank_t end = {.fn = check_end};
    plait_comm_t *comms[MAX_HERE] = {NULL};

    world = mpi_world(argc, argv);
    CHECK(plait_comm_mpi(world, &comms[0]) == PLAIT_OK, "open");
    n_processes = plait_comm_size(comms[0]);
    here = plait_comm_rank(comms[0]);
    plait_comm_destroy(&comms[0]);
    if (n_processes > 1) {
        const given_t all[] = {even(), uneven(), lopsided()}, many = crowded();
        for (int i = 0; i < 3; i++) {
            run_given(&all[i], &transport);
            run_given(&all[i], &collectives);
        }
        test_one_each();
        run_given(&many, &at_once);
        test_deserters(&all[0]);
        test_deserters(&all[2]);
        test_refused();
        test_freed();
        CHECK(open_given(&all[1], 1, comms) == PLAIT_OK, "open");
        (void)host.finalize();
        run_on(comms, count_here(&all[1]), &end);
        for (int i = 0; i < count_here(&all[1]); i++) {
            plait_comm_destroy(&comms[i]);
        }
    } else {
        (void)host.finalize();
    }
    (void)plait_pool_trim();
    return mpi_report("mpi_hosts");
}
