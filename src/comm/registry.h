/* Communicators by number. A compiled program has only the number and a mark of who the ranks are; both are
 * the same on all ranks of the communicator. A number is never used again after a free, so that a stale
 * program gets an error and never another communicator. In a program that another process compiled the
 * number may mean other ranks; the mark shows that. */
#ifndef PLAIT_COMM_REGISTRY_H
#define PLAIT_COMM_REGISTRY_H

#include "comm/comm.h"

/* Where an operation on communicator `id` runs: the handle of the rank that is the device `ordinal` (JAX's
 * device id). Communicators with one handle per process ignore `ordinal`. COMM if the id is unknown or freed,
 * or if no rank is this device. */
plait_status_t plait_registry_find(int64_t id, int32_t ordinal, plait_comm_t **comm_p);

/* COMM if communicator `id` is known and has another mark; mark 0, of a program that gives none, always
 * fits. */
plait_status_t plait_registry_check_mark(int64_t id, uint32_t mark);

/* Whether handles of `id` are told apart by device (then the launch matters, too). */
bool plait_registry_is_by_device(int64_t id);

/* The functions below are called from Python. label: where the communicator was made. */

PLAIT_EXPORT plait_status_t plait_registry_add_self(const char *label, int64_t *id_p);

/* Rank r is the device ordinals[r]. */
PLAIT_EXPORT plait_status_t plait_registry_add_local(int n, const int32_t ordinals[],
                                                     const char *label, int64_t *id_p);

/* A device that is a rank. */
typedef struct {
    int32_t group;   /* devices with equal numbers are the ranks of one communicator */
    int32_t process; /* JAX's number of its process */
    int32_t ordinal; /* JAX's number of the device, by which its handle is found */
    int32_t track;   /* tells devices of one process apart for observers */
} plait_device_rank_t;

/* The number that the next communicator gets, as far as this process knows. */
PLAIT_EXPORT int64_t plait_registry_next(void);

/* Several communicators under one id: the devices of a group are the ranks of one communicator, in the order of
 * the list. They never meet devices of another group. Each group has a device of process `here`, which is this
 * process. A group with devices of other processes has an MPI communicator of its processes, in the order of
 * the list; mpi_comms has these communicators in the order in which the groups come in the list, and is NULL if
 * there is one process. id_p: in, a number that is free on all processes, and the same; 0 if there is one
 * process. Collective over the processes of each group, one group after the other. */
PLAIT_EXPORT plait_status_t plait_registry_add_devices(
    int n, const plait_device_rank_t list[], int32_t here, const uint64_t mpi_comms[],
    const char *label, int64_t *id_p);

/* Collective over the communicator. of_mesh: its ranks are devices that run programs together in JAX, in which
 * XLA may have collectives of its own (mates.h). */
PLAIT_EXPORT plait_status_t plait_registry_add_mpi(uint64_t mpi_comm_bits, int size,
                                                   int rank, bool of_mesh,
                                                   const char *label, int64_t *id_p);

/* Whether the MPI communicator from which it was made has been freed: nothing can run on it any more. */
PLAIT_EXPORT bool plait_registry_is_orphaned(int64_t id);

/* Gives communicator `id`, which no program knows yet, its mark: below 2^31, and not 0. */
PLAIT_EXPORT plait_status_t plait_registry_set_mark(int64_t id, uint32_t mark);

/* Collective over the communicator; nothing may be in flight on it. */
PLAIT_EXPORT plait_status_t plait_registry_free(int64_t id);

/* Rank 0's handle (of the first group), or this process's handle; NULL if there is none. */
PLAIT_EXPORT plait_comm_t *plait_registry_comm(int64_t id);

#endif
