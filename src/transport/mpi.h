/* Ranks are MPI processes. One binary of plait works with every MPI: MPI's functions are looked up at run time,
 * by ABI, in the library that the host program or mpi4py loaded. `node` endpoints (all ranks on one node,
 * one-copy reads of their memory) come from the same call. */
#ifndef PLAIT_TRANSPORT_MPI_H
#define PLAIT_TRANSPORT_MPI_H

#include "transport/transport.h"

/* Binds the process's MPI, once. where: path of a shared object that is already loaded and depends on MPI
 * (mpi4py.MPI.__file__), or NULL to search the mapped libraries. OK if the same library was bound before.
 * Errors: UNSUPPORTED (no MPI mapped; two of them; a missing function; thread level below SERIALIZED; not
 * initialised), and the text says what was found. */
PLAIT_EXPORT plait_status_t plait_mpi_bind(const char *where);

/* Facts for `plait info`; static text, empty when nothing is bound. */
PLAIT_EXPORT const char *plait_mpi_abi(void); /* "MPICH", "Open MPI", "standard" */
PLAIT_EXPORT const char *plait_mpi_library_path(
    void); /* the shared object that has MPI_Init_thread */
PLAIT_EXPORT const char *plait_mpi_library_version(void);
PLAIT_EXPORT const char *plait_mpi_thread_level(
    void); /* "MULTIPLE", "SERIALIZED", ... */

/* COMM_WORLD's bits in the bound ABI. */
PLAIT_EXPORT plait_status_t plait_mpi_world(uint64_t *comm_bits_p);

/* Collective over the communicator. Verifies the handle (initialised, not null, not an inter-communicator, size
 * and rank as expected unless those are -1), duplicates it twice (data, control), sets ERRORS_RETURN on the
 * duplicates only, and agrees on `id_p` (in: this rank's next free id; out: the maximum over ranks). Picks
 * `node` if all ranks share a node and a segment of memory (caps.direct is READ if they also read each other's
 * memory, can_write is set if they write it as well), else `mpi` (NONE). In the environment of any rank
 * PLAIT_SHARED=off forces `mpi`, PLAIT_DIRECT=off NONE, PLAIT_DIRECT=read no writes. The user's communicator
 * gets an attribute whose delete callback sets what end->freed_p points to. `why_p` receives static or
 * endpoint-owned text on why direct access is on or off. */
plait_status_t plait_mpi_open(uint64_t comm_bits, int size, int rank, int64_t *id_p,
                              plait_endpoint_t *end, const char **why_p);

/* Numbers in MPI_COMM_WORLD of a communicator's ranks; the caller frees them. Not collective; the errors of a
 * handle are those of plait_mpi_open. */
plait_status_t plait_mpi_members(uint64_t comm_bits, int *n_p, int32_t **members_p);

/* Where processes run several ranks: which of its process's ranks each rank is. tracks has one entry for each
 * rank of an endpoint that plait_mpi_open has just made. */
void plait_mpi_set_tracks(const plait_endpoint_t *end, const int tracks[]);

/* COMM if MPI must not be called: not bound, MPI_Finalize began, forked child. */
plait_status_t plait_mpi_usable(const char *what);

/* Before MPI_Finalize (at exit, or from the attribute on COMM_SELF): every later call on an
 * MPI endpoint returns COMM instead of touching MPI. */
PLAIT_EXPORT void plait_mpi_shutdown(void);

/* settle: waits for work that is queued somewhere and will call operations. It is called by the thread that is
 * in MPI_Comm_free of a communicator from which an endpoint was made, or in MPI_Finalize, before either takes
 * effect. */
PLAIT_EXPORT void plait_mpi_set_settle(void (*settle)(void));

/* For a rank that ends with an exception: tells ranks that cannot see this process why, on every open
 * communicator. Takes a second if there are such ranks. A rank that was told ends too, and tells others, so a
 * bounded number of messages reaches all. False: MPI has not come back from this in limit_ns, as it may wait
 * for ever for a rank that has ended itself. Called once, as the process ends. */
PLAIT_EXPORT bool plait_mpi_say_farewell(const char *why, int64_t limit_ns);

#endif
