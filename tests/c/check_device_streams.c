/* Streams of the check device, which are threads, and events. */
#include "base/status.h"
#include "check_device_parts.h"
#include "check_device_state.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* A piece of work; `argument` is freed with it. */
typedef struct work {
    void (*run)(plait_device_t *device, void *argument);
    void *argument;
    struct work *next;
} work_t;

struct stream {
    plait_device_t *device;
    pthread_t thread;
    pthread_cond_t more; /* work, or its end */
    work_t *first, *last;
    bool is_busy, is_over;
    uint64_t random;
};

/* The state of an event that was shown, in memory that processes share. */
typedef struct {
    _Atomic int64_t n_recorded, n_fired;
    int32_t pid; /* that records it */
} board_t;

struct plait_event {
    plait_device_t *device; /* whose mutex it is under */
    int64_t n_recorded, n_fired;
    int n_held;     /* by its owner and by work */
    board_t *board; /* NULL: it was not shown, nor came from elsewhere */
    int fd;         /* of the board, for others; 0: none */
};

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* Delays work, now and then for long. */
static void dawdle(stream_t *stream)
{
    uint64_t r = next_random(&stream->random);
    const struct timespec nap = {.tv_nsec = (r % 64 == 0)   ? 300000
                                            : (r % 16 == 0) ? 20000
                                                            : 0};

    if (nap.tv_nsec > 0) {
        (void)nanosleep(&nap, NULL);
    }
}

static void *stream_main(void *argument)
{
    stream_t *stream = argument;
    plait_device_t *device = stream->device;
    state_t *s = state_of(device);

    lock(device);
    while (stream->first != NULL || !stream->is_over) {
        work_t *work = stream->first;
        if (work == NULL) {
            (void)pthread_cond_wait(&stream->more, &s->mutex);
            continue;
        }
        stream->is_busy = true;
        unlock(device);
        dawdle(stream);
        work->run(device, work->argument);
        lock(device);
        stream->first = work->next;
        stream->last = (stream->first == NULL) ? NULL : stream->last;
        stream->is_busy = false;
        s->n_pending--;
        free(work->argument);
        free(work);
        if (stream->first == NULL) {
            (void)pthread_cond_broadcast(&s->changed);
        }
    }
    unlock(device);
    return NULL;
}

/* A copy of the argument goes with the work. */
void check_device_enqueue(plait_stream_t to, void (*run)(plait_device_t *, void *),
                          const void *argument, size_t n_bytes)
{
    stream_t *stream = to;
    work_t *work = malloc(sizeof(*work));

    *work = (work_t){.run = run, .argument = malloc(n_bytes)};
    memcpy(work->argument, argument, n_bytes);
    lock(stream->device);
    if (stream->last != NULL) {
        stream->last->next = work;
    } else {
        stream->first = work;
    }
    stream->last = work;
    state_of(stream->device)->n_pending++;
    (void)pthread_cond_signal(&stream->more);
    unlock(stream->device);
}

stream_t *check_device_stream_start(plait_device_t *device)
{
    static _Atomic uint64_t n_started;
    stream_t *stream = calloc(1, sizeof(*stream));

    stream->device = device;
    stream->random = atomic_fetch_add(&n_started, 1) * 7919 + 1;
    (void)pthread_cond_init(&stream->more, NULL);
    if (pthread_create(&stream->thread, NULL, stream_main, stream) != 0) {
        abort();
    }
    return stream;
}

void check_device_stream_stop(stream_t *stream)
{
    lock(stream->device);
    stream->is_over = true;
    (void)pthread_cond_signal(&stream->more);
    unlock(stream->device);
    (void)pthread_join(stream->thread, NULL);
    (void)pthread_cond_destroy(&stream->more);
    free(stream);
}

static void drain(stream_t *stream)
{
    state_t *s = state_of(stream->device);

    lock(stream->device);
    while (stream->first != NULL || stream->is_busy) {
        (void)pthread_cond_wait(&s->changed, &s->mutex);
    }
    unlock(stream->device);
}

static void count_wait(plait_device_t *device)
{
    lock(device);
    state_of(device)->counts.n_waits++;
    unlock(device);
}

plait_status_t check_device_stream_create(plait_device_t *device,
                                          plait_stream_t *stream_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_device_count_call(device, "stream_create"));
    *stream_p = check_device_stream_start(device);
    lock(device);
    state_of(device)->n_streams++;
    unlock(device);
done:
    return status;
}

void check_device_stream_destroy(plait_device_t *device, plait_stream_t stream)
{
    lock(device);
    state_of(device)->n_streams--;
    unlock(device);
    check_device_stream_stop(stream);
}

plait_status_t check_device_stream_wait(plait_device_t *device, plait_stream_t stream)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_device_count_call(device, "stream_wait"));
    count_wait(device);
    drain(stream);
done:
    return status;
}

plait_stream_t check_device_stream(plait_device_t *device)
{
    return state_of(device)->own;
}

void check_device_drain(plait_device_t *device)
{
    drain(state_of(device)->own);
}

/* ------------------------------------------------------------------ events */

typedef struct {
    plait_event_t *event;
    int64_t number;
} mark_t;

/* Under the lock. */
static void release(plait_event_t *event)
{
    if (--event->n_held == 0) {
        if (event->board != NULL) {
            (void)munmap(event->board, sizeof(*event->board));
        }
        if (event->fd > 0) {
            (void)close(event->fd);
        }
        free(event);
    }
}

plait_status_t check_device_event_create(plait_device_t *device,
                                         plait_event_t **event_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_device_count_call(device, "event_create"));
    *event_p = calloc(1, sizeof(**event_p));
    (*event_p)->n_held = 1;
    (*event_p)->device = device;
    lock(device);
    state_of(device)->n_events++;
    unlock(device);
done:
    return status;
}

void check_device_event_destroy(plait_device_t *device, plait_event_t *event)
{
    lock(device);
    state_of(device)->n_events--;
    release(event);
    unlock(device);
}

static void run_fire(plait_device_t *by, void *argument)
{
    const mark_t *mark = argument;
    plait_device_t *device = mark->event->device;

    lock(device);
    mark->event->n_fired = mark->number;
    if (mark->event->board != NULL) {
        atomic_store(&mark->event->board->n_fired, mark->number);
    }
    (void)pthread_cond_broadcast(&state_of(device)->changed);
    release(mark->event);
    unlock(device);
    (void)by;
}

/* An event of another process: waits until it has fired, or until that process has gone. */
static void wait_for_board(const board_t *board, int64_t number)
{
    const struct timespec nap = {.tv_nsec = 20000};

    while (atomic_load(&board->n_fired) < number && kill(board->pid, 0) == 0) {
        (void)nanosleep(&nap, NULL);
    }
}

/* Runs on a stream of any device. */
static void run_wait(plait_device_t *by, void *argument)
{
    const mark_t *mark = argument;
    plait_device_t *device = mark->event->device;
    state_t *s = state_of(device);

    if (mark->event->board != NULL) {
        wait_for_board(mark->event->board, mark->number);
    }
    lock(device);
    while (mark->event->board == NULL && mark->event->n_fired < mark->number) {
        (void)pthread_cond_wait(&s->changed, &s->mutex);
    }
    release(mark->event);
    unlock(device);
    (void)by;
}

static mark_t mark_of(plait_event_t *event, bool is_new)
{
    plait_device_t *device = event->device;

    lock(device);
    event->n_held++;
    event->n_recorded += is_new;
    if (event->board != NULL && is_new) {
        atomic_store(&event->board->n_recorded, event->n_recorded);
    }
    mark_t mark = {event, (event->board != NULL)
                              ? atomic_load(&event->board->n_recorded)
                              : event->n_recorded};
    unlock(device);
    return mark;
}

plait_status_t check_device_event_record(plait_device_t *device, plait_event_t *event,
                                         plait_stream_t stream)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_device_count_call(device, "event_record"));
    const mark_t mark = mark_of(event, true);
    check_device_enqueue(stream, run_fire, &mark, sizeof(mark));
done:
    return status;
}

plait_status_t check_device_event_order(plait_device_t *device, plait_event_t *event,
                                        plait_stream_t stream)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_device_count_call(device, "event_order"));
    const mark_t mark = mark_of(event, false);
    check_device_enqueue(stream, run_wait, &mark, sizeof(mark));
done:
    return status;
}

plait_status_t check_device_event_wait(plait_device_t *device, plait_event_t *event)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_device_count_free_call(device, "event_wait"));
    count_wait(device);
    mark_t mark = mark_of(event, false);
    run_wait(device, &mark);
done:
    return status;
}

plait_status_t check_device_event_ask(plait_device_t *device, plait_event_t *event,
                                      bool *is_over_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_device_count_call(device, "event_ask"));
    lock(device);
    *is_over_p = event->n_fired == event->n_recorded;
    unlock(device);
done:
    return status;
}

/* ------------------------------------------------------------------ other processes */

typedef struct {
    int32_t pid, fd;
} event_handle_t;

static board_t *map_board(int fd)
{
    board_t *board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return (board == MAP_FAILED) ? NULL : board;
}

plait_status_t check_device_event_export(plait_device_t *device,
                                         plait_event_t **event_p,
                                         plait_device_handle_t *handle_p)
{
    plait_status_t status = PLAIT_OK;
    plait_event_t *event = NULL;
    event_handle_t handle = {.pid = (int32_t)getpid(), .fd = -1};

    PLAIT_TRY(check_device_event_create(device, &event));
    handle.fd = memfd_create("plait check event", MFD_CLOEXEC);
    if (handle.fd >= 0 && ftruncate(handle.fd, sizeof(*event->board)) == 0) {
        event->board = map_board(handle.fd);
    }
    PLAIT_CHECK(event->board != NULL, PLAIT_ERR_NO_MEMORY, "check device: no event");
    event->board->pid = handle.pid;
    event->fd = handle.fd;
    memcpy(handle_p, &handle, sizeof(handle));
    *event_p = event;
done:
    return status;
}

plait_status_t check_device_event_import(plait_device_t *device,
                                         const plait_device_handle_t *handle,
                                         plait_event_t **event_p)
{
    plait_status_t status = PLAIT_OK;
    plait_event_t *event = NULL;
    event_handle_t theirs;
    char path[64];
    int fd = -1;

    memcpy(&theirs, handle, sizeof(theirs));
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)theirs.pid,
                   (int)theirs.fd);
    PLAIT_TRY(check_device_event_create(device, &event));
    fd = open(path, O_RDWR | O_CLOEXEC);
    event->board = (fd >= 0) ? map_board(fd) : NULL;
    PLAIT_CHECK(event->board != NULL, PLAIT_ERR_TRANSPORT, "check device: no event %s",
                path);
    *event_p = event;
    event = NULL;
done:
    if (fd >= 0) {
        (void)close(fd);
    }
    if (event != NULL) {
        check_device_event_destroy(device, event);
    }
    return status;
}
