#include "base/site.h"

#include "base/trace.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { ROOM = 1 << 12 };

typedef struct {
    _Atomic int64_t id;   /* 0: free; set last, then never changed */
    _Atomic uint32_t ref; /* 0: not asked for yet */
    char text[PLAIT_SITE_TEXT_BYTES];
} entry_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static entry_t table[ROOM];
static _Atomic int64_t eager[PLAIT_SITE_EAGER_SLOTS];
static _Thread_local int64_t here;

/* The entry of an id, or the free entry where it belongs; NULL: the table is full and does not have it. */
static entry_t *place_of(int64_t id)
{
    entry_t *found = NULL;

    for (int i = 0; i < ROOM && found == NULL; i++) {
        entry_t *e = &table[((uint64_t)id + (uint64_t)i) % ROOM];
        int64_t there = atomic_load_explicit(&e->id, memory_order_acquire);
        found = (there == id || there == 0) ? e : NULL;
    }
    return found;
}

int64_t plait_site_put(int64_t id, const char *text)
{
    size_t length = strlen(text);
    size_t room = PLAIT_SITE_TEXT_BYTES - 1;
    const char *tail = (length > room) ? text + (length - room) : text;
    entry_t *e = NULL;

    (void)pthread_mutex_lock(&mutex);
    id = (id > 0) ? id : 1;
    e = place_of(id);
    while (e != NULL && atomic_load(&e->id) != 0 && strcmp(e->text, tail) != 0) {
        id++;
        e = place_of(id);
    }
    if (e == NULL) {
        id = 0;
    } else if (atomic_load(&e->id) == 0) {
        (void)snprintf(e->text, sizeof(e->text), "%s", tail);
        atomic_store_explicit(&e->id, id, memory_order_release);
    }
    (void)pthread_mutex_unlock(&mutex);
    return id;
}

const char *plait_site_text(int64_t id)
{
    const entry_t *e = (id > 0) ? place_of(id) : NULL;

    return (e != NULL && atomic_load(&e->id) == id) ? e->text : "";
}

uint32_t plait_site_ref(int64_t id)
{
    entry_t *e = (id > 0) ? place_of(id) : NULL;
    uint32_t ref = 0;

    if (e != NULL && atomic_load_explicit(&e->id, memory_order_acquire) == id) {
        ref = atomic_load_explicit(&e->ref, memory_order_relaxed);
        if (ref == 0) {
            ref = plait_trace_text(e->text);
            atomic_store_explicit(&e->ref, ref, memory_order_relaxed);
        }
    }
    return ref;
}

int64_t *plait_site_eager(void)
{
    return (int64_t *)(void *)eager;
}

void plait_site_enter(int64_t site, int64_t comm_id)
{
    if (site == 0) {
        uint64_t slot = (uint64_t)comm_id % PLAIT_SITE_EAGER_SLOTS;
        site = atomic_load_explicit(&eager[slot], memory_order_relaxed);
        if (site == 0) {
            site = atomic_load_explicit(&eager[0], memory_order_relaxed);
        }
    }
    here = site;
}

int64_t plait_site_here(void)
{
    return here;
}
