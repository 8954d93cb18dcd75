/* Collectives and matched transfers on arrays of one rank. The first call with given sizes makes a plan,
 * which is kept with the communicator; of many thousands of plans the recently called ones are kept.
 *
 * Functions whose name ends in v take blocks of different lengths: counts[r] elements for rank r. The list
 * is the same on all ranks. Blocks of one array follow each other in the order of ranks.
 *
 * Arguments have to be right on all ranks, or wrong on all ranks alike. A rank whose arguments alone are
 * wrong may refuse the call before it meets the others; it always does if an array is NULL or a length is
 * negative. The other ranks then wait for it, or take its next operation for this one.
 *
 * All functions return the following errors, and those listed with each function:
 *
 *   INVALID     an array is NULL, a length is negative, a value is no dtype
 *   MISMATCH    the ranks call different operations, or wait for each other; threads that wait for
 *               each other get TIMEOUT instead
 *   PEER        another rank failed in the operation, has ended, or gave up the communicator
 *   TIMEOUT     a rank did not come within PLAIT_TIMEOUT
 *   TRANSPORT   MPI or the system reported a failure
 *   COMM        the communicator is NULL, was freed or given up; or MPI is finalised; or another
 *               collective of this rank is using the communicator, which is given up then (ranks
 *               that are processes; of two threads the second one waits for the first)
 *   NO_MEMORY   for the plan, or for its work memory
 *   OVERFLOW    arrays of more than 2^63 bytes
 *
 * plait_allreduce and plait_reduce reduce in the order of ranks where ranks read each other's memory. Where
 * they do not (plait_comm_direct says "off", as on several nodes or with PLAIT_SHARED=off), MPI's own
 * allreduce may do the reduction. Its order is MPI's, and signs and payloads of NaN may differ between
 * ranks. */
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
/* In place of a source or of a receive tag: any source, any tag. */
#define PLAIT_ANY_SOURCE (-1)
#define PLAIT_ANY_TAG    (-1)

/* Sender and tag of a received message. PLAIT_PROC_NULL and PLAIT_ANY_TAG if there was nothing to
 * receive. */
typedef struct {
    int source;
    int tag;
} plait_envelope_t;

/* plait_send completes without its receiver up to this number of bytes. */
#define PLAIT_SEND_BYTES 65536

/** Reduces n elements over all ranks; every rank gets the same bits, except for NaN (see above).
 *  Collective: over comm, all ranks, same op, dtype and n; blocking.
 *  Shapes: x and y have n elements; y may be x, otherwise they do not overlap.
 *  Owns: nothing.
 *  Errors: as above; INVALID (op not defined for dtype).
 *  Source: MPI 4.0, 6.9.6; Rabenseifner, ICCS 2004. */
PLAIT_EXPORT plait_status_t plait_allreduce(plait_comm_t *comm, plait_reduce_t op,
                                            plait_dtype_t dtype, int64_t n,
                                            const void *x, void *y);

/** Reduces n elements over all ranks; the root gets the result. For the order see above.
 *  Collective: over comm, all ranks, same op, root, dtype and n; blocking.
 *  Shapes: x and y have n elements; y is used on the root only and may be x there.
 *  Owns: nothing.
 *  Errors: as above; INVALID (op not defined for dtype, root is no rank).
 *  Source: MPI 4.0, 6.9.1. */
PLAIT_EXPORT plait_status_t plait_reduce(plait_comm_t *comm, plait_reduce_t op,
                                         int root, plait_dtype_t dtype, int64_t n,
                                         const void *x, void *y);

/* Flags of plait_scan; they are added. */
enum {
    PLAIT_SCAN_EXCLUSIVE = 1, /* without the rank's own elements */
    PLAIT_SCAN_REVERSE = 2    /* from this rank to the last */
};

/** Reduces n elements over the ranks from the first to this one; `flags` change the range. A rank whose
 *  range is empty gets the identity of op. For MIN and MAX the identity is the largest and the smallest
 *  value of the dtype, for floats an infinity.
 *  Collective: over comm, all ranks, same op, flags, dtype and n; blocking.
 *  Shapes: x and y have n elements and do not overlap.
 *  Owns: nothing.
 *  Errors: as above; INVALID (op not defined for dtype, flags).
 *  Source: MPI 4.0, 6.11. */
PLAIT_EXPORT plait_status_t plait_scan(plait_comm_t *comm, plait_reduce_t op, int flags,
                                       plait_dtype_t dtype, int64_t n, const void *x,
                                       void *y);

/** Reduces one block of n elements per rank over all ranks; each rank gets its own block.
 *  Collective: over comm, all ranks, same op, dtype and n; blocking.
 *  Shapes: x has size * n elements, y has n; they do not overlap.
 *  Owns: nothing.
 *  Errors: as above; INVALID (op not defined for dtype).
 *  Source: MPI 4.0, 6.10.1. */
PLAIT_EXPORT plait_status_t plait_reduce_scatter(plait_comm_t *comm, plait_reduce_t op,
                                                 plait_dtype_t dtype, int64_t n,
                                                 const void *x, void *y);

/** plait_reduce_scatter for blocks of different lengths.
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

/** plait_allgather for blocks of different lengths.
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

/** plait_alltoall for blocks of different lengths: counts[i * size + j] elements from i to j.
 *  Collective: over comm, all ranks, same dtype and counts; blocking.
 *  Shapes: x has the elements that this rank sends, y the elements that it receives; they do not
 *  overlap.
 *  Owns: nothing.  Errors: as above; INVALID (negative count).
 *  Source: MPI 4.0, 6.8. */
PLAIT_EXPORT plait_status_t plait_alltoallv(plait_comm_t *comm, plait_dtype_t dtype,
                                            const int64_t counts[], const void *x,
                                            void *y);

/** Gives the root the n elements of all ranks, in the order of ranks.
 *  Collective: over comm, all ranks, same root, dtype and n; blocking.
 *  Shapes: x has n elements; y, used on the root only, has size * n; they do not overlap.
 *  Owns: nothing.  Errors: as above; INVALID (root is no rank).
 *  Source: MPI 4.0, 6.5. */
PLAIT_EXPORT plait_status_t plait_gather(plait_comm_t *comm, int root,
                                         plait_dtype_t dtype, int64_t n, const void *x,
                                         void *y);

/** plait_gather for blocks of different lengths.
 *  Collective: over comm, all ranks, same root, dtype and counts; blocking.
 *  Shapes: x has counts[rank] elements; y, used on the root only, has the sum of counts; they
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

/** plait_scatter for blocks of different lengths.
 *  Collective: over comm, all ranks, same root, dtype and counts; blocking.
 *  Shapes: x, used on the root only, has the sum of counts elements, y has counts[rank]; they
 *  do not overlap.
 *  Owns: nothing.
 *  Errors: as above; INVALID (root is no rank, negative count).
 *  Source: MPI 4.0, 6.6. */
PLAIT_EXPORT plait_status_t plait_scatterv(plait_comm_t *comm, int root,
                                           plait_dtype_t dtype, const int64_t counts[],
                                           const void *x, void *y);

/* Moves one block: from block source_block of x on rank source to block dest_block of y on rank dest. */
typedef struct {
    int64_t source, source_block;
    int64_t dest, dest_block;
} plait_edge_t;

/** Moves blocks of n elements along edges. A block of y where no edge ends becomes zero.
 *  Permutations, shifts and exchanges between neighbours are lists of edges.
 *  Collective: over comm, all ranks, same edges, dtype and n; blocking.
 *  Shapes: x has n_in * n elements, y has n_out * n; n_in and n_out are this rank's own. x and y do not
 *  overlap.
 *  Owns: nothing.
 *  Errors: as above; INVALID (rank or block of an edge, two edges that end at one block).
 *  Source: MPI 4.0, 8.6 (neighbourhood collectives). */
PLAIT_EXPORT plait_status_t plait_route(plait_comm_t *comm, int64_t n_edges,
                                        const plait_edge_t edges[], plait_dtype_t dtype,
                                        int64_t n, int64_t n_in, const void *x,
                                        int64_t n_out, void *y);

/** Returns when all ranks have called it.
 *  Collective: over comm; blocking.  Shapes: none.  Owns: nothing.
 *  Errors: as above.  Source: MPI 4.0, 6.3. */
PLAIT_EXPORT plait_status_t plait_barrier(plait_comm_t *comm);

/** Sends one array and receives another at the same time.
 *  Collective: no; between the partners, matched by rank and tag in order. A tag is 0..INT32_MAX,
 *  through MPI 0..MPI_TAG_UB.
 *  Shapes: x has n elements of dtype, y has n_recv of recv_dtype; they do not overlap. With source
 *  PLAIT_PROC_NULL y stays as it was.
 *  Owns: nothing. The envelope `from` is set if the call returns OK; it may be NULL.
 *  Errors: as above; INVALID (rank, tag); TRUNCATION and MISMATCH (the partners' sizes or dtypes differ;
 *  both partners get the error, and y stays as it was).
 *  Source: MPI 4.0, 3.10. */
PLAIT_EXPORT plait_status_t plait_sendrecv(plait_comm_t *comm, int dest, int send_tag,
                                           plait_dtype_t dtype, int64_t n,
                                           const void *x, int source, int recv_tag,
                                           plait_dtype_t recv_dtype, int64_t n_recv,
                                           void *y, plait_envelope_t *from);

/** Sends one array. An array of up to PLAIT_SEND_BYTES is copied, and the call returns at once; for a larger
 *  one the call returns when the message was received. The call also waits while receivers have not taken
 *  16 MiB of earlier sends of this rank on comm. Within a node receivers take messages even while they wait
 *  for something else.
 *  Collective: no; the receiver calls plait_recv or plait_sendrecv.
 *  Shapes: x has n elements.  Owns: nothing.
 *  Errors: as above; INVALID (rank, tag), TRUNCATION and MISMATCH as in plait_sendrecv. If the message was
 *  copied, a later operation of this rank on comm returns its TRUNCATION or MISMATCH; that operation has
 *  been carried out nevertheless.
 *  Source: MPI 4.0, 3.2. */
PLAIT_EXPORT plait_status_t plait_send(plait_comm_t *comm, int dest, int tag,
                                       plait_dtype_t dtype, int64_t n, const void *x);

/** Receives one array.
 *  Collective: no; the sender calls plait_send or plait_sendrecv.
 *  Shapes: y has n elements. With source PLAIT_PROC_NULL y stays as it was.
 *  Owns: nothing. The envelope `from` is set if the call returns OK; it may be NULL.
 *  Errors: as above; INVALID (rank, tag), TRUNCATION and MISMATCH as in plait_sendrecv.
 *  Source: MPI 4.0, 3.2. */
PLAIT_EXPORT plait_status_t plait_recv(plait_comm_t *comm, int source, int tag,
                                       plait_dtype_t dtype, int64_t n, void *y,
                                       plait_envelope_t *from);

#ifdef __cplusplus
}
#endif
#endif
