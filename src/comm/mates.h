/* Mates: ranks of a communicator that are JAX devices, of one process or of several.
 *
 * XLA runs the devices' programs on the threads of a pool. Within a program, independent calls run in any
 * order. So one device may be in a collective of XLA's own, which keeps its thread, while another device is
 * in an operation of plait's, and each waits for the other to come. More threads do not help: work that is
 * ready behind a call has been given to the thread that is in the call (ThunkExecutor of
 * xla/backends/cpu/runtime). Therefore no thread of that pool waits in an operation whose other ranks do not
 * come at once, or of which plait does not know whether they have come. */
#ifndef PLAIT_COMM_MATES_H
#define PLAIT_COMM_MATES_H

#include "comm/comm.h"

/* n ranks of this process become each other's mates; the communicator's ranks in other processes are mates,
 * too. The array lives as long as they do. */
void plait_mates_join(int n, plait_comm_t *comms[]);

/* The counter that plait_mates_enter increments, where ranks of other processes see how far this rank has
 * come. */
static inline _Atomic uint32_t *plait_mates_entered(const plait_comm_t *comm, int rank)
{
    void *at = comm->end.entered + rank * comm->end.entered_stride;

    return at;
}

/* This rank has come to its next call in a launch. */
static inline void plait_mates_enter(plait_comm_t *comm, int64_t run)
{
    if (comm->has_mates && comm->end.entered != NULL) {
        atomic_fetch_add(plait_mates_entered(comm, comm->end.rank), 1);
    } else if (comm->has_mates) {
        if (atomic_load_explicit(&comm->run, memory_order_relaxed) != run) {
            atomic_store(&comm->n_entered, 0);
            atomic_store(&comm->run, run);
        }
        atomic_fetch_add(&comm->n_entered, 1);
    }
}

/* For a rank with mates: whether another rank does not come as far within a moment after this rank has entered,
 * or cannot be seen. A guess if several threads call programs at once. */
bool plait_mates_are_late(const plait_comm_t *comm);

#endif
