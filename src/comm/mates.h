/* Ranks of a communicator that are devices of one process. XLA runs the devices' programs by threads of one pool,
 * and within a program what does not depend on each other as it comes: one device may be in a collective of
 * XLA's own, which keeps its thread, while another is in an operation of plait's, and each waits for the
 * other's thread to come to what it is in. So an operation whose other ranks do not come at once is not waited
 * for on a thread of that pool. */
#ifndef PLAIT_COMM_MATES_H
#define PLAIT_COMM_MATES_H

#include "comm/comm.h"

/* These are each other's mates, where the pool has less than two threads for each of n_here devices and two for
 * others. The array lives as long as they do. */
void plait_mates_join(int n, plait_comm_t *comms[], int n_here);

/* This rank has come to its next call in a launch. */
static inline void plait_mates_enter(plait_comm_t *comm, int64_t run)
{
    if (comm->mates != NULL) {
        if (atomic_load_explicit(&comm->run, memory_order_relaxed) != run) {
            atomic_store(&comm->n_entered, 0);
            atomic_store(&comm->run, run);
        }
        atomic_fetch_add(&comm->n_entered, 1);
    }
}

/* Of a rank with mates: whether one of the others has not come as far within a moment, since this one has entered. A
 * guess where several threads call programs at once. */
bool plait_mates_are_late(const plait_comm_t *comm);

#endif
