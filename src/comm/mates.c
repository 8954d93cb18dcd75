#include "comm/mates.h"

#include "base/clock.h"
#include "base/wait.h"

/* Longer than the distance in time between mates that do the same, and far longer than it takes to wake a
 * thread. With more mates than cores, an early yield lets the others come: 8 mates on 2 cores take 31 us an
 * allreduce with 64 polls a turn, 28 with 4, 23 without this wait. */
enum { MOMENT_NS = 200000, POLLS_A_TURN = 4 };

void plait_mates_join(int n, plait_comm_t *comms[])
{
    for (int i = 0; i < n; i++) {
        comms[i]->has_mates = comms[i]->end.size > 1;
        comms[i]->mates = comms;
        comms[i]->n_mates = n;
    }
}

static bool are_there(const plait_comm_t *comm, int64_t run, uint32_t n_entered)
{
    bool is_there = true;

    for (int i = 0; i < comm->n_mates && is_there; i++) {
        const plait_comm_t *mate = comm->mates[i];
        is_there = atomic_load(&mate->run) == run &&
                   atomic_load(&mate->n_entered) >= n_entered;
    }
    return is_there;
}

/* Launches have no number that processes share, so calls are counted from the communicator's first. */
static bool have_all_come(const plait_comm_t *comm, uint32_t n_entered)
{
    bool is_there = true;

    for (int r = 0; r < comm->end.size && is_there; r++) {
        const uint32_t n = atomic_load(plait_mates_entered(comm, r));
        is_there = n - n_entered <= INT32_MAX; /* not behind; numbers wrap around */
    }
    return is_there;
}

static bool are_seen(const plait_comm_t *comm)
{
    return comm->n_mates == comm->end.size || comm->end.entered != NULL;
}

bool plait_mates_are_late(const plait_comm_t *comm)
{
    const bool is_shown = comm->end.entered != NULL;
    const int64_t run = atomic_load(&comm->run);
    const uint32_t n_entered =
        is_shown ? atomic_load(plait_mates_entered(comm, comm->end.rank))
                 : atomic_load(&comm->n_entered);
    const bool is_seen = are_seen(comm);
    int64_t end = 0;
    bool is_there = false;

    for (int polls = 1; is_seen && !is_there; polls++) {
        is_there =
            is_shown ? have_all_come(comm, n_entered) : are_there(comm, run, n_entered);
        if (!is_there && polls % POLLS_A_TURN == 0) {
            const int64_t now = plait_clock_ns();
            end = (end == 0) ? now + MOMENT_NS : end;
            if (now > end || !plait_wait_yield(now)) {
                break;
            }
        }
    }
    return !is_there;
}
