#include "base/status.h"
#include "check_device_parts.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MAX_BLOCKS = 512, MAX_PINNED = 64, MAX_MARKS = 4096, GUARD_BYTES = 256 };
enum { GUARD = 0x6b, GIVEN = 0xdd };
static const int64_t arena_bytes = INT64_C(1)
                                   << 28; /* pages that are touched count alone */

typedef struct {
    int64_t at, n_bytes;        /* without guards */
    bool is_used, is_returning; /* given, in the order of a stream */
} block_t;

typedef struct {
    char *data;
    int64_t n_bytes;
    bool is_used;
} pinned_t;

/* One thing to do; `argument` is freed with it. */
typedef struct work {
    void (*run)(plait_device_t *device, void *argument);
    void *argument;
    struct work *next;
} work_t;

typedef struct stream {
    plait_device_t *device;
    pthread_t thread;
    work_t *first, *last;
    bool is_busy, is_over;
    uint64_t random;
} stream_t;

struct plait_event {
    int64_t n_recorded, n_fired;
    int n_held; /* by its owner and by work */
};

typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* anything */
    char *front, *back;     /* the arena, as the library and as the device sees it */
    block_t blocks[MAX_BLOCKS];
    pinned_t pinned[MAX_PINNED];
    uint64_t marks[MAX_MARKS];
    int n_marks;
    int n_streams, n_events, n_pending; /* of work: on all streams */
    stream_t *own;
    check_device_counts_t counts;
    int64_t n_until_failure;
    bool is_dying, is_dead;
    int n_faults;
} state_t;

static _Thread_local plait_device_t *current;

static state_t *state_of(const plait_device_t *device)
{
    return device->state;
}

void check_device_fault(plait_device_t *device, const char *format, ...)
{
    char text[200];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    state_of(device)->n_faults++;
    printf("check device %d: %s\n", device->ordinal, text);
}

static void lock(plait_device_t *device)
{
    (void)pthread_mutex_lock(&state_of(device)->mutex);
}

static void unlock(plait_device_t *device)
{
    (void)pthread_mutex_unlock(&state_of(device)->mutex);
}

/* At the begin of each call that may fail. */
plait_status_t check_device_count_call(plait_device_t *device, const char *what)
{
    plait_status_t status = PLAIT_OK;
    state_t *s = state_of(device);

    lock(device);
    int64_t n = ++s->counts.n_calls;
    bool fails = s->is_dead || (s->n_until_failure > 0 && --s->n_until_failure == 0);
    s->is_dead = s->is_dead || (fails && s->is_dying);
    while (s->is_dead && s->n_pending > 0) { /* what is dead does nothing any more */
        (void)pthread_cond_wait(&s->changed, &s->mutex);
    }
    if (current != device) {
        check_device_fault(device, "%s outside enter and leave", what);
    }
    unlock(device);
    PLAIT_CHECK(!fails, PLAIT_ERR_INTERNAL, "check device %d: %s fails, call %lld",
                device->ordinal, what, (long long)n);
done:
    return status;
}

static void count_wait(plait_device_t *device)
{
    lock(device);
    state_of(device)->counts.n_waits++;
    unlock(device);
}

/* ------------------------------------------------------------------ memory */

static bool is_in_arena(const state_t *s, const void *p)
{
    return (const char *)p >= s->front && (const char *)p < s->front + arena_bytes;
}

void *check_device_view(const plait_device_t *device, const void *memory)
{
    const state_t *s = state_of(device);

    return (memory == NULL) ? NULL : s->back + ((const char *)memory - s->front);
}

/* Under the lock: bytes [p, p + n_bytes) are in one block that was not given back. */
static bool is_live(const state_t *s, const char *p, int64_t n_bytes)
{
    bool is_live = false;

    for (int i = 0; i < MAX_BLOCKS && !is_live && is_in_arena(s, p); i++) {
        const block_t *b = &s->blocks[i];
        int64_t at = p - s->front;
        is_live = b->is_used && !b->is_returning && at >= b->at &&
                  at + n_bytes <= b->at + b->n_bytes;
    }
    return is_live;
}

void check_device_need_live(plait_device_t *device, const char *what, const void *p,
                            int64_t n_bytes)
{
    lock(device);
    if (n_bytes > 0 && !is_live(state_of(device), p, n_bytes)) {
        check_device_fault(device, "%s of %lld bytes at %p, not the device's", what,
                           (long long)n_bytes, p);
    }
    unlock(device);
}

/* Under the lock: the lowest place where so much is free. */
static int64_t find_room(const state_t *s, int64_t n_bytes)
{
    int64_t at = GUARD_BYTES;
    bool is_moving = true;

    while (is_moving) {
        is_moving = false;
        for (int i = 0; i < MAX_BLOCKS; i++) {
            const block_t *b = &s->blocks[i];
            if (b->is_used && at < b->at + b->n_bytes + GUARD_BYTES &&
                b->at - GUARD_BYTES < at + n_bytes) {
                at = (b->at + b->n_bytes + 2 * GUARD_BYTES - 1) / GUARD_BYTES *
                         GUARD_BYTES +
                     GUARD_BYTES;
                is_moving = true;
            }
        }
    }
    return at;
}

static block_t *block_at(state_t *s, const void *memory)
{
    block_t *found = NULL;

    for (int i = 0; i < MAX_BLOCKS && found == NULL; i++) {
        block_t *b = &s->blocks[i];
        found =
            (b->is_used && !b->is_returning && s->front + b->at == memory) ? b : NULL;
    }
    return found;
}

static void set_guards(state_t *s, const block_t *b)
{
    memset(s->back + b->at - GUARD_BYTES, GUARD, GUARD_BYTES);
    memset(s->back + b->at + b->n_bytes, GUARD, GUARD_BYTES);
}

static bool are_guards_whole(const state_t *s, const block_t *b)
{
    bool is_whole = true;

    for (int64_t i = 0; i < GUARD_BYTES; i++) {
        is_whole = is_whole && s->back[b->at - 1 - i] == GUARD &&
                   s->back[b->at + b->n_bytes + i] == GUARD;
    }
    return is_whole;
}

void *check_device_alloc(plait_device_t *device, int64_t n_bytes)
{
    state_t *s = state_of(device);
    void *memory = NULL;

    lock(device);
    for (int i = 0; i < MAX_BLOCKS && memory == NULL && n_bytes > 0; i++) {
        block_t *b = &s->blocks[i];
        int64_t at = b->is_used ? 0 : find_room(s, n_bytes);
        if (!b->is_used && at + n_bytes + GUARD_BYTES <= arena_bytes) {
            *b = (block_t){.at = at, .n_bytes = n_bytes, .is_used = true};
            set_guards(s, b);
            memory = s->front + at;
        }
    }
    unlock(device);
    return memory;
}

/* Under the lock. */
static void put_back(plait_device_t *device, block_t *b)
{
    state_t *s = state_of(device);

    if (!are_guards_whole(s, b)) {
        check_device_fault(device, "something was written beside %lld bytes",
                           (long long)b->n_bytes);
    }
    memset(s->back + b->at, GIVEN, (size_t)b->n_bytes);
    b->is_used = false;
}

void check_device_free(plait_device_t *device, void *memory)
{
    lock(device);
    block_t *b = block_at(state_of(device), memory);
    if (b != NULL) {
        put_back(device, b);
    } else if (memory != NULL) {
        check_device_fault(device, "free of %p", memory);
    }
    unlock(device);
}

static plait_status_t host_take(plait_device_t *device, int64_t n_bytes, void **host_p)
{
    plait_status_t status = PLAIT_OK;
    state_t *s = state_of(device);
    pinned_t *found = NULL;

    PLAIT_TRY(check_device_count_call(device, "host_take"));
    lock(device);
    for (int i = 0; i < MAX_PINNED && found == NULL; i++) {
        pinned_t *p = &s->pinned[i];
        found = (!p->is_used && p->n_bytes == n_bytes) ? p : NULL;
    }
    for (int i = 0; i < MAX_PINNED && found == NULL; i++) {
        pinned_t *p = &s->pinned[i];
        found = (p->data == NULL) ? p : NULL;
    }
    if (found != NULL && found->data == NULL) {
        *found = (pinned_t){.data = malloc((size_t)n_bytes), .n_bytes = n_bytes};
    }
    if (found != NULL) {
        found->is_used = true;
        *host_p = found->data;
    }
    unlock(device);
    PLAIT_CHECK(found != NULL && found->data != NULL, PLAIT_ERR_NO_MEMORY,
                "check device: no pinned memory");
done:
    return status;
}

/* What copies under way still read or write is not freed, but overwritten. */
static void host_give(plait_device_t *device, void *host)
{
    state_t *s = state_of(device);
    bool is_known = host == NULL;

    lock(device);
    for (int i = 0; i < MAX_PINNED; i++) {
        pinned_t *p = &s->pinned[i];
        if (p->is_used && p->data == host) {
            memset(p->data, GIVEN, (size_t)p->n_bytes);
            p->is_used = false;
            is_known = true;
        }
    }
    if (!is_known) {
        check_device_fault(device, "host_give of %p", host);
    }
    unlock(device);
}

void check_device_need_pinned(plait_device_t *device, const void *host, int64_t n_bytes)
{
    const state_t *s = state_of(device);
    bool is_pinned = n_bytes == 0;

    lock(device);
    for (int i = 0; i < MAX_PINNED && !is_pinned; i++) {
        const pinned_t *p = &s->pinned[i];
        const char *at = host;
        is_pinned = p->is_used && at >= p->data && at + n_bytes <= p->data + p->n_bytes;
    }
    if (!is_pinned) {
        check_device_fault(device, "a copy with host memory that is not pinned");
    }
    unlock(device);
}

/* ------------------------------------------------------------------ streams */

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* Late, now and then very. */
static void dawdle(stream_t *stream)
{
    uint64_t r = next_random(&stream->random);
    const struct timespec nap = {.tv_nsec = (r % 16 == 0)  ? 300000
                                            : (r % 4 == 0) ? 20000
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
            (void)pthread_cond_wait(&s->changed, &s->mutex);
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
        (void)pthread_cond_broadcast(&s->changed);
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
    (void)pthread_cond_broadcast(&state_of(stream->device)->changed);
    unlock(stream->device);
}

static stream_t *stream_start(plait_device_t *device)
{
    static _Atomic uint64_t n_started;
    stream_t *stream = calloc(1, sizeof(*stream));

    stream->device = device;
    stream->random = atomic_fetch_add(&n_started, 1) * 7919 + 1;
    if (pthread_create(&stream->thread, NULL, stream_main, stream) != 0) {
        abort();
    }
    return stream;
}

static void stream_stop(stream_t *stream)
{
    lock(stream->device);
    stream->is_over = true;
    (void)pthread_cond_broadcast(&state_of(stream->device)->changed);
    unlock(stream->device);
    (void)pthread_join(stream->thread, NULL);
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

static plait_status_t stream_create(plait_device_t *device, plait_stream_t *stream_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_device_count_call(device, "stream_create"));
    *stream_p = stream_start(device);
    lock(device);
    state_of(device)->n_streams++;
    unlock(device);
done:
    return status;
}

static void stream_destroy(plait_device_t *device, plait_stream_t stream)
{
    lock(device);
    state_of(device)->n_streams--;
    unlock(device);
    stream_stop(stream);
}

static plait_status_t stream_wait(plait_device_t *device, plait_stream_t stream)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_device_count_call(device, "stream_wait"));
    count_wait(device);
    drain(stream);
done:
    return status;
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
        free(event);
    }
}

static plait_status_t event_create(plait_device_t *device, plait_event_t **event_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_device_count_call(device, "event_create"));
    *event_p = calloc(1, sizeof(**event_p));
    (*event_p)->n_held = 1;
    lock(device);
    state_of(device)->n_events++;
    unlock(device);
done:
    return status;
}

static void event_destroy(plait_device_t *device, plait_event_t *event)
{
    lock(device);
    state_of(device)->n_events--;
    release(event);
    unlock(device);
}

static void run_fire(plait_device_t *device, void *argument)
{
    const mark_t *mark = argument;

    lock(device);
    mark->event->n_fired = mark->number;
    (void)pthread_cond_broadcast(&state_of(device)->changed);
    release(mark->event);
    unlock(device);
}

static void run_wait(plait_device_t *device, void *argument)
{
    const mark_t *mark = argument;
    state_t *s = state_of(device);

    lock(device);
    while (mark->event->n_fired < mark->number) {
        (void)pthread_cond_wait(&s->changed, &s->mutex);
    }
    release(mark->event);
    unlock(device);
}

static mark_t mark_of(plait_device_t *device, plait_event_t *event, bool is_new)
{
    lock(device);
    event->n_held++;
    event->n_recorded += is_new;
    mark_t mark = {event, event->n_recorded};
    unlock(device);
    return mark;
}

static plait_status_t event_record(plait_device_t *device, plait_event_t *event,
                                   plait_stream_t stream)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_device_count_call(device, "event_record"));
    const mark_t mark = mark_of(device, event, true);
    check_device_enqueue(stream, run_fire, &mark, sizeof(mark));
done:
    return status;
}

static plait_status_t event_order(plait_device_t *device, plait_event_t *event,
                                  plait_stream_t stream)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_device_count_call(device, "event_order"));
    const mark_t mark = mark_of(device, event, false);
    check_device_enqueue(stream, run_wait, &mark, sizeof(mark));
done:
    return status;
}

static plait_status_t event_wait(plait_device_t *device, plait_event_t *event)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_device_count_call(device, "event_wait"));
    count_wait(device);
    mark_t mark = mark_of(device, event, false);
    run_wait(device, &mark);
done:
    return status;
}

/* ------------------------------------------------------------------ taken memory */

static plait_status_t take(plait_device_t *device, plait_stream_t stream,
                           int64_t n_bytes, void **memory_p)
{
    plait_status_t status = PLAIT_OK;

    (void)stream;
    PLAIT_TRY(check_device_count_call(device, "take"));
    *memory_p = check_device_alloc(device, n_bytes);
    PLAIT_CHECK(*memory_p != NULL, PLAIT_ERR_NO_MEMORY, "check device: no memory");
done:
    return status;
}

static void run_put_back(plait_device_t *device, void *argument)
{
    block_t *b = *(block_t **)argument;

    lock(device);
    put_back(device, b);
    unlock(device);
}

static void give(plait_device_t *device, plait_stream_t stream, void *memory)
{
    lock(device);
    block_t *b = block_at(state_of(device), memory);
    if (b == NULL) {
        check_device_fault(device, "give of %p", memory);
    } else {
        b->is_returning = true;
    }
    unlock(device);
    if (b != NULL) {
        check_device_enqueue(stream, run_put_back, &b, sizeof(b));
    }
}

/* ------------------------------------------------------------------ the device */

static plait_status_t enter(plait_device_t *device)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *outside = current;

    current = device;
    PLAIT_TRY(check_device_count_call(device, "enter"));
    if (outside != NULL) {
        check_device_fault(device, "enter inside enter");
    }
done:
    current = (status == PLAIT_OK) ? device : NULL;
    return status;
}

static void leave(plait_device_t *device)
{
    if (current != device) {
        check_device_fault(device, "leave without enter");
    }
    current = NULL;
}

static const plait_device_table_t table = {
    .name = "check",
    .enter = enter,
    .leave = leave,
    .take = take,
    .give = give,
    .host_take = host_take,
    .host_give = host_give,
    .to_host = check_device_to_host,
    .to_device = check_device_to_device,
    .boxes = check_device_boxes,
    .reduce = check_device_reduce,
    .fft_plan = check_device_fft_plan,
    .fft = check_device_fft,
    .scale = check_device_scale,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_order = event_order,
    .event_wait = event_wait,
    .stream_wait = stream_wait,
};

/* The memory's two faces. */
static void map_arena(state_t *s)
{
    int fd = memfd_create("plait check device", MFD_CLOEXEC);

    if (fd < 0 || ftruncate(fd, arena_bytes) != 0) {
        abort();
    }
    s->front = mmap(NULL, (size_t)arena_bytes, PROT_NONE, MAP_SHARED, fd, 0);
    s->back =
        mmap(NULL, (size_t)arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (s->front == MAP_FAILED || s->back == MAP_FAILED) {
        abort();
    }
}

plait_device_t *check_device_create(int ordinal)
{
    plait_device_t *device = calloc(1, sizeof(*device));
    state_t *s = calloc(1, sizeof(*s));

    if (device == NULL || s == NULL) {
        abort();
    }
    *device = (plait_device_t){.table = &table, .ordinal = ordinal, .state = s};
    (void)pthread_mutex_init(&s->mutex, NULL);
    (void)pthread_cond_init(&s->changed, NULL);
    map_arena(s);
    s->own = stream_start(device);
    return device;
}

static void count_left(plait_device_t *device)
{
    const state_t *s = state_of(device);

    for (int i = 0; i < MAX_BLOCKS; i++) {
        if (s->blocks[i].is_used) {
            check_device_fault(device, "%lld bytes were not given back",
                               (long long)s->blocks[i].n_bytes);
        }
    }
    for (int i = 0; i < MAX_PINNED; i++) {
        if (s->pinned[i].is_used) {
            check_device_fault(device, "%lld pinned bytes were not given back",
                               (long long)s->pinned[i].n_bytes);
        }
    }
    if (s->n_streams != 0 || s->n_events != 0) {
        check_device_fault(device, "%d streams and %d events were not destroyed",
                           s->n_streams, s->n_events);
    }
}

int check_device_destroy(plait_device_t **device_p)
{
    plait_device_t *device = *device_p;
    state_t *s = state_of(device);

    stream_stop(s->own);
    count_left(device);
    int n_faults = s->n_faults;
    for (int i = 0; i < MAX_PINNED; i++) {
        free(s->pinned[i].data);
    }
    (void)munmap(s->front, (size_t)arena_bytes);
    (void)munmap(s->back, (size_t)arena_bytes);
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->mutex);
    free(s);
    free(device);
    *device_p = NULL;
    return n_faults;
}

void check_device_count_bytes(plait_device_t *device, int64_t n_down, int64_t n_up)
{
    lock(device);
    state_of(device)->counts.down_bytes += n_down;
    state_of(device)->counts.up_bytes += n_up;
    unlock(device);
}

bool check_device_mark(plait_device_t *device, uint64_t mark)
{
    state_t *s = state_of(device);
    bool is_known = false;

    lock(device);
    for (int i = 0; i < s->n_marks && !is_known; i++) {
        is_known = s->marks[i] == mark;
    }
    if (!is_known && s->n_marks < MAX_MARKS) {
        s->marks[s->n_marks++] = mark;
    }
    unlock(device);
    return is_known;
}

plait_stream_t check_device_stream(plait_device_t *device)
{
    return state_of(device)->own;
}

void check_device_drain(plait_device_t *device)
{
    drain(state_of(device)->own);
}

check_device_counts_t check_device_counts(plait_device_t *device)
{
    lock(device);
    check_device_counts_t counts = state_of(device)->counts;
    unlock(device);
    return counts;
}

void check_device_fail_at(plait_device_t *device, int64_t n, bool is_dead)
{
    state_t *s = state_of(device);

    lock(device);
    s->n_until_failure = n;
    s->is_dying = is_dead;
    s->is_dead = false;
    unlock(device);
}
