/* Processes that end while a stream of this process has work that may wait for them. The processes are forked
 * by this test; the stream is a check device's, held up by the test. */
#include "base/process.h"
#include "base/status.h"
#include "base/trace.h"
#include "check.h"
#include "check_device.h"
#include "check_device_parts.h"
#include "transport/device_vigil.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N_PEERS = 3 };

/* Long enough for a report that must not come. */
static const struct timespec a_while = {.tv_sec = 1, .tv_nsec = 500000000};

typedef struct {
    pid_t pid;
    int order[2]; /* a byte to this pipe, and it ends well */
    plait_process_card_t card;
} peer_t;

static void peer_main(const peer_t *peer, int tell)
{
    plait_process_card_t card = plait_process_card();
    char byte = 0;

    (void)!write(tell, &card, sizeof(card));
    (void)!read(peer->order[0], &byte, 1);
    plait_trace_close(1);
    _exit(0);
}

/* Before this process has threads or a recorder. */
static void peer_begin(peer_t *peer)
{
    int tell[2];

    if (pipe(peer->order) != 0 || pipe(tell) != 0) {
        abort();
    }
    peer->pid = fork();
    if (peer->pid == 0) {
        peer_main(peer, tell[1]);
    }
    CHECK(read(tell[0], &peer->card, sizeof(peer->card)) == sizeof(peer->card), "card");
    (void)close(tell[0]);
    (void)close(tell[1]);
}

static void peer_end(peer_t *peer, bool is_well)
{
    if (is_well) {
        (void)!write(peer->order[1], "e", 1);
    } else {
        (void)kill(peer->pid, SIGKILL);
    }
}

/* ---- the stream ---- */

static int gate[2];

static void run_gate(plait_device_t *device, void *argument)
{
    char byte = 0;

    (void)device;
    (void)argument;
    (void)!read(gate[0], &byte, 1);
}

static void hold(plait_stream_t stream)
{
    check_device_enqueue(stream, run_gate, "", 1);
}

static void let_go(plait_device_t *device)
{
    (void)!write(gate[1], "g", 1);
    check_device_drain(device);
}

/* ---- who waits to be told ---- */

static atomic_bool is_told;
static char told[800];

static void *listener_main(void *context)
{
    (void)context;
    CHECK(plait_vigil_wait(told, (int)sizeof(told)) == PLAIT_ERR_PEER, "status");
    atomic_store(&is_told, true);
    return NULL;
}

/* One rank of two, with its own peer. */
typedef struct {
    plait_endpoint_t end;
    plait_session_t session;
    plait_peer_t peers[2];
    plait_device_run_t run;
} rank_t;

static void rank_begin(rank_t *rank, plait_device_t *device, const peer_t *peer)
{
    *rank = (rank_t){.end = {.rank = 0, .size = 2}};
    rank->peers[0].process = plait_process_card();
    rank->peers[1].process = peer->card;
    rank->end.peers = rank->peers;
    rank->session.end = &rank->end;
    rank->run = (plait_device_run_t){.device = device,
                                     .stream = check_device_stream(device),
                                     .session = &rank->session};
}

static void note(rank_t *rank, bool is_held)
{
    plait_device_t *device = rank->run.device;

    rank->run.is_held = is_held;
    CHECK(device->table->enter(device) == PLAIT_OK &&
              plait_vigil_note(&rank->run) == PLAIT_OK,
          "note");
    device->table->leave(device);
}

static void rank_end(rank_t *rank)
{
    plait_device_t *device = rank->run.device;

    CHECK(device->table->enter(device) == PLAIT_OK, "enter");
    plait_vigil_forget(&rank->end);
    device->table->leave(device);
}

static void check_told(bool is_expected, const char *what)
{
    (void)nanosleep(&a_while, NULL);
    CHECK(atomic_load(&is_told) == is_expected, "%s: %s", what, told);
}

/* A thread that is itself in a call that waits for its peer. */
static void check_thread(void)
{
    plait_device_t *device = NULL;
    rank_t rank;
    peer_t peer;
    pthread_t listener;

    peer_begin(&peer);
    if (pthread_create(&listener, NULL, listener_main, NULL) != 0) {
        abort();
    }
    device = check_device_create(0);
    rank_begin(&rank, device, &peer);
    CHECK(device->table->enter(device) == PLAIT_OK &&
              plait_vigil_enter(&rank.run) == PLAIT_OK,
          "enter");
    plait_vigil_leave(&rank.run);
    peer_end(&peer, false);
    check_told(false, "one is killed when the call is over");
    CHECK(plait_vigil_enter(&rank.run) == PLAIT_OK, "enter");
    device->table->leave(device);
    (void)pthread_join(listener, NULL);
    CHECK(strstr(told, "its thread waits in vain: rank 1: process ") != NULL, "%s",
          told);
    rank_end(&rank);
    (void)waitpid(peer.pid, NULL, 0);
    CHECK(check_device_destroy(&device) == 0, "device");
    CHECK(plait_alloc_balance() == 0, "balance %lld", (long long)plait_alloc_balance());
}

static void check_streams(void)
{
    plait_device_t *device = NULL;
    rank_t ranks[N_PEERS];
    peer_t peers[N_PEERS];
    pthread_t listener;
    char expected[100];

    for (int i = 0; i < N_PEERS; i++) {
        peer_begin(&peers[i]);
    }
    if (pipe(gate) != 0 || pthread_create(&listener, NULL, listener_main, NULL) != 0) {
        abort();
    }
    device = check_device_create(0);
    for (int i = 0; i < N_PEERS; i++) {
        rank_begin(&ranks[i], device, &peers[i]);
    }

    hold(ranks[0].run.stream);
    note(&ranks[0], false);
    note(&ranks[1], true);
    check_told(false, "all live");
    peer_end(&peers[0], false);
    peer_end(&peers[1], true);
    check_told(false, "one on whom nothing waits is killed, another one ends well");
    let_go(device);

    note(&ranks[2], true);
    check_device_drain(device);
    rank_end(&ranks[1]);
    note(&ranks[2], true);
    hold(ranks[2].run.stream);
    note(&ranks[2], true);
    check_told(false, "all live");
    let_go(device);
    peer_end(&peers[2], false);
    check_told(false, "one is killed when all is done");

    hold(ranks[2].run.stream);
    note(&ranks[2], true);
    (void)pthread_join(listener, NULL); /* of a test that takes too long CTest knows */
    (void)snprintf(expected, sizeof(expected),
                   "its stream waits in vain: rank 1: process %d has ended",
                   (int)peers[2].pid);
    CHECK(strstr(told, expected) != NULL, "%s", told);
    let_go(device);

    for (int i = 0; i < N_PEERS; i++) {
        rank_end(&ranks[i]);
        (void)waitpid(peers[i].pid, NULL, 0);
    }
    CHECK(check_device_destroy(&device) == 0, "device");
    CHECK(plait_alloc_balance() == 0, "balance %lld", (long long)plait_alloc_balance());
}

/* The report is the process's last word: with an argument it comes from a thread, else from streams. */
int main(int n_arguments, char **arguments)
{
    if (n_arguments > 1 && strcmp(arguments[1], "thread") == 0) {
        check_thread();
    } else {
        check_streams();
    }
    return report("test_vigil");
}
