/* Ranks are devices of several processes, some of which have several devices. Threads of a process meet in its
 * memory and copy from each other; processes exchange messages through MPI. Fences are those of `cluster`, with
 * a process in the place of a node: the first rank of a process is its leader. */
#ifndef PLAIT_TRANSPORT_HOSTS_H
#define PLAIT_TRANSPORT_HOSTS_H

#include "transport/transport.h"

/* Where a rank is: the rank of its process in the MPI communicator, and which of the process's ranks it is, for
 * observers. */
typedef struct {
    int process;
    int track;
} plait_place_t;

/* Collective over the MPI communicator, which has exactly the processes of all ranks; n_ranks, places and id
 * are the same on all. Opens the endpoints of this process's ranks, in order. Each is closed on its own, the
 * last one collectively. INVALID: a process without ranks. UNSUPPORTED: too many processes, or too many ranks
 * in one process. */
plait_status_t plait_hosts_open(uint64_t comm_bits, int n_ranks,
                                const plait_place_t places[], int64_t id,
                                plait_endpoint_t ends[]);

#endif
