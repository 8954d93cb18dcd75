#include "plan/launch.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/trace.h"
#include "base/wait.h"
#include "device/find.h"
#include "plan/ask_grid.h"
#include "plan/exec.h"
#include "plan/observe.h"
#include "transport/process_grid.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Plans of one communicator handle, by a key of words: operation, choices, device, parameters,
 * arrays, and what is in the lists that parameters point to. */
enum { N_BUCKETS = 64, MAX_NDIM_KEY = 16 };
enum { PARAMS_WORD = 3, ARRAY_WORDS = 2 + MAX_NDIM_KEY };
enum {
    FIXED_WORDS =
        PARAMS_WORD + PLAIT_MAX_PARAMS_BYTES / 8 + 2 * PLAIT_MAX_ARRAYS * ARRAY_WORDS,
    /* with alltoall's counts of 20 ranks; keys with longer lists are allocated */
    STACK_WORDS = FIXED_WORDS + 400
};

typedef struct {
    int64_t n;
    uint64_t *words; /* on_stack, or allocated */
    uint64_t on_stack[STACK_WORDS];
} plan_key_t;

typedef struct entry {
    uint64_t hash;
    int64_t n_words;
    uint64_t *words;
    plait_plan_t *plan;
    plait_lanes_t lanes;
    plait_about_t about;
    struct entry *next;
} entry_t;

/* Found without a lock: entries stay as they are until the communicator dies. */
typedef struct {
    pthread_mutex_t mutex; /* of who adds one */
    _Atomic(entry_t *) buckets[N_BUCKETS];
    plait_started_queue_t started;
} cache_t;

static void entry_destroy(entry_t *entry)
{
    if (entry != NULL) {
        plait_plan_destroy(&entry->plan);
        plait_free(entry->words);
        plait_free(entry);
    }
}

static void cache_destroy(void *attached)
{
    cache_t *cache = attached;

    plait_started_drain(&cache->started);
    for (int b = 0; b < N_BUCKETS; b++) {
        entry_t *entry = atomic_load(&cache->buckets[b]);
        while (entry != NULL) {
            entry_t *next = entry->next;
            entry_destroy(entry);
            entry = next;
        }
    }
    (void)pthread_mutex_destroy(&cache->mutex);
    plait_free(cache);
}

/* The communicator's cache; made at its first use, by whichever thread is first. */
static cache_t *cache_of(plait_comm_t *comm)
{
    void *cache = atomic_load_explicit(&comm->attached, memory_order_acquire);

    if (cache == NULL) {
        cache_t *fresh = plait_alloc(1, sizeof(*fresh));
        if (fresh != NULL) {
            (void)pthread_mutex_init(&fresh->mutex, NULL);
            comm->detach = cache_destroy;
            if (atomic_compare_exchange_strong(&comm->attached, &cache, fresh)) {
                cache = fresh;
            } else {
                cache_destroy(fresh);
            }
        }
    }
    return cache;
}

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

static int64_t list_count(const plait_attr_t *attr, const void *params)
{
    int64_t n = 0;

    if (attr->kind == PLAIT_PARAM_LIST) {
        memcpy(&n, (const char *)params + attr->count_offset, sizeof(n));
    }
    return n;
}

/* The pointers themselves are no part of a key. */
static void add_lists(plan_key_t *key, const plait_op_t *op, const void *params)
{
    for (const plait_attr_t *a = op->attrs; a->name != NULL; a++) {
        if (a->kind == PLAIT_PARAM_LIST) {
            int64_t n = list_count(a, params);
            const int64_t *list = NULL;
            memcpy(&list, (const char *)params + a->offset, sizeof(list));
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
        n_words += list_count(a, params);
    }
    if (n_words > STACK_WORDS) {
        key->words = plait_alloc(n_words, sizeof(key->words[0]));
        PLAIT_CHECK(key->words != NULL, PLAIT_ERR_NO_MEMORY,
                    "no memory for lists of %lld words", (long long)n_words);
    }
    key->words[key->n++] = (uint64_t)(uintptr_t)op;
    key->words[key->n++] = call->choices;
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

/* What does not begin with a fence would move data, or wait, before ranks know of each other
 * that they do the same. */
static bool needs_agreement(const plait_plan_t *plan)
{
    bool communicates = false;

    for (int i = 0; i < plan->n_steps && !communicates; i++) {
        plait_step_kind_t kind = plan->steps[i].kind;
        if (kind == PLAIT_STEP_FENCE) {
            break;
        }
        communicates = kind == PLAIT_STEP_NATIVE ||
                       (kind == PLAIT_STEP_MOVE && plan->direct == PLAIT_DIRECT_NONE);
    }
    return communicates && plan->is_collective && plan->n_ranks > 1;
}

/* Behind the first word, so that ranks see what differs in titles that are cut. */
static void title_choices(plait_plan_t *plan, plait_choices_t choices)
{
    char title[sizeof(plan->title)];
    char words[sizeof(plan->title) / 2];
    int n_first = (int)strcspn(plan->title, " ");

    if (choices != 0) {
        plait_choices_print(choices, words, sizeof(words));
        int n_rest = (int)sizeof(title) - n_first - (int)strlen(words) - 4;
        (void)snprintf(title, sizeof(title), "%.*s (%s)%.*s", n_first, plan->title,
                       words, n_rest, plan->title + n_first);
        memcpy(plan->title, title, sizeof(title));
    }
}

/* Devices' memory is reached by messages alone, and nothing of it goes along with a fence. */
static void lower_to_device(plait_caps_t *caps)
{
    caps->direct = PLAIT_DIRECT_NONE;
    caps->publish_bytes = -1;
    caps->has_native = false;
}

static plait_status_t check_kernels(const plait_plan_t *plan, const char *name)
{
    plait_status_t status = PLAIT_OK;

    for (int i = 0; i < plan->n_steps; i++) {
        const plait_step_t *step = &plan->steps[i];
        PLAIT_CHECK(step->kind != PLAIT_STEP_KERNEL ||
                        step->u.kernel.kernel->run_device != NULL ||
                        step->u.kernel.kernel->tiles != NULL,
                    PLAIT_ERR_INTERNAL, "%s: %s has no kernel for a device", name,
                    step->u.kernel.kernel->name);
    }
done:
    return status;
}

/* Ranks of which some are on a device do not cut messages alike. */
static plait_status_t plan_on_device(const plait_op_t *op, const void *params,
                                     plait_problem_t *problem, plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const char *name = problem->caps.device->table->name;
    plait_plan_t *plan = NULL;

    lower_to_device(&problem->caps);
    PLAIT_TRY(op->plan(params, problem, &plan));
    PLAIT_TRY(check_kernels(plan, op->name));
    plait_plan_agree(plan, plait_hash_bytes(PLAIT_HASH_SEED, name, strlen(name)));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

plait_status_t plait_op_plan_as(const plait_op_t *op, const void *params,
                                const plait_endpoint_t *end, plait_choices_t choices,
                                const plait_array_t args[], const plait_array_t rets[],
                                plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    plait_problem_t problem = {.n_ranks = end->size,
                               .rank = end->rank,
                               .caps = end->caps,
                               .choices = choices,
                               .n_args = op->n_args,
                               .n_rets = op->n_rets,
                               .args = args,
                               .rets = rets};
    plait_plan_t *plan = NULL;

    PLAIT_TRY(plait_choices_apply(choices, end, &problem.caps));
    PLAIT_TRY((problem.caps.device != NULL)
                  ? plan_on_device(op, params, &problem, &plan)
                  : op->plan(params, &problem, &plan));
    plait_plan_agree(plan,
                     plait_hash_bytes(PLAIT_HASH_SEED, op->name, strlen(op->name)));
    plait_plan_agree(plan, choices);
    title_choices(plan, choices);
    plan->is_collective = !op->is_matched;
    plan->needs_agreement = needs_agreement(plan);
    plan->title_ref = plait_trace_text(plan->title);
    *plan_p = plan;
done:
    return status;
}

plait_status_t plait_op_plan(const plait_op_t *op, const void *params,
                             const plait_endpoint_t *end, const plait_array_t args[],
                             const plait_array_t rets[], plait_plan_t **plan_p)
{
    return plait_op_plan_as(op, params, end, plait_choices_now(op->family), args, rets,
                            plan_p);
}

/* Once per call, so in half the time of base/hash.h; entries are compared in full. */
static uint64_t hash_of(const plan_key_t *key)
{
    uint64_t hash = PLAIT_HASH_SEED;

    for (int64_t i = 0; i < key->n; i++) {
        hash = (hash ^ key->words[i]) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return hash ^ (hash >> 32);
}

static const entry_t *find(cache_t *cache, const plan_key_t *key, uint64_t hash)
{
    const entry_t *entry =
        atomic_load_explicit(&cache->buckets[hash % N_BUCKETS], memory_order_acquire);

    while (entry != NULL && !(entry->hash == hash && entry->n_words == key->n &&
                              memcmp(entry->words, key->words,
                                     (size_t)key->n * sizeof(key->words[0])) == 0)) {
        entry = entry->next;
    }
    return entry;
}

/* The devices of all ranks, by rank, where they are this process's; NULL: not so, or more than ever
 * work as one, or one of them is not to be had, as its own rank will say. */
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

/* Under the cache's mutex. */
static plait_status_t add(cache_t *cache, const plan_key_t *key, uint64_t hash,
                          const plait_call_t *call, const entry_t **entry_p)
{
    plait_status_t status = PLAIT_OK;
    _Atomic(entry_t *) *bucket = &cache->buckets[hash % N_BUCKETS];
    entry_t *fresh = plait_alloc(1, sizeof(*fresh));
    plait_endpoint_t end = call->comm->end;
    plait_device_t *devices[PLAIT_MAX_JOINT];

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
    PLAIT_TRY(plait_op_plan_as(call->op, call->params, &end, call->choices, call->args,
                               call->rets, &fresh->plan));
    fresh->lanes = plait_lanes_of(fresh->plan);
    plait_about_op(call->op, call->params, call->args, call->rets, fresh->plan->title,
                   &fresh->about);
    fresh->next = atomic_load_explicit(bucket, memory_order_relaxed);
    atomic_store_explicit(bucket, fresh, memory_order_release);
    *entry_p = fresh;
    fresh = NULL;
done:
    entry_destroy(fresh);
    return status;
}

static plait_status_t find_or_make(cache_t *cache, const plan_key_t *key,
                                   const plait_call_t *call, const entry_t **entry_p)
{
    plait_status_t status = PLAIT_OK;
    const uint64_t hash = hash_of(key);

    *entry_p = find(cache, key, hash);
    if (*entry_p == NULL) {
        (void)pthread_mutex_lock(&cache->mutex);
        *entry_p = find(cache, key, hash); /* another thread may have been first */
        if (*entry_p == NULL) {
            status = add(cache, key, hash, call, entry_p);
        }
        (void)pthread_mutex_unlock(&cache->mutex);
    }
    return status;
}

static _Atomic int64_t n_in_flight;
static atomic_bool is_closed;

/* Ranks that are processes with a device each may work as one: they find out together, once, before the
 * first plan that depends on it. */
static plait_status_t know_grid(const plait_call_t *call, cache_t *cache)
{
    const plait_lanes_t all = {.is_collective = true};
    plait_endpoint_t *end = &call->comm->end;
    const bool asks = call->device != NULL && call->op->wants_grid != NULL &&
                      plait_device_is_of_process(end) &&
                      !plait_process_grid_is_known(end) &&
                      call->op->wants_grid(call->params, end->size, call->choices);

    if (asks) {
        plait_started_pass(&cache->started, &all);
    }
    return asks ? plait_grid_ask(call->comm, call->run, call->device, call->stream)
                : PLAIT_OK;
}

/* *cache_p stays NULL where there is nothing to communicate with. */
static plait_status_t open_cache(const plait_call_t *call, cache_t **cache_p)
{
    plait_status_t status = PLAIT_OK;
    cache_t *cache = cache_of(call->comm);

    PLAIT_CHECK(!atomic_load_explicit(&is_closed, memory_order_relaxed), PLAIT_ERR_COMM,
                "the process is leaving, no communication is possible any more");
    PLAIT_CHECK(cache != NULL, PLAIT_ERR_NO_MEMORY, "no memory for plans");
    PLAIT_TRY(plait_comm_usable(call->comm));
    *cache_p = cache;
done:
    return status;
}

/* The plan of a call, from the cache or made now. */
static plait_status_t prepare(const plait_call_t *call, cache_t *cache,
                              const entry_t **entry_p)
{
    plait_status_t status = PLAIT_OK;
    plan_key_t key;

    key.n = 0;
    key.words = key.on_stack;
    PLAIT_TRY(make_key(call, &key));
    PLAIT_TRY(find_or_make(cache, &key, call, entry_p));
done:
    key_free(&key);
    return status;
}

/* A call that this rank cannot plan, perhaps alone: the others learn of it where they would
 * wait for it. */
static plait_status_t refuse(const plait_call_t *call, cache_t *cache,
                             plait_status_t status)
{
    const plait_lanes_t all = {.is_collective = true};

    if (cache != NULL && !call->op->is_matched) {
        plait_started_pass(&cache->started, &all);
        status = plait_exec_refuse(&call->comm->end, call->run, status);
        plait_observe_forget(call->comm);
    }
    return status;
}

static plait_status_t launch(const plait_call_t *call, bool is_started)
{
    plait_status_t status = PLAIT_OK;
    cache_t *cache = NULL;
    const entry_t *entry = NULL;
    bool is_told = false; /* all ranks know of the failure */
    const void *operands[PLAIT_MAX_ARRAYS];
    void *results[PLAIT_MAX_ARRAYS];
    const plait_exec_arrays_t arrays = {.args = operands,
                                        .rets = results,
                                        .stream = call->stream,
                                        .lender = call->lender,
                                        .is_beside = is_started};

    PLAIT_TRY(open_cache(call, &cache));
    if (!is_started) {
        status = know_grid(call, cache);
        is_told = status != PLAIT_OK;
        PLAIT_TRY(status);
    }
    PLAIT_TRY(prepare(call, cache, &entry));
    for (int i = 0; i < call->op->n_args; i++) {
        operands[i] = call->args[i].data;
    }
    for (int i = 0; i < call->op->n_rets; i++) {
        results[i] = call->rets[i].data;
    }
    if (!is_started) {
        plait_started_pass(&cache->started, &entry->lanes);
    }
    status = plait_observe_exec(entry->plan, &entry->about, call->comm, call->run,
                                is_started, &arrays);
done:
    if (entry == NULL && !is_told) {
        status = refuse(call, cache, status);
        plait_observe_failure(call->op->name, call->comm, status);
    }
    return status;
}

static void tell_where(const plait_call_t *call)
{
    plait_error_prefix("rank %d of communicator #%lld, %s: ", call->comm->end.rank,
                       (long long)call->comm->id, call->op->name);
}

static plait_status_t launch_counted(const plait_call_t *call, bool is_started)
{
    plait_op_hold();
    plait_status_t status = launch(call, is_started);
    plait_op_release();
    if (status != PLAIT_OK) {
        tell_where(call);
    }
    return status;
}

plait_status_t plait_op_run(const plait_call_t *call)
{
    return launch_counted(call, false);
}

plait_status_t plait_op_run_started(const plait_call_t *call)
{
    return launch_counted(call, true);
}

plait_status_t plait_op_launch(const plait_op_t *op, const void *params,
                               plait_comm_t *comm, int64_t run,
                               const plait_array_t args[], const plait_array_t rets[])
{
    plait_call_t call = {.op = op,
                         .params = params,
                         .comm = comm,
                         .run = run,
                         .choices = plait_choices_now(op->family)};

    for (int i = 0; i < op->n_args; i++) {
        call.args[i] = args[i];
    }
    for (int i = 0; i < op->n_rets; i++) {
        call.rets[i] = rets[i];
    }
    return plait_op_run(&call);
}

plait_status_t plait_op_queue(const plait_call_t *call, plait_started_queue_t **queue_p,
                              plait_lanes_t *lanes_p)
{
    plait_status_t status = PLAIT_OK;
    cache_t *cache = NULL;
    const entry_t *entry = NULL;

    PLAIT_TRY(open_cache(call, &cache));
    PLAIT_TRY(prepare(call, cache, &entry));
    *queue_p = &cache->started;
    *lanes_p = entry->lanes;
done:
    if (status != PLAIT_OK) {
        plait_observe_failure(call->op->name, call->comm, status);
        if (cache != NULL && !call->op->is_matched && call->comm->end.size > 1) {
            /* It has no place where to tell the others. */
            plait_observe_give_up(call->comm);
        }
        tell_where(call);
    }
    return status;
}

void plait_op_hold(void)
{
    atomic_fetch_add(&n_in_flight, 1);
}

void plait_op_release(void)
{
    atomic_fetch_sub(&n_in_flight, 1);
}

int64_t plait_in_flight(void)
{
    return atomic_load(&n_in_flight);
}

int64_t plait_shutdown(int64_t limit_ns)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    int64_t start = plait_clock_ns();

    while (plait_in_flight() > 0 && plait_clock_ns() - start < limit_ns) {
        (void)nanosleep(&nap, NULL);
    }
    atomic_store(&is_closed, true);
    if (plait_in_flight() > 0) {
        plait_wait_stop();
    }
    return plait_in_flight();
}
