#include "base/trace.h"

#include "base/clock.h"
#include "base/flight.h"
#include "base/log.h"
#include "base/setting.h"
#include "base/site.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LOG_ROOM = 1 << 14, PART_CHUNK = 1 << 12 };
#define PART_BYTES ((int64_t)1 << 32)

/* Who wants to see operations; plait_trace_begin reads all of them in one load. */
enum { IS_UNREADY = 1, HAS_LINES = 2, HAS_PART = 4, HAS_LOG = 8 };

static atomic_int wants = IS_UNREADY;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static plait_record_file_t part = {.fd = PLAIT_RECORD_CLOSED};
static _Atomic int64_t n_part;       /* entries, the last ones perhaps under way */
static _Atomic int64_t n_part_there; /* entries that the file has room for */

static plait_entry_t log_entries[LOG_ROOM];
static atomic_int n_log;

static _Thread_local int32_t thread_id;
static _Thread_local plait_flight_entry_t *current;
static _Thread_local plait_flight_entry_t unseen; /* if the ring has no free place */

static void open_part(void)
{
    const char *trace = getenv("PLAIT_TRACE");

    if (trace != NULL && trace[0] != '\0' && !plait_setting_means_off(trace) &&
        plait_record_open_part(&part, trace, PART_BYTES)) {
        plait_record_begin(part.header);
        part.header->entry_bytes = (int32_t)sizeof(plait_entry_t);
        atomic_fetch_or(&wants, HAS_PART);
    }
}

/* Operations of a forked child are not recorded: the files belong to its parent. Texts that have numbers keep
 * them. A thread that the child does not have may have held the mutex. */
static void forget_files(void)
{
    (void)pthread_mutex_init(&mutex, NULL);
    atomic_fetch_and(&wants, ~HAS_PART);
    plait_record_forget(&part);
    plait_flight_forget();
}

/* Before anything else here: reads the environment, once. */
static void prepare(void)
{
    (void)pthread_mutex_lock(&mutex);
    if ((atomic_load(&wants) & IS_UNREADY) != 0) {
        (void)pthread_atfork(NULL, NULL, forget_files);
        plait_flight_open();
        open_part();
        if (plait_setting_is_on("PLAIT_DEBUG")) {
            atomic_fetch_or(&wants, HAS_LINES);
        }
        atomic_fetch_and(&wants, ~IS_UNREADY);
    }
    (void)pthread_mutex_unlock(&mutex);
}

static int wanted(void)
{
    int now = atomic_load_explicit(&wants, memory_order_acquire);

    if ((now & IS_UNREADY) != 0) {
        prepare();
        now = atomic_load_explicit(&wants, memory_order_acquire);
    }
    return now;
}

static int32_t this_thread(void)
{
    if (thread_id == 0) {
        thread_id = (int32_t)syscall(SYS_gettid);
    }
    return thread_id;
}

uint32_t plait_trace_text(const char *text)
{
    (void)wanted();
    return plait_flight_text(text);
}

void plait_trace_make(int n_ranks)
{
    (void)wanted();
    plait_record_header_t *header = plait_flight_file()->header;
    if (header != NULL && n_ranks > 0) {
        header->making_size = n_ranks;
        header->making_ns = plait_clock_ns();
        atomic_fetch_add(&header->n_making, 1);
    } else if (header != NULL) {
        atomic_fetch_sub(&header->n_making, 1);
    }
}

void plait_trace_set_why(const char *why)
{
    (void)wanted();
    plait_record_header_t *header = plait_flight_file()->header;
    if (header != NULL) {
        (void)snprintf(header->why, sizeof(header->why), "%s", why);
        atomic_store(&header->has_why, 1);
    }
}

/* An operation keeps its place until it ends, however many begin meanwhile: it writes there what it waits for,
 * and others rely on that. The numbers of occupied places are skipped. */
static plait_flight_entry_t *take_place(plait_ring_t *ring, uint64_t *number_p)
{
    plait_flight_entry_t *taken = NULL;

    for (int n_tried = 0; taken == NULL && n_tried < PLAIT_RING_ROOM; n_tried++) {
        uint64_t i = atomic_fetch_add_explicit(&ring->n, 1, memory_order_relaxed);
        plait_flight_entry_t *e = &ring->entries[i % PLAIT_RING_ROOM];
        int32_t ended = atomic_load_explicit(&e->status, memory_order_relaxed);
        bool is_mine = ended != PLAIT_STATUS_UNDER_WAY &&
                       atomic_compare_exchange_strong_explicit(
                           &e->status, &ended, PLAIT_STATUS_UNDER_WAY,
                           memory_order_acquire, memory_order_relaxed);
        taken = is_mine ? e : NULL;
        *number_p = i + 1;
    }
    return (taken != NULL) ? taken : &unseen;
}

plait_flight_entry_t *plait_trace_begin(const plait_trace_call_t *call)
{
    (void)wanted();
    uint64_t number = 0;
    plait_flight_entry_t *e = take_place(plait_flight_ring(call->track), &number);

    atomic_store_explicit(&e->number, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    e->start_ns = plait_clock_coarse_ns();
    e->n_bytes = call->n_bytes;
    e->comm = (int32_t)call->comm;
    e->sequence = call->sequence;
    e->rank = call->rank;
    e->track = (int16_t)call->track;
    e->is_collective = (uint8_t)call->is_collective;
    e->is_started = (uint8_t)call->is_started;
    e->n_collectives = call->n_collectives;
    e->peer = call->peer;
    e->thread = this_thread();
    e->title = call->title;
    e->where = plait_site_ref(plait_site_here());
    atomic_store_explicit(&e->status, PLAIT_STATUS_UNDER_WAY, memory_order_relaxed);
    atomic_store_explicit(&e->number, number, memory_order_release);
    current = e;
    return e;
}

plait_flight_entry_t *plait_trace_current(void)
{
    return current;
}

void plait_trace_give_up(int64_t comm)
{
    plait_record_header_t *header = plait_flight_file()->header;

    if (header != NULL) {
        uint32_t i = atomic_fetch_add(&header->n_given_up, 1);
        atomic_store(&header->given_up[i % PLAIT_GIVEN_UP_ROOM], (int32_t)comm);
    }
}

/* Grows the file by a chunk; the trace ends if that fails. */
static bool has_room(int64_t i)
{
    bool is_there = i < atomic_load_explicit(&n_part_there, memory_order_acquire);

    if (!is_there) {
        (void)pthread_mutex_lock(&mutex);
        int64_t there = atomic_load(&n_part_there);
        int64_t bytes = (int64_t)sizeof(plait_entry_t);
        int64_t end = PLAIT_RECORD_HEADER_BYTES + (there + PART_CHUNK) * bytes;
        if (i >= there && end <= PART_BYTES &&
            plait_record_reserve(&part, end - PART_CHUNK * bytes, PART_CHUNK * bytes)) {
            atomic_store(&n_part_there, there + PART_CHUNK);
        }
        is_there = i < atomic_load(&n_part_there);
        if (!is_there && (atomic_fetch_and(&wants, ~HAS_PART) & HAS_PART) != 0) {
            plait_log(PLAIT_LOG_WARN, "the trace ends here: no room for more in %s",
                      part.path);
        }
        (void)pthread_mutex_unlock(&mutex);
    }
    return is_there;
}

static void copy_text(char *to, size_t room, const char *from)
{
    size_t length = strnlen(from, room - 1);

    memcpy(to, from, length);
    to[length] = '\0';
}

static void put(plait_entry_t *to, const plait_flight_entry_t *e,
                const plait_trace_times_t *times, uint64_t number)
{
    to->start_ns = times->start_ns;
    to->end_ns = times->end_ns;
    to->wait_ns = times->wait_ns;
    to->copy_ns = times->copy_ns;
    to->n_bytes = e->n_bytes;
    to->comm = e->comm;
    to->sequence = e->sequence;
    to->rank = e->rank;
    to->track = e->track;
    to->peer = e->peer;
    to->is_collective = e->is_collective;
    to->thread = e->thread;
    to->status = atomic_load_explicit(&e->status, memory_order_relaxed);
    copy_text(to->title, sizeof(to->title), plait_flight_text_at(e->title));
    copy_text(to->where, sizeof(to->where), plait_flight_text_at(e->where));
    atomic_store_explicit(&to->number, number, memory_order_release);
}

void plait_trace_end(plait_flight_entry_t *e, const plait_trace_times_t *times,
                     plait_status_t status)
{
    int now = atomic_load_explicit(&wants, memory_order_relaxed);

    atomic_store_explicit(&e->status, (int32_t)status, memory_order_release);
    current = NULL;
    if ((now & HAS_PART) != 0 && times != NULL) {
        int64_t i = atomic_fetch_add(&n_part, 1);
        plait_entry_t *first =
            (plait_entry_t *)(void *)((char *)part.header + PLAIT_RECORD_HEADER_BYTES);
        if (has_room(i)) {
            put(&first[i], e, times, (uint64_t)i + 1);
        }
    }
    if ((now & HAS_LOG) != 0 && times != NULL) {
        int i = atomic_fetch_add(&n_log, 1);
        if (i < LOG_ROOM) {
            put(&log_entries[i], e, times, (uint64_t)i + 1);
        }
    }
}

bool plait_trace_is_timed(void)
{
    return wanted() != 0;
}

void plait_trace_set_lines(int is_on)
{
    (void)wanted();
    if (is_on) {
        atomic_fetch_or(&wants, HAS_LINES);
    } else {
        atomic_fetch_and(&wants, ~HAS_LINES);
    }
}

int plait_trace_has_lines(void)
{
    return (wanted() & HAS_LINES) != 0;
}

static void for_each_header(void (*set)(plait_record_header_t *header,
                                        const void *value),
                            const void *value)
{
    (void)wanted();
    if (plait_flight_file()->header != NULL) {
        set(plait_flight_file()->header, value);
    }
    if (part.header != NULL) {
        set(part.header, value);
    }
}

static void set_world(plait_record_header_t *header, const void *value)
{
    const int *rank_size = value;

    header->rank = rank_size[0];
    header->size = rank_size[1];
}

void plait_trace_set_world(int rank, int size)
{
    const int rank_size[] = {rank, size};

    for_each_header(set_world, rank_size);
}

static void set_job(plait_record_header_t *header, const void *value)
{
    (void)snprintf(header->job, sizeof(header->job), "%s", (const char *)value);
}

void plait_trace_set_job(const char *job)
{
    for_each_header(set_job, job);
}

void plait_trace_set_offset(int64_t offset_ns)
{
    if ((wanted() & HAS_PART) != 0) {
        part.header->offset_ns = offset_ns;
        part.header->has_offset = 1;
    }
}

int plait_trace_is_open(void)
{
    return (atomic_load(&wants) & IS_UNREADY) == 0;
}

const char *plait_trace_part(void)
{
    (void)wanted();
    return (part.header != NULL) ? part.path
                                 : ""; /* also of an operation that has ended */
}

const void *plait_trace_flight(int64_t *n_bytes_p)
{
    (void)wanted();
    const void *header = plait_flight_file()->header;
    *n_bytes_p = (header != NULL) ? PLAIT_FLIGHT_BYTES : 0;
    return header;
}

const char *plait_trace_flight_path(void)
{
    (void)wanted();
    return plait_flight_file()->path;
}

void plait_trace_close(int is_well)
{
    plait_end_t end = is_well ? PLAIT_RECORD_ENDED_WELL : PLAIT_RECORD_FAILED;

    (void)pthread_mutex_lock(&mutex);
    atomic_fetch_and(&wants, ~HAS_PART);
    /* Threads that go on find no room in the file, which is closed now. */
    int64_t n = atomic_exchange(&n_part, PART_BYTES);
    n = (n < atomic_load(&n_part_there)) ? n : atomic_load(&n_part_there);
    plait_record_close(&part, end,
                       PLAIT_RECORD_HEADER_BYTES + n * (int64_t)sizeof(plait_entry_t));
    plait_record_close(plait_flight_file(), end, is_well ? 0 : PLAIT_FLIGHT_BYTES);
    (void)pthread_mutex_unlock(&mutex);
}

void plait_trace_leave(void)
{
    int32_t runs = PLAIT_RECORD_RUNS;

    (void)pthread_mutex_lock(&mutex);
    plait_record_header_t *header = plait_flight_file()->header;
    if (header != NULL && header->pid == (int32_t)getpid()) {
        (void)atomic_compare_exchange_strong(&header->state, &runs,
                                             PLAIT_RECORD_ENDED_WELL);
    }
    (void)pthread_mutex_unlock(&mutex);
}

/* For programs that do not call plait_trace_close: nobody has said whether all went well. */
__attribute__((destructor)) static void close_at_exit(void)
{
    plait_trace_close(plait_flight_is_well());
}

void plait_trace_start(int is_on)
{
    (void)wanted();
    if (is_on) {
        atomic_store(&n_log, 0);
        atomic_fetch_or(&wants, HAS_LOG);
    } else {
        atomic_fetch_and(&wants, ~HAS_LOG);
    }
}

int plait_trace_count(void)
{
    return atomic_load(&n_log);
}

void plait_trace_read(int i, char *text, int n_bytes)
{
    text[0] = '\0';
    if (i >= 0 && i < LOG_ROOM && i < plait_trace_count()) {
        const plait_entry_t *e = &log_entries[i];
        plait_status_t status = (plait_status_t)e->status;
        (void)snprintf(text, (size_t)n_bytes, "%d %d %s %s", e->thread, e->rank,
                       plait_status_name(status), e->title);
    }
}
