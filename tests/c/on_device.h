/* Runs a test's operations on devices. If a plan is for a device, operands are brought there and results
 * fetched, around plait_exec_plan (the linker's --wrap). So the host's cases also serve devices; each rank of
 * team_run has one. */
#ifndef PLAIT_TESTS_ON_DEVICE_H
#define PLAIT_TESTS_ON_DEVICE_H

#include "base/status.h"
#include "device/find.h"
#include "plan/exec.h"
#include "rank_device.h"

/* Whether the test's argument asks for devices. */
static inline bool on_device_is_asked(int n_arguments, char **arguments)
{
    return n_arguments > 1 && strcmp(arguments[1], "device") == 0;
}

static inline plait_status_t on_device_find_nothing(int ordinal,
                                                    plait_device_t **device_p)
{
    (void)ordinal;
    (void)device_p;
    return plait_fail(PLAIT_ERR_INTERNAL, "nobody looks for a device");
}

/* As if devices had been found, so that choices that need devices may be made. */
static inline void on_device_pretend(void)
{
    plait_device_set_finder(on_device_find_nothing);
}

/* The device's copy of a slot. A slot that shares an earlier one's memory does so there, too. */
static inline void *on_device_slot(const plait_plan_t *plan, int rank, int slot,
                                   void *const here[], void *const there[])
{
    void *memory = NULL;

    if (here[slot] == NULL) {
        return NULL; /* nobody reads it */
    }
    for (int s = 0; s < slot && memory == NULL; s++) {
        memory = (here[s] == here[slot]) ? there[s] : NULL;
    }
    return (memory != NULL)
               ? memory
               : on_device_alloc(plan->device, rank, plan->slot_bytes[slot]);
}

/* If set, this thread does not wait for what it executes, and arrays stay until they are dropped. */
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
        if (there[s] != NULL) { /* bytes that are not written stay unchanged */
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
