#include "transport/device_vigil.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "base/status.h"
#include "base/trace.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* How often the vigil looks, and for how long a process must have been gone: together well within the two
 * seconds in which ranks inside an operation learn of the end. */
enum { LOOK_EVERY_NS = 250000000, GONE_NS = 700000000 };

/* Streams of an endpoint: the program's, and those of started operations. If there are more, the oldest are no
 * longer watched. */
enum { MAX_STREAMS = 8, TEXT_BYTES = 700 };

typedef struct {
    plait_stream_t stream;
    plait_event_t *latest;      /* behind all work put there; NULL: free */
    plait_flight_entry_t entry; /* the latest operation that put work there */
    bool is_called;             /* a thread is in a call that waits for peers */
} mark_t;

typedef struct watched {
    const plait_endpoint_t *end;
    plait_device_t *device;
    const plait_process_t **peers; /* by rank; NULL: cannot be seen, or this one */
    mark_t marks[MAX_STREAMS];
    int n_marked; /* so far */
    int gone;     /* rank of a process that has ended, or -1 */
    int64_t gone_ns;
    struct watched *next;
} watched_t;

/* Guards everything here. A thread looks while there is something to watch. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT; /* makes `changed` */
static watched_t *all;
static bool has_thread;
static char verdict[TEXT_BYTES];

static void make_changed(void)
{
    plait_cond_init(&changed);
}

static void lock(void)
{
    (void)pthread_once(&once, make_changed);
    (void)pthread_mutex_lock(&mutex);
}

static void unlock(void)
{
    (void)pthread_mutex_unlock(&mutex);
}

/* ---- under the mutex ---- */

static bool has_ended_badly(const plait_process_t *process)
{
    plait_record_header_t header;

    return process != NULL && plait_process_header(process, &header) &&
           (header.has_why != 0 || header.state == PLAIT_RECORD_FAILED ||
            (header.state == PLAIT_RECORD_RUNS && plait_process_is_gone(process)));
}

static int find_gone(const watched_t *w)
{
    int gone = -1;

    for (int r = 0; r < w->end->size && gone < 0; r++) {
        gone = has_ended_badly(w->peers[r]) ? r : -1;
    }
    return gone;
}

/* The operation that still has work to do; on a device that does not answer, none has. */
static const mark_t *find_held(watched_t *w)
{
    const mark_t *held = NULL;

    for (int i = 0; i < MAX_STREAMS && held == NULL; i++) {
        held = w->marks[i].is_called ? &w->marks[i] : NULL;
    }
    if (held == NULL && w->device->table->enter(w->device) == PLAIT_OK) {
        for (int i = 0; i < MAX_STREAMS && held == NULL; i++) {
            bool is_over = true;
            if (w->marks[i].latest != NULL &&
                w->device->table->event_ask(w->device, w->marks[i].latest, &is_over) ==
                    PLAIT_OK) {
                held = is_over ? NULL : &w->marks[i];
            }
        }
        w->device->table->leave(w->device);
    }
    return held;
}

static void say(const watched_t *w, const mark_t *held)
{
    const plait_process_card_t card = plait_process_card();
    const plait_process_t *self = plait_process_find(&card);
    char call[240] = "";

    if (self != NULL) {
        plait_process_entry(self, &held->entry, call, (int)sizeof(call));
    }
    (void)snprintf(verdict, sizeof(verdict),
                   "rank %d of communicator #%d, %s: its %s waits in vain: rank %d: "
                   "process %d has ended",
                   w->end->rank, (int)held->entry.comm,
                   (call[0] != '\0') ? call : "an operation",
                   held->is_called ? "thread" : "stream", w->gone,
                   (int)plait_process_pid(w->peers[w->gone]));
    plait_log(PLAIT_LOG_ERROR, "%s", verdict);
    (void)pthread_cond_broadcast(&changed);
}

static void look(watched_t *w, int64_t now)
{
    const int gone = find_gone(w);

    w->gone_ns = (gone != w->gone) ? now : w->gone_ns;
    w->gone = gone;
    if (gone >= 0 && now - w->gone_ns >= GONE_NS) {
        const mark_t *held = find_held(w);
        if (held != NULL) {
            say(w, held);
        }
    }
}

static void wait_a_while(void)
{
    struct timespec limit;

    (void)clock_gettime(CLOCK_MONOTONIC, &limit);
    limit.tv_nsec += LOOK_EVERY_NS;
    if (limit.tv_nsec >= 1000000000) {
        limit.tv_nsec -= 1000000000;
        limit.tv_sec++;
    }
    (void)pthread_cond_timedwait(&changed, &mutex, &limit);
}

static void *keep_vigil(void *context)
{
    (void)context;
    lock();
    while (all != NULL && verdict[0] == '\0') {
        wait_a_while();
        for (watched_t *w = all; w != NULL && verdict[0] == '\0'; w = w->next) {
            look(w, plait_clock_ns());
        }
    }
    has_thread = false;
    unlock();
    return NULL;
}

static void start_thread(void)
{
    pthread_t thread;

    if (!has_thread && pthread_create(&thread, NULL, keep_vigil, NULL) == 0) {
        (void)pthread_detach(thread);
        has_thread = true;
    }
}

static watched_t **place_of(const plait_endpoint_t *end)
{
    watched_t **place = &all;

    while (*place != NULL && (*place)->end != end) {
        place = &(*place)->next;
    }
    return place;
}

/* Finds the peers while they live. */
static plait_status_t add(const plait_device_run_t *run, watched_t **place)
{
    plait_status_t status = PLAIT_OK;
    const plait_endpoint_t *end = run->session->end;
    watched_t *w = plait_alloc(1, sizeof(*w));

    PLAIT_CHECK(w != NULL, PLAIT_ERR_NO_MEMORY, "no memory to look after peers");
    w->end = end;
    w->device = run->device;
    w->gone = -1;
    w->peers = plait_alloc(end->size, sizeof(const plait_process_t *));
    PLAIT_CHECK(w->peers != NULL, PLAIT_ERR_NO_MEMORY, "no memory to look after peers");
    for (int r = 0; r < end->size; r++) {
        w->peers[r] =
            (r != end->rank) ? plait_process_find(&end->peers[r].process) : NULL;
    }
    *place = w;
    w = NULL;
done:
    plait_free(w);
    return status;
}

static mark_t *mark_of(watched_t *w, plait_stream_t stream)
{
    mark_t *mark = NULL;

    for (int i = 0; i < MAX_STREAMS && mark == NULL; i++) {
        bool is_its = w->marks[i].latest != NULL && w->marks[i].stream == stream;
        mark = is_its ? &w->marks[i] : NULL;
    }
    return (mark != NULL) ? mark : &w->marks[w->n_marked++ % MAX_STREAMS];
}

static plait_status_t note(const plait_device_run_t *run, mark_t **mark_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_flight_entry_t *entry = plait_trace_current();
    watched_t **place = place_of(run->session->end);

    if (*place == NULL) {
        PLAIT_TRY(add(run, place));
    }
    mark_t *mark = mark_of(*place, run->stream);
    if (mark->latest == NULL) {
        PLAIT_TRY(run->device->table->event_create(run->device, &mark->latest));
    }
    mark->stream = run->stream;
    mark->is_called = true;
    if (entry != NULL) {
        memcpy(&mark->entry, entry, sizeof(mark->entry));
    }
    start_thread();
    *mark_p = mark;
done:
    return status;
}

/* ---- without it ---- */

/* Recording an event on a stream that is full behind a dead peer blocks. So the record counts as a call that
 * waits for peers, and is made without the mutex, so that the vigil's thread finds it. */
static plait_status_t note_now(const plait_device_run_t *run, bool is_called)
{
    plait_status_t status = PLAIT_OK;
    mark_t *mark = NULL;

    if (run->is_held && run->session->end->peers != NULL) {
        lock();
        status = note(run, &mark);
        unlock();
        PLAIT_TRY(status);
        status =
            run->device->table->event_record(run->device, mark->latest, run->stream);
        lock();
        mark->is_called = is_called;
        unlock();
    }
done:
    return status;
}

plait_status_t plait_vigil_note(const plait_device_run_t *run)
{
    return note_now(run, false);
}

plait_status_t plait_vigil_enter(plait_device_run_t *run)
{
    run->is_held = true;
    return note_now(run, true);
}

void plait_vigil_leave(plait_device_run_t *run)
{
    lock();
    watched_t *w = *place_of(run->session->end);
    for (int i = 0; w != NULL && i < MAX_STREAMS; i++) {
        const bool is_its =
            w->marks[i].latest != NULL && w->marks[i].stream == run->stream;
        w->marks[i].is_called = w->marks[i].is_called && !is_its;
    }
    unlock();
}

void plait_vigil_forget(const plait_endpoint_t *end)
{
    lock();
    watched_t **place = place_of(end);
    watched_t *w = *place;
    if (w != NULL) {
        *place = w->next;
        for (int i = 0; i < MAX_STREAMS; i++) {
            if (w->marks[i].latest != NULL) {
                w->device->table->event_destroy(w->device, w->marks[i].latest);
            }
        }
        plait_free((void *)w->peers);
        plait_free(w);
    }
    (void)pthread_cond_broadcast(&changed); /* the thread may have nothing left */
    unlock();
}

plait_status_t plait_vigil_wait(char *text, int n_bytes)
{
    lock();
    while (verdict[0] == '\0') {
        (void)pthread_cond_wait(&changed, &mutex);
    }
    (void)snprintf(text, (size_t)n_bytes, "%s", verdict);
    unlock();
    return PLAIT_ERR_PEER;
}
