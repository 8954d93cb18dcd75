#include "plait/coll.h"

#include "base/status.h"
#include "coll/coll.h"
#include "ops/list.h"
#include "plan/launch.h"

#include <stddef.h>

static plait_array_t vector_of(plait_dtype_t dtype, const int64_t *n, const void *data)
{
    return (plait_array_t){
        .dtype = dtype, .ndim = 1, .dims = n, .data = (void *)(uintptr_t)data};
}

static plait_status_t check_vector(const plait_comm_t *comm, int64_t n,
                                   const void *data)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(comm != NULL, PLAIT_ERR_COMM, "the communicator is NULL");
    PLAIT_CHECK(n >= 0, PLAIT_ERR_INVALID, "%lld elements, expected 0 or more",
                (long long)n);
    PLAIT_CHECK(n == 0 || data != NULL, PLAIT_ERR_INVALID, "an array is NULL");
done:
    return status;
}

plait_status_t plait_allreduce(plait_comm_t *comm, plait_reduce_t op,
                               plait_dtype_t dtype, int64_t n, const void *x, void *y)
{
    plait_status_t status = PLAIT_OK;
    const plait_allreduce_params_t params = {.reduce = op};
    const plait_array_t arg = vector_of(dtype, &n, x);
    const plait_array_t ret = vector_of(dtype, &n, y);

    PLAIT_TRY(check_vector(comm, n, x));
    PLAIT_TRY(check_vector(comm, n, y));
    PLAIT_TRY(plait_op_launch(&plait_op_allreduce, &params, comm, 0, &arg, &ret));
done:
    return status;
}

plait_status_t plait_bcast(plait_comm_t *comm, int root, plait_dtype_t dtype, int64_t n,
                           const void *x, void *y)
{
    plait_status_t status = PLAIT_OK;
    const plait_bcast_params_t params = {.root = root};
    const plait_array_t arg = vector_of(dtype, &n, x);
    const plait_array_t ret = vector_of(dtype, &n, y);

    PLAIT_TRY(check_vector(comm, n, y));
    PLAIT_TRY(check_vector(comm, n, (comm->end.rank == root) ? x : y));
    PLAIT_TRY(plait_op_launch(&plait_op_bcast, &params, comm, 0, &arg, &ret));
done:
    return status;
}

plait_status_t plait_barrier(plait_comm_t *comm)
{
    plait_status_t status = PLAIT_OK;
    const plait_barrier_params_t params = {0};

    PLAIT_TRY(check_vector(comm, 0, NULL));
    PLAIT_TRY(plait_op_launch(&plait_op_barrier, &params, comm, 0, NULL, NULL));
done:
    return status;
}

plait_status_t plait_sendrecv(plait_comm_t *comm, int dest, int send_tag,
                              plait_dtype_t dtype, int64_t n, const void *x, int source,
                              int recv_tag, plait_dtype_t recv_dtype, int64_t n_recv,
                              void *y)
{
    plait_status_t status = PLAIT_OK;
    const plait_sendrecv_params_t params = {
        .source = source, .dest = dest, .sendtag = send_tag, .recvtag = recv_tag};
    const plait_array_t args[] = {vector_of(dtype, &n, x),
                                  vector_of(recv_dtype, &n_recv, y)};
    const plait_array_t ret = vector_of(recv_dtype, &n_recv, y);

    PLAIT_TRY(check_vector(comm, n, (dest != PLAIT_PROC_NULL) ? x : comm));
    PLAIT_TRY(check_vector(comm, n_recv, (source != PLAIT_PROC_NULL) ? y : comm));
    PLAIT_TRY(plait_op_launch(&plait_op_sendrecv, &params, comm, 0, args, &ret));
done:
    return status;
}
