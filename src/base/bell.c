#include "base/bell.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Turns of base/wait.h before a wait may sleep: its spins, and as many yields. */
enum { TURNS_BEFORE_SLEEP = 400, SLEEP_NS = 50000000, ERRAND_EVERY_NS = 1000000 };

static void futex(_Atomic uint32_t *word, int operation, uint32_t value,
                  const struct timespec *limit)
{
    (void)syscall(SYS_futex, (uint32_t *)word, operation, value, limit, NULL, 0);
}

bool plait_bell_sleeps(const plait_wait_t *wait)
{
    return wait->n_polls >= TURNS_BEFORE_SLEEP || wait->is_slow;
}

plait_status_t plait_bell_turn(plait_bell_t *bell, plait_wait_t *wait,
                               plait_over_fn_t is_over, void *context)
{
    const struct timespec limit = {.tv_nsec = plait_wait_has_errand() ? ERRAND_EVERY_NS
                                                                      : SLEEP_NS};
    plait_status_t status = PLAIT_OK;

    if (!wait->is_slow) {
        status = plait_wait_turn(wait);
    } else {
        plait_wait_run_errand();
        /* Register first, then look again: either this thread sees the end of the wait, or the other side sees
         * the sleeper. */
        uint32_t word = atomic_load(&bell->word);
        atomic_fetch_add(&bell->n_sleeping, 1);
        atomic_thread_fence(memory_order_seq_cst); /* loads in is_over may be weaker */
        if (!is_over(context)) {
            futex(&bell->word, FUTEX_WAIT, word, &limit);
        }
        atomic_fetch_sub(&bell->n_sleeping, 1);
        /* A thread that says that it waits has looked before: see the guard. */
        status = is_over(context) ? PLAIT_OK : plait_wait_ask(wait);
    }
    return status;
}

void plait_bell_ring(plait_bell_t *bell)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&bell->n_sleeping, memory_order_relaxed) > 0) {
        atomic_fetch_add(&bell->word, 1);
        futex(&bell->word, FUTEX_WAKE, INT_MAX, NULL);
    }
}
