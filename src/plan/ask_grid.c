#include "plan/ask_grid.h"

#include "base/status.h"
#include "base/trace.h"
#include "plan/observe.h"
#include "transport/process_grid.h"

static plait_status_t ask(const void *params, plait_exec_t *exec)
{
    (void)params;
    return plait_process_grid_open(exec->device);
}

static void touch(const void *params, plait_touch_fn_t touch_one, void *context)
{
    (void)params;
    (void)touch_one;
    (void)context;
}

static void print(const void *params, FILE *file)
{
    (void)params;
    (void)fprintf(file, "by all processes at once");
}

static const plait_kernel_t ask_kernel = {.name = "a grid",
                                          .run_device = ask,
                                          .is_blocking = true,
                                          .touch = touch,
                                          .print = print};

plait_status_t plait_grid_ask(plait_comm_t *comm, int64_t run, plait_device_t *device,
                              plait_stream_t stream)
{
    plait_status_t status = PLAIT_OK;
    const plait_problem_t problem = {
        .n_ranks = comm->end.size,
        .rank = comm->end.rank,
        .caps = {.device = device, .direct = PLAIT_DIRECT_NONE, .publish_bytes = -1}};
    const plait_exec_arrays_t arrays = {.stream = stream};
    plait_plan_t *plan = NULL;

    PLAIT_TRY(plait_plan_create(&problem, &plan, "whether devices work as one"));
    plan->is_collective = true;
    plan->title_ref = plait_trace_text(plan->title);
    PLAIT_TRY(
        plait_plan_meet(plan)); /* so that ranks with another operation are found */
    PLAIT_TRY(plait_plan_kernel(plan, &ask_kernel, NULL));
    PLAIT_TRY(plait_observe_exec(plan, NULL, comm, run, false, &arrays));
done:
    plait_plan_destroy(&plan);
    return status;
}
