#include "plan/exec.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/status.h"
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
static int differing_rank(const plait_exec_t *exec)
{
    const plait_plan_t *plan = exec->plan;
    int differs = 0;

    for (int r = plan->n_ranks - 1; r >= 0; r--) {
        const plait_record_t *record = plait_peer_record(&exec->session, r);
        bool is_some = record->agree_some != 0 && plan->agree_some != 0;
        if (record->agree != plan->agree ||
            (is_some && record->agree_some != plan->agree_some)) {
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
    const plait_session_t *session = &exec->session;
    const plait_record_t *first = plait_peer_record(session, 0);
    uint64_t some = 0;

    for (int r = 0; r < plan->n_ranks; r++) {
        const plait_record_t *record = plait_peer_record(session, r);
        some = (some == 0) ? record->agree_some : some;
        PLAIT_CHECK(record->agree == first->agree &&
                        (record->agree_some == 0 || record->agree_some == some),
                    PLAIT_ERR_MISMATCH,
                    "rank %d calls %s, rank %d calls something else at the same place",
                    plan->rank, plan->title, differing_rank(exec));
    }
    for (int r = 0; r < plan->n_ranks; r++) {
        int32_t theirs = plait_peer_record(session, r)->status;
        PLAIT_CHECK(theirs == PLAIT_OK, PLAIT_ERR_PEER, "%s: rank %d failed with %s",
                    plan->title, r, plait_status_name((plait_status_t)theirs));
    }
done:
    return status;
}

/* Returns the status of the fence; own_p is what this rank brings to it. */
static plait_status_t run_fence(plait_exec_t *exec, const plait_publish_t *publish,
                                plait_status_t own)
{
    plait_status_t status = PLAIT_OK;
    const plait_plan_t *plan = exec->plan;
    plait_session_t *session = &exec->session;
    bool publishes = publish->slot >= 0;
    const char *bytes = publishes ? exec->slot[publish->slot] + publish->offset : NULL;
    plait_record_t mine;

    mine.status = (int32_t)own;
    mine.n_slots = publishes ? 0 : plait_plan_n_slots(plan);
    mine.agree = plan->agree;
    mine.agree_some = plan->agree_some;
    for (int s = 0; s < mine.n_slots; s++) {
        mine.slot[s] = (uint64_t)(uintptr_t)exec->slot[s];
    }
    PLAIT_TRY(session->end->transport->fence(session, &mine, bytes, publish->n_bytes));
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

static int64_t now_if_timed(const plait_exec_t *exec)
{
    return (exec->times != NULL) ? plait_clock_ns() : 0;
}

/* Time since `start` was for peers, or for memory. Without direct access a move is messages,
 * whose time is waiting. */
static void count_time(plait_exec_t *exec, bool is_wait, int64_t start)
{
    if (exec->times != NULL) {
        int64_t *sum = is_wait ? &exec->times->wait_ns : &exec->times->copy_ns;
        *sum += plait_clock_ns() - start;
    }
}

static bool is_wait(const plait_plan_t *plan, plait_step_kind_t kind)
{
    return kind == PLAIT_STEP_FENCE || kind == PLAIT_STEP_NATIVE ||
           (kind == PLAIT_STEP_MOVE && plan->direct == PLAIT_DIRECT_NONE);
}

/* A rank that fails between fences goes on to the next one, where all learn of it and
 * leave; without fences it leaves at once. */
static plait_status_t run_steps(plait_exec_t *exec, plait_status_t status)
{
    const plait_plan_t *plan = exec->plan;

    for (int i = 0; i < plan->n_steps; i++) {
        const plait_step_t *step = &plan->steps[i];
        int64_t start = now_if_timed(exec);
        if (step->kind == PLAIT_STEP_FENCE) {
            status = run_fence(exec, &step->u.fence, status);
            if (status != PLAIT_OK) {
                break;
            }
        } else if (status == PLAIT_OK) {
            status = run_step(exec, step);
        }
        count_time(exec, is_wait(plan, step->kind), start);
    }
    return status;
}

plait_status_t plait_exec_plan(const plait_plan_t *plan, plait_endpoint_t *end,
                               int64_t run, const void *const args[],
                               void *const rets[], plait_trace_times_t *times)
{
    plait_status_t status = PLAIT_OK;
    plait_exec_t exec = {
        .plan = plan, .session = {.end = end, .run = run}, .times = times};
    int64_t start = now_if_timed(&exec);
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
    count_time(&exec, true, start);
    status = take_memory(&exec, &memory);
    status = run_steps(&exec, status);
    if (status == PLAIT_OK) {
        status = end->transport->refusal(&exec.session);
    }
done:
    if (has_begun) {
        start = now_if_timed(&exec);
        end->transport->end(&exec.session);
        count_time(&exec, true, start);
    }
    plait_pool_give(memory);
    return status;
}
