/* Collectives and matched transfers on arrays of one rank. Plans are made at the first call
 * with given sizes and kept with the communicator. */
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

/** Reduces n elements over all ranks; every rank gets the same bits.
 *  Collective: over comm, all ranks, same op, dtype and n; blocking.
 *  Shapes: x and y have n elements; y may be x, otherwise they do not overlap.
 *  Owns: nothing.
 *  Errors: INVALID (op not defined for dtype), MISMATCH, PEER, TRANSPORT, COMM.
 *  Source: MPI 4.0, 6.9.6; Rabenseifner, ICCS 2004. */
PLAIT_EXPORT plait_status_t plait_allreduce(plait_comm_t *comm, plait_reduce_t op,
                                            plait_dtype_t dtype, int64_t n,
                                            const void *x, void *y);

/** Gives every rank the root's n elements.
 *  Collective: over comm, all ranks, same root, dtype and n; blocking.
 *  Shapes: x (read on the root) and y have n elements; y may be x.
 *  Owns: nothing.
 *  Errors: INVALID (root is no rank), MISMATCH, PEER, TRANSPORT, COMM.
 *  Source: MPI 4.0, 6.4. */
PLAIT_EXPORT plait_status_t plait_bcast(plait_comm_t *comm, int root,
                                        plait_dtype_t dtype, int64_t n, const void *x,
                                        void *y);

/** Returns when all ranks have called it.
 *  Collective: over comm; blocking.  Shapes: none.  Owns: nothing.
 *  Errors: TRANSPORT, COMM.  Source: MPI 4.0, 6.3. */
PLAIT_EXPORT plait_status_t plait_barrier(plait_comm_t *comm);

/** Sends one array and receives another at once.
 *  Collective: no; between the partners, matched by rank and tag (0..32767) in order.
 *  Shapes: x has n elements of dtype, y has n_recv of recv_dtype; they do not overlap.
 *  Owns: nothing.  With source PLAIT_PROC_NULL y is left alone.
 *  Errors: INVALID (rank, tag), TRUNCATION and MISMATCH (sizes or dtypes of the partners
 *  differ; on both of them, and y is left alone), TRANSPORT, COMM.
 *  Source: MPI 4.0, 3.10. */
PLAIT_EXPORT plait_status_t plait_sendrecv(plait_comm_t *comm, int dest, int send_tag,
                                           plait_dtype_t dtype, int64_t n,
                                           const void *x, int source, int recv_tag,
                                           plait_dtype_t recv_dtype, int64_t n_recv,
                                           void *y);

#ifdef __cplusplus
}
#endif
#endif
