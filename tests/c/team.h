/* Ranks as threads: run one function on every rank of a communicator of threads. */
#ifndef PLAIT_TESTS_TEAM_H
#define PLAIT_TESTS_TEAM_H

#include "comm/comm.h"
#include "transport/device_link.h"
#include "transport/local.h"

#include <pthread.h>
#include <stdlib.h>

enum { TEAM_MAX = 32 };

typedef void (*team_fn_t)(plait_comm_t *comm, void *context);

typedef struct {
    plait_comm_t *comm;
    team_fn_t fn;
    void *context;
} team_rank_t;

/* Where a rank's arrays are; NULL: in host memory. */
static plait_device_t *team_devices[TEAM_MAX];

/* Whether ranks know each other's. */
static bool team_knows_devices;

/* What every rank does first, or NULL. */
static team_fn_t team_before;

/* How they reach each other's; NULL: as the library chooses. */
static const plait_device_link_t *team_link;

static void *team_main(void *argument)
{
    team_rank_t *rank = argument;

    if (team_before != NULL) {
        team_before(rank->comm, rank->context);
    }
    rank->fn(rank->comm, rank->context);
    return NULL;
}

/* Communicator of n threads that use `direct` access; fn runs on all of them at once. */
static inline void team_run(int n, plait_direct_t direct, team_fn_t fn, void *context)
{
    plait_comm_t *comms[TEAM_MAX] = {NULL};
    team_rank_t ranks[TEAM_MAX];
    pthread_t threads[TEAM_MAX];

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
        if (pthread_create(&threads[r], NULL, team_main, &ranks[r]) != 0) {
            abort();
        }
    }
    for (int r = 0; r < n; r++) {
        (void)pthread_join(threads[r], NULL);
    }
    for (int r = 0; r < n; r++) {
        plait_comm_destroy(&comms[r]);
    }
}

#endif
