#include "guard/guard.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/site.h"
#include "base/status.h"
#include "guard/making.h"
#include "guard/sight.h"
#include "guard/times.h"
#include "plan/observe.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The time limit is this many times PLAIT_TIMEOUT in two cases: some rank that is waited for cannot be seen,
 * and perhaps computes; or all that is seen is that the ranks wait for a library or their devices, too, which
 * perhaps get on. */
enum { PATIENCE = 5 };
#define MOST_S     1e9 /* seconds; PLAIT_TIMEOUT may say more, or inf */
#define RAISED_NS  INT64_C(150000000)
#define DIFFERS_NS INT64_C(500000000)

/* What may end the wait, once it has looked so for long enough. */
typedef enum { NOTHING, GAVE_UP, RAISED, ENDED, DIFFERS, CIRCLE, ITSELF } suspicion_t;

/* One wait, from its first look to its last. */
typedef struct {
    const plait_flight_entry_t *entry;
    uint64_t number;
    int64_t wait_start_ns; /* of the wait, to tell it from the operation's next wait */
    int64_t begun_ns;
    int64_t looked_ns;
    int64_t progress_ns;   /* when a rank waited for was last seen to get on */
    uint64_t n_operations; /* operations that these ranks had begun by then */
    int64_t cpu_ns;
    int64_t own_cpu_ns; /* of this thread, at its last look; 0: no look yet */
    uint64_t running;   /* which ranks were in no operation */
    bool is_blind;      /* a rank waited for cannot be seen */
    bool is_held; /* a difference is told at the fence, when the last rank has come */
    suspicion_t suspicion;
    int suspect;        /* rank */
    uint64_t signature; /* of what is suspected: another signature starts anew */
    int64_t suspected_ns;
    int64_t suspected_cpu_ns; /* of a circle, at suspected_ns */
} watch_t;

static _Thread_local watch_t watch;

/* Processor time that threads of this process have spent on checking whether their waits are over. */
static _Atomic int64_t polled_ns;

__attribute__((constructor)) static void install(void)
{
    static const plait_wait_members_t members = {.is_wanted = plait_guard_has_notes,
                                                 .expect = plait_guard_expect};

    plait_wait_set_hook(plait_guard_look);
    plait_wait_set_members(&members);
}

int64_t plait_guard_limit_ns(void)
{
    static _Atomic int64_t limit = -1;
    int64_t now = atomic_load_explicit(&limit, memory_order_relaxed);

    if (now < 0) {
        const char *text = getenv("PLAIT_TIMEOUT");
        char *end = NULL;
        bool is_given = text != NULL && text[0] != '\0';
        double seconds = is_given ? strtod(text, &end) : 60.0;
        bool is_number = !is_given || (end != text && *end == '\0' && seconds >= 0);
        if (!is_number) {
            plait_log(PLAIT_LOG_WARN,
                      "PLAIT_TIMEOUT is '%.40s': expected seconds, 60 are taken", text);
        }
        seconds = (is_number && seconds > MOST_S) ? MOST_S : seconds;
        now = (int64_t)((is_number ? seconds : 60.0) * 1e9);
        now += now == 0 && seconds > 0; /* 0 means never */
        atomic_store(&limit, now);
    }
    return now;
}

/* Shows others what this rank waits for. */
static void beat(plait_observed_t *op, const plait_wait_t *wait, int64_t now)
{
    plait_flight_entry_t *e = op->entry;
    const plait_endpoint_t *end = &op->comm->end;

    e->waits_for = wait->peer;
    e->is_leaving =
        end->transport->is_leaving != NULL && end->transport->is_leaving(end);
    e->since_ns = watch.begun_ns;
    e->agree = plait_exec_agree(op->plan, e->is_started);
    e->agree_some = op->plan->agree_some;
    atomic_store_explicit(&e->beat_ns, now, memory_order_release);
}

/* Starts a new watch if this is a new wait. */
static void begin(plait_observed_t *op, const plait_wait_t *wait, int64_t now)
{
    if (watch.entry != op->entry || watch.number != op->entry->number ||
        watch.wait_start_ns != wait->start_ns) {
        memset(&watch, 0, sizeof(watch));
        watch.entry = op->entry;
        watch.number = op->entry->number;
        watch.wait_start_ns = wait->start_ns;
        watch.begun_ns = now;
        watch.progress_ns = now;
    }
}

/* Whether a rank, in a collective on this communicator at the same place, does another collective. A rank that
 * cannot plan its own collective agrees with none; it says so when all have come. */
static bool differs(plait_observed_t *op, const plait_sight_t *sight)
{
    const plait_flight_entry_t *theirs = &sight->waits;
    const plait_plan_t *plan = op->plan;

    return sight->kind == PLAIT_SIGHT_WAITS && plan->is_collective &&
           theirs->is_collective && theirs->agree != 0 && plan->agree != 0 &&
           theirs->comm == (int32_t)op->comm->id &&
           theirs->n_collectives == op->entry->n_collectives &&
           (theirs->agree != op->entry->agree ||
            (theirs->agree_some != 0 && plan->agree_some != 0 &&
             theirs->agree_some != plan->agree_some));
}

/* Ranks that wait for each other. */
typedef struct {
    bool is_closed;
    bool is_blocked; /* as far as can be seen: none of them goes on before others do */
    uint64_t signature; /* of the operations */
    int n;
    int64_t cpu_ns; /* of all their processes together */
} circle_t;

/* Whether a waiting operation may still end the wait of another rank. A program goes on beside an operation
 * that it started; messages that were sent before may be on their way. */
static bool may_end_another(const plait_flight_entry_t *e)
{
    return e->is_started || e->is_leaving;
}

/* Whether a rank waits on this communicator, and goes on only when others come. */
static bool is_stuck(const plait_observed_t *op, const plait_sight_t *sight)
{
    return sight->kind == PLAIT_SIGHT_WAITS && !may_end_another(&sight->waits) &&
           sight->waits.comm == (int32_t)op->comm->id &&
           sight->waits.waits_for < op->comm->end.size;
}

/* Whether the ranks waited for wait in turn, each for the next, until this rank, all on one communicator. Their
 * threads that use other communicators cannot end such waits. */
static circle_t find_circle(plait_observed_t *op, const plait_sight_t *first)
{
    const plait_endpoint_t *end = &op->comm->end;
    plait_sight_t sight = *first;
    circle_t circle = {.signature = op->entry->number,
                       .n = 1,
                       .cpu_ns = plait_clock_of(CLOCK_PROCESS_CPUTIME_ID)};

    while (circle.n <= end->size && !circle.is_closed && !may_end_another(op->entry) &&
           is_stuck(op, &sight) && sight.waits.waits_for >= 0) {
        int next = sight.waits.waits_for;
        circle.n++;
        circle.cpu_ns += plait_process_cpu_ns(sight.process);
        circle.signature = circle.signature * 31 + sight.waits.number + (uint64_t)next;
        circle.is_closed = next == end->rank;
        plait_guard_see(&end->peers[next], op->comm->id, &sight);
    }
    circle.is_blocked = circle.is_closed || is_stuck(op, &sight);
    return circle;
}

/* Whether nobody but this rank could end the wait. A send may wait for room taken by messages to others. */
static bool waits_for_itself(const plait_observed_t *op, const plait_wait_t *wait)
{
    const plait_endpoint_t *end = &op->comm->end;

    return !op->plan->is_collective && !op->entry->is_started &&
           (end->size == 1 || (wait->is_receive && wait->peer == end->rank));
}

/* Time that this process has computed, without the polling of its threads: a thread that waits is no
 * progress. */
static int64_t computed_ns(void)
{
    const int64_t own_ns = plait_clock_of(CLOCK_THREAD_CPUTIME_ID);

    if (watch.own_cpu_ns != 0) {
        atomic_fetch_add(&polled_ns, own_ns - watch.own_cpu_ns);
    }
    watch.own_cpu_ns = own_ns;
    return plait_clock_of(CLOCK_PROCESS_CPUTIME_ID) - atomic_load(&polled_ns);
}

/* Other threads of this rank may still begin what ends the wait. */
static circle_t circle_of_itself(const plait_observed_t *op)
{
    const plait_endpoint_t *end = &op->comm->end;
    plait_sight_t sight = {0};

    if (end->peers != NULL) {
        plait_guard_see(&end->peers[end->rank], op->comm->id, &sight);
    }
    return (circle_t){.signature = op->entry->number + sight.n_operations,
                      .n = 1,
                      .cpu_ns = computed_ns()};
}

/* Whether the wait needs something of a rank: not if the rank has done its part of a collective. */
static bool is_needed(plait_observed_t *op, const plait_wait_t *wait, int rank,
                      const plait_sight_t *sight)
{
    bool is_done = op->plan->is_collective && sight->knows_done &&
                   sight->n_done >= op->entry->n_collectives;

    return wait->peer == rank || !is_done;
}

/* Whether this rank is at a fence and a rank that it needs has not come to the fence, because it is in its
 * program or in an operation elsewhere. Fences carry what ranks do: when the last rank comes, a difference ends
 * for all, and they go on with the communicator. */
static bool is_to_come(const plait_observed_t *op, const plait_wait_t *wait,
                       const plait_sight_t *sight)
{
    bool is_elsewhere =
        sight->kind == PLAIT_SIGHT_RUNS || (sight->kind == PLAIT_SIGHT_WAITS &&
                                            sight->waits.comm != (int32_t)op->comm->id);

    return op->plan->is_collective && plait_wait_is_fence(wait) && is_elsewhere &&
           sight->knows_done;
}

/* How an operation ends is only known when it has ended. */
static bool is_under_way(const plait_flight_entry_t *e)
{
    return atomic_load(&e->status) == PLAIT_STATUS_UNDER_WAY;
}

/* The suspicion about one rank that is waited for. is_any: any rank may end the wait. */
static suspicion_t judge(plait_observed_t *op, const plait_sight_t *sight, bool is_any,
                         circle_t *circle)
{
    suspicion_t suspicion = NOTHING;

    *circle = (circle_t){.n = 1};
    bool has_given_up = sight->has_given_up && !is_under_way(&sight->here);

    if (has_given_up && !is_any) {
        suspicion = GAVE_UP;
    } else if (sight->kind == PLAIT_SIGHT_RAISED) {
        suspicion = RAISED;
    } else if (sight->kind == PLAIT_SIGHT_GONE ||
               (sight->kind == PLAIT_SIGHT_ENDED && !is_any && sight->knows_done)) {
        suspicion = ENDED;
    } else if (differs(op, sight)) {
        suspicion = DIFFERS;
        circle->signature = sight->waits.number;
    } else if (!is_any) {
        *circle = find_circle(op, sight);
        suspicion = circle->is_closed ? CIRCLE : NOTHING;
    }
    return suspicion;
}

/* Threads that compute may be about to end the wait: the suspicion then starts anew. */
static bool is_busy(const circle_t *circle, int64_t now)
{
    int64_t used = circle->cpu_ns - watch.suspected_cpu_ns;

    return used > (now - watch.suspected_ns) / 5 * 2 * circle->n;
}

static void suspect(suspicion_t suspicion, int rank, const circle_t *circle,
                    int64_t now)
{
    bool is_old = watch.suspicion == suspicion && watch.suspect == rank &&
                  watch.signature == circle->signature;

    if (!is_old || (suspicion >= CIRCLE && is_busy(circle, now))) {
        watch.suspicion = suspicion;
        watch.suspect = rank;
        watch.signature = circle->signature;
        watch.suspected_ns = now;
        watch.suspected_cpu_ns = circle->cpu_ns;
    }
}

/* Ranks get on if they begin operations, or if they are in none and compute, trace or compile. cpu_ns is of the
 * latter alone, since a waiting rank may poll. A small share of a processor is enough: on a busy machine they
 * may not get more. */
static void note_progress(uint64_t n_operations, uint64_t running, int64_t cpu_ns,
                          int64_t now)
{
    enum { SHARE = 20 };
    int64_t elapsed = now - watch.progress_ns;
    bool is_busy = running != 0 && watch.running == running && elapsed > 500000000 &&
                   cpu_ns - watch.cpu_ns > elapsed / SHARE;

    if (watch.n_operations != n_operations || is_busy || watch.looked_ns == 0) {
        watch.n_operations = n_operations;
        watch.cpu_ns = cpu_ns;
        watch.progress_ns = now;
    }
    if (watch.running != running) {
        watch.running = running; /* no progress: a rank that gives up runs, too */
        watch.cpu_ns = cpu_ns;
    }
}

/* Looks at all ranks that are waited for. */
static void look(plait_observed_t *op, const plait_wait_t *wait, int64_t now)
{
    const plait_endpoint_t *end = &op->comm->end;
    bool is_any = wait->peer < 0 && !op->plan->is_collective;
    /* a rank that waits for the others need not wait for each of them */
    bool all_blocked = true;
    bool some_to_come = false;
    suspicion_t worst = NOTHING;
    int whom = -1;
    circle_t circle = {.n = 1};
    uint64_t n_operations = 0;
    int64_t cpu_ns = 0;
    uint64_t running = 0;

    for (int r = 0; r < end->size; r++) {
        plait_sight_t sight;
        circle_t about;
        if (r == end->rank || (wait->peer >= 0 && wait->peer != r)) {
            continue;
        }
        plait_guard_see(&end->peers[r], op->comm->id, &sight);
        watch.is_blind = watch.is_blind || sight.kind == PLAIT_SIGHT_NONE;
        n_operations += sight.n_operations;
        if (sight.kind == PLAIT_SIGHT_RUNS) {
            running = plait_hash_word(running, (uint64_t)r + 1);
            cpu_ns += (sight.process != NULL) ? plait_process_cpu_ns(sight.process) : 0;
        }
        if (!is_needed(op, wait, r, &sight)) {
            continue;
        }
        suspicion_t found = judge(op, &sight, is_any, &about);
        all_blocked = all_blocked && about.is_blocked;
        some_to_come = some_to_come || is_to_come(op, wait, &sight);
        if (found != NOTHING && (worst == NOTHING || found < worst)) {
            worst = found;
            whom = r;
            circle = about;
        }
    }
    if (worst == CIRCLE && !all_blocked) {
        worst = NOTHING;
    }
    watch.is_held = worst == DIFFERS && some_to_come;
    if (worst == NOTHING && waits_for_itself(op, wait)) {
        worst = ITSELF;
        circle = circle_of_itself(op);
    }
    suspect(worst, whom, &circle, now);
    note_progress(n_operations, running, cpu_ns, now);
}

/* One line a rank; ranks in the middle of a long table are left out. */
static void write_table(plait_observed_t *op, char *text, size_t room)
{
    enum { SHOWN = 12 };
    const plait_endpoint_t *end = &op->comm->end;
    size_t used = 0;

    text[0] = '\0';
    for (int r = 0; r < end->size && used + 1 < room; r++) {
        plait_sight_t sight;
        char line[500];
        if (end->size > SHOWN && r != end->rank && r != watch.suspect &&
            r >= SHOWN - 2) {
            continue;
        }
        plait_guard_see(&end->peers[r], op->comm->id, &sight);
        plait_guard_say(&sight, r, line, (int)sizeof(line));
        int n = snprintf(text + used, room - used, "\n  %s", line);
        used += (n > 0) ? (size_t)n : 0;
    }
}

static plait_status_t fail_with_table(plait_status_t status, plait_observed_t *op,
                                      const char *reason)
{
    char table[1700];

    write_table(op, table, sizeof(table));
    return plait_fail(status, "%s%s", reason, table);
}

static plait_status_t blame(plait_observed_t *op)
{
    char line[500];
    plait_sight_t sight;

    plait_guard_see(&op->comm->end.peers[watch.suspect], op->comm->id, &sight);
    plait_guard_say(&sight, watch.suspect, line, (int)sizeof(line));
    return plait_fail(PLAIT_ERR_PEER, "waits in vain: %s", line);
}

/* Another rank has ended an operation of this communicator by itself, mostly for the same reason. */
static plait_status_t follow(plait_observed_t *op)
{
    char reason[160];
    plait_sight_t sight;

    plait_guard_see(&op->comm->end.peers[watch.suspect], op->comm->id, &sight);
    int theirs = atomic_load(&sight.here.status);
    bool is_mismatch = theirs == PLAIT_ERR_MISMATCH;
    bool is_late = theirs == PLAIT_ERR_TIMEOUT;
    (void)snprintf(reason, sizeof(reason), "%srank %d has given up this communicator",
                   is_mismatch ? "the ranks call different operations, or wait for "
                                 "each other; "
                               : "",
                   watch.suspect);
    return fail_with_table(
        is_mismatch || is_late ? (plait_status_t)theirs : PLAIT_ERR_PEER, op, reason);
}

/* The text of a wait that nothing has ended in time. */
static void tell_run_out(char *reason, size_t n_bytes, const plait_wait_t *wait,
                         int64_t now, const char *hint)
{
    const double waited_s = (double)(now - watch.progress_ns) * 1e-9;

    if (wait->is_begun) {
        (void)snprintf(reason, n_bytes,
                       "%s: all ranks have begun it, but it has not ended after %.1f s "
                       "(%d * PLAIT_TIMEOUT)",
                       wait->what, waited_s, PATIENCE);
    } else {
        (void)snprintf(reason, n_bytes,
                       "%s: no other rank came for %.1f s (PLAIT_TIMEOUT)%s",
                       wait->what, waited_s, hint);
    }
}

/* A possible cause in programs of JAX, which alone have call sites. */
static const char *hint_of_gradients(void)
{
    return (plait_site_here() != 0)
               ? " (in a gradient: a rank may have dropped an adjoint, see "
                 "plait.depend; give a recv a template, or a token, that is "
                 "differentiated)"
               : "";
}

static plait_status_t run_out(plait_observed_t *op, const plait_wait_t *wait,
                              int64_t now)
{
    char reason[320];
    char hint[200] = "";
    plait_sight_t sight = {0};

    if (wait->peer >= 0) {
        plait_guard_see(&op->comm->end.peers[wait->peer], op->comm->id, &sight);
    }
    if (sight.kind == PLAIT_SIGHT_WAITS) {
        (void)snprintf(hint, sizeof(hint), "; ranks wait for each other%s",
                       hint_of_gradients());
    }
    tell_run_out(reason, sizeof(reason), wait, now, hint);
    plait_wait_set_late();
    return fail_with_table(PLAIT_ERR_TIMEOUT, op, reason);
}

static plait_status_t fail_circle(plait_observed_t *op)
{
    char reason[240];

    (void)snprintf(reason, sizeof(reason), "deadlock, the ranks wait for each other%s",
                   hint_of_gradients());
    return fail_with_table(PLAIT_ERR_MISMATCH, op, reason);
}

static plait_status_t fail_alone(const plait_observed_t *op)
{
    return plait_fail(
        PLAIT_ERR_MISMATCH,
        "deadlock, rank %d waits for itself, and no other rank can end this wait",
        op->comm->end.rank);
}

/* How long a wait may go on without visible progress; 0: for ever. */
static int64_t limit_of(const plait_wait_t *wait)
{
    return plait_guard_limit_ns() * (watch.is_blind || wait->is_begun ? PATIENCE : 1);
}

/* Time in which this rank did not look is not held against the others. */
static void leave_out_pause(int64_t now)
{
    int64_t pause = now - watch.looked_ns - PLAIT_GUARD_LOOK_COUNTS_NS;

    if (watch.looked_ns != 0 && pause > 0) {
        watch.suspected_ns += pause;
        watch.progress_ns += pause;
    }
}

/* A suspicion that has lasted long enough is taken as true. */
static plait_status_t conclude(plait_observed_t *op, const plait_wait_t *wait,
                               int64_t now)
{
    plait_status_t status = PLAIT_OK;
    int64_t since = now - watch.suspected_ns;
    int64_t limit = limit_of(wait);
    bool is_late = limit > 0 && now - watch.progress_ns > limit;
    if (is_late && plait_guard_is_held()) {
        watch.progress_ns = now;
        is_late = false;
    }
    bool is_held = watch.is_held && !is_late && (limit == 0 || since <= limit);

    if ((watch.suspicion == RAISED && since > RAISED_NS) ||
        (watch.suspicion == ENDED && since > PLAIT_GUARD_ENDED_NS)) {
        status = blame(op);
    } else if (watch.suspicion == GAVE_UP && since > RAISED_NS) {
        status = follow(op);
    } else if (watch.suspicion == DIFFERS && since > DIFFERS_NS && !is_held) {
        status = fail_with_table(PLAIT_ERR_MISMATCH, op,
                                 "the ranks call different operations");
    } else if (watch.suspicion == CIRCLE && since > DIFFERS_NS) {
        status = fail_circle(op);
    } else if (watch.suspicion == ITSELF && since > DIFFERS_NS) {
        status = fail_alone(op);
    } else if (is_late) {
        status = run_out(op, wait, now);
    }
    return status;
}

/* For ranks that are threads of this process: that one of them computes for long shows in the processor time of
 * the process. */
static plait_status_t look_at_threads(plait_observed_t *op, const plait_wait_t *wait,
                                      int64_t now)
{
    plait_status_t status = PLAIT_OK;
    int64_t limit = limit_of(wait);
    circle_t circle = circle_of_itself(op);

    leave_out_pause(now);
    suspect(waits_for_itself(op, wait) ? ITSELF : NOTHING, op->comm->end.rank, &circle,
            now);
    note_progress(0, 1, circle.cpu_ns, now);
    if (watch.suspicion == ITSELF && now - watch.suspected_ns > DIFFERS_NS) {
        PLAIT_TRY(fail_alone(op));
    }
    if (limit > 0 && now - watch.progress_ns > limit) {
        char reason[320];

        tell_run_out(reason, sizeof(reason), wait, now, "");
        status = plait_fail(PLAIT_ERR_TIMEOUT, "%s", reason);
    }
done:
    return status;
}

/* A communicator is being made: nothing is known about the other ranks yet, which may still be reading their
 * data. */
static plait_status_t look_at_clock(const plait_wait_t *wait, int64_t now)
{
    plait_status_t status = PLAIT_OK;
    int64_t limit = plait_guard_limit_ns() * PATIENCE;
    bool is_over = limit > 0 && wait->start_ns > 0 && now - wait->start_ns > limit;

    PLAIT_TRY(plait_guard_look_making(wait, now));
    if (is_over) {
        plait_wait_set_late();
    }
    PLAIT_CHECK(
        !is_over, PLAIT_ERR_TIMEOUT,
        "%s: no other rank came for %.1f s (%d * PLAIT_TIMEOUT); the first use of a "
        "communicator needs all of its ranks, even if it is a message: first call "
        "plait.Comm(comm), in C plait_comm_mpi, on each of them",
        wait->what, (double)(now - wait->start_ns) * 1e-9, PATIENCE);
done:
    return status;
}

/* A rank that cannot be seen may have said that it ends. */
static plait_status_t listen(plait_observed_t *op, const plait_wait_t *wait)
{
    plait_status_t status = PLAIT_OK;
    const plait_endpoint_t *end = &op->comm->end;
    plait_farewell_t farewell;

    if (watch.is_blind && end->transport->farewell != NULL &&
        end->transport->farewell(end, wait->peer, &farewell)) {
        plait_wait_set_lost();
        status = plait_fail(PLAIT_ERR_PEER, "waits in vain: rank %d: %s",
                            (int)farewell.rank, farewell.why);
    }
    return status;
}

static plait_status_t look_at_ranks(plait_observed_t *op, const plait_wait_t *wait,
                                    int64_t now)
{
    plait_status_t status = PLAIT_OK;

    beat(op, wait, now);
    leave_out_pause(now);
    look(op, wait, now);
    PLAIT_TRY(listen(op, wait));
    status = conclude(op, wait, now);
done:
    if (status != PLAIT_OK) {
        op->is_given_up = true;
        plait_trace_give_up(op->comm->id);
    }
    return status;
}

plait_status_t plait_guard_look(const plait_wait_t *wait)
{
    plait_status_t status = PLAIT_OK;
    plait_observed_t *op = plait_observe_here();
    int64_t now = plait_clock_ns();

    if (op == NULL) {
        status = look_at_clock(wait, now);
    } else {
        begin(op, wait, now);
        if (now - watch.looked_ns > PLAIT_GUARD_LOOK_EVERY_NS) {
            status = (op->comm->end.peers != NULL) ? look_at_ranks(op, wait, now)
                                                   : look_at_threads(op, wait, now);
            watch.looked_ns = now;
        }
    }
    return status;
}

/* Whether any other process is in a wait, perhaps for this process. */
static bool somebody_waits(void)
{
    plait_sight_t sight;
    bool is_found = false;

    for (const plait_process_t *p = plait_process_next(NULL); p != NULL && !is_found;
         p = plait_process_next(p)) {
        if (plait_process_pid(p) != (int32_t)getpid()) {
            plait_guard_see_process(p, 0, 0, &sight);
            is_found = sight.kind == PLAIT_SIGHT_WAITS;
        }
    }
    return is_found;
}

int plait_guard_lost(void)
{
    plait_record_header_t header;
    int n = 0;

    for (const plait_process_t *p = plait_process_next(NULL); p != NULL;
         p = plait_process_next(p)) {
        if (plait_process_pid(p) != (int32_t)getpid() &&
            plait_process_header(p, &header)) {
            bool is_gone =
                header.state == PLAIT_RECORD_RUNS && plait_process_is_gone(p);
            n += header.has_why || header.state == PLAIT_RECORD_FAILED || is_gone;
        }
    }
    return n + plait_wait_has_lost();
}

int plait_guard_late(void)
{
    return plait_wait_has_late();
}

void plait_guard_leave(int64_t limit_ns)
{
    const struct timespec nap = {.tv_nsec = 10000000};
    int64_t start = plait_clock_ns();

    while (plait_clock_ns() - start < limit_ns && somebody_waits()) {
        (void)nanosleep(&nap, NULL);
    }
}
