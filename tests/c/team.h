/* Ranks as threads: run one function on every rank of a communicator of threads. */
#ifndef PLAIT_TESTS_TEAM_H
#define PLAIT_TESTS_TEAM_H

#include "comm/comm.h"
#include "transport/device_link.h"
#include "transport/local.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

enum { TEAM_MAX = 32 };

typedef void (*team_fn_t)(plait_comm_t *comm, void *context);

typedef struct {
    plait_comm_t *comm;
    team_fn_t fn;
    void *context;
} team_rank_t;

/* The devices of the ranks' arrays; NULL: arrays are in host memory. */
static plait_device_t *team_devices[TEAM_MAX];

/* Whether ranks know each other's devices. */
static bool team_knows_devices;

/* The function that every rank calls first, or NULL. */
static team_fn_t team_before;

/* The link between ranks' devices; NULL: as the library chooses. */
static const plait_device_link_t *team_link;

static void team_main(const team_rank_t *rank)
{
    if (team_before != NULL) {
        team_before(rank->comm, rank->context);
    }
    rank->fn(rank->comm, rank->context);
}

/* Threads that wait for the next run. A test has tens of thousands of runs, and starting a thread costs more
 * than most of them. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t begun[TEAM_MAX], over;
    team_rank_t *work[TEAM_MAX]; /* NULL: no work, or work done */
    int n_threads, n_busy;
    pid_t process; /* a forked child has none of its parent's threads */
} team = {.lock = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER};

static void *team_worker(void *argument)
{
    const int me = (int)(intptr_t)argument;

    (void)pthread_mutex_lock(&team.lock);
    for (;;) {
        while (team.work[me] == NULL) {
            (void)pthread_cond_wait(&team.begun[me], &team.lock);
        }
        (void)pthread_mutex_unlock(&team.lock);
        team_main(team.work[me]);
        (void)pthread_mutex_lock(&team.lock);
        team.work[me] = NULL;
        team.n_busy--;
        if (team.n_busy == 0) {
            (void)pthread_cond_signal(&team.over);
        }
    }
    return NULL;
}

/* Makes sure that there are n threads; they never end. */
static inline void team_hire(int n)
{
    if (team.process != getpid()) {
        team.process = getpid();
        team.n_threads = 0;
    }
    for (; team.n_threads < n; team.n_threads++) {
        pthread_t thread;
        (void)pthread_cond_init(&team.begun[team.n_threads], NULL);
        if (pthread_create(&thread, NULL, team_worker,
                           (void *)(intptr_t)team.n_threads) != 0 ||
            pthread_detach(thread) != 0) {
            abort();
        }
    }
}

static inline void team_work(int n, team_rank_t ranks[])
{
    team_hire(n);
    (void)pthread_mutex_lock(&team.lock);
    if (team.n_busy != 0) {
        abort(); /* a rank may not run a team */
    }
    team.n_busy = n;
    for (int r = 0; r < n; r++) {
        team.work[r] = &ranks[r];
        (void)pthread_cond_signal(&team.begun[r]);
    }
    while (team.n_busy != 0) {
        (void)pthread_cond_wait(&team.over, &team.lock);
    }
    (void)pthread_mutex_unlock(&team.lock);
}

/* Communicator of n threads that use `direct` access; fn runs on all of them at once. */
static inline void team_run(int n, plait_direct_t direct, team_fn_t fn, void *context)
{
    plait_comm_t *comms[TEAM_MAX] = {NULL};
    team_rank_t ranks[TEAM_MAX];

    if (plait_comm_threads(n, comms) != PLAIT_OK) {
        abort();
    }
    for (int r = 0; r < n; r++) {
        comms[r]->end.caps.direct = direct;
        comms[r]->end.caps.device = team_devices[r];
        comms[r]->end.caps.devices = team_knows_devices ? team_devices : NULL;
        if (team_link != NULL &&
            plait_device_force_link(&comms[r]->end, team_link) != PLAIT_OK) {
            abort();
        }
        ranks[r] = (team_rank_t){comms[r], fn, context};
    }
    team_work(n, ranks);
    for (int r = 0; r < n; r++) {
        plait_comm_destroy(&comms[r]);
    }
}

#endif
