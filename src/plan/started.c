#include "plan/started.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/site.h"
#include "base/status.h"
#include "device/pool.h"
#include "plan/launch.h"
#include "plan/side.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A number as two floats, each of which is exact. */
enum { TEXT_BYTES = 2048, LINE = 256, HALF = 1 << 20 };

typedef enum { BEHIND, RUNS, DONE } stage_t;

struct plait_started {
    int64_t id;
    int64_t comm_id; /* the communicator may be gone at the wait */
    int64_t site;
    plait_call_t *call; /* a call, and its own resources: */
    void *memory;       /* pooled: operands, then results */
    plait_side_t *side; /* replaces `memory` on a device */
    /* Or the caller's plan, on the caller's arrays. */
    const plait_plan_t *plan;
    plait_comm_t *comm;
    const void *args[PLAIT_MAX_ARRAYS];
    void *rets[PLAIT_MAX_ARRAYS];
    plait_started_queue_t *queue;
    plait_lanes_t lanes;
    stage_t stage;
    bool is_forgotten;
    plait_status_t status;
    plait_work_fn_t then;
    void *context;
    plait_started_t *next;       /* in the queue */
    plait_started_t *next_known; /* among the operations that have a number */
    plait_started_t *next_ready; /* among the operations that became ready together */
    char text[TEXT_BYTES];
};

/* One mutex for all: what it guards takes less time than a message. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static plait_started_t *known,
    *last_known; /* in the order in which most of them are waited for */
static int64_t last_id;

/* ---- under the mutex ---- */

static bool is_behind(const plait_started_queue_t *queue, const plait_started_t *until,
                      const plait_lanes_t *lanes)
{
    bool found = false;

    for (const plait_started_t *s = queue->first; s != until && !found; s = s->next) {
        found = plait_lanes_conflict(&s->lanes, lanes);
    }
    return found;
}

static plait_started_t *find(int64_t id)
{
    plait_started_t *s = known;

    while (s != NULL && s->id != id) {
        s = s->next_known;
    }
    return s;
}

static void make_known(plait_started_t *started)
{
    *((last_known != NULL) ? &last_known->next_known : &known) = started;
    last_known = started;
}

static void make_unknown(const plait_started_t *started)
{
    plait_started_t *before = NULL;

    for (plait_started_t *s = known; s != started; s = s->next_known) {
        before = s;
    }
    *((before != NULL) ? &before->next_known : &known) = started->next_known;
    last_known = (last_known == started) ? before : last_known;
}

static void enter_queue(plait_started_t *started)
{
    plait_started_queue_t *queue = started->queue;

    *((queue->last != NULL) ? &queue->last->next : &queue->first) = started;
    queue->last = started;
    atomic_fetch_add(&queue->n, 1);
}

static void leave_queue(plait_started_t *started)
{
    plait_started_queue_t *queue = started->queue;
    plait_started_t *before = NULL;

    for (plait_started_t *s = queue->first; s != started; s = s->next) {
        before = s;
    }
    *((before != NULL) ? &before->next : &queue->first) = started->next;
    queue->last = (queue->last == started) ? before : queue->last;
    started->next = NULL;
    atomic_fetch_sub(&queue->n, 1);
}

/* Takes the operations that need not wait any more, marked as running. */
static plait_started_t *take_ready(const plait_started_queue_t *queue)
{
    plait_started_t *ready = NULL;
    plait_started_t **place = &ready;

    for (plait_started_t *s = queue->first; s != NULL; s = s->next) {
        if (s->stage == BEHIND && !is_behind(queue, s, &s->lanes)) {
            s->stage = RUNS;
            s->next_ready = NULL;
            *place = s;
            place = &s->next_ready;
        }
    }
    return ready;
}

/* ---- without the mutex ---- */

static void destroy(plait_started_t *started)
{
    if (started != NULL) {
        plait_pool_give(started->memory);
        plait_side_give(started->side);
        plait_free(started->call);
        plait_free(started);
    }
}

static void run(void *context);

/* For a rank alone on a device: there is nothing to wait for. */
static bool is_enqueued_at_once(const plait_call_t *call)
{
    return call != NULL && call->device != NULL && call->comm->end.size == 1 &&
           !call->op->is_matched;
}

static void run_all(plait_started_t *ready)
{
    while (ready != NULL) {
        plait_started_t *next = ready->next_ready;
        if (is_enqueued_at_once(ready->call) ||
            plait_workers_run(run, ready) != PLAIT_OK) {
            run(ready); /* no thread left: right, if not beside the program */
        }
        ready = next;
    }
}

/* The operation is done with its communicator, whose queue may then go away. */
static void finish(plait_started_t *started, plait_status_t status)
{
    plait_op_release(); /* first: a thread that has waited sees no call under way */
    (void)pthread_mutex_lock(&mutex);
    started->status = status;
    if (status != PLAIT_OK) {
        (void)snprintf(started->text, sizeof(started->text), "%s", plait_error_text());
    }
    leave_queue(started);
    plait_started_t *ready = take_ready(started->queue);
    plait_work_fn_t then = started->then;
    void *context = started->context;
    bool is_forgotten = started->is_forgotten;
    started->stage = DONE; /* a thread may take it as soon as the mutex is free */
    (void)pthread_cond_broadcast(&changed);
    (void)pthread_mutex_unlock(&mutex);
    run_all(ready);
    if (is_forgotten) {
        destroy(started);
    }
    if (then != NULL) {
        then(context);
    }
}

static void run(void *context)
{
    plait_started_t *started = context;
    const plait_exec_arrays_t arrays = {
        .args = started->args, .rets = started->rets, .is_beside = true};

    plait_site_enter(started->site, started->comm_id);
    finish(started, (started->call != NULL)
                        ? plait_op_run_started(started->call)
                        : plait_op_run_plan(started->plan, started->comm, &arrays));
}

static void write_number(int64_t id, float number[PLAIT_NUMBER_FLOATS])
{
    const int64_t high = id / HALF;

    number[0] = (float)high;
    number[1] = (float)(id % HALF);
}

static void copy(void *to, const void *from, int64_t n_bytes)
{
    const plait_box_copy_t row = {.row_bytes = n_bytes};

    if (n_bytes > 0) {
        plait_host_copy_box(&row, from, to);
    }
}

static int list_arrays(plait_call_t *call, plait_array_t *arrays[])
{
    int n = 0;

    for (int i = 0; i < call->op->n_args; i++) {
        arrays[n++] = &call->args[i];
    }
    for (int i = 0; i < call->op->n_rets; i++) {
        arrays[n++] = &call->rets[i];
    }
    return n;
}

/* One piece of memory for all arrays, each on its own cache lines. */
static plait_status_t place(int n, plait_array_t *const arrays[], int64_t at[],
                            int64_t *n_bytes_p)
{
    plait_status_t status = PLAIT_OK;
    int64_t n_bytes = 0;

    for (int i = 0; i < n; i++) {
        int64_t n_items = 0;
        int64_t size = 0;
        PLAIT_TRY(plait_array_size(arrays[i], &n_items, &size));
        at[i] = n_bytes;
        PLAIT_CHECK(plait_add(n_bytes, size, &n_bytes) &&
                        plait_add(n_bytes, (LINE - size % LINE) % LINE, &n_bytes),
                    PLAIT_ERR_OVERFLOW, "operands and results overflow 64 bits");
    }
    *n_bytes_p = n_bytes;
done:
    return status;
}

/* Takes the memory and copies the operands there. */
static plait_status_t take_memory(plait_started_t *started)
{
    plait_status_t status = PLAIT_OK;
    plait_array_t *arrays[2 * PLAIT_MAX_ARRAYS];
    int64_t at[2 * PLAIT_MAX_ARRAYS];
    int n = list_arrays(started->call, arrays);
    int64_t n_bytes = 0;

    PLAIT_TRY(place(n, arrays, at, &n_bytes));
    PLAIT_TRY(plait_pool_take(n_bytes, &started->memory));
    for (int i = 0; i < n && n_bytes > 0; i++) {
        const void *given = arrays[i]->data;
        arrays[i]->data = (char *)started->memory + at[i];
        if (given != NULL) {
            copy(arrays[i]->data, given, plait_array_bytes(arrays[i]));
        }
    }
done:
    return status;
}

static void add_box(const void *from, void *to, int64_t n_bytes,
                    plait_device_box_t boxes[], int64_t *n_boxes_p)
{
    if (n_bytes > 0) {
        boxes[(*n_boxes_p)++] = (plait_device_box_t){.kind = PLAIT_DEVICE_COPY,
                                                     .src = from,
                                                     .dst = to,
                                                     .box = {.row_bytes = n_bytes}};
    }
}

/* The same on a device; the operation then has its own stream. */
static plait_status_t take_side(plait_started_t *started, void *number_to)
{
    plait_status_t status = PLAIT_OK;
    plait_call_t *call = started->call;
    plait_array_t *arrays[2 * PLAIT_MAX_ARRAYS];
    plait_device_box_t boxes[PLAIT_MAX_ARRAYS];
    float number[PLAIT_NUMBER_FLOATS];
    int64_t at[2 * PLAIT_MAX_ARRAYS];
    int n = list_arrays(call, arrays);
    int64_t n_bytes = 0;
    int64_t n_boxes = 0;

    PLAIT_TRY(place(n, arrays, at, &n_bytes));
    PLAIT_TRY(plait_side_take(call->device, call->stream, n_bytes, &started->side));
    for (int i = 0; i < n && n_bytes > 0; i++) {
        const void *given = arrays[i]->data;
        arrays[i]->data = (char *)plait_side_memory(started->side) + at[i];
        if (i < call->op->n_args) {
            add_box(given, arrays[i]->data, plait_array_bytes(arrays[i]), boxes,
                    &n_boxes);
        }
    }
    write_number(started->id, number);
    PLAIT_TRY(plait_side_begin(started->side, call->stream, n_boxes, boxes, number,
                               number_to));
    call->stream = plait_side_stream(started->side);
done:
    return status;
}

/* A failure that only this call knows of is kept with it. */
static void enter(plait_started_t *started, plait_status_t planned)
{
    plait_started_t *ready = NULL;

    (void)pthread_mutex_lock(&mutex);
    make_known(started);
    if (planned == PLAIT_OK) {
        enter_queue(started);
        ready = take_ready(started->queue);
    } else {
        started->status = planned;
        (void)snprintf(started->text, sizeof(started->text), "%s", plait_error_text());
        started->stage = DONE;
    }
    (void)pthread_mutex_unlock(&mutex);
    if (planned != PLAIT_OK) {
        plait_op_release();
    }
    run_all(ready);
}

static int64_t next_id(void)
{
    (void)pthread_mutex_lock(&mutex);
    last_id = last_id % (PLAIT_STARTED_LIMIT - 1) + 1;
    const int64_t id = last_id;
    (void)pthread_mutex_unlock(&mutex);
    return id;
}

plait_status_t plait_started_begin(const plait_call_t *call, float *number)
{
    plait_status_t status = PLAIT_OK;
    plait_started_t *started = plait_alloc(1, sizeof(*started));

    PLAIT_CHECK(started != NULL, PLAIT_ERR_NO_MEMORY, "%s: no memory to start it",
                call->op->name);
    PLAIT_TRY(plait_call_copy(call, &started->call));
    started->call->lender = NULL; /* a lender does not lend to what outlives the call */
    started->call->matched = NULL; /* the caller does not wait */
    started->id = next_id();
    started->comm_id = call->comm->id;
    started->site = call->site;
    if (call->device != NULL) {
        PLAIT_TRY(take_side(started, number));
    } else {
        PLAIT_TRY(take_memory(started));
        write_number(started->id, number);
    }
    plait_op_hold();
    plait_status_t planned =
        plait_op_queue(started->call, &started->queue, &started->lanes);
    plait_started_t *entered = started;
    started = NULL;
    enter(entered, planned);
done:
    if (status != PLAIT_OK) {
        plait_op_give_up(call, status);
    }
    destroy(started);
    return status;
}

plait_status_t plait_started_plan(const plait_plan_t *plan, plait_comm_t *comm,
                                  plait_started_queue_t *queue,
                                  const void *const args[], void *const rets[],
                                  int64_t *id_p)
{
    plait_status_t status = PLAIT_OK;
    plait_started_t *started = plait_alloc(1, sizeof(*started));

    PLAIT_CHECK(started != NULL, PLAIT_ERR_NO_MEMORY, "%s: no memory to start it",
                plan->title);
    started->id = next_id();
    started->comm_id = comm->id;
    started->site = plait_site_here();
    started->plan = plan;
    started->comm = comm;
    started->queue = queue;
    started->lanes = plait_lanes_of(plan);
    for (int i = 0; i < plan->n_args; i++) {
        started->args[i] = args[i];
    }
    for (int i = 0; i < plan->n_rets; i++) {
        started->rets[i] = rets[i];
    }
    *id_p = started->id;
    plait_op_hold();
    enter(started, PLAIT_OK);
done:
    return status;
}

plait_status_t plait_started_read(const float *number, plait_device_t *device,
                                  plait_stream_t stream, int64_t *id_p)
{
    plait_status_t status = PLAIT_OK;
    void *host = NULL;
    bool is_inside = false;

    if (device != NULL) {
        const int64_t n_bytes = PLAIT_NUMBER_FLOATS * (int64_t)sizeof(*number);
        PLAIT_TRY(device->table->enter(device));
        is_inside = true;
        PLAIT_TRY(device->table->host_take(device, n_bytes, &host));
        PLAIT_TRY(device->table->to_host(device, stream, host, number, n_bytes));
        PLAIT_TRY(device->table->stream_wait(device, stream));
        number = host;
    }
    *id_p = (int64_t)number[0] * HALF + (int64_t)number[1];
done:
    if (host != NULL) {
        device->table->host_give(device, host);
    }
    if (is_inside) {
        device->table->leave(device);
    }
    return status;
}

bool plait_started_goes_on(int64_t id)
{
    (void)pthread_mutex_lock(&mutex);
    const plait_started_t *started = find(id);
    bool goes_on = started != NULL && started->stage != DONE;
    (void)pthread_mutex_unlock(&mutex);
    return goes_on;
}

bool plait_started_then(int64_t id, plait_work_fn_t then, void *context)
{
    (void)pthread_mutex_lock(&mutex);
    plait_started_t *started = find(id);
    bool goes_on = started != NULL && started->stage != DONE;
    if (goes_on) {
        started->then = then;
        started->context = context;
    }
    (void)pthread_mutex_unlock(&mutex);
    return goes_on;
}

/* The operation, once it is done; nobody else knows it any more. */
static plait_status_t wait_for(int64_t id, plait_started_t **started_p)
{
    plait_status_t status = PLAIT_OK;

    (void)pthread_mutex_lock(&mutex);
    plait_started_t *started = find(id);
    while (started != NULL && started->stage != DONE) {
        (void)pthread_cond_wait(&changed, &mutex);
        started = find(id);
    }
    if (started != NULL) {
        make_unknown(started);
    }
    (void)pthread_mutex_unlock(&mutex);
    PLAIT_CHECK(
        started != NULL, PLAIT_ERR_INVALID,
        "wait: no operation with number %lld was started, or it was waited for already",
        (long long)id);
    *started_p = started;
done:
    return status;
}

/* The operation's own status, which nobody else was told. */
static plait_status_t status_of(const plait_started_t *started)
{
    plait_site_enter(started->site, started->comm_id);
    return (started->status == PLAIT_OK)
               ? PLAIT_OK
               : plait_fail(started->status, "%s", started->text);
}

plait_status_t plait_started_wait(int64_t id)
{
    plait_status_t status = PLAIT_OK;
    plait_started_t *started = NULL;

    PLAIT_TRY(wait_for(id, &started));
    PLAIT_TRY(status_of(started));
done:
    destroy(started);
    return status;
}

plait_status_t plait_started_take(int64_t id, int n_rets, const plait_array_t rets[],
                                  plait_device_t *device, plait_stream_t stream)
{
    plait_status_t status = PLAIT_OK;
    plait_started_t *started = NULL;
    plait_device_box_t boxes[PLAIT_MAX_ARRAYS];
    int64_t n_boxes = 0;

    PLAIT_TRY(wait_for(id, &started));
    const plait_call_t *call = started->call;
    PLAIT_TRY(status_of(started));
    PLAIT_CHECK(n_rets == call->op->n_rets, PLAIT_ERR_INTERNAL,
                "wait for %s: %d results, expected %d", call->op->name, n_rets,
                call->op->n_rets);
    PLAIT_CHECK(device == call->device, PLAIT_ERR_INTERNAL,
                "wait for %s: it was started elsewhere", call->op->name);
    for (int i = 0; i < n_rets; i++) {
        int64_t n_bytes = plait_array_bytes(&call->rets[i]);
        PLAIT_CHECK(plait_array_bytes(&rets[i]) == n_bytes &&
                        rets[i].dtype == call->rets[i].dtype,
                    PLAIT_ERR_INTERNAL, "wait for %s: result %d is another array",
                    call->op->name, i);
        add_box(call->rets[i].data, rets[i].data, n_bytes, boxes, &n_boxes);
    }
    if (device != NULL) {
        PLAIT_TRY(plait_side_end(started->side, stream, n_boxes, boxes));
    } else {
        for (int64_t i = 0; i < n_boxes; i++) {
            copy(boxes[i].dst, boxes[i].src, boxes[i].box.row_bytes);
        }
    }
done:
    destroy(started);
    return status;
}

void plait_started_forget(int64_t id)
{
    (void)pthread_mutex_lock(&mutex);
    plait_started_t *started = find(id);
    bool is_done = started != NULL && started->stage == DONE;
    if (started != NULL) {
        make_unknown(started);
        started->is_forgotten = true;
    }
    (void)pthread_mutex_unlock(&mutex);
    if (is_done) {
        destroy(started);
    }
}

int64_t plait_started_count(void)
{
    int64_t n = 0;

    (void)pthread_mutex_lock(&mutex);
    for (const plait_started_t *s = known; s != NULL; s = s->next_known) {
        n++;
    }
    (void)pthread_mutex_unlock(&mutex);
    return n;
}

void plait_started_drain(plait_started_queue_t *queue)
{
    (void)pthread_mutex_lock(&mutex);
    while (queue->first != NULL) {
        (void)pthread_cond_wait(&changed, &mutex);
    }
    (void)pthread_mutex_unlock(&mutex);
}

void plait_started_pass(plait_started_queue_t *queue, const plait_lanes_t *lanes)
{
    if (atomic_load_explicit(&queue->n, memory_order_acquire) == 0) {
        return;
    }
    (void)pthread_mutex_lock(&mutex);
    while (is_behind(queue, NULL, lanes)) {
        (void)pthread_cond_wait(&changed, &mutex);
    }
    (void)pthread_mutex_unlock(&mutex);
}
