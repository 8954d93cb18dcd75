/* Collectives and matched transfers on arrays of one rank. Plans are made at the first call
 * with given sizes and kept with the communicator, of many thousands the ones that are called.
 *
 * Functions whose name ends in v take blocks of different lengths: counts[r] elements for
 * rank r, the same list on all ranks. Blocks of one array follow each other in the order of
 * ranks.
 *
 * Arguments are right on all ranks, or wrong on all alike. What is wrong on one rank only, it may
 * refuse before it meets the others, an array that is NULL or a negative length at any rate: they
 * take its next operation for this one then, or wait for it.
 *
 * All functions return, besides what is said with each:
 *
 *   INVALID     an array is NULL, a length is negative, a dtype is none
 *   MISMATCH    the ranks call different operations, or wait for each other; of threads that
 *               wait for each other only TIMEOUT tells
 *   PEER        another rank failed in the operation, has ended, or gave up the communicator
 *   TIMEOUT     a rank did not come within PLAIT_TIMEOUT
 *   TRANSPORT   MPI or the system reported a failure
 *   COMM        the communicator is NULL, was freed or given up, or is in use by another
 *               collective of this rank, after which it is given up (processes; of threads
 *               the second one waits for the first); MPI is finalised
 *   NO_MEMORY   for the plan, or for what it works in
 *   OVERFLOW    arrays of more than 2^63 bytes
 *
 * plait_allreduce and plait_reduce reduce in the order of ranks where these read each other's
 * memory. Where they do not (plait_comm_direct says "off", as on several nodes or with
 * PLAIT_SHARED=off) MPI's own allreduce may do it: in an order of its own, and signs and payloads
 * of NaN may differ between ranks. */
#ifndef PLAIT_COLL_H
#define PLAIT_COLL_H

#include "plait/comm.h"
#include "plait/dtype.h"
#include "plait/reduce.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In place of a rank: nothing is sent or received. */
#define PLAIT_PROC_NULL (-2)
/* In place of a source or of a receive tag: whichever comes. */
#define PLAIT_ANY_SOURCE (-1)
#define PLAIT_ANY_TAG    (-1)

/* Who sent what was received, and with which tag: PLAIT_PROC_NULL and PLAIT_ANY_TAG where nothing
 * was to be received. */
typedef struct {
    int source;
    int tag;
} plait_envelope_t;

/* Up to so many bytes plait_send completes without its receiver. */
#define PLAIT_SEND_BYTES 65536

/** Reduces n elements over all ranks; every rank gets the same bits, but for NaN (above).
 *  Collective: over comm, all ranks, same op, dtype and n; blocking.
 *  Shapes: x and y have n elements; y may be x, otherwise they do not overlap.
 *  Owns: nothing.
 *  Errors: as above; INVALID (op not defined for dtype).
 *  Source: MPI 4.0, 6.9.6; Rabenseifner, ICCS 2004. */
PLAIT_EXPORT plait_status_t plait_allreduce(plait_comm_t *comm, plait_reduce_t op,
                                            plait_dtype_t dtype, int64_t n,
                                            const void *x, void *y);

/** Reduces n elements over all ranks; the root gets the result. The order is said above.
 *  Collective: over comm, all ranks, same op, root, dtype and n; blocking.
 *  Shapes: x and y have n elements; y is used on the root only and may be x there.
 *  Owns: nothing.
 *  Errors: as above; INVALID (op not defined for dtype, root is no rank).
 *  Source: MPI 4.0, 6.9.1. */
PLAIT_EXPORT plait_status_t plait_reduce(plait_comm_t *comm, plait_reduce_t op,
                                         int root, plait_dtype_t dtype, int64_t n,
                                         const void *x, void *y);

/* How plait_scan goes; added up. */
enum {
    PLAIT_SCAN_EXCLUSIVE = 1, /* without the rank's own elements */
    PLAIT_SCAN_REVERSE = 2    /* from this rank to the last */
};

/** Reduces n elements over the ranks from the first to this one; `flags` as above. A rank
 *  over which nothing is reduced gets the identity of op; of MIN and MAX that is the
 *  largest and the smallest value of the dtype, infinities for floats.
 *  Collective: over comm, all ranks, same op, flags, dtype and n; blocking.
 *  Shapes: x and y have n elements and do not overlap.
 *  Owns: nothing.
 *  Errors: as above; INVALID (op not defined for dtype, flags).
 *  Source: MPI 4.0, 6.11. */
PLAIT_EXPORT plait_status_t plait_scan(plait_comm_t *comm, plait_reduce_t op, int flags,
                                       plait_dtype_t dtype, int64_t n, const void *x,
                                       void *y);

/** Reduces a block of n elements for each rank over all ranks; each rank gets its block.
 *  Collective: over comm, all ranks, same op, dtype and n; blocking.
 *  Shapes: x has size * n elements, y has n; they do not overlap.
 *  Owns: nothing.
 *  Errors: as above; INVALID (op not defined for dtype).
 *  Source: MPI 4.0, 6.10.1. */
PLAIT_EXPORT plait_status_t plait_reduce_scatter(plait_comm_t *comm, plait_reduce_t op,
                                                 plait_dtype_t dtype, int64_t n,
                                                 const void *x, void *y);

/** The same for blocks of different lengths.
 *  Collective: over comm, all ranks, same op, dtype and counts; blocking.
 *  Shapes: x has the sum of counts elements, y counts[rank]; they do not overlap.
 *  Owns: nothing.
 *  Errors: as above; INVALID (op not defined for dtype, negative count).
 *  Source: MPI 4.0, 6.10.2. */
PLAIT_EXPORT plait_status_t plait_reduce_scatterv(plait_comm_t *comm, plait_reduce_t op,
                                                  plait_dtype_t dtype,
                                                  const int64_t counts[], const void *x,
                                                  void *y);

/** Gives every rank the root's n elements.
 *  Collective: over comm, all ranks, same root, dtype and n; blocking.
 *  Shapes: x (read on the root) and y have n elements; y may be x.
 *  Owns: nothing.
 *  Errors: as above; INVALID (root is no rank).
 *  Source: MPI 4.0, 6.4. */
PLAIT_EXPORT plait_status_t plait_bcast(plait_comm_t *comm, int root,
                                        plait_dtype_t dtype, int64_t n, const void *x,
                                        void *y);

/** Gives every rank the n elements of all ranks, in the order of ranks.
 *  Collective: over comm, all ranks, same dtype and n; blocking.
 *  Shapes: x has n elements, y has size * n; they do not overlap.
 *  Owns: nothing.  Errors: as above.
 *  Source: MPI 4.0, 6.7. */
PLAIT_EXPORT plait_status_t plait_allgather(plait_comm_t *comm, plait_dtype_t dtype,
                                            int64_t n, const void *x, void *y);

/** The same for blocks of different lengths.
 *  Collective: over comm, all ranks, same dtype and counts; blocking.
 *  Shapes: x has counts[rank] elements, y the sum of counts; they do not overlap.
 *  Owns: nothing.  Errors: as above; INVALID (negative count).
 *  Source: MPI 4.0, 6.7. */
PLAIT_EXPORT plait_status_t plait_allgatherv(plait_comm_t *comm, plait_dtype_t dtype,
                                             const int64_t counts[], const void *x,
                                             void *y);

/** Gives block r of every rank to rank r; blocks have n elements.
 *  Collective: over comm, all ranks, same dtype and n; blocking.
 *  Shapes: x and y have size * n elements and do not overlap.
 *  Owns: nothing.  Errors: as above.
 *  Source: MPI 4.0, 6.8. */
PLAIT_EXPORT plait_status_t plait_alltoall(plait_comm_t *comm, plait_dtype_t dtype,
                                           int64_t n, const void *x, void *y);

/** The same for blocks of different lengths: counts[i * size + j] elements from i to j.
 *  Collective: over comm, all ranks, same dtype and counts; blocking.
 *  Shapes: x has the elements that this rank sends, y those that it receives; they do not
 *  overlap.
 *  Owns: nothing.  Errors: as above; INVALID (negative count).
 *  Source: MPI 4.0, 6.8. */
PLAIT_EXPORT plait_status_t plait_alltoallv(plait_comm_t *comm, plait_dtype_t dtype,
                                            const int64_t counts[], const void *x,
                                            void *y);

/** Gives the root the n elements of all ranks, in the order of ranks.
 *  Collective: over comm, all ranks, same root, dtype and n; blocking.
 *  Shapes: x has n elements; y, used on the root only, size * n; they do not overlap.
 *  Owns: nothing.  Errors: as above; INVALID (root is no rank).
 *  Source: MPI 4.0, 6.5. */
PLAIT_EXPORT plait_status_t plait_gather(plait_comm_t *comm, int root,
                                         plait_dtype_t dtype, int64_t n, const void *x,
                                         void *y);

/** The same for blocks of different lengths.
 *  Collective: over comm, all ranks, same root, dtype and counts; blocking.
 *  Shapes: x has counts[rank] elements; y, used on the root only, the sum of counts; they
 *  do not overlap.
 *  Owns: nothing.
 *  Errors: as above; INVALID (root is no rank, negative count).
 *  Source: MPI 4.0, 6.5. */
PLAIT_EXPORT plait_status_t plait_gatherv(plait_comm_t *comm, int root,
                                          plait_dtype_t dtype, const int64_t counts[],
                                          const void *x, void *y);

/** Gives each rank its block of n elements of the root's array.
 *  Collective: over comm, all ranks, same root, dtype and n; blocking.
 *  Shapes: x, used on the root only, has size * n elements, y has n; they do not overlap.
 *  Owns: nothing.  Errors: as above; INVALID (root is no rank).
 *  Source: MPI 4.0, 6.6. */
PLAIT_EXPORT plait_status_t plait_scatter(plait_comm_t *comm, int root,
                                          plait_dtype_t dtype, int64_t n, const void *x,
                                          void *y);

/** The same for blocks of different lengths.
 *  Collective: over comm, all ranks, same root, dtype and counts; blocking.
 *  Shapes: x, used on the root only, has the sum of counts elements, y counts[rank]; they
 *  do not overlap.
 *  Owns: nothing.
 *  Errors: as above; INVALID (root is no rank, negative count).
 *  Source: MPI 4.0, 6.6. */
PLAIT_EXPORT plait_status_t plait_scatterv(plait_comm_t *comm, int root,
                                           plait_dtype_t dtype, const int64_t counts[],
                                           const void *x, void *y);

/* One block on its way, by its place in the source's x and in the dest's y. */
typedef struct {
    int64_t source, source_block;
    int64_t dest, dest_block;
} plait_edge_t;

/** Moves blocks of n elements along edges; a block of y at which no edge ends is zero.
 *  Permutations, shifts and exchanges between neighbours are lists of edges.
 *  Collective: over comm, all ranks, same edges, dtype and n; blocking.
 *  Shapes: x has n_in * n elements, y has n_out * n, with this rank's n_in and n_out; they
 *  do not overlap.
 *  Owns: nothing.
 *  Errors: as above; INVALID (rank or block of an edge, two edges to one block).
 *  Source: MPI 4.0, 8.6 (neighbourhood collectives). */
PLAIT_EXPORT plait_status_t plait_route(plait_comm_t *comm, int64_t n_edges,
                                        const plait_edge_t edges[], plait_dtype_t dtype,
                                        int64_t n, int64_t n_in, const void *x,
                                        int64_t n_out, void *y);

/** Returns when all ranks have called it.
 *  Collective: over comm; blocking.  Shapes: none.  Owns: nothing.
 *  Errors: as above.  Source: MPI 4.0, 6.3. */
PLAIT_EXPORT plait_status_t plait_barrier(plait_comm_t *comm);

/** Sends one array and receives another at once.
 *  Collective: no; between the partners, matched by rank and tag in order. A tag is 0..INT32_MAX,
 *  through MPI 0..MPI_TAG_UB.
 *  Shapes: x has n elements of dtype, y has n_recv of recv_dtype; they do not overlap.
 *  Owns: nothing.  With source PLAIT_PROC_NULL y is left alone.  from, unless it is NULL, is set
 *  where OK is returned.
 *  Errors: as above; INVALID (rank, tag), TRUNCATION and MISMATCH (sizes or dtypes of the
 *  partners differ; on both of them, and y is left alone).
 *  Source: MPI 4.0, 3.10. */
PLAIT_EXPORT plait_status_t plait_sendrecv(plait_comm_t *comm, int dest, int send_tag,
                                           plait_dtype_t dtype, int64_t n,
                                           const void *x, int source, int recv_tag,
                                           plait_dtype_t recv_dtype, int64_t n_recv,
                                           void *y, plait_envelope_t *from);

/** Sends one array. Up to PLAIT_SEND_BYTES it is copied and the call returns, otherwise
 *  when the message was received. It also waits while 16 MiB of earlier sends of this rank
 *  on comm have not been taken by their receivers, which take what comes within a node also
 *  while they wait for something else.
 *  Collective: no; the receiver calls plait_recv or plait_sendrecv.
 *  Shapes: x has n elements.  Owns: nothing.
 *  Errors: as above; INVALID (rank, tag), TRUNCATION and MISMATCH as in plait_sendrecv, but
 *  those of a message that was copied are returned by a later operation of this rank on comm,
 *  which has then been carried out.
 *  Source: MPI 4.0, 3.2. */
PLAIT_EXPORT plait_status_t plait_send(plait_comm_t *comm, int dest, int tag,
                                       plait_dtype_t dtype, int64_t n, const void *x);

/** Receives one array.
 *  Collective: no; the sender calls plait_send or plait_sendrecv.
 *  Shapes: y has n elements.  Owns: nothing.  With source PLAIT_PROC_NULL y is left alone.  from,
 *  unless it is NULL, is set where OK is returned.
 *  Errors: as above; INVALID (rank, tag), TRUNCATION and MISMATCH as in plait_sendrecv.
 *  Source: MPI 4.0, 3.2. */
PLAIT_EXPORT plait_status_t plait_recv(plait_comm_t *comm, int source, int tag,
                                       plait_dtype_t dtype, int64_t n, void *y,
                                       plait_envelope_t *from);

#ifdef __cplusplus
}
#endif
#endif
