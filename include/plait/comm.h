/* Communicators: one handle per rank. */
#ifndef PLAIT_COMM_H
#define PLAIT_COMM_H

#include "plait/status.h"

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plait_comm plait_comm_t;

/* The bits of an MPI_Comm, whatever its type is in the MPI at hand; this header needs no mpi.h.
 * Use: plait_comm_mpi(PLAIT_MPI_COMM_BITS(comm), &handle), where comm is a variable:
 * MPI_COMM_WORLD itself may have no address. */
#define PLAIT_MPI_COMM_BITS(_comm) plait_mpi_comm_bits(&(_comm), sizeof(_comm))

static inline uint64_t plait_mpi_comm_bits(const void *comm, size_t n_bytes)
{
    uint64_t bits = 0;

    memcpy(&bits, comm, (n_bytes < sizeof(bits)) ? n_bytes : sizeof(bits));
    return bits;
}

/** Communicator of this rank alone.
 *  Collective: no.  Shapes: none.
 *  Owns: *comm_p is the caller's, who destroys it.
 *  Errors: INVALID (comm_p is NULL, PLAIT_THREADS is no number of threads), NO_MEMORY.  Source: own. */
PLAIT_EXPORT plait_status_t plait_comm_self(plait_comm_t **comm_p);

/** Communicator whose ranks are threads of this process. Only rank r uses comms[r]. Threads that wait for
 *  each other get TIMEOUT after PLAIT_TIMEOUT, and may use the communicator further.
 *  Collective: no; one thread makes all handles.  Shapes: comms has n_ranks entries.
 *  Owns: each handle is the caller's, who destroys it.
 *  Errors: INVALID (comms is NULL, n_ranks < 1, PLAIT_THREADS), NO_MEMORY.  Source: own. */
PLAIT_EXPORT plait_status_t plait_comm_threads(int n_ranks, plait_comm_t *comms[]);

/** Communicator over an MPI communicator. The MPI communicator stays the caller's and has to live as long as
 *  the handle: once it is freed, operations return COMM. plait communicates on duplicates, never on it.
 *  plait finds MPI among the libraries of the process. MPI has to be initialised by MPI_Init_thread with
 *  MPI_THREAD_MULTIPLE, or with MPI_THREAD_SERIALIZED if no other thread calls MPI while plait works;
 *  MPI_Init asks for less.
 *  Collective: over the MPI communicator.  Shapes: none.
 *  Owns: *comm_p is the caller's, who destroys it before MPI_Finalize.
 *  Errors: UNSUPPORTED (no MPI, not initialised, finalised, thread level); COMM (null,
 *  inter-communicator; MPI was finalised after plait had made a communicator; MPI does not know it, for
 *  instance because it was freed, but MPI's default error handler ends the job in that case); TRANSPORT
 *  (MPI's own text; or MPI moves large arrays wrongly where processes may not read each other's memory);
 *  TIMEOUT and PEER (a rank does not come, has ended); INVALID (comm_p is NULL, PLAIT_THREADS); NO_MEMORY.
 *  Source: MPI 4.0, 7.4. */
PLAIT_EXPORT plait_status_t plait_comm_mpi(uint64_t mpi_comm_bits,
                                           plait_comm_t **comm_p);

/** Frees a handle and the plans cached for it; NULL and a second call are fine. It waits for plans that were
 *  started; no other operation on the handle may be under way in another thread.
 *  Collective: over the communicator, for MPI.  Shapes: none.  Owns: takes *comm_p.
 *  Errors: none.  Source: own. */
PLAIT_EXPORT void plait_comm_destroy(plait_comm_t **comm_p);

/** This handle's rank, 0 <= rank < size; -1 for NULL.
 *  Collective: no.  Shapes: none.  Owns: nothing.  Errors: none.  Source: own. */
PLAIT_EXPORT int plait_comm_rank(const plait_comm_t *comm);

/** Number of ranks; 0 for NULL.
 *  Collective: no.  Shapes: none.  Owns: nothing.  Errors: none.  Source: own. */
PLAIT_EXPORT int plait_comm_size(const plait_comm_t *comm);

/** Name of the transport; "" for NULL. A single rank has "self", threads have "local". Through MPI it is
 *  "node" (one host), "cluster" (several hosts) or "mpi" (messages alone). What Python makes of the devices
 *  of several processes is "hosts".
 *  Collective: no.  Shapes: none.  Owns: nothing; the text is static.  Errors: none.  Source: own. */
PLAIT_EXPORT const char *plait_comm_transport(const plait_comm_t *comm);

/** How peers' memory is reached, and why: e.g. "on: all 2 ranks share a node and
 *  read each other's memory"; "" for NULL.
 *  Collective: no.  Shapes: none.  Owns: nothing; the text lives as long as the handle.
 *  Errors: none.  Source: own. */
PLAIT_EXPORT const char *plait_comm_direct(const plait_comm_t *comm);

#ifdef __cplusplus
}
#endif
#endif
