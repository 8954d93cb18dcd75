#include "device/pool.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/shared.h"
#include "base/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* More buffers than these may be in use at once: the surplus is allocated and freed. */
enum { MAX_BUFFERS = 64 };

/* Up to this size a peer reads memory well in small pages: a processor remembers that many (1536 to 3072). */
enum { SMALL_PAGES_BYTES = 4 << 20, HUGE_PAGE = 2 << 20 };

/* Limits idle buffers together to IDLE_SHARE times the most bytes taken at once in the last LATELY to 2 LATELY
 * takes. Without a limit, a program whose sizes change would keep a buffer of each size, and what its largest
 * operation once took. A program whose sizes repeat keeps all of its buffers. */
enum { IDLE_SHARE = 2, LATELY = 256 };

typedef struct {
    void *data;
    int64_t n_bytes;
    bool is_taken;
    uint64_t turn;         /* when it was last taken */
    uint64_t token;        /* 0: no other process can map the buffer */
    plait_shared_t shared; /* the buffer's memory if token is not 0 */
} entry_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static entry_t entries[MAX_BUFFERS];
static uint64_t n_turns;
static int64_t n_idle, n_taken; /* bytes */
/* most bytes taken at once: in the current LATELY takes, and in those before */
static int64_t most_taken[2];
static atomic_bool has_no_huge_pages;

/* ---- under the mutex ---- */

/* The smallest free buffer that is large enough but not over twice as large; NULL if there is none. */
static entry_t *find_fit(int64_t n_bytes, bool is_shown)
{
    entry_t *best = NULL;

    for (int i = 0; i < MAX_BUFFERS; i++) {
        entry_t *e = &entries[i];
        bool fits = e->data != NULL && !e->is_taken && e->n_bytes >= n_bytes &&
                    e->n_bytes / 2 <= n_bytes && (e->token != 0) == is_shown;
        if (fits && (best == NULL || e->n_bytes < best->n_bytes)) {
            best = e;
        }
    }
    return best;
}

/* The entry must be idle. */
static void release(entry_t *entry)
{
    n_idle -= entry->n_bytes;
    if (entry->token != 0) {
        plait_shared_destroy(&entry->shared);
    } else {
        plait_free(entry->data);
    }
    *entry = (entry_t){0};
}

/* The idle buffer that has not been taken for the longest time; NULL if no buffer is idle. */
static entry_t *find_oldest(void)
{
    entry_t *oldest = NULL;

    for (int i = 0; i < MAX_BUFFERS; i++) {
        entry_t *e = &entries[i];
        if (e->data != NULL && !e->is_taken &&
            (oldest == NULL || e->turn < oldest->turn)) {
            oldest = e;
        }
    }
    return oldest;
}

/* Called before a buffer is added, and every LATELY takes. */
static void release_oldest(void)
{
    const int64_t most = plait_max(most_taken[0], most_taken[1]);

    while (n_idle / IDLE_SHARE > most) {
        release(find_oldest());
    }
}

/* An entry without a buffer, for which an idle buffer is freed if need be; NULL: all buffers are taken. */
static entry_t *find_empty(void)
{
    entry_t *found = NULL;

    for (int i = 0; i < MAX_BUFFERS && found == NULL; i++) {
        found = (entries[i].data == NULL) ? &entries[i] : NULL;
    }
    if (found == NULL) {
        found = find_oldest();
        if (found != NULL) {
            release(found);
        }
    }
    return found;
}

/* The entry must be idle. */
static void take(entry_t *entry)
{
    entry->is_taken = true;
    entry->turn = ++n_turns;
    n_idle -= entry->n_bytes;
    n_taken += entry->n_bytes;
    most_taken[0] = plait_max(most_taken[0], n_taken);
    if (n_turns % LATELY == 0) {
        most_taken[1] = most_taken[0];
        most_taken[0] = n_taken;
        release_oldest();
    }
}

static void give(entry_t *entry)
{
    entry->is_taken = false;
    n_taken -= entry->n_bytes;
    n_idle += entry->n_bytes;
}

/* A new buffer is idle at first. */
static void enter(entry_t *entry, const entry_t *made)
{
    *entry = *made;
    n_idle += made->n_bytes;
}

static int64_t release_idle(void)
{
    int64_t n_bytes = 0;

    for (int i = 0; i < MAX_BUFFERS; i++) {
        if (entries[i].data != NULL && !entries[i].is_taken) {
            n_bytes += entries[i].n_bytes;
            release(&entries[i]);
        }
    }
    return n_bytes;
}

/* NULL: there is no memory, even without the pool's idle buffers. */
static void *allocate(int64_t n_bytes)
{
    release_oldest();
    void *data = plait_alloc_aligned(n_bytes);
    if (data == NULL && release_idle() > 0) {
        data = plait_alloc_aligned(n_bytes);
    }
    return data;
}

/* ---- the pool ---- */

plait_status_t plait_pool_take(int64_t n_bytes, void **buffer_p)
{
    plait_status_t status = PLAIT_OK;

    *buffer_p = NULL;
    if (n_bytes == 0) {
        goto done;
    }
    (void)pthread_mutex_lock(&mutex);
    entry_t *entry = find_fit(n_bytes, false);
    if (entry == NULL) {
        void *data = allocate(n_bytes);
        entry = (data != NULL) ? find_empty() : NULL;
        if (entry != NULL) {
            enter(entry, &(entry_t){.data = data, .n_bytes = n_bytes});
        }
        *buffer_p = data; /* without an entry it is freed when given back */
    }
    if (entry != NULL) {
        take(entry);
        *buffer_p = entry->data;
    }
    (void)pthread_mutex_unlock(&mutex);
    PLAIT_CHECK(*buffer_p != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for a work buffer of %lld bytes", (long long)n_bytes);
done:
    return status;
}

/* False: the system has no such memory. */
static bool make_shown(int64_t n_bytes, plait_shared_t *shared)
{
    const bool is_large = n_bytes >= SMALL_PAGES_BYTES;
    bool is_made = false;

    if (is_large) {
        n_bytes = (n_bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    }
    is_made = !(is_large && atomic_load(&has_no_huge_pages)) &&
              plait_shared_create("plait-work", n_bytes, shared) == PLAIT_OK;
    if (is_made && is_large && !plait_shared_compact(shared)) {
        atomic_store(&has_no_huge_pages, true);
        plait_shared_destroy(shared);
        is_made = false;
    }
    return is_made;
}

/* Enters the memory as a taken buffer of the pool; NULL: there is no entry for it. */
static const entry_t *enter_shown(const plait_shared_t *shared)
{
    entry_t *entry = NULL;

    (void)pthread_mutex_lock(&mutex);
    release_oldest();
    entry = find_empty();
    if (entry != NULL) {
        enter(entry, &(entry_t){.data = shared->base,
                                .n_bytes = shared->n_bytes,
                                .token = shared->inode << 32 | (uint32_t)shared->fd,
                                .shared = *shared});
        take(entry);
    }
    (void)pthread_mutex_unlock(&mutex);
    return entry;
}

plait_status_t plait_pool_take_shown(int64_t n_bytes, void **buffer_p,
                                     uint64_t *token_p)
{
    plait_shared_t made = {.fd = -1};
    const entry_t *found = NULL;

    (void)pthread_mutex_lock(&mutex);
    entry_t *fit = find_fit(n_bytes, true);
    if (fit != NULL) {
        take(fit);
    }
    (void)pthread_mutex_unlock(&mutex);
    found = fit;
    if (found == NULL && n_bytes > 0 && make_shown(n_bytes, &made)) {
        found = enter_shown(&made);
        if (found == NULL) {
            plait_shared_destroy(&made);
        }
    }
    *token_p = (found != NULL) ? found->token : 0;
    *buffer_p = (found != NULL) ? found->data : NULL;
    return (found != NULL) ? PLAIT_OK : plait_pool_take(n_bytes, buffer_p);
}

void plait_pool_give(void *buffer)
{
    bool is_known = false;

    if (buffer == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&mutex);
    for (int i = 0; i < MAX_BUFFERS && !is_known; i++) {
        if (entries[i].data == buffer) {
            give(&entries[i]);
            is_known = true;
        }
    }
    (void)pthread_mutex_unlock(&mutex);
    if (!is_known) {
        plait_free(buffer);
    }
}

int64_t plait_pool_trim(void)
{
    (void)pthread_mutex_lock(&mutex);
    const int64_t n_bytes = release_idle();
    (void)pthread_mutex_unlock(&mutex);
    return n_bytes;
}
