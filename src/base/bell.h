/* A bell, in private or shared memory: a waiting thread sleeps on it, and the thread that ends the wait
 * rings it. A wait spins, then yields (base/wait.h), then sleeps here. It sleeps soon if others want its
 * core, so that with more ranks than cores the rank that is waited for gets the core at once. */
#ifndef PLAIT_BASE_BELL_H
#define PLAIT_BASE_BELL_H

#include "base/wait.h"

#include <stdatomic.h>

typedef struct {
    _Atomic uint32_t word;
    _Atomic uint32_t n_sleeping;
} plait_bell_t;

/* Whether the wait is over; must look at what the ringing side wrote before the ring. */
typedef bool (*plait_over_fn_t)(void *context);

/* Whether the next turn of this wait may be a sleep. */
bool plait_bell_sleeps(const plait_wait_t *wait);

/* One turn of a waiting loop, like plait_wait_turn. After enough spins and yields it sleeps on the bell, at
 * most 50 ms at a time, or 1 ms if there is an errand, and then asks the wait hook. */
plait_status_t plait_bell_turn(plait_bell_t *bell, plait_wait_t *wait,
                               plait_over_fn_t is_over, void *context);

/* Wakes the sleepers. A thread that goes to sleep after this call looked for sleepers sees everything written
 * before the call. */
void plait_bell_ring(plait_bell_t *bell);

#endif
