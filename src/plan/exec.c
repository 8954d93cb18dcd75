#include "plan/exec.h"

#include "base/checked.h"
#include "base/status.h"
#include "base/trace.h"
#include "device/pool.h"
#include "kernel/reduce.h"
#include "plan/exec_steps.h"

static int64_t padded(int64_t n_bytes)
{
    return (n_bytes + 63) / 64 * 64;
}

/* One pooled buffer holds all work slots and the scratch, each on its own cache lines. */
static plait_status_t take_memory(plait_exec_t *exec, void **memory_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_plan_t *plan = exec->plan;
    int first = plan->n_args + plan->n_rets;
    int64_t n_bytes = padded(plan->scratch_bytes);
    char *at = NULL;

    for (int s = first; s < plait_plan_n_slots(plan); s++) {
        n_bytes += padded(plan->slot_bytes[s]);
    }
    PLAIT_TRY(plait_pool_take(n_bytes, memory_p));
    at = *memory_p;
    for (int s = first; s < plait_plan_n_slots(plan); s++) {
        exec->slot[s] = at;
        at += padded(plan->slot_bytes[s]);
    }
    exec->scratch = at;
done:
    return status;
}

/* A rank whose record does not go with this rank's; 0 if only others differ. */
static int differing_rank(const plait_record_t records[], const plait_plan_t *plan)
{
    int differs = 0;

    for (int r = plan->n_ranks - 1; r >= 0; r--) {
        bool is_some = records[r].agree_some != 0 && plan->agree_some != 0;
        if (records[r].agree != plan->agree ||
            (is_some && records[r].agree_some != plan->agree_some)) {
            differs = r;
        }
    }
    return differs;
}

/* What every rank concludes from the same records, so all leave at the same fence. */
static plait_status_t judge(const plait_exec_t *exec)
{
    plait_status_t status = PLAIT_OK;
    const plait_plan_t *plan = exec->plan;
    const plait_record_t *records = exec->session.peers;
    uint64_t some = 0;

    for (int r = 0; r < plan->n_ranks; r++) {
        some = (some == 0) ? records[r].agree_some : some;
        PLAIT_CHECK(records[r].agree == records[0].agree &&
                        (records[r].agree_some == 0 || records[r].agree_some == some),
                    PLAIT_ERR_MISMATCH,
                    "rank %d calls %s, rank %d calls something else at the same place",
                    plan->rank, plan->title, differing_rank(records, plan));
    }
    for (int r = 0; r < plan->n_ranks; r++) {
        PLAIT_CHECK(records[r].status == PLAIT_OK, PLAIT_ERR_PEER,
                    "%s: rank %d failed with %s", plan->title, r,
                    plait_status_name((plait_status_t)records[r].status));
    }
done:
    return status;
}

/* Returns the status of the fence; own_p is what this rank brings to it. */
static plait_status_t run_fence(plait_exec_t *exec, plait_status_t own)
{
    plait_status_t status = PLAIT_OK;
    const plait_plan_t *plan = exec->plan;
    plait_session_t *session = &exec->session;
    plait_record_t mine = {.status = (int32_t)own,
                           .n_slots = plait_plan_n_slots(plan),
                           .agree = plan->agree,
                           .agree_some = plan->agree_some};

    for (int s = 0; s < mine.n_slots; s++) {
        mine.slot[s] = (uint64_t)(uintptr_t)exec->slot[s];
    }
    PLAIT_TRY(session->end->transport->fence(session, &mine));
    if (own == PLAIT_OK) {
        status = judge(exec);
    } else {
        status = own; /* whose text is still there */
    }
done:
    return status;
}

static plait_status_t run_step(plait_exec_t *exec, const plait_step_t *step)
{
    switch (step->kind) {
    case PLAIT_STEP_MOVE:
        return plait_exec_move(exec, &step->u.move);
    case PLAIT_STEP_REDUCE:
        return plait_exec_reduce(exec, &step->u.reduce);
    case PLAIT_STEP_KERNEL:
        return step->u.kernel.kernel->run(step->u.kernel.params, exec);
    case PLAIT_STEP_NATIVE:
        return plait_exec_native(exec, &step->u.native);
    case PLAIT_STEP_FENCE:
    case PLAIT_STEP_KIND_COUNT:
        break;
    }
    return PLAIT_OK;
}

/* A rank that fails between fences goes on to the next one, where all learn of it and
 * leave; without fences it leaves at once. */
static plait_status_t run_steps(plait_exec_t *exec, plait_status_t status)
{
    const plait_plan_t *plan = exec->plan;

    for (int i = 0; i < plan->n_steps; i++) {
        const plait_step_t *step = &plan->steps[i];
        if (step->kind == PLAIT_STEP_FENCE) {
            status = run_fence(exec, status);
            if (status != PLAIT_OK) {
                break;
            }
        } else if (status == PLAIT_OK) {
            status = run_step(exec, step);
        }
    }
    return status;
}

plait_status_t plait_exec_plan(const plait_plan_t *plan, plait_endpoint_t *end,
                               int64_t run, const void *const args[],
                               void *const rets[])
{
    plait_status_t status = PLAIT_OK;
    plait_exec_t exec = {.plan = plan, .session = {.end = end, .run = run}};
    void *memory = NULL;
    bool has_begun = false;

    PLAIT_CHECK(end->size == plan->n_ranks && end->rank == plan->rank,
                PLAIT_ERR_INVALID,
                "%s: the plan is for rank %d of %d, the communicator is rank %d of %d",
                plan->title, plan->rank, plan->n_ranks, end->rank, end->size);
    for (int i = 0; i < plan->n_args; i++) {
        exec.slot[plait_slot_arg(plan, i)] = (char *)(uintptr_t)args[i];
    }
    for (int i = 0; i < plan->n_rets; i++) {
        exec.slot[plait_slot_ret(plan, i)] = rets[i];
    }
    PLAIT_TRY(end->transport->begin(&exec.session, plan->is_collective));
    has_begun = true;
    status = take_memory(&exec, &memory);
    status = run_steps(&exec, status);
    if (status == PLAIT_OK) {
        status = end->transport->refusal(&exec.session);
    }
    plait_trace_add(plan->title, end->rank, status);
done:
    if (has_begun) {
        end->transport->end(&exec.session);
    }
    plait_pool_give(memory);
    return status;
}
