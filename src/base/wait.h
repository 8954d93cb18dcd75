/* What every loop that waits for another rank does: it spins, then yields, then sleeps. Now and then it asks
 * the hook, through which the guard can end the wait. */
#ifndef PLAIT_BASE_WAIT_H
#define PLAIT_BASE_WAIT_H

#include "plait/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    int64_t n_polls;
    int64_t start_ns; /* of the first look at the clock; 0: not yet                  */
    bool is_slow;     /* sleeps from now on                                          */
    const char *what; /* "fence", "allreduce", ...: static text, for whoever reports */
    int peer;         /* the rank waited for, or -1 for all                          */
    bool is_receive;  /* for a message: only its sender ends the wait                */
    bool is_begun;    /* all have begun it: a library, or their devices, work on it  */
} plait_wait_t;

/* Called about every millisecond of a slow wait; a status other than OK ends the wait. */
typedef plait_status_t (*plait_wait_hook_t)(const plait_wait_t *wait);

void plait_wait_set_hook(plait_wait_hook_t hook);

/* The ranks with which this thread makes a communicator, by their numbers in MPI_COMM_WORLD; kept until the
 * next call. n 0: none. The hook cannot see these ranks otherwise. */
typedef struct {
    bool (*is_wanted)(void); /* whether anything can be known about the ranks */
    void (*expect)(int n, const int32_t ranks[]);
} plait_wait_members_t;

void plait_wait_set_members(const plait_wait_members_t *members); /* static */
bool plait_wait_wants_members(void);
void plait_wait_expect(int n, const int32_t ranks[]);

/* Work that must go on while this process waits for anything, as another process may depend on it. Called about
 * every millisecond of a wait that is no longer short, by any thread; NULL: there is none. */
typedef void (*plait_wait_errand_t)(void);

void plait_wait_set_errand(plait_wait_errand_t errand);
bool plait_wait_has_errand(void);
void plait_wait_run_errand(void);

static inline plait_wait_t plait_wait_begin(const char *what, int peer)
{
    return (plait_wait_t){.what = what, .peer = peer};
}

/* The name of waits in which all ranks meet, and each tells the others what it does. */
#define PLAIT_WAIT_FENCE "fence"

static inline bool plait_wait_is_fence(const plait_wait_t *wait)
{
    return strcmp(wait->what, PLAIT_WAIT_FENCE) == 0;
}

/* One turn of a waiting loop, after the condition was found false. Not OK only if the hook says so: the caller
 * reports the failure and gives up where that is safe. */
plait_status_t plait_wait_turn(plait_wait_t *wait);

/* Leaves the core to others for a moment; now_ns: the clock's. False if others want the core for longer, or
 * wanted it lately: then the waiting thread had better sleep. */
bool plait_wait_yield(int64_t now_ns);

/* Asks stop flag and hook without a turn: for waits that sleep in another way. */
plait_status_t plait_wait_ask(const plait_wait_t *wait);

/* A rank has ended: this rank has found it, or another rank has said so. This process then ends by telling
 * others, and not in MPI_Finalize. */
void plait_wait_set_lost(void);
bool plait_wait_has_lost(void);

/* A rank did not come in time, perhaps because it is stuck: this process ends in the same way. */
void plait_wait_set_late(void);
bool plait_wait_has_late(void);

/* From now on every wait ends with PEER at its next slow turn (the process is leaving). */
void plait_wait_stop(void);

#endif
