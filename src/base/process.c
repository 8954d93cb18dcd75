#include "base/process.h"

#include "base/flight.h"
#include "base/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct plait_process {
    plait_process_card_t card;
    int fd;     /* of its flight recorder, which stays readable after it has ended */
    int pid_fd; /* -1: this kernel has none */
    plait_process_t *next;
};

/* Entries are added and never removed: readers need no lock. */
static _Atomic(plait_process_t *) known;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

plait_process_card_t plait_process_card(void)
{
    const plait_record_file_t *file = NULL;

    (void)plait_trace_text(""); /* opens the recorder */
    file = plait_flight_file();
    return (plait_process_card_t){.pid = (int32_t)getpid(),
                                  .flight_fd = (file->header != NULL) ? file->fd : -1,
                                  .flight_key =
                                      (file->header != NULL) ? file->header->key : 0};
}

/* Bytes are read, not mapped: the file may be shorter than the range asked for. */
static bool read_at(int fd, int64_t offset, void *data, size_t n_bytes)
{
    return pread(fd, data, n_bytes, offset) == (ssize_t)n_bytes;
}

bool plait_process_header(const plait_process_t *process, plait_record_header_t *header)
{
    return read_at(process->fd, 0, header, sizeof(*header)) &&
           header->key == process->card.flight_key;
}

static plait_process_t *open_process(const plait_process_card_t *card)
{
    /* kept to the end of this process: not counted */
    plait_process_t *process = calloc(1, sizeof(*process));
    plait_record_header_t header;
    char path[64];

    if (process != NULL) {
        (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)card->pid,
                       (int)card->flight_fd);
        process->card = *card;
        process->fd = open(path, O_RDONLY | O_CLOEXEC);
        process->pid_fd = (int)syscall(SYS_pidfd_open, card->pid, 0);
        if (process->fd < 0 || !plait_process_header(process, &header)) {
            (void)close(process->fd);
            (void)close(process->pid_fd);
            free(process);
            process = NULL;
        }
    }
    return process;
}

static plait_process_t *find(int32_t pid, uint64_t key)
{
    plait_process_t *process = atomic_load_explicit(&known, memory_order_acquire);

    while (process != NULL &&
           !(process->card.pid == pid && process->card.flight_key == key)) {
        process = process->next;
    }
    return process;
}

const plait_process_t *plait_process_find(const plait_process_card_t *card)
{
    plait_process_t *process = find(card->pid, card->flight_key);

    if (process == NULL && card->flight_fd >= 0) {
        (void)pthread_mutex_lock(&mutex);
        process = find(card->pid, card->flight_key);
        if (process == NULL) {
            process = open_process(card);
            if (process != NULL) {
                process->next = atomic_load(&known);
                atomic_store_explicit(&known, process, memory_order_release);
            }
        }
        (void)pthread_mutex_unlock(&mutex);
    }
    return process;
}

const plait_process_t *plait_process_next(const plait_process_t *process)
{
    return (process != NULL) ? process->next
                             : atomic_load_explicit(&known, memory_order_acquire);
}

int32_t plait_process_pid(const plait_process_t *process)
{
    return process->card.pid;
}

bool plait_process_is_gone(const plait_process_t *process)
{
    struct pollfd look = {.fd = process->pid_fd, .events = POLLIN};
    char path[64];

    if (process->pid_fd >= 0) {
        return poll(&look, 1, 0) > 0; /* readable once it has ended, also as a zombie */
    }
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)process->card.pid);
    return access(path, R_OK) != 0 && errno == ENOENT;
}

bool plait_process_ring(const plait_process_t *process, int track, plait_ring_t *ring)
{
    int64_t t = (unsigned)track % PLAIT_RINGS;
    plait_record_header_t header;
    ssize_t n = pread(process->fd, ring, sizeof(*ring),
                      PLAIT_RECORD_HEADER_BYTES + t * (int64_t)sizeof(plait_ring_t));
    bool is_known = n == (ssize_t)sizeof(*ring);

    if (n == 0) { /* the file ends before the ring */
        memset(ring, 0, sizeof(*ring));
        is_known = plait_process_header(process, &header) && header.lacks_rings == 0;
    }
    return is_known;
}

void plait_process_text(const plait_process_t *process, uint32_t number, char *text,
                        int n_bytes)
{
    ssize_t n = 0;

    if (number > 0) {
        n = pread(process->fd, text, (size_t)n_bytes - 1, PLAIT_FLIGHT_TEXTS + number);
    }
    text[(n > 0) ? n : 0] = '\0';
}

void plait_process_entry(const plait_process_t *process, const plait_flight_entry_t *e,
                         char *text, int n_bytes)
{
    char title[PLAIT_TITLE_BYTES];
    char where[PLAIT_SITE_TEXT_BYTES + 8];

    plait_process_text(process, e->title, title, (int)sizeof(title));
    plait_process_text(process, e->where, where, (int)sizeof(where));
    (void)snprintf(text, (size_t)n_bytes, "%s%s%s", title,
                   (where[0] != '\0') ? " at " : "", where);
}

void plait_process_call(const plait_process_card_t *card, int track, int64_t comm,
                        char *text, int n_bytes)
{
    const plait_process_t *process = plait_process_find(card);
    const plait_flight_entry_t *last = NULL;
    plait_ring_t ring;

    text[0] = '\0';
    if (process == NULL || !plait_process_ring(process, track, &ring)) {
        return;
    }
    for (int i = 0; i < PLAIT_RING_ROOM; i++) {
        const plait_flight_entry_t *e = &ring.entries[i];
        bool is_it = e->number > 0 && e->comm == (int32_t)comm &&
                     atomic_load(&e->status) != PLAIT_OK;
        last = (is_it && (last == NULL || e->number > last->number)) ? e : last;
    }
    if (last != NULL) {
        plait_process_entry(process, last, text, n_bytes);
    }
}

int64_t plait_process_cpu_ns(const plait_process_t *process)
{
    clockid_t clock;
    struct timespec t = {0};

    if (clock_getcpuclockid(process->card.pid, &clock) == 0) {
        (void)clock_gettime(clock, &t);
    }
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
