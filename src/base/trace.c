#include "base/trace.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ROOM = 1 << 14, TITLE_BYTES = 80 };

typedef struct {
    char title[TITLE_BYTES];
    int rank;
    long thread;
    plait_status_t status;
} entry_t;

static entry_t entries[ROOM];
static atomic_int n_entries;
static atomic_bool is_tracing;

void plait_trace_add(const char *title, int rank, plait_status_t status)
{
    if (!atomic_load_explicit(&is_tracing, memory_order_relaxed)) {
        return;
    }
    int i = atomic_fetch_add(&n_entries, 1);
    if (i < ROOM) {
        entry_t *e = &entries[i];
        (void)snprintf(e->title, sizeof(e->title), "%s", title);
        e->rank = rank;
        e->thread = syscall(SYS_gettid);
        e->status = status;
    }
}

void plait_trace_start(int is_on)
{
    atomic_store(&is_tracing, is_on != 0);
    if (is_on) {
        atomic_store(&n_entries, 0);
    }
}

int plait_trace_count(void)
{
    return atomic_load(&n_entries);
}

void plait_trace_read(int i, char *text, int n_bytes)
{
    const entry_t *e = &entries[(i >= 0 && i < ROOM) ? i : 0];

    text[0] = '\0';
    if (i >= 0 && i < ROOM && i < plait_trace_count()) {
        (void)snprintf(text, (size_t)n_bytes, "%ld %d %s %s", e->thread, e->rank,
                       plait_status_name(e->status), e->title);
    }
}
