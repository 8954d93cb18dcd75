/* A communicator handle: one rank's endpoint, and what upper layers attach to it. */
#ifndef PLAIT_COMM_COMM_H
#define PLAIT_COMM_COMM_H

#include "plait/comm.h"
#include "transport/transport.h"

#include <stdatomic.h>

enum { PLAIT_AGREED_ROOM = 256 };

struct plait_comm {
    plait_endpoint_t end;
    int64_t id;               /* of the registry; 0 for handles of C programs */
    int track;                /* tells ranks of this process apart: the device, or 0 */
    char label[96];           /* where it was made, for messages */
    _Atomic uint32_t n_calls; /* operations so far: they line up on all ranks */
    _Atomic uint32_t n_collectives;
    uint64_t agreed[PLAIT_AGREED_ROOM]; /* plans that all ranks have run, by hash */
    uint64_t skipped; /* hash of those run since ranks last made sure that they agree */
    _Atomic bool is_freed;    /* the user's communicator was freed */
    _Atomic bool is_given_up; /* a wait was ended: ranks may be at different places */
    _Atomic bool is_in_use;   /* a collective is under way */
    _Atomic(void *) attached; /* the plans made for it: owned by the plan layer */
    void (*detach)(void *attached);
};

/* id_p: in, this rank's next free id; out, one that is free on all ranks. NULL: none wanted. */
plait_status_t plait_comm_open_mpi(uint64_t mpi_comm_bits, int size, int rank,
                                   const char *label, int64_t *id_p,
                                   plait_comm_t **comm_p);

/* COMM with the label if the user's communicator was freed. */
plait_status_t plait_comm_usable(const plait_comm_t *comm);

#endif
