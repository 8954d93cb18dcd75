#include "device/pool.h"

#include "base/alloc.h"
#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* More buffers in use at once than this is legal: the surplus is allocated and freed.
 */
enum { MAX_BUFFERS = 64 };

typedef struct {
    void *data;
    int64_t n_bytes;
    bool is_taken;
} entry_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static entry_t entries[MAX_BUFFERS];

/* The smallest free buffer that is large enough but no giant; NULL if there is none. */
static entry_t *find_fit(int64_t n_bytes)
{
    entry_t *best = NULL;

    for (int i = 0; i < MAX_BUFFERS; i++) {
        entry_t *e = &entries[i];
        bool fits = e->data != NULL && !e->is_taken && e->n_bytes >= n_bytes &&
                    e->n_bytes / 2 <= n_bytes;
        if (fits && (best == NULL || e->n_bytes < best->n_bytes)) {
            best = e;
        }
    }
    return best;
}

/* An entry without a buffer, if need be at the cost of a free buffer that nobody fits.
 */
static entry_t *find_empty(void)
{
    entry_t *found = NULL;

    for (int i = 0; i < MAX_BUFFERS; i++) {
        entry_t *e = &entries[i];
        if (e->data == NULL) {
            return e;
        }
        if (!e->is_taken && (found == NULL || e->n_bytes < found->n_bytes)) {
            found = e;
        }
    }
    if (found != NULL) {
        plait_free(found->data);
        found->data = NULL;
    }
    return found;
}

plait_status_t plait_pool_take(int64_t n_bytes, void **buffer_p)
{
    plait_status_t status = PLAIT_OK;

    *buffer_p = NULL;
    if (n_bytes == 0) {
        goto done;
    }
    (void)pthread_mutex_lock(&mutex);
    entry_t *entry = find_fit(n_bytes);
    if (entry == NULL) {
        void *data = plait_alloc_aligned(n_bytes);
        entry = (data != NULL) ? find_empty() : NULL;
        if (entry != NULL) {
            *entry = (entry_t){.data = data, .n_bytes = n_bytes};
        }
        *buffer_p = data; /* without an entry it is freed when given back */
    }
    if (entry != NULL) {
        entry->is_taken = true;
        *buffer_p = entry->data;
    }
    (void)pthread_mutex_unlock(&mutex);
    PLAIT_CHECK(*buffer_p != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for a work buffer of %lld bytes", (long long)n_bytes);
done:
    return status;
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
            entries[i].is_taken = false;
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
    int64_t n_bytes = 0;

    (void)pthread_mutex_lock(&mutex);
    for (int i = 0; i < MAX_BUFFERS; i++) {
        if (entries[i].data != NULL && !entries[i].is_taken) {
            n_bytes += entries[i].n_bytes;
            plait_free(entries[i].data);
            entries[i] = (entry_t){0};
        }
    }
    (void)pthread_mutex_unlock(&mutex);
    return n_bytes;
}
