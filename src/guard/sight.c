#include "guard/sight.h"

#include "base/clock.h"
#include "plait/status.h"

#include <stdio.h>
#include <string.h>

static bool is_under_way(const plait_flight_entry_t *e)
{
    return e->number > 0 && atomic_load(&e->status) == PLAIT_STATUS_UNDER_WAY;
}

static bool is_waiting(const plait_flight_entry_t *e)
{
    return is_under_way(e) && e->beat_ns >= e->start_ns &&
           plait_clock_ns() - e->beat_ns < PLAIT_GUARD_BEAT_NS;
}

static void keep_later(plait_flight_entry_t *kept, const plait_flight_entry_t *e)
{
    if (e->number > kept->number) {
        memcpy(kept, e, sizeof(*e)); /* to a copy that no other thread writes */
    }
}

static void see_entry(plait_sight_t *sight, const plait_flight_entry_t *e, int64_t comm)
{
    /* an entry under way for long says nothing about later entries that the ring has lost */
    bool is_late = e->number + PLAIT_RING_ROOM > sight->n_operations;

    keep_later(&sight->last, e);
    if (e->comm == (int32_t)comm && is_late) {
        uint32_t is_open = atomic_load(&e->status) != PLAIT_OK;
        uint32_t n_done = e->n_collectives - (e->is_collective ? is_open : 0);
        sight->n_done = (n_done > sight->n_done) ? n_done : sight->n_done;
        keep_later(&sight->here, e);
    }
    if (is_waiting(e)) {
        keep_later(&sight->waits, e);
    }
}

static void see_ring(plait_sight_t *sight, int track, int64_t comm)
{
    plait_ring_t ring;

    if (plait_process_ring(sight->process, track, &ring)) {
        sight->n_operations = ring.n;
        sight->knows_done = ring.n <= PLAIT_RING_ROOM;
        for (int i = 0; i < PLAIT_RING_ROOM; i++) {
            if (ring.entries[i].number > 0) {
                see_entry(sight, &ring.entries[i], comm);
            }
        }
        sight->knows_done = sight->knows_done || sight->here.number > 0;
        if (sight->here.number > 0 && is_waiting(&sight->here)) {
            memcpy(&sight->waits, &sight->here, sizeof(sight->here));
        }
    }
}

static bool has_given_up(const plait_record_header_t *header, int64_t comm)
{
    bool is_found = false;

    for (uint32_t i = 0; i < header->n_given_up && i < PLAIT_GIVEN_UP_ROOM; i++) {
        is_found = is_found || header->given_up[i] == (int32_t)comm;
    }
    return is_found;
}

void plait_guard_see_process(const plait_process_t *process, int track, int64_t comm,
                             plait_sight_t *sight)
{
    plait_record_header_t header;

    memset(sight, 0, sizeof(*sight));
    sight->process = process;
    if (process == NULL || !plait_process_header(process, &header)) {
        return;
    }
    see_ring(sight, track, comm);
    sight->has_given_up = has_given_up(&header, comm);
    memcpy(sight->why, header.why, sizeof(sight->why));
    sight->why[sizeof(sight->why) - 1] = '\0';
    sight->making_size = (header.n_making > 0) ? header.making_size : 0;
    sight->making_ns = header.making_ns;
    sight->kind = header.has_why                      ? PLAIT_SIGHT_RAISED
                  : plait_process_is_gone(process)    ? PLAIT_SIGHT_GONE
                  : header.state != PLAIT_RECORD_RUNS ? PLAIT_SIGHT_ENDED
                  : sight->waits.number > 0           ? PLAIT_SIGHT_WAITS
                                                      : PLAIT_SIGHT_RUNS;
}

void plait_guard_see(const plait_peer_t *peer, int64_t comm, plait_sight_t *sight)
{
    plait_guard_see_process(plait_process_find(&peer->process), peer->track, comm,
                            sight);
}

static double seconds_since(int64_t then)
{
    return (double)(plait_clock_ns() - then) * 1e-9;
}

static void say_wait(const plait_sight_t *sight, char *text, size_t n_bytes)
{
    const plait_flight_entry_t *e = &sight->waits;
    char call[240];
    char whom[32] = "the others";

    plait_process_entry(sight->process, e, call, (int)sizeof(call));
    if (e->waits_for >= 0) {
        (void)snprintf(whom, sizeof(whom), "rank %d", (int)e->waits_for);
    }
    (void)snprintf(text, n_bytes, "#%d %s, has waited for %s for %.1f s", (int)e->comm,
                   call, whom, seconds_since(e->since_ns));
}

static void say_running(const plait_sight_t *sight, char *text, size_t n_bytes)
{
    char call[240] = "";

    plait_process_entry(sight->process, &sight->last, call, (int)sizeof(call));
    if (sight->making_size > 0) {
        (void)snprintf(text, n_bytes,
                       "has been making a communicator of %d ranks for %.1f s",
                       sight->making_size, seconds_since(sight->making_ns));
    } else if (sight->last.number == 0) {
        (void)snprintf(text, n_bytes, "has begun no operation");
    } else if (is_under_way(&sight->last)) {
        (void)snprintf(text, n_bytes, "has been in #%d %s for %.1f s",
                       (int)sight->last.comm, call,
                       seconds_since(sight->last.start_ns));
    } else {
        (void)snprintf(
            text, n_bytes, "in no operation; its last, %.1f s ago, was #%d %s",
            seconds_since(sight->last.start_ns), (int)sight->last.comm, call);
    }
}

static void say_given_up(const plait_sight_t *sight, char *text, size_t n_bytes)
{
    char call[240] = "";
    int status = atomic_load(&sight->here.status);

    plait_process_entry(sight->process, &sight->here, call, (int)sizeof(call));
    (void)snprintf(text, n_bytes, "gave up #%d %s with %s", (int)sight->here.comm, call,
                   plait_status_name((plait_status_t)status));
}

void plait_guard_say(const plait_sight_t *sight, int rank, char *text, int n_bytes)
{
    char state[400];
    size_t room = sizeof(state);
    int32_t pid = (sight->process != NULL) ? plait_process_pid(sight->process) : 0;

    if (sight->has_given_up && !is_under_way(&sight->here)) {
        say_given_up(sight, state, room);
        goto done;
    }
    switch (sight->kind) {
    case PLAIT_SIGHT_NONE:
        (void)snprintf(state, room, "cannot be seen from here");
        break;
    case PLAIT_SIGHT_RUNS:
        say_running(sight, state, room);
        break;
    case PLAIT_SIGHT_WAITS:
        say_wait(sight, state, room);
        break;
    case PLAIT_SIGHT_ENDED:
        (void)snprintf(state, room, "process %d has left its program, or MPI",
                       (int)pid);
        break;
    case PLAIT_SIGHT_RAISED:
        (void)snprintf(state, room, "raised %s", sight->why);
        break;
    case PLAIT_SIGHT_GONE:
        (void)snprintf(state, room, "process %d has ended", (int)pid);
        break;
    }
done:
    (void)snprintf(text, (size_t)n_bytes, "rank %d: %s", rank, state);
}
