#include "plan/kept.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/hash.h"
#include "base/status.h"
#include "device/find.h"
#include "plan/launch.h"
#include "transport/process_grid.h"

#include <pthread.h>
#include <string.h>

/* Programs whose sizes or tags change at each step would make plans without end. Most plans are small; the
 * tables of a transform of prime length are several times its operand. */
enum {
    N_BUCKETS = 1024,
    MAX_PLANS = 4096,
    MAX_BYTES = 128 << 20,
    VERY_MANY_BYTES = 512 << 20
};

/* Plans stay if they were called while the last LATELY plans were made. If these have too many bytes, half as
 * many count, and so on, down to the few that a program may call in turns; if they have very many bytes, down
 * to the plans of a step and its derivative. */
enum { LATELY = MAX_PLANS / 2, AT_LEAST = 32, FEW = 4 };

/* Plans of one communicator handle, by a key of words: operation, choices, trees, device, parameters, arrays,
 * and the contents of the lists that parameters point to. */
enum { MAX_NDIM_KEY = 16 };
enum { PARAMS_WORD = 4, ARRAY_WORDS = 2 + MAX_NDIM_KEY };
enum {
    FIXED_WORDS =
        PARAMS_WORD + PLAIT_MAX_PARAMS_BYTES / 8 + 2 * PLAIT_MAX_ARRAYS * ARRAY_WORDS,
    /* enough for alltoall's counts of 20 ranks; keys with longer lists are allocated */
    STACK_WORDS = FIXED_WORDS + 400
};

typedef struct {
    int64_t n;
    uint64_t *words; /* on_stack, or allocated */
    uint64_t on_stack[STACK_WORDS];
} plan_key_t;

typedef struct plan_entry {
    plait_kept_plan_t kept; /* what callers see */
    uint64_t hash;
    int64_t n_words;
    uint64_t *words;
    int64_t n_bytes;
    _Atomic int64_t used; /* number of plans made up to its last call */
    _Atomic(struct plan_entry *) next;
} entry_t;

/* Look-ups take no lock. A removed entry is freed when no thread is left that may have found it before. */
struct plait_kept {
    plait_started_queue_t started;
    pthread_mutex_t mutex; /* for threads that add an entry */
    _Atomic(entry_t *) buckets[N_BUCKETS];
    _Atomic int64_t n_users;
    _Atomic int64_t n_made;
    int64_t n_there, n_bytes;
    entry_t *removed;
};

static void entry_destroy(entry_t *entry)
{
    if (entry != NULL) {
        plait_plan_destroy(&entry->kept.plan);
        plait_free(entry->words);
        plait_free(entry);
    }
}

static void list_destroy(entry_t *entry)
{
    while (entry != NULL) {
        entry_t *next = atomic_load(&entry->next);
        entry_destroy(entry);
        entry = next;
    }
}

static void kept_destroy(void *attached)
{
    plait_kept_t *kept = attached;

    plait_started_drain(&kept->started);
    for (int b = 0; b < N_BUCKETS; b++) {
        list_destroy(atomic_load(&kept->buckets[b]));
    }
    list_destroy(kept->removed);
    (void)pthread_mutex_destroy(&kept->mutex);
    plait_free(kept);
}

plait_kept_t *plait_kept_of(plait_comm_t *comm)
{
    void *kept = atomic_load_explicit(&comm->attached, memory_order_acquire);

    if (kept == NULL) {
        plait_kept_t *fresh = plait_alloc(1, sizeof(*fresh));
        if (fresh != NULL) {
            (void)pthread_mutex_init(&fresh->mutex, NULL);
            if (atomic_compare_exchange_strong(&comm->attached, &kept, fresh)) {
                comm->detach = kept_destroy;
                kept = fresh;
            } else {
                kept_destroy(fresh);
            }
        }
    }
    return kept;
}

plait_started_queue_t *plait_kept_queue(plait_kept_t *kept)
{
    return &kept->started;
}

/* ---- keys ---- */

static plait_status_t add_arrays(plan_key_t *key, const plait_array_t arrays[], int n)
{
    plait_status_t status = PLAIT_OK;

    for (int i = 0; i < n; i++) {
        PLAIT_CHECK(arrays[i].ndim <= MAX_NDIM_KEY, PLAIT_ERR_INVALID,
                    "an array has %d axes, at most %d are supported", arrays[i].ndim,
                    MAX_NDIM_KEY);
        key->words[key->n++] = (uint64_t)arrays[i].dtype;
        key->words[key->n++] = (uint64_t)arrays[i].ndim;
        for (int d = 0; d < arrays[i].ndim; d++) {
            key->words[key->n++] = (uint64_t)arrays[i].dims[d];
        }
    }
done:
    return status;
}

/* The pointers themselves are not part of a key. */
static void add_lists(plan_key_t *key, const plait_op_t *op, const void *params)
{
    for (const plait_attr_t *a = op->attrs; a->name != NULL; a++) {
        if (a->kind == PLAIT_PARAM_LIST) {
            const int64_t *list = NULL;
            int64_t n = plait_attr_list(a, params, &list);
            key->words[PARAMS_WORD + a->offset / 8] = 0;
            if (n > 0) {
                memcpy(&key->words[key->n], list, (size_t)n * sizeof(*list));
            }
            key->n += n;
        }
    }
}

static plait_status_t make_key(const plait_call_t *call, plan_key_t *key)
{
    plait_status_t status = PLAIT_OK;
    const plait_op_t *op = call->op;
    const void *params = call->params;
    int64_t n_words = FIXED_WORDS;

    for (const plait_attr_t *a = op->attrs; a->name != NULL; a++) {
        const int64_t *list = NULL;
        n_words += plait_attr_list(a, params, &list);
    }
    if (n_words > STACK_WORDS) {
        key->words = plait_alloc(n_words, sizeof(key->words[0]));
        PLAIT_CHECK(key->words != NULL, PLAIT_ERR_NO_MEMORY,
                    "no memory for lists of %lld words", (long long)n_words);
    }
    key->words[key->n++] = (uint64_t)(uintptr_t)op;
    key->words[key->n++] = call->choices;
    key->words[key->n++] = call->trees;
    key->words[key->n++] = (uint64_t)(uintptr_t)call->device;
    memcpy(&key->words[key->n], params, op->params_size);
    key->n += (int64_t)(op->params_size / 8);
    PLAIT_TRY(add_arrays(key, call->args, op->n_args));
    PLAIT_TRY(add_arrays(key, call->rets, op->n_rets));
    add_lists(key, op, params);
done:
    return status;
}

static void key_free(plan_key_t *key)
{
    if (key->words != key->on_stack) {
        plait_free(key->words);
    }
}

/* Runs once per call, so it takes half the time of base/hash.h; entries are compared in full. */
static uint64_t hash_of(const plan_key_t *key)
{
    uint64_t hash = PLAIT_HASH_SEED;

    for (int64_t i = 0; i < key->n; i++) {
        hash = (hash ^ key->words[i]) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return hash ^ (hash >> 32);
}

/* ---- plans ---- */

/* Loads here and stores in `remove_old` have one order for all threads: a thread that comes later does not find
 * a removed entry. */
static entry_t *find(plait_kept_t *kept, const plan_key_t *key, uint64_t hash)
{
    entry_t *entry = atomic_load(&kept->buckets[hash % N_BUCKETS]);

    while (entry != NULL && !(entry->hash == hash && entry->n_words == key->n &&
                              memcmp(entry->words, key->words,
                                     (size_t)key->n * sizeof(key->words[0])) == 0)) {
        entry = atomic_load(&entry->next);
    }
    return entry;
}

/* The devices of all ranks, by rank, if all are of this process. NULL: not so, or there are more than ever work
 * as one, or one device cannot be had, which its own rank will report. */
static plait_device_t *const *find_devices(const plait_comm_t *comm,
                                           plait_device_t *devices[PLAIT_MAX_JOINT])
{
    const int n = comm->end.size;
    bool has_all = comm->ordinals != NULL && n <= PLAIT_MAX_JOINT;

    for (int r = 0; r < n && has_all; r++) {
        has_all = plait_device_find(comm->ordinals[r], &devices[r]) == PLAIT_OK;
    }
    return has_all ? devices : NULL;
}

/* Under the mutex, by one of the users. Ranks need not remove the same plans: what they know of each other's
 * plans is kept with the communicator. */
static void remove_old(plait_kept_t *kept, int64_t lately)
{
    const int64_t oldest = atomic_load(&kept->n_made) - lately;

    for (int b = 0; b < N_BUCKETS; b++) {
        _Atomic(entry_t *) *place = &kept->buckets[b];
        entry_t *entry = atomic_load(place);
        while (entry != NULL) {
            entry_t *next = atomic_load(&entry->next);
            if (atomic_load(&entry->used) < oldest) {
                atomic_store(place, next);
                /* a reader at this entry goes on to entries removed earlier, which still exist */
                atomic_store(&entry->next, kept->removed);
                kept->removed = entry;
                kept->n_there--;
                kept->n_bytes -= entry->n_bytes;
            } else {
                place = &entry->next;
            }
            entry = next;
        }
    }
}

/* The same, before an entry is added. */
static void make_room(plait_kept_t *kept)
{
    if (kept->n_there >= MAX_PLANS) {
        remove_old(kept, LATELY);
    }
    for (int64_t lately = LATELY; lately >= FEW; lately /= 2) {
        if (kept->n_bytes > ((lately >= AT_LEAST) ? MAX_BYTES : VERY_MANY_BYTES)) {
            remove_old(kept, lately);
        }
    }
}

/* Under the mutex, by one of the users. */
static void free_removed(plait_kept_t *kept)
{
    if (kept->removed != NULL && atomic_load(&kept->n_users) == 1) {
        list_destroy(kept->removed);
        kept->removed = NULL;
    }
}

/* Under the mutex. */
static plait_status_t add(plait_kept_t *kept, const plan_key_t *key, uint64_t hash,
                          const plait_call_t *call, entry_t **entry_p)
{
    plait_status_t status = PLAIT_OK;
    _Atomic(entry_t *) *bucket = &kept->buckets[hash % N_BUCKETS];
    entry_t *fresh = plait_alloc(1, sizeof(*fresh));
    plait_endpoint_t end = call->comm->end;
    plait_device_t *devices[PLAIT_MAX_JOINT];
    const int64_t before = plait_alloc_tally();

    if (call->device != NULL) {
        end.caps.device = call->device;
        end.caps.devices = find_devices(call->comm, devices);
        end.caps.grid = plait_process_grid(&end, call->device);
    }
    PLAIT_CHECK(fresh != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a plan");
    fresh->words = plait_alloc(key->n, sizeof(key->words[0]));
    PLAIT_CHECK(fresh->words != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a plan");
    memcpy(fresh->words, key->words, (size_t)key->n * sizeof(key->words[0]));
    fresh->n_words = key->n;
    fresh->hash = hash;
    PLAIT_TRY(plait_op_plan_call(call, &end, &fresh->kept.plan));
    fresh->kept.lanes = plait_lanes_of(fresh->kept.plan);
    plait_about_op(call->op, call->params, call->args, call->rets,
                   fresh->kept.plan->title, &fresh->kept.about);
    fresh->n_bytes = plait_alloc_tally() - before;
    make_room(kept);
    free_removed(kept);
    atomic_fetch_add(&kept->n_made, 1);
    kept->n_there++;
    kept->n_bytes += fresh->n_bytes;
    atomic_store(&fresh->next, atomic_load(bucket));
    atomic_store(bucket, fresh);
    *entry_p = fresh;
    fresh = NULL;
done:
    entry_destroy(fresh);
    return status;
}

static plait_status_t find_or_make(plait_kept_t *kept, const plan_key_t *key,
                                   const plait_call_t *call, entry_t **entry_p)
{
    plait_status_t status = PLAIT_OK;
    const uint64_t hash = hash_of(key);

    *entry_p = find(kept, key, hash);
    if (*entry_p == NULL) {
        (void)pthread_mutex_lock(&kept->mutex);
        *entry_p = find(kept, key, hash); /* another thread may have been first */
        if (*entry_p == NULL) {
            status = add(kept, key, hash, call, entry_p);
        }
        (void)pthread_mutex_unlock(&kept->mutex);
    }
    return status;
}

plait_status_t plait_kept_get(plait_kept_t *kept, const plait_call_t *call,
                              const plait_kept_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    entry_t *entry = NULL;
    plan_key_t key;

    key.n = 0;
    key.words = key.on_stack;
    atomic_fetch_add(&kept->n_users, 1);
    PLAIT_TRY(make_key(call, &key));
    PLAIT_TRY(find_or_make(kept, &key, call, &entry));
    const int64_t now = atomic_load_explicit(&kept->n_made, memory_order_relaxed);
    if (atomic_load_explicit(&entry->used, memory_order_relaxed) != now) {
        atomic_store_explicit(&entry->used, now, memory_order_relaxed);
    }
    *plan_p = &entry->kept;
done:
    key_free(&key);
    if (status != PLAIT_OK) {
        plait_kept_give(kept);
    }
    return status;
}

void plait_kept_give(plait_kept_t *kept)
{
    atomic_fetch_sub(&kept->n_users, 1);
}

int64_t plait_kept_count(plait_kept_t *kept)
{
    (void)pthread_mutex_lock(&kept->mutex);
    int64_t n = kept->n_there;
    for (const entry_t *e = kept->removed; e != NULL; e = atomic_load(&e->next)) {
        n++;
    }
    (void)pthread_mutex_unlock(&kept->mutex);
    return n;
}
