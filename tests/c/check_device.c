#include "base/status.h"
#include "check_device_parts.h"
#include "check_device_state.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local plait_device_t *current;

void check_device_fault(plait_device_t *device, const char *format, ...)
{
    char text[200];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    state_of(device)->n_faults++;
    printf("check device %d: %s\n", device->ordinal, text);
}

plait_device_t *check_device_current(void)
{
    return current;
}

static plait_status_t count_call(plait_device_t *device, const char *what,
                                 bool may_be_outside)
{
    plait_status_t status = PLAIT_OK;
    state_t *s = state_of(device);

    lock(device);
    int64_t n = ++s->counts.n_calls;
    bool fails = s->is_dead || (s->n_until_failure > 0 && --s->n_until_failure == 0);
    s->is_dead = s->is_dead || (fails && s->is_dying);
    while (s->is_dead && s->n_pending > 0) { /* what is dead does nothing any more */
        (void)pthread_cond_wait(&s->changed, &s->mutex);
    }
    if (current != device && !may_be_outside) {
        check_device_fault(device, "%s outside enter and leave", what);
    }
    unlock(device);
    PLAIT_CHECK(!fails, PLAIT_ERR_INTERNAL, "check device %d: %s fails, call %lld",
                device->ordinal, what, (long long)n);
done:
    return status;
}

plait_status_t check_device_count_call(plait_device_t *device, const char *what)
{
    return count_call(device, what, false);
}

plait_status_t check_device_count_free_call(plait_device_t *device, const char *what)
{
    return count_call(device, what, true);
}

static plait_status_t enter(plait_device_t *device)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *outside = current;

    current = device;
    PLAIT_TRY(check_device_count_call(device, "enter"));
    if (outside != NULL) {
        check_device_fault(device, "enter inside enter");
    }
done:
    current = (status == PLAIT_OK) ? device : NULL;
    return status;
}

static void leave(plait_device_t *device)
{
    if (current != device) {
        check_device_fault(device, "leave without enter");
    }
    current = NULL;
}

static const plait_device_joint_t joint = {.plan = check_device_joint_plan,
                                           .run = check_device_joint_run};

static int driver(const plait_device_t *device)
{
    return state_of(device)->driver;
}

static plait_device_table_t table = {
    .name = "check",
    .enter = enter,
    .leave = leave,
    .take = check_device_take,
    .give = check_device_give,
    .host_take = check_device_host_take,
    .host_give = check_device_host_give,
    .to_host = check_device_to_host,
    .to_device = check_device_to_device,
    .boxes = check_device_boxes,
    .reduce = check_device_reduce,
    .fft_plan = check_device_fft_plan,
    .fft = check_device_fft,
    .scale = check_device_scale,
    .tile_plan = check_device_tile_plan,
    .tile = check_device_tile,
    .stream_create = check_device_stream_create,
    .stream_destroy = check_device_stream_destroy,
    .event_create = check_device_event_create,
    .event_destroy = check_device_event_destroy,
    .event_record = check_device_event_record,
    .event_order = check_device_event_order,
    .event_wait = check_device_event_wait,
    .stream_wait = check_device_stream_wait,
    .copy = check_device_copy,
    .memory_export = check_device_memory_export,
    .virtual_take = check_device_virtual_take,
    .virtual_give = check_device_virtual_give,
    .memory_import = check_device_memory_import,
    .memory_drop = check_device_memory_drop,
    .event_export = check_device_event_export,
    .event_import = check_device_event_import,
    .event_ask = check_device_event_ask,
    .joint = &joint,
    .driver = driver,
};

void check_device_set_driver(plait_device_t *device, int version)
{
    state_of(device)->driver = version;
}

void check_device_use_grid(const plait_device_grid_t *grid)
{
    table.grid = grid;
}

void check_device_use_nccl(const plait_device_nccl_t *nccl)
{
    table.nccl = nccl;
}

void check_device_use_nvshmem(const plait_device_nvshmem_t *nvshmem)
{
    table.nvshmem = nvshmem;
}

plait_device_t *check_device_create(int ordinal)
{
    plait_device_t *device = calloc(1, sizeof(*device));
    state_t *s = calloc(1, sizeof(*s));

    if (device == NULL || s == NULL) {
        abort();
    }
    *device = (plait_device_t){.table = &table, .ordinal = ordinal, .state = s};
    (void)pthread_mutex_init(&s->mutex, NULL);
    (void)pthread_cond_init(&s->changed, NULL);
    check_device_map(s);
    s->own = check_device_stream_start(device);
    return device;
}

int check_device_destroy(plait_device_t **device_p)
{
    plait_device_t *device = *device_p;
    state_t *s = state_of(device);

    check_device_stream_stop(s->own);
    check_device_count_memory(device);
    check_device_count_imports(device);
    if (s->n_streams != 0 || s->n_events != 0) {
        check_device_fault(device, "%d streams and %d events were not destroyed",
                           s->n_streams, s->n_events);
    }
    int n_faults = s->n_faults;
    check_device_unmap(s);
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->mutex);
    free(s);
    free(device);
    *device_p = NULL;
    return n_faults;
}

void check_device_count_bytes(plait_device_t *device, int64_t n_down, int64_t n_up,
                              int64_t n_across)
{
    lock(device);
    state_of(device)->counts.down_bytes += n_down;
    state_of(device)->counts.up_bytes += n_up;
    state_of(device)->counts.across_bytes += n_across;
    unlock(device);
}

bool check_device_mark(plait_device_t *device, uint64_t mark)
{
    state_t *s = state_of(device);
    uint64_t at = mark % N_MARKS;
    int n_left = N_MARKS;

    lock(device);
    while (s->marks[at] != 0 && s->marks[at] != mark && n_left > 0) {
        at = (at + 1) % N_MARKS;
        n_left--;
    }
    const bool is_known = s->marks[at] == mark;
    if (n_left > 0) {
        s->marks[at] = mark;
    }
    unlock(device);
    return is_known;
}

check_device_counts_t check_device_counts(plait_device_t *device)
{
    lock(device);
    check_device_counts_t counts = state_of(device)->counts;
    unlock(device);
    return counts;
}

void check_device_fail_at(plait_device_t *device, int64_t n, bool is_dead)
{
    state_t *s = state_of(device);

    lock(device);
    s->n_until_failure = n;
    s->is_dying = is_dead;
    s->is_dead = false;
    unlock(device);
}
