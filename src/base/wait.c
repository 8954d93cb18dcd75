#include "base/wait.h"

#include "base/clock.h"
#include "base/status.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

/* Spinning pays only while the peer runs on another core; a yield costs about 0.3 us, a
 * sleep of 50 us at the least. Chosen by the rule "spin no longer than a small message
 * takes, sleep only when a human would call it waiting". */
enum { SPINS = 200, YIELDS = 20000, HOOK_EVERY = 16, SLEEP_NS = 50000 };

static _Atomic(plait_wait_hook_t) wait_hook;
static atomic_bool stopped;

void plait_wait_set_hook(plait_wait_hook_t hook)
{
    atomic_store(&wait_hook, hook);
}

void plait_wait_stop(void)
{
    atomic_store(&stopped, true);
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

plait_status_t plait_wait_ask(const plait_wait_t *wait)
{
    plait_wait_hook_t hook = atomic_load(&wait_hook);

    if (atomic_load(&stopped)) {
        return plait_fail(PLAIT_ERR_PEER, "%s: gave up waiting, the process is leaving",
                          wait->what);
    }
    return (hook != NULL) ? hook(wait) : PLAIT_OK;
}

plait_status_t plait_wait_turn(plait_wait_t *wait)
{
    plait_status_t status = PLAIT_OK;

    wait->n_polls++;
    if (wait->n_polls <= SPINS) {
        relax();
    } else if (wait->n_polls <= YIELDS) {
        (void)sched_yield();
    } else {
        const struct timespec nap = {.tv_nsec = SLEEP_NS};
        if (wait->start_ns == 0) {
            wait->start_ns = plait_clock_ns();
        }
        if (wait->n_polls % HOOK_EVERY == 0) {
            status = plait_wait_ask(wait);
        }
        (void)nanosleep(&nap, NULL);
    }
    return status;
}
