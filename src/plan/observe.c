#include "plan/observe.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/site.h"
#include "base/status.h"
#include "base/trace.h"
#include "base/wait.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 320 };
#define CAUSE_NS INT64_C(1200000000) /* longer than the guard needs to be sure */

/* To standard output, where programs that come from mpi4jax look for it. */
static void print(const char *text, int n)
{
    size_t length = (n < TEXT_BYTES) ? (size_t)n : TEXT_BYTES - 1;

    if (n > 0) {
        (void)!write(STDOUT_FILENO, text, length);
    }
}

static void print_begin(const plait_flight_entry_t *entry, const char *line)
{
    char text[TEXT_BYTES];
    const char *where = plait_site_text(plait_site_here());

    print(text,
          snprintf(text, sizeof(text), "r%d | %08x | %s%s%s\n", entry->rank,
                   entry->sequence, line, (where[0] != '\0') ? " at " : "", where));
}

static void print_end(const plait_flight_entry_t *entry, const char *line,
                      plait_status_t status, const plait_trace_times_t *times)
{
    char text[TEXT_BYTES];

    print(text,
          snprintf(text, sizeof(text), "r%d | %08x | %.*s done with code %d (%.2es)\n",
                   entry->rank, entry->sequence, (int)strcspn(line, " ("), line,
                   (int)status, (double)(times->end_ns - times->start_ns) * 1e-9));
}

/* Bytes of the operands; of the results if there are no operands. */
static int64_t bytes_of(const plait_plan_t *plan)
{
    int64_t n_bytes = 0;
    int first = (plan->n_args > 0) ? plait_slot_arg(plan, 0) : plait_slot_ret(plan, 0);
    int n = (plan->n_args > 0) ? plan->n_args : plan->n_rets;

    for (int i = 0; i < n; i++) {
        n_bytes += plan->slot_bytes[first + i];
    }
    return n_bytes;
}

static _Thread_local plait_observed_t *here;

plait_observed_t *plait_observe_here(void)
{
    return here;
}

/* Only what is equal on all ranks decides, so that ranks decide alike; the program's line may differ between
 * ranks. Forgets plans, the same on all ranks. */
static plait_history_t history_of(plait_comm_t *comm, const plait_plan_t *plan,
                                  bool is_started)
{
    plait_history_t history = {.skipped = plan->is_collective ? comm->skipped : 0};

    if (plan->needs_agreement) {
        history.is_due = comm->n_skipped >= PLAIT_MOST_SKIPPED;
        const uint64_t agree = plait_exec_agree(plan, is_started);
        uint64_t *place = &comm->agreed[agree % PLAIT_AGREED_ROOM];
        history.is_agreed = *place == agree;
        *place = agree;
        if (plait_exec_agrees(plan, &comm->end, &history)) {
            comm->n_skipped = 0;
        } else {
            comm->skipped = plait_hash_word(comm->skipped, agree);
            comm->n_skipped++;
        }
    }
    return history;
}

void plait_observe_forget(plait_comm_t *comm)
{
    memset(comm->agreed, 0, sizeof(comm->agreed));
    comm->skipped = 0;
    comm->n_skipped = 0;
}

static plait_flight_entry_t *begin(uint32_t title, int64_t n_bytes, int peer,
                                   bool is_collective, bool is_started,
                                   plait_comm_t *comm)
{
    uint32_t n_before = atomic_fetch_add_explicit(&comm->n_collectives, is_collective,
                                                  memory_order_relaxed);
    const plait_trace_call_t call = {
        .title = title,
        .comm = comm->id,
        .sequence = atomic_fetch_add_explicit(&comm->n_calls, 1, memory_order_relaxed),
        .rank = comm->end.rank,
        .track = comm->track,
        .peer = peer,
        .is_collective = is_collective,
        .is_started = is_started,
        .n_collectives = n_before + is_collective,
        .n_bytes = n_bytes};

    return plait_trace_begin(&call);
}

/* When a rank is gone, MPI or the system may report a failure, such as that its memory cannot be read, before
 * the rank is seen to be gone. A little later the failure can say so in words. Its text is not on the stack of
 * every call. */
__attribute__((noinline, cold)) static plait_status_t look_for_cause(
    plait_status_t failure)
{
    plait_status_t status = PLAIT_OK;
    char text[PLAIT_ERROR_BYTES];
    plait_wait_t wait = plait_wait_begin("exchange", -1);
    const int64_t end = plait_clock_ns() + CAUSE_NS;

    (void)snprintf(text, sizeof(text), "%s", plait_error_text());
    while (status == PLAIT_OK && plait_clock_ns() < end) {
        status = plait_wait_turn(&wait);
    }
    if (status != PLAIT_ERR_PEER) {
        status = plait_fail(failure, "%s", text);
    }
    return status;
}

static bool may_have_cause(const plait_comm_t *comm, plait_status_t status)
{
    return status == PLAIT_ERR_TRANSPORT && comm->end.peers != NULL;
}

/* The slow way, if somebody looks. */
static plait_status_t exec_timed(const plait_plan_t *plan, const char *line,
                                 plait_flight_entry_t *entry, plait_comm_t *comm,
                                 int64_t run, plait_history_t *history,
                                 const plait_exec_arrays_t *arrays)
{
    bool has_lines = plait_trace_has_lines() != 0;
    plait_trace_times_t times = {.start_ns = plait_clock_ns()};

    if (has_lines) {
        print_begin(entry, line);
        times.start_ns = plait_clock_ns();
    }
    plait_status_t status =
        plait_exec_plan(plan, &comm->end, run, history, arrays, &times);
    if (may_have_cause(comm, status)) {
        status = look_for_cause(status);
    }
    times.end_ns = plait_clock_ns();
    if (has_lines) {
        print_end(entry, line, status, &times);
    }
    plait_trace_end(entry, &times, status);
    return status;
}

void plait_observe_give_up(plait_comm_t *comm, const char *title)
{
    plait_comm_give_up(comm, title);
    plait_trace_give_up(comm->id);
}

/* A collective that meets another collective on its communicator was not ordered after it. Launches separate
 * the devices of one process. */
static plait_status_t enter(plait_comm_t *comm, const plait_plan_t *plan)
{
    plait_status_t status = PLAIT_OK;
    bool is_exclusive = plan->is_collective && comm->end.peers != NULL;

    PLAIT_CHECK(
        !is_exclusive ||
            !atomic_exchange_explicit(&comm->is_in_use, true, memory_order_acquire),
        PLAIT_ERR_COMM,
        "%s begins while another collective on this communicator is under way: "
        "order them (in JAX: in one chain of tokens), or give each thread or chain "
        "a communicator of its own (in Python: plait.Comm(comm.Dup()), since "
        "plait.Comm(comm) is always the same one)",
        plan->title);
done:
    return status;
}

static void leave(plait_comm_t *comm, const plait_plan_t *plan)
{
    if (plan->is_collective && comm->end.peers != NULL) {
        atomic_store_explicit(&comm->is_in_use, false, memory_order_release);
    }
}

plait_status_t plait_observe_exec(const plait_plan_t *plan, const plait_about_t *about,
                                  plait_comm_t *comm, int64_t run, bool is_started,
                                  const plait_exec_arrays_t *arrays)
{
    plait_status_t status = PLAIT_OK;
    plait_flight_entry_t *entry =
        begin(plan->title_ref, bytes_of(plan), (about != NULL) ? about->peer : -1,
              plan->is_collective, is_started, comm);
    plait_observed_t now = {comm, plan, entry, false};

    status = enter(comm, plan);
    if (status != PLAIT_OK) {
        plait_observe_give_up(comm, plan->title);
        plait_trace_end(entry, NULL, status);
        goto done;
    }
    plait_history_t history = history_of(comm, plan, is_started);
    here = &now;
    if (plait_trace_is_timed()) {
        status = exec_timed(plan, (about != NULL) ? about->line : plan->title, entry,
                            comm, run, &history, arrays);
    } else {
        status = plait_exec_plan(plan, &comm->end, run, &history, arrays, NULL);
        if (may_have_cause(comm, status)) {
            status = look_for_cause(status);
        }
        plait_trace_end(entry, NULL, status);
    }
    here = NULL;
    if (history.has_failed && plan->is_collective) {
        plait_observe_forget(comm);
    }
    leave(comm, plan);
    if (now.is_given_up || (history.has_left && comm->end.peers != NULL)) {
        plait_comm_give_up(comm, plan->title);
    }
done:
    return status;
}

static uint32_t title_unplanned(const char *name)
{
    char title[PLAIT_TITLE_BYTES];

    (void)snprintf(title, sizeof(title), "%s, not planned", name);
    return plait_trace_text(title);
}

/* The guard watches this wait like any other, and all ranks count one collective. */
plait_status_t plait_observe_refuse(const char *name, plait_comm_t *comm, int64_t run,
                                    plait_status_t status)
{
    static const plait_plan_t refusal = {.title = "a call that cannot be planned",
                                         .is_collective = true};
    plait_flight_entry_t *entry =
        begin(title_unplanned(name), 0, -1, true, false, comm);
    plait_observed_t now = {comm, &refusal, entry, false};
    plait_status_t entered = enter(comm, &refusal);
    bool is_told = false;

    if (entered == PLAIT_OK) {
        here = &now;
        status = plait_exec_refuse(&comm->end, run, status, &is_told);
        here = NULL;
        plait_observe_forget(comm);
        leave(comm, &refusal);
    } else {
        status = entered;
    }
    if (now.is_given_up || (!is_told && comm->end.peers != NULL)) {
        plait_observe_give_up(comm, name);
    }
    plait_trace_end(entry, NULL, status);
    return status;
}

void plait_observe_failure(const char *name, plait_comm_t *comm, plait_status_t status)
{
    plait_trace_end(begin(title_unplanned(name), 0, -1, false, false, comm), NULL,
                    status);
}
