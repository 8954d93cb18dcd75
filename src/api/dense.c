/* Plans of the dense operations for C programs. */
#include "plait/dense.h"

#include "base/checked.h"
#include "base/status.h"
#include "comm/comm.h"
#include "dense/dealt.h"
#include "dense/params.h"
#include "dense/scalar.h"
#include "ops/list.h"
#include "plan/launch.h"

/* The operations check the attributes. This only has to keep bad ones out of range. */
static plait_array_t array_of(const plait_comm_t *comm, plait_dtype_t dtype, int64_t m,
                              int64_t n, int64_t block, int64_t dims[2])
{
    dims[0] = plait_dense_columns(n, block, comm->end.size);
    dims[1] = m;
    return (plait_array_t){.dtype = dtype, .ndim = 2, .dims = dims};
}

static plait_status_t check_given(const plait_comm_t *comm, const void *problem,
                                  plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(comm != NULL, PLAIT_ERR_COMM, "the communicator is NULL");
    PLAIT_CHECK(problem != NULL && plan_p != NULL, PLAIT_ERR_INVALID,
                "problem or plan_p is NULL");
done:
    return status;
}

int64_t plait_dense_columns(int64_t n, int64_t block, int n_ranks)
{
    const plait_dealt_t d = {.n = n, .block = block, .n_ranks = n_ranks};
    const bool is_good =
        n_ranks > 0 && plait_dealt_check(&d, "plait_dense_columns") == PLAIT_OK;

    return is_good ? plait_dealt_stored(&d) : 0;
}

plait_status_t plait_gemm_plan(const plait_comm_t *comm,
                               const plait_gemm_problem_t *problem,
                               plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    int64_t dims[3][2];

    PLAIT_TRY(check_given(comm, problem, plan_p));
    const bool is_trans = problem->trans != PLAIT_TRANS_NONE;
    const plait_gemm_params_t params = {.m = problem->m,
                                        .n = problem->n,
                                        .k = problem->k,
                                        .trans = problem->trans,
                                        .block = problem->block,
                                        .form_a = problem->form_a,
                                        .form_c = problem->form_c};
    const plait_array_t args[] = {
        array_of(comm, problem->dtype, is_trans ? problem->k : problem->m,
                 is_trans ? problem->m : problem->k, problem->block, dims[0]),
        array_of(comm, problem->dtype, problem->k, problem->n, problem->block,
                 dims[1])};
    const plait_array_t ret =
        array_of(comm, problem->dtype, problem->m, problem->n, problem->block, dims[2]);
    PLAIT_TRY(plait_op_plan(&plait_op_gemm, &params, &comm->end, args, &ret, plan_p));
done:
    return status;
}

/* A matrix, and a right-hand side, which is dealt out or whole on every rank; so is the solution. */
static void solve_arrays(const plait_comm_t *comm, plait_dtype_t dtype, int64_t n,
                         int64_t n_rhs, int64_t block, bool is_whole,
                         int64_t dims[2][2], plait_array_t args[2])
{
    args[0] = array_of(comm, dtype, n, n, block, dims[0]);
    args[1] = array_of(comm, dtype, n, n_rhs, block, dims[1]);
    if (is_whole) {
        dims[1][0] = n_rhs;
    }
}

plait_status_t plait_trsm_plan(const plait_comm_t *comm,
                               const plait_trsm_problem_t *problem,
                               plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    int64_t dims[2][2];
    plait_array_t args[2];

    PLAIT_TRY(check_given(comm, problem, plan_p));
    const plait_trsm_params_t params = {.n = problem->n,
                                        .n_rhs = problem->n_rhs,
                                        .block = problem->block,
                                        .uplo = problem->uplo,
                                        .trans = problem->trans,
                                        .diag = problem->diag,
                                        .form = problem->form,
                                        .whole = problem->is_whole};
    solve_arrays(comm, problem->dtype, problem->n, problem->n_rhs, problem->block,
                 problem->is_whole, dims, args);
    PLAIT_TRY(
        plait_op_plan(&plait_op_trsm, &params, &comm->end, args, &args[1], plan_p));
done:
    return status;
}

static const int64_t one = 1;
static const plait_array_t info_array = {.dtype = PLAIT_S32, .ndim = 1, .dims = &one};

plait_status_t plait_potrf_plan(const plait_comm_t *comm,
                                const plait_potrf_problem_t *problem,
                                plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    int64_t dims[2];

    PLAIT_TRY(check_given(comm, problem, plan_p));
    const plait_potrf_params_t params = {
        .n = problem->n, .block = problem->block, .grid = problem->grid};
    const plait_array_t a =
        array_of(comm, problem->dtype, problem->n, problem->n, problem->block, dims);
    const plait_array_t rets[] = {a, info_array};
    PLAIT_TRY(plait_op_plan(&plait_op_potrf, &params, &comm->end, &a, rets, plan_p));
done:
    return status;
}

plait_status_t plait_potrs_plan(const plait_comm_t *comm,
                                const plait_potrs_problem_t *problem,
                                plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    int64_t dims[2][2];
    plait_array_t args[2];

    PLAIT_TRY(check_given(comm, problem, plan_p));
    const plait_potrs_params_t params = {.n = problem->n,
                                         .n_rhs = problem->n_rhs,
                                         .block = problem->block,
                                         .whole = problem->is_whole};
    solve_arrays(comm, problem->dtype, problem->n, problem->n_rhs, problem->block,
                 problem->is_whole, dims, args);
    PLAIT_TRY(
        plait_op_plan(&plait_op_potrs, &params, &comm->end, args, &args[1], plan_p));
done:
    return status;
}

plait_status_t plait_potri_plan(const plait_comm_t *comm,
                                const plait_potri_problem_t *problem,
                                plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    int64_t dims[2];

    PLAIT_TRY(check_given(comm, problem, plan_p));
    const plait_potri_params_t params = {.n = problem->n, .block = problem->block};
    const plait_array_t a =
        array_of(comm, problem->dtype, problem->n, problem->n, problem->block, dims);
    PLAIT_TRY(plait_op_plan(&plait_op_potri, &params, &comm->end, &a, &a, plan_p));
done:
    return status;
}

/* getrf and geqrf: the matrix, an array with as many numbers as the diagonal, info. */
static plait_status_t panels_plan(const plait_op_t *op, plait_dtype_t side,
                                  const plait_comm_t *comm,
                                  const plait_panels_problem_t *problem,
                                  plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    int64_t dims[2];
    int64_t n_pivots = 0;

    PLAIT_TRY(check_given(comm, problem, plan_p));
    n_pivots = plait_min(problem->m, problem->n);
    const plait_panels_params_t params = {
        .m = problem->m, .n = problem->n, .block = problem->block};
    const plait_array_t a =
        array_of(comm, problem->dtype, problem->m, problem->n, problem->block, dims);
    const plait_array_t rets[] = {
        a, {.dtype = side, .ndim = 1, .dims = &n_pivots}, info_array};
    PLAIT_TRY(plait_op_plan(op, &params, &comm->end, &a, rets, plan_p));
done:
    return status;
}

plait_status_t plait_getrf_plan(const plait_comm_t *comm,
                                const plait_panels_problem_t *problem,
                                plait_plan_t **plan_p)
{
    return panels_plan(&plait_op_getrf, PLAIT_S32, comm, problem, plan_p);
}

plait_status_t plait_geqrf_plan(const plait_comm_t *comm,
                                const plait_panels_problem_t *problem,
                                plait_plan_t **plan_p)
{
    const plait_dtype_t dtype = (problem != NULL) ? problem->dtype : PLAIT_F64;

    return panels_plan(&plait_op_geqrf, dtype, comm, problem, plan_p);
}

plait_status_t plait_ormqr_plan(const plait_comm_t *comm,
                                const plait_ormqr_problem_t *problem,
                                plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    int64_t dims[2][2];
    int64_t n_tau = 0;

    PLAIT_TRY(check_given(comm, problem, plan_p));
    n_tau = plait_min(problem->m, problem->k);
    const plait_ormqr_params_t params = {.m = problem->m,
                                         .k = problem->k,
                                         .n = problem->n,
                                         .trans = problem->is_adjoint,
                                         .block = problem->block};
    const plait_array_t args[] = {
        array_of(comm, problem->dtype, problem->m, problem->k, problem->block, dims[0]),
        {.dtype = problem->dtype, .ndim = 1, .dims = &n_tau},
        array_of(comm, problem->dtype, problem->m, problem->n, problem->block,
                 dims[1])};
    PLAIT_TRY(
        plait_op_plan(&plait_op_ormqr, &params, &comm->end, args, &args[2], plan_p));
done:
    return status;
}

plait_status_t plait_tsqr_plan(const plait_comm_t *comm,
                               const plait_tsqr_problem_t *problem,
                               plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_given(comm, problem, plan_p));
    const plait_tsqr_params_t params = {
        .m = problem->m, .n = problem->n, .without_q = problem->without_q};
    const int64_t rows[] = {problem->n, problem->m};
    const int64_t of_q[] = {problem->without_q ? 0 : problem->n, problem->m};
    const int64_t triangle[] = {problem->n, problem->n};
    const plait_array_t a = {.dtype = problem->dtype, .ndim = 2, .dims = rows};
    const plait_array_t rets[] = {
        {.dtype = problem->dtype, .ndim = 2, .dims = of_q},
        {.dtype = problem->dtype, .ndim = 2, .dims = triangle}};
    PLAIT_TRY(plait_op_plan(&plait_op_tsqr, &params, &comm->end, &a, rets, plan_p));
done:
    return status;
}

plait_status_t plait_heevd_plan(const plait_comm_t *comm,
                                const plait_heevd_problem_t *problem,
                                plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    int64_t dims[2][2];

    PLAIT_TRY(check_given(comm, problem, plan_p));
    const plait_heevd_params_t params = {.n = problem->n,
                                         .block = problem->block,
                                         .first = problem->first,
                                         .vectors = problem->n_vectors};
    const plait_dtype_t real = plait_real_of(problem->dtype);
    const int64_t size = comm->end.size;
    const int64_t width =
        plait_max(1, problem->n_vectors / size + (problem->n_vectors % size != 0));
    const plait_array_t a =
        array_of(comm, problem->dtype, problem->n, problem->n, problem->block, dims[0]);
    const plait_array_t rets[] = {
        {.dtype = real, .ndim = 1, .dims = &problem->n},
        array_of(comm, problem->dtype, problem->n, problem->n_vectors, width, dims[1]),
        info_array};
    PLAIT_TRY(plait_op_plan(&plait_op_heevd, &params, &comm->end, &a, rets, plan_p));
done:
    return status;
}
