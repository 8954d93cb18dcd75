/* Threads of this process as the team that times. For sources that define _GNU_SOURCE. */
#ifndef BENCH_THREAD_TEAM_H
#define BENCH_THREAD_TEAM_H

#include "plait/comm.h"
#include "rounds.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { THREAD_RANKS = 2, THREAD_YIELDS = 500 };
static const double THREAD_NAP_S = 20e-6;

typedef struct {
    team_t team;
    const bench_options_t *options;
    plait_comm_t *comm;
    pthread_t thread;
    int phase;
} thread_rank_t;

static atomic_int thread_n_waiting;
static atomic_int thread_phase;
static double thread_values[THREAD_RANKS];
static double *thread_arrays[THREAD_RANKS];

/* Spins a little, then naps: who waits for a long solo run leaves the core free. */
static void thread_team_barrier(team_t *team)
{
    thread_rank_t *self = team->self;

    self->phase++;
    if (atomic_fetch_add(&thread_n_waiting, 1) == THREAD_RANKS - 1) {
        atomic_store(&thread_n_waiting, 0);
        atomic_store(&thread_phase, self->phase);
        return;
    }
    for (int i = 0; atomic_load(&thread_phase) != self->phase; i++) {
        if (i < THREAD_YIELDS) {
            (void)sched_yield();
        } else {
            bench_nap(THREAD_NAP_S);
        }
    }
}

static double thread_team_max(team_t *team, double value)
{
    thread_values[team->rank] = value;
    thread_team_barrier(team);
    for (int r = 0; r < THREAD_RANKS; r++) {
        value = (thread_values[r] > value) ? thread_values[r] : value;
    }
    thread_team_barrier(team);
    return value;
}

static void thread_team_sum(team_t *team, int64_t n, double values[])
{
    thread_arrays[team->rank] = values;
    thread_team_barrier(team);
    for (int64_t i = 0; team->rank == 0 && i < n; i++) {
        for (int r = 1; r < THREAD_RANKS; r++) {
            values[i] += thread_arrays[r][i];
        }
    }
    thread_team_barrier(team);
    if (team->rank != 0) {
        memcpy(values, thread_arrays[0], (size_t)n * sizeof(double));
    }
    thread_team_barrier(team);
}

/* All ranks do `measure` at once, each in its thread. */
static void thread_team_run(const bench_options_t *options, plait_comm_t *comms[],
                            void *(*measure)(void *rank))
{
    thread_rank_t ranks[THREAD_RANKS];

    for (int r = 0; r < THREAD_RANKS; r++) {
        ranks[r] = (thread_rank_t){.options = options, .comm = comms[r]};
        ranks[r].team = (team_t){.rank = r,
                                 .size = THREAD_RANKS,
                                 .self = &ranks[r],
                                 .barrier = thread_team_barrier,
                                 .max = thread_team_max,
                                 .sum = thread_team_sum};
    }
    for (int r = 0; r < THREAD_RANKS; r++) {
        bench_must(pthread_create(&ranks[r].thread, NULL, measure, &ranks[r]) == 0,
                   "thread");
    }
    for (int r = 0; r < THREAD_RANKS; r++) {
        (void)pthread_join(ranks[r].thread, NULL);
    }
}

#endif
