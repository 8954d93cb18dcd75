#include "guard/making.h"

#include "base/status.h"
#include "guard/times.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOBODY = -1 };

/* has_ended: the process is gone; else it may be in MPI_Finalize. */
static _Thread_local struct {
    int n;
    const int32_t *ranks;
    int64_t looked_ns;
    int64_t since_ns;
    int who;
    bool has_ended;
} making = {.who = NOBODY};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char folder[512]; /* "": there are no notes */

/* A process that the rank has started, of a job of its own perhaps, has its environment, too. */
static void find_folder(void)
{
    const char *path = getenv("PLAIT_RUN_FOLDER");
    const char *wrapper = getenv("PLAIT_RUN_WRAPPER");
    bool is_rank =
        path != NULL && wrapper != NULL && strtol(wrapper, NULL, 10) == (long)getppid();

    if (is_rank && strlen(path) < sizeof(folder)) {
        (void)snprintf(folder, sizeof(folder), "%s", path);
    }
}

static bool is_noted(int rank, const char *what)
{
    char path[sizeof(folder) + 32];

    (void)snprintf(path, sizeof(path), "%s/%d.%s", folder, rank, what);
    return access(path, F_OK) == 0;
}

void plait_guard_expect(int n, const int32_t ranks[])
{
    (void)pthread_once(&once, find_folder);
    making.n = (folder[0] != '\0') ? n : 0;
    making.ranks = ranks;
    making.who = NOBODY;
    making.looked_ns = 0;
}

static int find_gone(bool *has_ended_p)
{
    int who = NOBODY;

    for (int i = 0; i < making.n && who == NOBODY; i++) {
        *has_ended_p = is_noted(making.ranks[i], "ended");
        who = (*has_ended_p || is_noted(making.ranks[i], "left")) ? making.ranks[i]
                                                                  : NOBODY;
    }
    return who;
}

plait_status_t plait_guard_look_making(const plait_wait_t *wait, int64_t now)
{
    plait_status_t status = PLAIT_OK;
    const int64_t pause = now - making.looked_ns;

    if (making.n > 0 && pause > PLAIT_GUARD_LOOK_EVERY_NS) {
        int who = find_gone(&making.has_ended);
        if (who != making.who || pause > PLAIT_GUARD_LOOK_COUNTS_NS) {
            making.who = who;
            making.since_ns = now;
        }
        making.looked_ns = now;
    }
    if (making.who != NOBODY && now - making.since_ns > PLAIT_GUARD_ENDED_NS) {
        if (making.has_ended) {
            plait_wait_set_lost();
        }
        status = plait_fail(
            PLAIT_ERR_PEER, "%s: waits in vain: rank %d of MPI_COMM_WORLD has %s",
            wait->what, making.who, making.has_ended ? "ended" : "left its program");
    }
    return status;
}
