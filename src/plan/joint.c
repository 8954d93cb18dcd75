#include "plan/joint.h"

#include "base/status.h"
#include "base/wait.h"
#include "transport/device_vigil.h"

#include <stdatomic.h>

enum { ROOT = 0 };

/* What a rank shows the others. `is_over` is the rank's own, where it waits. The rank stays until the caller
 * has set it, since the call writes to the rank's memory. */
typedef struct {
    int64_t has_failed;
    atomic_bool *is_over;
    plait_joint_part_t part;
} letter_t;

/* Also waits for all that this rank has enqueued. */
static plait_status_t read_word(plait_exec_t *exec, int slot, int32_t *word_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_run_t *run = exec->device;
    const plait_device_table_t *table = run->device->table;
    void *host = NULL;

    PLAIT_TRY(table->host_take(run->device, sizeof(*word_p), &host));
    PLAIT_TRY(table->to_host(run->device, run->stream, host, exec->slot[slot],
                             sizeof(*word_p)));
    PLAIT_TRY(table->stream_wait(run->device, run->stream));
    *word_p = *(const int32_t *)host;
done:
    if (host != NULL) {
        table->host_give(run->device, host);
    }
    return status;
}

/* Shows the letter to all ranks; session->peers then has all letters. Not OK: some ranks have not come, or are
 * somewhere else. */
static plait_status_t meet(plait_exec_t *exec, const letter_t *mine)
{
    plait_status_t status = PLAIT_OK;
    plait_session_t *session = &exec->session;
    const uint64_t agree = plait_exec_agree(exec->plan, exec->is_beside);
    const plait_record_t record = {.n_slots = 0, .agree = agree + exec->skipped};

    PLAIT_TRY(
        session->end->transport->fence(session, &record, mine, (int64_t)sizeof(*mine)));
    for (int r = 0; r < session->end->size; r++) {
        const plait_record_t *theirs = plait_peer_record(session, r);
        PLAIT_CHECK(theirs->agree == record.agree &&
                        theirs->n_slots == -(int32_t)sizeof(*mine),
                    PLAIT_ERR_MISMATCH, "rank %d has come with another operation", r);
    }
done:
    return status;
}

static const letter_t *letter_of(const plait_exec_t *exec, int rank)
{
    return (const void *)plait_peer_bytes(&exec->session, rank);
}

static plait_status_t call_for_all(plait_exec_t *exec, plait_joint_fn_t call,
                                   const void *params)
{
    plait_status_t status = PLAIT_OK;
    const int n_ranks = exec->plan->n_ranks;
    plait_joint_part_t parts[PLAIT_MAX_JOINT] = {{0}};
    atomic_bool *is_over[PLAIT_MAX_JOINT];

    for (int r = 0; r < n_ranks; r++) {
        parts[r] = letter_of(exec, r)->part;
        is_over[r] = letter_of(exec, r)->is_over;
    }
    status = call(params, exec, parts);
    for (int r = 0; r < n_ranks; r++) {
        atomic_store(is_over[r], true); /* the last access to the rank's memory here */
    }
    return status;
}

/* Nothing but the call's end ends this wait, not even the guard: the library writes to memory of this rank,
 * which may get another use as soon as the rank leaves. */
static void wait_for_end(const atomic_bool *is_over)
{
    plait_wait_t wait = plait_wait_begin("a call on all devices", ROOT);

    while (!atomic_load(is_over)) {
        (void)plait_wait_turn(&wait);
    }
}

/* Whether all ranks are here and none has failed: the same on all of them. */
static bool come(plait_exec_t *exec, letter_t *mine)
{
    plait_device_run_t *run = exec->device;
    plait_status_t status = PLAIT_OK;

    mine->has_failed = run->failure != PLAIT_OK;
    status = meet(exec, mine);
    run->is_lost = status != PLAIT_OK;
    (void)plait_device_failed(run, status);
    bool may_call = !run->is_lost;
    for (int r = 0; r < exec->plan->n_ranks && may_call; r++) {
        may_call = letter_of(exec, r)->has_failed == 0;
    }
    return may_call;
}

plait_status_t plait_exec_joint(plait_exec_t *exec, const plait_joint_slots_t *slots,
                                plait_joint_fn_t call, const void *params)
{
    plait_device_run_t *run = exec->device;
    atomic_bool is_over = false;
    letter_t mine = {.is_over = &is_over};

    if (run->is_lost) {
        goto done;
    }
    if (run->failure == PLAIT_OK) {
        mine.part = (plait_joint_part_t){
            .matrix = exec->slot[slots->matrix],
            .rhs = (slots->rhs >= 0) ? exec->slot[slots->rhs] : NULL,
            .work = exec->scratch};
        (void)plait_device_failed(run, read_word(exec, slots->info, &mine.part.found));
    }
    if (!come(exec, &mine)) {
        goto done;
    }
    if (exec->plan->rank == ROOT) {
        (void)plait_device_failed(run, call_for_all(exec, call, params));
    } else {
        wait_for_end(&is_over);
    }
done:
    return run->failure;
}

/* ---- Ranks that are processes ---- */

/* Steps before the call; if one fails, no rank calls. */
static plait_status_t prepare(plait_exec_t *exec, int info_slot,
                              const plait_grid_call_t *call, const void *params,
                              int32_t *found_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(read_word(exec, info_slot, found_p));
    PLAIT_TRY(call->begin(params, exec));
    PLAIT_TRY(plait_vigil_enter(exec->device));
done:
    return status;
}

/* The word of the first rank that has found something; 0: none has. */
static int32_t find_found(const plait_exec_t *exec)
{
    int32_t found = 0;

    for (int r = 0; r < exec->plan->n_ranks && found == 0; r++) {
        found = letter_of(exec, r)->part.found;
    }
    return found;
}

/* A rank whose own call fails leaves at once: its peers may never return from their calls, and it must not wait
 * for them. */
static bool call_with_all(plait_exec_t *exec, const plait_grid_call_t *call,
                          const void *params, letter_t *mine)
{
    plait_device_run_t *run = exec->device;
    bool is_good = false;

    run->is_in_grid = true;
    run->is_lost = plait_device_failed(run, call->call(params, exec)) != PLAIT_OK;
    if (!run->is_lost) {
        (void)plait_device_failed(run, call->end(params, exec, &mine->part.found));
        is_good = come(exec, mine);
        run->is_in_grid = !is_good;
    }
    return is_good;
}

plait_status_t plait_exec_grid(plait_exec_t *exec, int info_slot,
                               const plait_grid_call_t *call, const void *params)
{
    plait_device_run_t *run = exec->device;
    letter_t mine = {.has_failed = 0};
    int32_t found = 0;
    bool is_good = false;

    if (run->is_lost) {
        goto done;
    }
    if (run->failure == PLAIT_OK) {
        (void)plait_device_failed(
            run, prepare(exec, info_slot, call, params, &mine.part.found));
    }
    is_good = come(exec, &mine);
    found = is_good ? find_found(exec) : 0;
    if (is_good && found == 0) {
        is_good = call_with_all(exec, call, params, &mine);
        found = is_good ? find_found(exec) : 0;
    }
    plait_vigil_leave(run);
    if (found != 0) {
        (void)plait_device_failed(
            run, plait_exec_store(exec, info_slot, &found, sizeof(found)));
    }
done:
    return run->failure;
}
