#include "transport/nvshmem_pool.h"

#include "base/alloc.h"
#include "base/status.h"

#include <pthread.h>
#include <stdlib.h>

/* Chosen: half of the pool is 16 MiB each way for two ranks. */
enum { POOL_BYTES = 64 << 20, LEAST_BYTES = 64 << 10, MAX_PARTS = 64 };

typedef enum { FREE, TAKEN, RETIRED, LOST } part_state_t;

typedef struct {
    part_state_t state;
    plait_part_t part;
    plait_pes_t pes; /* RETIRED: the PEs that may still write there */
} entry_t;

typedef struct {
    entry_t entries[MAX_PARTS];
    bool is_unclean;
} book_t;

/* Threads that close communicators may differ from threads that use others. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

plait_status_t plait_nvshmem_bytes(int64_t *n_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    const char *text = getenv("PLAIT_NVSHMEM_BYTES");
    char *end = NULL;
    int64_t n_bytes = POOL_BYTES;

    if (text != NULL && text[0] != '\0') {
        n_bytes = strtoll(text, &end, 10);
        PLAIT_CHECK(*end == '\0' && n_bytes >= LEAST_BYTES, PLAIT_ERR_UNSUPPORTED,
                    "PLAIT_NVSHMEM_BYTES is '%s': expected a number, %d or more", text,
                    (int)LEAST_BYTES);
    }
    *n_bytes_p = n_bytes / PLAIT_PART_GRAIN * PLAIT_PART_GRAIN;
done:
    return status;
}

/* Under the lock: the number of free bytes from `at` on. */
static int64_t room_at(const plait_nvshmem_job_t *job, int64_t at)
{
    const book_t *book = job->book;
    int64_t end = job->pool_bytes;

    for (int i = 0; i < MAX_PARTS; i++) {
        const plait_part_t *p = &book->entries[i].part;
        bool is_behind = book->entries[i].state != FREE && p->offset + p->n_bytes > at;
        if (is_behind && p->offset < end) {
            end = p->offset;
        }
    }
    return end - at;
}

/* Under the lock: the longest free piece. */
static plait_part_t longest(const plait_nvshmem_job_t *job)
{
    const book_t *book = job->book;
    plait_part_t best = {0, room_at(job, 0)};

    for (int i = 0; i < MAX_PARTS; i++) {
        const plait_part_t *p = &book->entries[i].part;
        if (book->entries[i].state != FREE) {
            const plait_part_t behind = {p->offset + p->n_bytes,
                                         room_at(job, p->offset + p->n_bytes)};
            best = (behind.n_bytes > best.n_bytes) ? behind : best;
        }
    }
    return best;
}

/* Under the lock. */
static entry_t *free_entry(book_t *book)
{
    entry_t *found = NULL;

    for (int i = 0; i < MAX_PARTS && found == NULL; i++) {
        found = (book->entries[i].state == FREE) ? &book->entries[i] : NULL;
    }
    return found;
}

plait_status_t plait_part_take(plait_nvshmem_job_t *job, int64_t least,
                               plait_part_t *part_p)
{
    plait_status_t status = PLAIT_OK;

    (void)pthread_mutex_lock(&lock);
    if (job->book == NULL) {
        job->book = plait_alloc(1, sizeof(book_t));
    }
    PLAIT_CHECK(job->book != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for parts of NVSHMEM's pool");
    entry_t *entry = free_entry(job->book);
    plait_part_t part = longest(job);
    PLAIT_CHECK(entry != NULL && part.n_bytes >= least, PLAIT_ERR_UNSUPPORTED,
                "NVSHMEM's pool has %lld of %lld bytes left in one piece, %lld are "
                "needed: set PLAIT_NVSHMEM_BYTES to more",
                (long long)part.n_bytes, (long long)job->pool_bytes, (long long)least);
    const int64_t half = part.n_bytes / 2 / PLAIT_PART_GRAIN * PLAIT_PART_GRAIN;
    part.n_bytes = (half > least) ? half : least;
    *entry = (entry_t){.state = TAKEN, .part = part};
    *part_p = part;
done:
    (void)pthread_mutex_unlock(&lock);
    return status;
}

/* Under the lock. */
static entry_t *entry_of(const plait_nvshmem_job_t *job, const plait_part_t *part)
{
    book_t *book = job->book;
    entry_t *found = NULL;

    for (int i = 0; i < MAX_PARTS && book != NULL; i++) {
        entry_t *entry = &book->entries[i];
        found = (entry->state == TAKEN && entry->part.offset == part->offset) ? entry
                                                                              : found;
    }
    return found;
}

void plait_part_give(plait_nvshmem_job_t *job, const plait_part_t *part)
{
    (void)pthread_mutex_lock(&lock);
    entry_t *entry = (part->n_bytes > 0) ? entry_of(job, part) : NULL;
    if (entry != NULL) {
        entry->state = FREE;
    }
    (void)pthread_mutex_unlock(&lock);
}

void plait_part_retire(plait_nvshmem_job_t *job, const plait_part_t *part,
                       const plait_pes_t *pes)
{
    book_t *book = job->book;

    (void)pthread_mutex_lock(&lock);
    entry_t *entry = (part->n_bytes > 0) ? entry_of(job, part) : NULL;
    if (entry != NULL && pes != NULL) {
        entry->state = RETIRED;
        entry->pes = *pes;
    } else if (entry != NULL) {
        entry->state = LOST;
        book->is_unclean = true;
    }
    (void)pthread_mutex_unlock(&lock);
}

bool plait_part_is_clean(const plait_nvshmem_job_t *job)
{
    (void)pthread_mutex_lock(&lock);
    const book_t *book = job->book;
    bool is_clean = book == NULL || !book->is_unclean;
    (void)pthread_mutex_unlock(&lock);
    return is_clean;
}

static bool is_among(const plait_pes_t *some, const plait_pes_t *all)
{
    bool is_one = true;

    for (int w = 0; w < PLAIT_MAX_PES / 64; w++) {
        is_one = is_one && (some->bits[w] & ~all->bits[w]) == 0;
    }
    return is_one;
}

void plait_part_reclaim(plait_nvshmem_job_t *job, const plait_pes_t *pes)
{
    (void)pthread_mutex_lock(&lock);
    book_t *book = job->book;
    for (int i = 0; i < MAX_PARTS && book != NULL; i++) {
        entry_t *entry = &book->entries[i];
        if (entry->state == RETIRED && is_among(&entry->pes, pes)) {
            entry->state = FREE;
        }
    }
    (void)pthread_mutex_unlock(&lock);
}
