#include "guard/making.h"

#include "base/status.h"
#include "guard/times.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOBODY = -1 };

/* how: what the first rank that is gone has done. is_lost: this rank will not come to MPI_Finalize. */
static _Thread_local struct {
    int n;
    const int32_t *ranks;
    int64_t looked_ns;
    int64_t since_ns;
    int who;
    char how[256];
    bool is_lost;
} making = {.who = NOBODY};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char folder[512]; /* "": there are no notes */

enum { PATH_ROOM = sizeof(folder) + 32 };

/* A process that the rank has started, perhaps of a job of its own, has the rank's environment, too. */
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

static void name_note(int rank, const char *what, char path[PATH_ROOM])
{
    (void)snprintf(path, PATH_ROOM, "%s/%d.%s", folder, rank, what);
}

static bool has_ended(int rank)
{
    char path[PATH_ROOM];

    name_note(rank, "ended", path);
    return access(path, F_OK) == 0;
}

bool plait_guard_has_notes(void)
{
    (void)pthread_once(&once, find_folder);
    return folder[0] != '\0';
}

bool plait_guard_is_held(void)
{
    char path[PATH_ROOM];
    const bool has_notes = plait_guard_has_notes();

    (void)snprintf(path, sizeof(path), "%s/held", folder);
    return has_notes && access(path, F_OK) == 0;
}

/* How a rank has left, from its own note: empty if in order. False: it has left no note. */
static bool read_left(int rank, char text[], size_t room)
{
    char path[PATH_ROOM];
    bool is_there = false;
    FILE *note = NULL;

    name_note(rank, "left", path);
    note = fopen(path, "r");
    is_there = note != NULL;
    text[0] = '\0';
    if (is_there) {
        if (fgets(text, (int)room, note) == NULL) {
            text[0] = '\0';
        }
        (void)fclose(note);
    }
    return is_there;
}

void plait_guard_expect(int n, const int32_t ranks[])
{
    making.n = plait_guard_has_notes() ? n : 0;
    making.ranks = ranks;
    making.who = NOBODY;
    making.looked_ns = 0;
}

static bool is_gone(int rank)
{
    const bool is_over = has_ended(rank);
    const bool is_left = read_left(rank, making.how, sizeof(making.how));
    const bool is_failed = making.how[0] != '\0';

    making.is_lost = is_over || is_failed;
    if (!is_failed) {
        (void)snprintf(making.how, sizeof(making.how), "%s",
                       is_over ? "has ended" : "has left its program");
    }
    return is_over || is_left;
}

static int find_gone(void)
{
    int who = NOBODY;

    for (int i = 0; i < making.n && who == NOBODY; i++) {
        who = is_gone(making.ranks[i]) ? making.ranks[i] : NOBODY;
    }
    return who;
}

plait_status_t plait_guard_look_making(const plait_wait_t *wait, int64_t now)
{
    plait_status_t status = PLAIT_OK;
    const int64_t pause = now - making.looked_ns;

    if (making.n > 0 && pause > PLAIT_GUARD_LOOK_EVERY_NS) {
        int who = find_gone();
        if (who != making.who || pause > PLAIT_GUARD_LOOK_COUNTS_NS) {
            making.who = who;
            making.since_ns = now;
        }
        making.looked_ns = now;
    }
    if (making.who != NOBODY && now - making.since_ns > PLAIT_GUARD_ENDED_NS) {
        if (making.is_lost) {
            plait_wait_set_lost();
        }
        status = plait_fail(PLAIT_ERR_PEER,
                            "%s: waits in vain: rank %d of MPI_COMM_WORLD %s",
                            wait->what, making.who, making.how);
    }
    return status;
}
