/* A communicator handle: one rank's endpoint, and the data that upper layers attach to it. */
#ifndef PLAIT_COMM_COMM_H
#define PLAIT_COMM_COMM_H

#include "plait/comm.h"
#include "transport/hosts.h"
#include "transport/transport.h"

#include <stdatomic.h>

enum {
    PLAIT_AGREED_ROOM = 256,
    PLAIT_MOST_SKIPPED = 1024, /* a meeting through MPI takes as long as some calls */
    PLAIT_WHY_BYTES = 192
};

struct plait_comm {
    plait_endpoint_t end;
    int64_t id; /* of the registry; 0 for handles of C programs */
    int track;  /* tells ranks of this process apart: the device, or 0 */
    int32_t
        *ordinals; /* indices of the devices of all ranks, by rank, if all are of this
                      process; NULL: not so, or not known */
    plait_device_t *device; /* of C programs (place.c), once it has one; end.caps.device
                               says whether arrays are there now */
    plait_stream_t stream;  /* the order of work on these arrays */
    plait_event_t *left;    /* the earlier work on the stream; NULL: there was none */
    char label[96];         /* where the communicator was made, for messages */
    _Atomic uint32_t n_calls; /* operations so far: they correspond on all ranks */
    _Atomic uint32_t n_collectives;
    uint64_t agreed[PLAIT_AGREED_ROOM]; /* plans that all ranks have run, by hash */
    uint64_t skipped;     /* hash of the plans run without a check that ranks agree */
    uint32_t n_skipped;   /* number of these plans since ranks last made sure */
    bool has_mates;       /* mates.h */
    plait_comm_t **mates; /* ranks of this process, this one among them; borrowed */
    int n_mates;
    _Atomic int64_t run;        /* the launch of its latest call */
    _Atomic uint32_t n_entered; /* calls of that launch that it has come to */
    _Atomic bool is_given_up;   /* a wait was ended: ranks may be at different places */
    _Atomic bool is_in_use;     /* a collective is under way */
    _Atomic(void *) attached;   /* the plans made for it: owned by the plan layer */
    void (*detach)(void *attached);
    _Atomic bool has_why;      /* `why` is set: the first line of what ended it */
    _Atomic bool is_why_taken; /* a thread writes `why` */
    char why[PLAIT_WHY_BYTES];
};

/* id_p: in, this rank's next free id; out, the communicator's id, free on all ranks. */
plait_status_t plait_comm_open_mpi(uint64_t mpi_comm_bits, int size, int rank,
                                   const char *label, int64_t *id_p,
                                   plait_comm_t **comm_p);

/* A communicator whose ranks are devices. */
typedef struct {
    uint64_t mpi_comm_bits; /* of their processes; unused if this is the only one */
    int n_ranks;
    int n_members;    /* of this process */
    int n_here;       /* devices of this process that are used with these ranks */
    bool is_one_each; /* every process has one rank */
    const plait_place_t *places; /* of each rank */
} plait_comm_devices_t;

/* Collective over the processes. Gives the caller the handles of this process's ranks, in order. id: the same
 * on all processes, and free on all. */
plait_status_t plait_comm_open_devices(const plait_comm_devices_t *devices, int64_t id,
                                       plait_comm_t *comms[]);

/* Like plait_comm_self and plait_comm_threads, with n_here devices that are used together. */
plait_status_t plait_comm_open_self(int n_here, plait_comm_t **comm_p);
plait_status_t plait_comm_open_threads(int n_ranks, int n_here, plait_comm_t *comms[]);

/* Whether the user's communicator was freed. */
bool plait_comm_is_freed(const plait_comm_t *comm);

/* Before a handle that had arrays on a device is freed. */
void plait_comm_leave_device(plait_comm_t *comm);

/* COMM, with the label, if the user's communicator was freed, or if this one was given up, and why. */
plait_status_t plait_comm_usable(const plait_comm_t *comm);

/* No operation runs on the communicator from now on. title: of the operation that has failed, with this
 * thread's error. */
void plait_comm_give_up(plait_comm_t *comm, const char *title);

#endif
