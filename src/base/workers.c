#include "base/workers.h"

#include "base/alloc.h"
#include "base/cond.h"
#include "base/status.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

/* An idle thread stays for the next operation of a program that is still running, and ends soon after the
 * program. */
enum { IDLE_S = 10 };

/* On its thread's stack. */
typedef struct worker {
    pthread_cond_t changed;
    plait_work_fn_t work; /* NULL: idle */
    void *context;
    struct worker *next; /* in the list of idle threads */
} worker_t;

/* The first work of a new thread; the thread frees this. */
typedef struct {
    plait_work_fn_t work;
    void *context;
} start_t;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static worker_t *idle; /* the thread that worked last is first: it is the warmest */

/* A forked child has none of the threads; one of them may have held the mutex. */
static void forget_all(void)
{
    (void)pthread_mutex_init(&mutex, NULL);
    idle = NULL;
}

static void prepare_for_forks(void)
{
    (void)pthread_atfork(NULL, NULL, forget_all);
}

/* Under the mutex. */
static void leave_idle(const worker_t *worker)
{
    worker_t **place = &idle;

    while (*place != NULL && *place != worker) {
        place = &(*place)->next;
    }
    if (*place != NULL) {
        *place = worker->next;
    }
}

/* Waits for work; false: none came for a while. */
static bool get_work(worker_t *worker)
{
    struct timespec limit;
    int error = 0;

    (void)clock_gettime(CLOCK_MONOTONIC, &limit);
    limit.tv_sec += IDLE_S;
    (void)pthread_mutex_lock(&mutex);
    worker->work = NULL;
    worker->next = idle;
    idle = worker;
    while (worker->work == NULL && error != ETIMEDOUT) {
        error = pthread_cond_timedwait(&worker->changed, &mutex, &limit);
    }
    if (worker->work == NULL) {
        leave_idle(worker);
    }
    bool has_work = worker->work != NULL;
    (void)pthread_mutex_unlock(&mutex);
    return has_work;
}

static void *worker_main(void *argument)
{
    start_t start = *(start_t *)argument;
    worker_t worker = {.work = start.work, .context = start.context};

    plait_free(argument);
    plait_cond_init(&worker.changed);
    do {
        worker.work(worker.context);
    } while (get_work(&worker));
    (void)pthread_cond_destroy(&worker.changed);
    return NULL;
}

static plait_status_t start_thread(plait_work_fn_t work, void *context)
{
    plait_status_t status = PLAIT_OK;
    start_t *start = plait_alloc(1, sizeof(*start));
    pthread_t thread;

    PLAIT_CHECK(start != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a thread");
    *start = (start_t){work, context};
    int error = pthread_create(&thread, NULL, worker_main, start);
    PLAIT_CHECK(error == 0, PLAIT_ERR_NO_MEMORY, "no thread: %s", strerror(error));
    (void)pthread_detach(thread);
    start = NULL; /* freed by the thread */
done:
    plait_free(start);
    return status;
}

plait_status_t plait_workers_run(plait_work_fn_t work, void *context)
{
    plait_status_t status = PLAIT_OK;

    (void)pthread_once(&once, prepare_for_forks);
    (void)pthread_mutex_lock(&mutex);
    worker_t *worker = idle;
    if (worker != NULL) {
        idle = worker->next;
        worker->work = work;
        worker->context = context;
        (void)pthread_cond_signal(&worker->changed);
    }
    (void)pthread_mutex_unlock(&mutex);
    if (worker == NULL) {
        status = start_thread(work, context);
    }
    return status;
}
