#include "base/wait.h"

#include "base/clock.h"
#include "base/status.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

/* Spinning pays only while the peer runs on another core. A yield costs about 0.3 us on an idle machine but a
 * whole time slice on a busy one, so yields are bounded by the clock. A sleep takes 50 us at least. Chosen by
 * the rule "spin no longer than a small message takes, sleep only when a human would call it waiting". */
enum { SPINS = 200, HOOK_EVERY = 16, ERRAND_EVERY = 512 };
enum { YIELD_NS = 5000000, SLEEP_NS = 50000 };

/* A yield that takes longer shows that others want this core. A thread that goes on yielding then takes its
 * share of the core from those it waits for. But a thread that sleeps and is woken may get the core of its
 * waker, and wait there for the end of a slice; so while no yield takes long, no thread sleeps for a while
 * (Cholesky of order 256 by two ranks, 2 cores, Linux 6: 0.35 ms instead of 0.4 to 3). */
enum { SHARED_NS = 50000 };

/* Two yields in a row that take a slice show other programs on all cores. For REMEMBERED times as long no
 * thread of this process yields: it would take a slice again, while a sleeper is woken in microseconds (an
 * exchange by four devices beside four loops on two cores: 0.2 ms instead of 8; Cholesky as above: 1 ms instead
 * of 40). So at most a tenth of the time is spent on finding out whether this still holds. One long yield alone
 * shows nothing: this process may have come to the end of its own slice. */
enum { SLICE_NS = 500000, REMEMBERED = 10 };
static _Atomic int64_t shared_until_ns;
static atomic_bool was_slice;

static _Atomic(plait_wait_hook_t) wait_hook;
static _Atomic(plait_wait_errand_t) wait_errand;
static _Atomic(const plait_wait_members_t *) wait_members;
static atomic_bool stopped;
static atomic_bool lost;
static atomic_bool late;

void plait_wait_set_lost(void)
{
    atomic_store(&lost, true);
}

bool plait_wait_has_lost(void)
{
    return atomic_load(&lost);
}

void plait_wait_set_late(void)
{
    atomic_store(&late, true);
}

bool plait_wait_has_late(void)
{
    return atomic_load(&late);
}

void plait_wait_set_hook(plait_wait_hook_t hook)
{
    atomic_store(&wait_hook, hook);
}

void plait_wait_set_members(const plait_wait_members_t *members)
{
    atomic_store(&wait_members, members);
}

bool plait_wait_wants_members(void)
{
    const plait_wait_members_t *members = atomic_load(&wait_members);

    return members != NULL && members->is_wanted();
}

void plait_wait_expect(int n, const int32_t ranks[])
{
    const plait_wait_members_t *members = atomic_load(&wait_members);

    if (members != NULL) {
        members->expect(n, ranks);
    }
}

void plait_wait_set_errand(plait_wait_errand_t errand)
{
    atomic_store(&wait_errand, errand);
}

bool plait_wait_has_errand(void)
{
    return atomic_load(&wait_errand) != NULL;
}

void plait_wait_run_errand(void)
{
    plait_wait_errand_t errand = atomic_load(&wait_errand);

    if (errand != NULL) {
        errand();
    }
}

void plait_wait_stop(void)
{
    atomic_store(&stopped, true);
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
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

static void note_yield(int64_t now, int64_t duration)
{
    const bool is_slice = duration > SLICE_NS;
    const bool is_second = atomic_load_explicit(&was_slice, memory_order_relaxed);

    if (is_slice && is_second) {
        atomic_store_explicit(&shared_until_ns, now + REMEMBERED * duration,
                              memory_order_relaxed);
    } else if (is_slice != is_second) {
        atomic_store_explicit(&was_slice, is_slice, memory_order_relaxed);
    }
}

bool plait_wait_yield(int64_t now_ns)
{
    bool is_short =
        now_ns >= atomic_load_explicit(&shared_until_ns, memory_order_relaxed);

    if (is_short) {
        (void)sched_yield();
        const int64_t after = plait_clock_ns();
        is_short = after - now_ns <= SHARED_NS;
        note_yield(after, after - now_ns);
    }
    return is_short;
}

static void yield(plait_wait_t *wait)
{
    const int64_t now = plait_clock_ns();

    wait->start_ns = (wait->start_ns == 0) ? now : wait->start_ns;
    wait->is_slow = !plait_wait_yield(now) || now - wait->start_ns > YIELD_NS;
}

plait_status_t plait_wait_turn(plait_wait_t *wait)
{
    plait_status_t status = PLAIT_OK;

    wait->n_polls++;
    if (wait->n_polls <= SPINS) {
        relax();
    } else if (!wait->is_slow) {
        if (wait->n_polls % ERRAND_EVERY == 0) {
            plait_wait_run_errand();
        }
        yield(wait);
    } else {
        const struct timespec nap = {.tv_nsec = SLEEP_NS};
        if (wait->n_polls % HOOK_EVERY == 0) {
            plait_wait_run_errand();
            status = plait_wait_ask(wait);
        }
        (void)nanosleep(&nap, NULL);
    }
    return status;
}
