#include "plan/exec.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/setting.h"
#include "base/site.h"
#include "base/status.h"
#include "base/text.h"
#include "device/pool.h"
#include "kernel/blas.h"
#include "kernel/reduce.h"
#include "plan/exec_steps.h"
#include "transport/process_grid.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static int64_t padded(int64_t n_bytes)
{
    return (n_bytes + 63) / 64 * 64;
}

static _Atomic int check_level = -1; /* PLAIT_CHECK has not been read */

plait_check_level_t plait_check_level(void)
{
    static const char *const names[] = {[PLAIT_CHECK_OFF] = "off",
                                        [PLAIT_CHECK_FIRST] = "first",
                                        [PLAIT_CHECK_FULL] = "full",
                                        NULL};
    int level = atomic_load_explicit(&check_level, memory_order_relaxed);

    if (level < 0) {
        level = plait_setting("PLAIT_CHECK", names, PLAIT_CHECK_FIRST);
        plait_check_choose(level);
    }
    return (plait_check_level_t)level;
}

void plait_check_choose(int level)
{
    atomic_store(&check_level, level);
}

/* Bytes of the peers' records that are kept between an arrival and its fence. */
static int64_t kept_bytes(const plait_plan_t *plan)
{
    return plan->has_arrivals ? padded(plan->n_ranks * (int64_t)sizeof(plait_record_t))
                              : 0;
}

/* Bytes of the list of peers' mapped work memory. */
static int64_t shown_bytes(const plait_plan_t *plan)
{
    return plan->shows_work ? padded(plan->n_ranks * (int64_t)sizeof(plait_shown_t))
                            : 0;
}

/* One pooled buffer holds all work slots, the kept records, the list of what peers show, and the scratch, each
 * on its own cache lines. It begins with the first work slot. */
static plait_status_t take_memory(plait_exec_t *exec, void **memory_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_plan_t *plan = exec->plan;
    int first = plan->n_args + plan->n_rets;
    int64_t n_bytes =
        padded(plan->scratch_bytes) + kept_bytes(plan) + shown_bytes(plan);
    char *at = NULL;

    for (int s = first; s < plait_plan_n_slots(plan); s++) {
        n_bytes += padded(plan->slot_bytes[s]);
    }
    PLAIT_TRY(plan->shows_work ? plait_pool_take_shown(n_bytes, memory_p, &exec->token)
                               : plait_pool_take(n_bytes, memory_p));
    if (n_bytes == 0) {
        goto done;
    }
    at = *memory_p;
    for (int s = first; s < plait_plan_n_slots(plan); s++) {
        exec->slot[s] = at;
        at += padded(plan->slot_bytes[s]);
    }
    exec->kept = at;
    at += kept_bytes(plan);
    if (plan->shows_work) {
        exec->shown = (plait_shown_t *)(void *)at;
        memset(exec->shown, 0, (size_t)shown_bytes(plan));
    }
    exec->scratch = at + shown_bytes(plan);
done:
    return status;
}

/* The outcome of a fence's records: the same on every rank, so all leave at the same fence. */
typedef enum {
    ALL_ALIKE,
    SOME_FAILED, /* or cannot even plan: their agree is 0 */
    CALLS_DIFFER
} verdict_t;

static verdict_t judge(const plait_session_t *session)
{
    const plait_record_t *first = plait_peer_record(session, 0);
    uint64_t some = 0;
    bool has_failed = false;
    bool has_refused = false;
    bool differs = false;

    for (int r = 0; r < session->end->size; r++) {
        const plait_record_t *record = plait_peer_record(session, r);
        some = (some == 0) ? record->agree_some : some;
        has_failed = has_failed || record->status != PLAIT_OK;
        has_refused = has_refused || record->agree == 0;
        differs = differs || record->agree != first->agree ||
                  (record->agree_some != 0 && record->agree_some != some);
    }
    differs = differs && !has_refused && plait_check_level() != PLAIT_CHECK_OFF;
    return differs ? CALLS_DIFFER : has_failed ? SOME_FAILED : ALL_ALIKE;
}

/* After a failure or mismatch, every rank shows a text, at one more fence. */
enum { SAID_BYTES = 224 };

static plait_status_t say_with(plait_session_t *session, const plait_record_t *mine,
                               const char *text)
{
    char said[SAID_BYTES] = "";

    (void)snprintf(said, sizeof(said), "%s", text);
    return session->end->transport->fence(session, mine, said, SAID_BYTES);
}

static plait_status_t say(plait_session_t *session, const char *text)
{
    const plait_record_t nothing = {.n_slots = 0};

    return say_with(session, &nothing, text);
}

static void say_call(const plait_exec_t *exec, char text[SAID_BYTES])
{
    const char *where = plait_site_text(plait_site_here());
    const bool is_apart = plait_exec_is_apart(exec->plan, exec->is_beside);

    (void)snprintf(text, SAID_BYTES, "%s%.150s%s%s%s", is_apart ? "started: " : "",
                   exec->plan->title,
                   (exec->plan->device != NULL) ? " on a device" : "",
                   (where[0] != '\0') ? " at " : "", where);
}

static bool says_the_same(const plait_session_t *session, int r, int q)
{
    return strncmp(plait_peer_bytes(session, r), plait_peer_bytes(session, q),
                   SAID_BYTES) == 0;
}

/* Compares the texts up to the arguments. */
static bool names_the_same(const plait_session_t *session, int r, int q)
{
    const char *a = plait_peer_bytes(session, r);
    const char *b = plait_peer_bytes(session, q);
    const size_t n = strcspn(a, "( ");

    return n == strcspn(b, "( ") && strncmp(a, b, n) == 0;
}

/* Compares more than the texts, which leave arguments out. */
static bool calls_the_same(const plait_session_t *session, int r, int q)
{
    const plait_record_t *a = plait_peer_record(session, r);
    const plait_record_t *b = plait_peer_record(session, q);

    return says_the_same(session, r, q) && a->agree == b->agree &&
           (a->agree_some == 0 || b->agree_some == 0 || a->agree_some == b->agree_some);
}

/* One line for each call that differs from those above it, with the ranks that made it. Returns the number of
 * lines. */
static int list_calls(const plait_session_t *session, char *text, size_t room)
{
    int size = session->end->size;
    int n_lines = 0;

    for (int r = 0; r < size; r++) {
        bool is_new = true;
        for (int q = 0; q < r && is_new; q++) {
            is_new = !calls_the_same(session, q, r);
        }
        if (!is_new) {
            continue;
        }
        n_lines++;
        plait_text_append(text, room, "\n  rank %d", r);
        for (int q = r + 1; q < size; q++) {
            if (calls_the_same(session, r, q)) {
                plait_text_append(text, room, ", %d", q);
            }
        }
        plait_text_append(text, room, ": %.*s", SAID_BYTES,
                          plait_peer_bytes(session, r));
    }
    return n_lines;
}

static plait_status_t show_calls(plait_exec_t *exec)
{
    const plait_record_t mine = {.agree = plait_exec_agree(exec->plan, exec->is_beside),
                                 .agree_some = exec->plan->agree_some};
    char text[SAID_BYTES];

    say_call(exec, text);
    return say_with(&exec->session, &mine, text);
}

static plait_status_t fail_differing(const plait_session_t *session)
{
    char lines[1500] = "";
    const bool differs_here = list_calls(session, lines, sizeof(lines)) > 1;
    bool is_one_name = true;

    for (int r = 1; r < session->end->size; r++) {
        is_one_name = is_one_name && names_the_same(session, 0, r);
    }
    return plait_fail(PLAIT_ERR_MISMATCH, "%s%s",
                      !differs_here ? "the ranks called different operations before "
                                      "this one (PLAIT_CHECK=full finds the first)"
                      : is_one_name ? "the ranks call this operation with different "
                                      "arguments"
                                    : "the ranks call different operations",
                      lines);
}

/* Every rank that failed says why. */
static plait_status_t show_failure(plait_exec_t *exec, plait_status_t own)
{
    if (exec->device != NULL) {
        plait_exec_device_drain(exec, own);
    }
    return say(&exec->session, (own != PLAIT_OK) ? plait_error_text() : "");
}

/* own: this rank's status, with its text; a rank that failed keeps it as the verdict. */
static plait_status_t fail_together(const plait_session_t *session, plait_status_t own)
{
    int failed = 0;

    while (failed + 1 < session->end->size &&
           plait_peer_bytes(session, failed)[0] == '\0') {
        failed++;
    }
    return (own != PLAIT_OK)
               ? own
               : plait_fail(PLAIT_ERR_PEER, "rank %d failed: %.*s", failed, SAID_BYTES,
                            plait_peer_bytes(session, failed));
}

static void fill_record(const plait_exec_t *exec, bool publishes, plait_status_t own,
                        plait_record_t *mine)
{
    mine->status = (int32_t)own;
    mine->n_slots = publishes ? 0 : plait_plan_n_slots(exec->plan);
    mine->agree = plait_exec_agree(exec->plan, exec->is_beside) + exec->skipped;
    mine->agree_some = exec->plan->agree_some;
    for (int s = 0; s < mine->n_slots; s++) {
        mine->slot[s] = (uint64_t)(uintptr_t)exec->slot[s];
    }
    if (mine->n_slots > 0 && mine->n_slots < PLAIT_MAX_SLOTS && exec->token != 0) {
        mine->slot[mine->n_slots++] = exec->token;
    }
}

/* Maps the work memory that peers show behind their slots' addresses. */
static void map_peers(plait_exec_t *exec)
{
    plait_session_t *session = &exec->session;
    const int n_slots = plait_plan_n_slots(exec->plan);

    for (int r = 0; r < exec->plan->n_ranks; r++) {
        const plait_record_t *record = plait_peer_record(session, r);
        plait_shown_t *shown = &exec->shown[r];
        if (r != exec->plan->rank && record->n_slots > n_slots && shown->token == 0) {
            shown->token = record->slot[n_slots];
            shown->base = session->end->transport->map(session, r, shown->token);
        }
    }
}

static void unmap_peers(plait_exec_t *exec)
{
    plait_session_t *session = &exec->session;

    for (int r = 0; exec->shown != NULL && r < exec->plan->n_ranks; r++) {
        if (exec->shown[r].base != NULL) {
            session->end->transport->unmap(session, r, exec->shown[r].token);
        }
    }
}

/* Keeps peers' records of the last fence, since peers may overwrite them before the next fence is over here. If
 * the transport's fences need all ranks at once, the fence does everything. */
static void run_arrive(plait_exec_t *exec, plait_status_t own)
{
    plait_session_t *session = &exec->session;
    plait_record_t *kept = (plait_record_t *)(void *)exec->kept;
    plait_record_t mine;

    if (session->end->transport->arrive != NULL) {
        for (int r = 0; r < exec->plan->n_ranks && session->peers != NULL; r++) {
            kept[r] = *plait_peer_record(session, r);
        }
        session->peers = (session->peers != NULL) ? exec->kept : NULL;
        session->peer_stride = (int64_t)sizeof(*kept);
        fill_record(exec, false, own, &mine);
        session->end->transport->arrive(session, &mine);
        exec->has_arrived = true;
    }
}

/* Shows this rank's record and waits for the others. */
static plait_status_t meet(plait_exec_t *exec, const plait_publish_t *publish,
                           plait_status_t own)
{
    plait_session_t *session = &exec->session;
    const plait_transport_t *transport = session->end->transport;
    bool publishes = publish->slot >= 0;
    bool has_arrived = exec->has_arrived;
    const char *slot =
        publishes ? exec->slot[publish->slot] : NULL; /* NULL also for an empty array */
    const char *bytes = (slot != NULL) ? slot + publish->offset : NULL;
    plait_record_t mine;

    exec->has_arrived = false;
    if (has_arrived) {
        return transport->wait(session);
    }
    fill_record(exec, publishes, own, &mine);
    return transport->fence(session, &mine, bytes, publish->n_bytes);
}

/* Returns the joint verdict of all ranks; own is this rank's status. */
static plait_status_t run_fence(plait_exec_t *exec, const plait_publish_t *publish,
                                plait_status_t own)
{
    plait_status_t status = PLAIT_OK;
    plait_session_t *session = &exec->session;

    PLAIT_TRY(meet(exec, publish, own));
    verdict_t verdict = judge(session);
    if (verdict != ALL_ALIKE) {
        PLAIT_TRY((verdict == SOME_FAILED) ? show_failure(exec, own)
                                           : show_calls(exec));
        exec->is_joint = true;
        status = (verdict == SOME_FAILED) ? fail_together(session, own)
                                          : fail_differing(session);
    } else if (exec->shown != NULL) {
        map_peers(exec);
    }
done:
    return status;
}

/* This rank shows the others nothing but its failure. */
plait_status_t plait_exec_refuse(plait_endpoint_t *end, int64_t run,
                                 plait_status_t status, bool *is_told_p)
{
    plait_session_t session = {.end = end, .run = run};
    const plait_record_t mine = {.status = (int32_t)status};
    char text[SAID_BYTES];

    (void)snprintf(text, sizeof(text), "%s", plait_error_text());
    *is_told_p = end->size == 1;
    if (end->size > 1 && end->transport->begin(&session, true) == PLAIT_OK) {
        *is_told_p = end->transport->fence(&session, &mine, NULL, 0) == PLAIT_OK &&
                     say(&session, text) == PLAIT_OK;
        end->transport->end(&session);
    }
    return plait_fail(status, "%s", text);
}

/* The first step of plans that communicate before their first fence. It is always taken if a fence costs next
 * to nothing. */
bool plait_exec_agrees(const plait_plan_t *plan, const plait_endpoint_t *end,
                       const plait_history_t *history)
{
    plait_check_level_t level = plait_check_level();
    bool is_cheap = end->caps.publish_bytes >= 0 && !end->caps.is_far;

    return plan->needs_agreement && level != PLAIT_CHECK_OFF &&
           (is_cheap || !history->is_agreed || history->is_due ||
            level == PLAIT_CHECK_FULL);
}

/* status: this rank's so far. */
static plait_status_t run_step(plait_exec_t *exec, const plait_step_t *step,
                               plait_status_t status)
{
    if (exec->device != NULL) {
        return plait_exec_device_step(exec, step);
    }
    if (status != PLAIT_OK) {
        return status;
    }
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
    case PLAIT_STEP_ARRIVE:
    case PLAIT_STEP_KIND_COUNT:
        break;
    }
    return PLAIT_OK;
}

static int64_t now_if_timed(const plait_exec_t *exec)
{
    return (exec->times != NULL) ? plait_clock_ns() : 0;
}

/* Adds the time since `start` to waiting for peers, or to work on memory. Without direct access a move is
 * messages, whose time counts as waiting. */
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

/* The others wait for this rank, so they must know. If no fence tells them, they may as well go on. */
static void give_up(plait_exec_t *exec, bool is_alone)
{
    const plait_flight_entry_t *entry = plait_trace_current();
    plait_session_t *session = &exec->session;

    if (entry != NULL) {
        plait_trace_give_up(entry->comm);
    }
    if (is_alone && session->end->transport->abandon != NULL) {
        session->end->transport->abandon(session);
    }
}

/* A fence of the plan also stands for the work of devices, so the device is waited for first. */
static plait_status_t run_program_fence(plait_exec_t *exec,
                                        const plait_publish_t *publish,
                                        plait_status_t own)
{
    if (exec->device != NULL) {
        own = plait_exec_device_wait(exec);
    }
    return run_fence(exec, publish, own);
}

/* The last fence of a collective on a device. A rank that had failed went on with its messages, so that nobody
 * waited for them; here all ranks learn of the failure. */
static plait_status_t conclude(plait_exec_t *exec)
{
    static const plait_publish_t nothing = {.slot = -1};
    plait_status_t status = plait_exec_device_verdict(exec);
    bool meets = exec->plan->is_collective && exec->plan->n_ranks > 1;

    return (meets && !exec->device->is_lost) ? run_fence(exec, &nothing, status)
                                             : status;
}

/* A rank that fails between fences goes on to the next fence, where all learn of it and leave. Without fences
 * it leaves at once and alone; a rank on a device goes on. */
static plait_status_t run_steps(plait_exec_t *exec, plait_history_t *history,
                                plait_status_t status)
{
    static const plait_publish_t nothing = {.slot = -1};
    const plait_plan_t *plan = exec->plan;
    bool is_over = false;
    bool is_alone = status != PLAIT_OK;

    if (plait_exec_agrees(plan, exec->session.end, history)) {
        is_alone = false;
        PLAIT_TRY(run_fence(exec, &nothing, status));
    }
    if (exec->device != NULL) {
        PLAIT_TRY(plait_exec_device_find_way(exec));
        status = exec->device->failure;
    }
    for (int i = 0; i < plan->n_steps && !is_over; i++) {
        const plait_step_t *step = &plan->steps[i];
        int64_t start = now_if_timed(exec);
        if (step->kind == PLAIT_STEP_FENCE) {
            /* a failure after the arrival is reported by the next fence */
            plait_status_t met = run_program_fence(exec, &step->u.fence, status);
            status = (met != PLAIT_OK) ? met : status;
            is_over = met != PLAIT_OK;
            is_alone = is_alone && !is_over;
        } else if (step->kind == PLAIT_STEP_ARRIVE) {
            run_arrive(exec, status);
        } else {
            status = run_step(exec, step, status);
            is_alone = status != PLAIT_OK;
        }
        count_time(exec, is_wait(plan, step->kind), start);
    }
    if (exec->device != NULL && !is_over) {
        status = conclude(exec);
    }
done:
    if (exec->device != NULL) {
        is_alone = exec->device->is_lost;
    }
    history->has_left = status != PLAIT_OK && is_alone && !exec->is_joint &&
                        plan->is_collective && plan->n_ranks > 1;
    if (status != PLAIT_OK && !exec->is_joint &&
        (plan->is_collective || (exec->device != NULL && exec->device->is_lost))) {
        give_up(exec, history->has_left); /* first, so that peers do not wait for it */
    }
    if (status != PLAIT_OK && exec->device != NULL) {
        plait_device_abandon(exec->device);
        plait_process_grid_abandon(exec->device);
    }
    return status;
}

plait_status_t plait_exec_plan(const plait_plan_t *plan, plait_endpoint_t *end,
                               int64_t run, plait_history_t *history,
                               const plait_exec_arrays_t *arrays,
                               plait_trace_times_t *times)
{
    plait_status_t status = PLAIT_OK;
    plait_device_run_t on_device;
    plait_exec_t exec = {.plan = plan,
                         .session = {.end = end, .run = run},
                         .times = times,
                         .is_beside = arrays->is_beside,
                         .matched = arrays->matched,
                         .skipped = history->skipped};
    int64_t start = now_if_timed(&exec);
    void *memory = NULL;
    bool has_begun = false;
    bool limits_blas = plan->uses_blas && (plan->n_ranks > 1 || end->caps.has_company);

    history->has_failed = true;
    history->has_left = false;
    PLAIT_TRY(plait_exec_check(plan, end));
    for (int i = 0; i < plan->n_args; i++) {
        exec.slot[plait_slot_arg(plan, i)] = (char *)(uintptr_t)arrays->args[i];
    }
    for (int i = 0; i < plan->n_rets; i++) {
        exec.slot[plait_slot_ret(plan, i)] = arrays->rets[i];
    }
    PLAIT_TRY(end->transport->begin(&exec.session, plan->is_collective));
    has_begun = true;
    count_time(&exec, true, start);
    if (limits_blas) {
        plait_blas_enter();
    }
    status = (plan->device == NULL)
                 ? take_memory(&exec, &memory)
                 : plait_exec_device_begin(&exec, &on_device, arrays, &memory);
    status = run_steps(&exec, history, status);
    history->has_failed = status != PLAIT_OK;
    if (status == PLAIT_OK) {
        status = end->transport->refusal(&exec.session);
    }
done:
    if (has_begun) {
        start = now_if_timed(&exec);
        if (limits_blas) {
            plait_blas_leave();
        }
        unmap_peers(&exec);
        end->transport->end(&exec.session);
        count_time(&exec, true, start);
    }
    if (exec.device != NULL) {
        plait_exec_device_end(&exec, memory);
    } else if (!plait_endpoint_is_stuck(end)) {
        plait_pool_give(memory);
    }
    return status;
}
