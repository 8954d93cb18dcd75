/* Lets whatever a test executes run on devices: where a plan is for one, operands are brought there and
 * results fetched, around plait_exec_plan (the linker's --wrap). So the cases of the host are those of
 * devices. Each rank of team_run has a check device of its own; or, where a test asks for CUDA devices, it
 * has one of these, which it shares with others if there are not enough, and a stream of its own. */
#ifndef PLAIT_TESTS_ON_DEVICE_H
#define PLAIT_TESTS_ON_DEVICE_H

#include "base/status.h"
#include "check.h"
#include "check_device.h"
#include "device/cuda.h"
#include "device/find.h"
#include "plan/exec.h"
#include "team.h"

#include <string.h>

/* Whether a test is to run its cases there: its argument. */
static inline bool on_device_is_asked(int n_arguments, char **arguments)
{
    return n_arguments > 1 && strcmp(arguments[1], "device") == 0;
}

/* How many CUDA devices ranks share; 0: they have check devices. */
static int on_device_n_cuda;
/* Of ranks on CUDA devices: streams, and pinned memory through which arrays come and go. */
static plait_stream_t on_device_streams[TEAM_MAX];
static struct {
    void *memory;
    int64_t n_bytes;
} on_device_pinned[TEAM_MAX];

/* Ranks have CUDA devices from now on. False, with the reason in words: there is none. */
static inline bool on_device_use_cuda(void)
{
    plait_device_t *first = NULL;
    plait_status_t status = plait_cuda_device(0, &first);

    if (status == PLAIT_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", plait_error_text());
    } else {
        CHECK(status == PLAIT_OK, "%s", plait_error_text());
        do {
            on_device_n_cuda++;
        } while (plait_cuda_device_say(on_device_n_cuda) != NULL);
    }
    return status != PLAIT_ERR_UNSUPPORTED;
}

static inline void on_device_good(plait_status_t status)
{
    CHECK(status == PLAIT_OK, "%s", plait_error_text());
}

static inline void on_device_begin(int n_ranks)
{
    for (int r = 0; r < n_ranks; r++) {
        if (on_device_n_cuda > 0) {
            plait_device_t *device = NULL;
            on_device_good(plait_cuda_device(r % on_device_n_cuda, &device));
            on_device_good(device->table->enter(device));
            on_device_good(device->table->stream_create(device, &on_device_streams[r]));
            device->table->leave(device);
            team_devices[r] = device;
        } else {
            team_devices[r] = check_device_create(r);
        }
    }
}

static inline void on_device_end(int n_ranks)
{
    for (int r = 0; r < n_ranks; r++) {
        plait_device_t *device = team_devices[r];
        plait_staged_trim(device);
        if (on_device_n_cuda > 0) {
            on_device_good(device->table->enter(device));
            device->table->stream_destroy(device, on_device_streams[r]);
            device->table->host_give(device, on_device_pinned[r].memory);
            device->table->leave(device);
            on_device_pinned[r].memory = NULL;
            on_device_pinned[r].n_bytes = 0;
            team_devices[r] = NULL;
        } else {
            CHECK(check_device_destroy(&team_devices[r]) == 0, "device of rank %d", r);
        }
    }
}

/* Below: the device of a rank, which is not of a team where ranks are MPI's. */
static inline plait_stream_t on_device_stream(plait_device_t *device, int rank)
{
    return (on_device_n_cuda > 0) ? on_device_streams[rank]
                                  : check_device_stream(device);
}

static inline void on_device_drain(plait_device_t *device, int rank)
{
    if (on_device_n_cuda > 0) {
        on_device_good(device->table->enter(device));
        on_device_good(device->table->stream_wait(device, on_device_streams[rank]));
        device->table->leave(device);
    } else {
        check_device_drain(device);
    }
}

/* n_bytes 0: NULL. */
static inline void *on_device_alloc(plait_device_t *device, int rank, int64_t n_bytes)
{
    void *memory = NULL;

    if (on_device_n_cuda > 0) {
        on_device_good(device->table->enter(device));
        on_device_good(
            device->table->take(device, on_device_streams[rank], n_bytes, &memory));
        device->table->leave(device);
    } else {
        memory = check_device_alloc(device, n_bytes);
    }
    return memory;
}

static inline void on_device_free(plait_device_t *device, int rank, void *memory)
{
    if (on_device_n_cuda > 0) {
        on_device_good(device->table->enter(device));
        device->table->give(device, on_device_streams[rank], memory);
        device->table->leave(device);
    } else {
        check_device_free(device, memory);
    }
}

/* The rank's pinned memory, of n_bytes at least; entered. */
static inline void *on_device_room(int rank, int64_t n_bytes)
{
    plait_device_t *device = team_devices[rank];

    if (on_device_pinned[rank].n_bytes < n_bytes) {
        device->table->host_give(device, on_device_pinned[rank].memory);
        on_device_pinned[rank].n_bytes = 2 * n_bytes;
        on_device_good(device->table->host_take(device, 2 * n_bytes,
                                                &on_device_pinned[rank].memory));
    }
    return on_device_pinned[rank].memory;
}

/* n_bytes from the host to the device, or back; then nothing is under way on the rank's stream, or it brings
 * them late. */
static inline void on_device_move(plait_device_t *device, int rank, void *there,
                                  void *here, int64_t n_bytes, bool is_back)
{
    if (on_device_n_cuda > 0) {
        const plait_device_table_t *table = device->table;
        plait_stream_t stream = on_device_streams[rank];
        on_device_good(table->enter(device));
        void *pinned = on_device_room(rank, n_bytes);
        if (is_back) {
            on_device_good(table->to_host(device, stream, pinned, there, n_bytes));
        } else {
            memcpy(pinned, here, (size_t)n_bytes);
            on_device_good(table->to_device(device, stream, there, pinned, n_bytes));
        }
        on_device_good(table->stream_wait(device, stream));
        if (is_back) {
            memcpy(here, pinned, (size_t)n_bytes);
        }
        table->leave(device);
    } else if (is_back) {
        memcpy(here, check_device_view(device, there), (size_t)n_bytes);
    } else {
        check_device_arrive(device, there, here, n_bytes);
    }
}

static inline plait_status_t on_device_find_nothing(int ordinal,
                                                    plait_device_t **device_p)
{
    (void)ordinal;
    (void)device_p;
    return plait_fail(PLAIT_ERR_INTERNAL, "nobody looks for a device");
}

/* As if devices were found: what needs some may be chosen. */
static inline void on_device_pretend(void)
{
    plait_device_set_finder(on_device_find_nothing);
}

/* The device's copy of a slot; one that shares an earlier one's memory does so there. */
static inline void *on_device_slot(const plait_plan_t *plan, int rank, int slot,
                                   void *const here[], void *const there[])
{
    void *memory = NULL;

    if (here[slot] == NULL) {
        return NULL; /* nobody will look at it */
    }
    for (int s = 0; s < slot && memory == NULL; s++) {
        memory = (here[s] == here[slot]) ? there[s] : NULL;
    }
    return (memory != NULL)
               ? memory
               : on_device_alloc(plan->device, rank, plan->slot_bytes[slot]);
}

/* Where this thread says so, nobody waits for what it executes, and arrays stay until they are dropped. */
static _Thread_local bool on_device_leaves;
static void *on_device_left[TEAM_MAX][PLAIT_MAX_SLOTS];

static inline void on_device_drop(int n_ranks)
{
    for (int r = 0; r < n_ranks; r++) {
        on_device_drain(team_devices[r], r);
    }
    for (int i = 0; i < n_ranks * PLAIT_MAX_SLOTS; i++) {
        void **left = &on_device_left[i / PLAIT_MAX_SLOTS][i % PLAIT_MAX_SLOTS];
        on_device_free(team_devices[i / PLAIT_MAX_SLOTS], i / PLAIT_MAX_SLOTS, *left);
        *left = NULL;
    }
}

plait_status_t __real_plait_exec_plan(const plait_plan_t *plan, plait_endpoint_t *end,
                                      int64_t run, plait_history_t *history,
                                      const plait_exec_arrays_t *arrays,
                                      plait_trace_times_t *times);
plait_status_t __wrap_plait_exec_plan(const plait_plan_t *plan, plait_endpoint_t *end,
                                      int64_t run, plait_history_t *history,
                                      const plait_exec_arrays_t *arrays,
                                      plait_trace_times_t *times);

plait_status_t __wrap_plait_exec_plan(const plait_plan_t *plan, plait_endpoint_t *end,
                                      int64_t run, plait_history_t *history,
                                      const plait_exec_arrays_t *arrays,
                                      plait_trace_times_t *times)
{
    const int n = plan->n_args + plan->n_rets;
    void *here[PLAIT_MAX_SLOTS] = {NULL};
    void *there[PLAIT_MAX_SLOTS] = {NULL};
    const void *args[PLAIT_MAX_SLOTS];
    void *rets[PLAIT_MAX_SLOTS];

    if (plan->device == NULL) {
        return __real_plait_exec_plan(plan, end, run, history, arrays, times);
    }
    for (int s = 0; s < n; s++) {
        bool is_arg = s < plan->n_args;
        here[s] = is_arg ? (void *)(uintptr_t)arrays->args[s]
                         : arrays->rets[s - plan->n_args];
        there[s] = on_device_slot(plan, end->rank, s, here, there);
        if (there[s] != NULL) { /* what is not written stays as it is */
            on_device_move(plan->device, end->rank, there[s], here[s],
                           plan->slot_bytes[s], false);
        }
        if (is_arg) {
            args[s] = there[s];
        } else {
            rets[s - plan->n_args] = there[s];
        }
    }
    const plait_exec_arrays_t moved = {.args = args,
                                       .rets = rets,
                                       .stream =
                                           on_device_stream(plan->device, end->rank),
                                       .matched = arrays->matched,
                                       .is_beside = arrays->is_beside};
    plait_status_t status =
        __real_plait_exec_plan(plan, end, run, history, &moved, times);
    if (on_device_leaves) {
        memcpy(on_device_left[end->rank], there, sizeof(there));
        return status;
    }
    on_device_drain(plan->device, end->rank);
    for (int r = 0; r < TEAM_MAX && status != PLAIT_OK; r++) {
        if (team_devices[r] !=
            NULL) { /* memory of a rank that failed may still be read */
            on_device_drain(team_devices[r], r);
        }
    }
    for (int s = plan->n_args; s < n; s++) {
        if (there[s] != NULL) {
            on_device_move(plan->device, end->rank, there[s], here[s],
                           plan->slot_bytes[s], true);
        }
    }
    for (int s = n - 1; s >= 0; s--) {
        bool is_shared = false;
        for (int t = 0; t < s; t++) {
            is_shared = is_shared || there[t] == there[s];
        }
        if (!is_shared) {
            on_device_free(plan->device, end->rank, there[s]);
        }
    }
    return status;
}

#endif
