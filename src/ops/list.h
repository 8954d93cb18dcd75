/* The list of operations, one line each; no other place names them all. CMake, Python, the documentation and
 * the tests read it through plait_op_count and plait_op_at. */
#ifndef PLAIT_OPS_LIST_H
#define PLAIT_OPS_LIST_H

#include "plan/op.h"

#define PLAIT_OP_FOR_EACH(_op) \
    _op(allgather)             \
    _op(allreduce)             \
    _op(alltoall)              \
    _op(barrier)               \
    _op(bcast)                 \
    _op(exchange)              \
    _op(fft)                   \
    _op(gather)                \
    _op(gemm)                  \
    _op(geqrf)                 \
    _op(getrf)                 \
    _op(halo_exchange)         \
    _op(halo_reduce)           \
    _op(heevd)                 \
    _op(ormqr)                 \
    _op(potrf)                 \
    _op(potri)                 \
    _op(potrs)                 \
    _op(recv)                  \
    _op(redistribute)          \
    _op(reduce)                \
    _op(reduce_scatter)        \
    _op(route)                 \
    _op(scan)                  \
    _op(scatter)               \
    _op(send)                  \
    _op(sendrecv)              \
    _op(trsm)                  \
    _op(tsqr)

#define PLAIT_OP_DECLARE(_name) extern const plait_op_t plait_op_##_name;
PLAIT_OP_FOR_EACH(PLAIT_OP_DECLARE)
#undef PLAIT_OP_DECLARE

PLAIT_EXPORT int plait_op_count(void);

/* The i-th row, NULL outside the list. */
PLAIT_EXPORT const plait_op_t *plait_op_at(int i);

/* The row of this name, NULL if there is none. */
const plait_op_t *plait_op_find(const char *name);

#endif
