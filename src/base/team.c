#include "base/team.h"

#include "base/checked.h"
#include "base/status.h"
#include "base/workers.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { TEXT_BYTES = 512 };

typedef struct team team_t;

typedef struct {
    team_t *team;
    int i;
    bool is_given; /* to a worker, which counts down n_running */
    plait_status_t status;
    char text[TEXT_BYTES];
} part_t;

struct team {
    plait_part_fn_t run;
    void *context;
    int n;
    int n_running; /* under the mutex */
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    part_t parts[PLAIT_MAX_THREADS];
};

static void run_part(part_t *part)
{
    part->status = part->team->run(part->team->context, part->i, part->team->n);
    if (part->status != PLAIT_OK) { /* error texts belong to a thread */
        (void)snprintf(part->text, sizeof(part->text), "%s", plait_error_text());
    }
}

static void work(void *context)
{
    part_t *part = context;
    team_t *team = part->team;

    run_part(part);
    (void)pthread_mutex_lock(&team->mutex);
    team->n_running--;
    (void)pthread_cond_signal(&team->ended);
    (void)pthread_mutex_unlock(&team->mutex);
}

static void give_parts(team_t *team)
{
    for (int i = 0; i < team->n; i++) {
        team->parts[i] = (part_t){.team = team, .i = i};
    }
    for (int i = 1; i < team->n; i++) {
        part_t *part = &team->parts[i];
        (void)pthread_mutex_lock(&team->mutex);
        team->n_running++;
        (void)pthread_mutex_unlock(&team->mutex);
        part->is_given = plait_workers_run(work, part) == PLAIT_OK;
        if (!part->is_given) {
            (void)pthread_mutex_lock(&team->mutex);
            team->n_running--;
            (void)pthread_mutex_unlock(&team->mutex);
        }
    }
}

plait_status_t plait_team_run(int n, plait_part_fn_t part, void *context)
{
    plait_status_t status = PLAIT_OK;
    team_t team = {.run = part, .context = context, .n = n};

    (void)pthread_mutex_init(&team.mutex, NULL);
    (void)pthread_cond_init(&team.ended, NULL);
    give_parts(&team);
    for (int i = 0; i < n; i++) {
        if (!team.parts[i].is_given) {
            run_part(&team.parts[i]);
        }
    }
    (void)pthread_mutex_lock(&team.mutex);
    while (team.n_running > 0) {
        (void)pthread_cond_wait(&team.ended, &team.mutex);
    }
    (void)pthread_mutex_unlock(&team.mutex);
    (void)pthread_cond_destroy(&team.ended);
    (void)pthread_mutex_destroy(&team.mutex);
    for (int i = n - 1; i >= 0; i--) {
        if (team.parts[i].status != PLAIT_OK) {
            status = plait_fail(team.parts[i].status, "%s", team.parts[i].text);
        }
    }
    return status;
}

/* Counts the processes that may run on this thread's processors, and these processors. At least one process:
 * another thread of this process may be bound elsewhere, and then even this process does not count. */
static int count_sharing(int n_sharing, const pid_t pids[], int *n_processors_p)
{
    cpu_set_t mine, theirs, both;
    int n = 0;

    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof(mine), &mine) != 0) {
        CPU_SET(0, &mine); /* more processors than fit in the set */
    }
    *n_processors_p = CPU_COUNT(&mine);
    for (int i = 0; pids != NULL && i < n_sharing; i++) {
        bool is_known = sched_getaffinity(pids[i], sizeof(theirs), &theirs) == 0;
        if (is_known) {
            CPU_AND(&both, &mine, &theirs);
        }
        n += !is_known || CPU_COUNT(&both) > 0;
    }
    return (pids != NULL) ? (int)plait_max(1, n) : n_sharing;
}

plait_status_t plait_team_wish(int *n_threads_p)
{
    plait_status_t status = PLAIT_OK;
    const char *wish = getenv("PLAIT_THREADS");
    int64_t n_threads = 0;

    if (wish != NULL && wish[0] != '\0' && strcasecmp(wish, "auto") != 0) {
        char *end = NULL;
        n_threads = strtol(wish, &end, 10);
        PLAIT_CHECK(*end == '\0' && n_threads >= 1 && n_threads <= PLAIT_MAX_THREADS,
                    PLAIT_ERR_INVALID,
                    "PLAIT_THREADS is '%.40s', expected auto or a number from 1 to %d",
                    wish, PLAIT_MAX_THREADS);
    }
    *n_threads_p = (int)n_threads;
done:
    return status;
}

plait_status_t plait_team_size(int n_sharing, const pid_t pids[], int *n_threads_p)
{
    plait_status_t status = PLAIT_OK;
    int n_processors = 1;

    PLAIT_TRY(plait_team_wish(n_threads_p));
    if (*n_threads_p == 0) {
        int n = count_sharing(n_sharing, pids, &n_processors);
        *n_threads_p =
            (int)plait_max(1, plait_min(n_processors / n, PLAIT_MAX_THREADS));
    }
done:
    return status;
}
