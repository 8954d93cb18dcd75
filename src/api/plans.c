/* Plans for C programs: the typed functions fill an operation's params and shapes. */
#include "base/checked.h"
#include "base/status.h"
#include "comm/comm.h"
#include "fft/params.h"
#include "halo/params.h"
#include "ops/list.h"
#include "plait/fft.h"
#include "plait/halo.h"
#include "plait/redist.h"
#include "plan/launch.h"
#include "redist/params.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

/* This rank's part of a layout, as an array of the planner. */
typedef struct {
    int64_t dims[PLAIT_MAX_NDIM];
    plait_array_t array;
} part_t;

static void set_part(part_t *part, const plait_layout_t *layout, int rank,
                     plait_dtype_t dtype)
{
    plait_layout_stored_shape(layout, rank, part->dims);
    part->array =
        (plait_array_t){.dtype = dtype, .ndim = layout->ndim, .dims = part->dims};
}

/* name: the argument that holds the layout. */
static plait_status_t check_layout(const plait_comm_t *comm,
                                   const plait_layout_t *layout, const char *name)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(comm != NULL, PLAIT_ERR_COMM, "the communicator is NULL");
    PLAIT_CHECK(layout != NULL, PLAIT_ERR_INVALID, "%s is NULL, expected a layout",
                name);
    PLAIT_TRY(plait_layout_check(layout));
    PLAIT_CHECK(plait_layout_n_ranks(layout) == comm->end.size, PLAIT_ERR_INVALID,
                "%s is a layout for %d ranks, the communicator has %d", name,
                plait_layout_n_ranks(layout), comm->end.size);
done:
    return status;
}

static plait_status_t redist_plan(const plait_comm_t *comm, plait_dtype_t dtype,
                                  const plait_layout_t *from, const plait_layout_t *to,
                                  bool is_turned, plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    plait_redistribute_params_t params = {.turn = is_turned};
    part_t x;
    part_t y;

    PLAIT_CHECK(plan_p != NULL, PLAIT_ERR_INVALID, "plan_p is NULL");
    PLAIT_TRY(check_layout(comm, from, "from"));
    PLAIT_TRY(check_layout(comm, to, "to"));
    params.n_from = plait_layout_pack(from, params.from);
    params.n_to = plait_layout_pack(to, params.to);
    set_part(&x, from, comm->end.rank, dtype);
    set_part(&y, to, comm->end.rank, dtype);
    PLAIT_TRY(plait_op_plan(&plait_op_redistribute, &params, &comm->end, &x.array,
                            &y.array, plan_p));
done:
    return status;
}

plait_status_t plait_redist_plan(const plait_comm_t *comm, plait_dtype_t dtype,
                                 const plait_layout_t *from, const plait_layout_t *to,
                                 plait_plan_t **plan_p)
{
    return redist_plan(comm, dtype, from, to, false, plan_p);
}

plait_status_t plait_redist_turn_plan(const plait_comm_t *comm, plait_dtype_t dtype,
                                      const plait_layout_t *from,
                                      const plait_layout_t *to, plait_plan_t **plan_p)
{
    return redist_plan(comm, dtype, from, to, true, plan_p);
}

static double edge_of(double given)
{
    return (given == 0) ? 1 : given;
}

static plait_status_t set_waves(const plait_fft_problem_t *problem,
                                plait_fft_params_t *params)
{
    plait_status_t status = PLAIT_OK;
    const bool is_wave = problem->kind == PLAIT_FFT_REAL_TO_REAL;

    PLAIT_CHECK(
        is_wave == (problem->waves != NULL), PLAIT_ERR_INVALID,
        "fft: waves is %s; expected an array for kind PLAIT_FFT_REAL_TO_REAL and NULL "
        "for every other kind",
        is_wave ? "NULL" : "given");
    params->n_waves = is_wave ? problem->n_axes : 0;
    for (int i = 0; i < params->n_waves; i++) {
        const plait_wave_t *wave = &problem->waves[i];
        PLAIT_CHECK(wave->type >= 1 && wave->type <= 4, PLAIT_ERR_INVALID,
                    "fft: wave %d is of type %d, expected 1 to 4", i, wave->type);
        PLAIT_CHECK(isfinite(wave->edge_in) && isfinite(wave->edge_out),
                    PLAIT_ERR_INVALID,
                    "fft: edges of wave %d are %g and %g, expected finite numbers", i,
                    wave->edge_in, wave->edge_out);
        PLAIT_CHECK(wave->edge_in == problem->waves[0].edge_in &&
                        wave->edge_out == problem->waves[0].edge_out,
                    PLAIT_ERR_INVALID,
                    "fft: wave %d has other edges than wave 0, expected the same", i);
        params->waves[i] = wave->type + 4 * wave->is_sine;
    }
    if (params->n_waves > 0) {
        params->edge_in = edge_of(problem->waves[0].edge_in);
        params->edge_out = edge_of(problem->waves[0].edge_out);
    }
done:
    return status;
}

plait_status_t plait_fft_plan(const plait_comm_t *comm,
                              const plait_fft_problem_t *problem, plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    plait_fft_params_t params = {0};
    part_t x;
    part_t y;

    PLAIT_CHECK(problem != NULL && plan_p != NULL, PLAIT_ERR_INVALID,
                "fft: problem or plan_p is NULL");
    const plait_dtype_t real = (problem->dtype == PLAIT_C64) ? PLAIT_F32 : PLAIT_F64;
    const bool from_real = problem->kind == PLAIT_FFT_REAL_TO_COMPLEX;
    const bool to_real = problem->kind == PLAIT_FFT_COMPLEX_TO_REAL;
    const bool is_wave = problem->kind == PLAIT_FFT_REAL_TO_REAL;
    PLAIT_TRY(check_layout(comm, problem->from, "from"));
    PLAIT_TRY(check_layout(comm, problem->to, "to"));
    PLAIT_CHECK(problem->n_axes >= 0 && problem->n_axes <= problem->from->ndim,
                PLAIT_ERR_INVALID, "fft: n_axes is %d, expected 0 to %d",
                problem->n_axes, problem->from->ndim);
    PLAIT_CHECK(problem->axes != NULL || problem->n_axes == 0, PLAIT_ERR_INVALID,
                "fft: axes is NULL");
    PLAIT_CHECK(problem->kind == PLAIT_FFT_COMPLEX || from_real || to_real || is_wave,
                PLAIT_ERR_INVALID, "fft: kind is %d, expected a PLAIT_FFT_ constant",
                (int)problem->kind);
    PLAIT_CHECK(problem->dtype == PLAIT_C64 || problem->dtype == PLAIT_C128,
                PLAIT_ERR_INVALID, "fft: dtype is %s, expected complex64 or complex128",
                plait_dtype_name(problem->dtype));
    params.sign = problem->sign;
    params.scale = problem->scale;
    params.weight = problem->weight;
    PLAIT_TRY(set_waves(problem, &params));
    params.n_from = plait_layout_pack(problem->from, params.from);
    params.n_to = plait_layout_pack(problem->to, params.to);
    params.n_axes = problem->n_axes;
    for (int i = 0; i < problem->n_axes; i++) {
        params.axes[i] = problem->axes[i];
    }
    set_part(&x, problem->from, comm->end.rank,
             (from_real || is_wave) ? real : problem->dtype);
    set_part(&y, problem->to, comm->end.rank,
             (to_real || is_wave) ? real : problem->dtype);
    PLAIT_TRY(
        plait_op_plan(&plait_op_fft, &params, &comm->end, &x.array, &y.array, plan_p));
done:
    return status;
}

/* is_bare: the operand of the exchange, or the result of the reduction, has no ghosts. */
static plait_status_t halo_plan(const char *name, const plait_op_t *op, bool is_bare,
                                const plait_comm_t *comm,
                                const plait_halo_problem_t *problem,
                                plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    plait_halo_params_t params = {.bare = is_bare};
    part_t bare;
    part_t whole;

    PLAIT_CHECK(problem != NULL && plan_p != NULL, PLAIT_ERR_INVALID,
                "%s: problem or plan_p is NULL", name);
    PLAIT_TRY(check_layout(comm, problem->cells, "cells"));
    PLAIT_CHECK(problem->before != NULL, PLAIT_ERR_INVALID, "%s: before is NULL", name);
    const int64_t *after = (problem->after != NULL) ? problem->after : problem->before;
    params.n_layout = plait_layout_pack(problem->cells, params.layout);
    params.n_before = params.n_after = params.n_boundary = problem->cells->ndim;
    set_part(&bare, problem->cells, comm->end.rank, problem->dtype);
    set_part(&whole, problem->cells, comm->end.rank, problem->dtype);
    for (int a = 0; a < problem->cells->ndim; a++) {
        params.before[a] = problem->before[a];
        params.after[a] = after[a];
        params.boundary[a] = (problem->boundary != NULL) ? (int64_t)problem->boundary[a]
                                                         : PLAIT_BOUNDARY_PERIODIC;
        PLAIT_CHECK(plait_add(whole.dims[a], params.before[a], &whole.dims[a]) &&
                        plait_add(whole.dims[a], params.after[a], &whole.dims[a]),
                    PLAIT_ERR_OVERFLOW,
                    "%s: widths %lld and %lld along axis %d are too large", name,
                    (long long)params.before[a], (long long)params.after[a], a);
    }
    const plait_array_t *other = is_bare ? &bare.array : &whole.array;
    bool is_reduce = op == &plait_op_halo_reduce;
    PLAIT_TRY(plait_op_plan(op, &params, &comm->end, is_reduce ? &whole.array : other,
                            is_reduce ? other : &whole.array, plan_p));
done:
    return status;
}

plait_status_t plait_halo_pad_plan(const plait_comm_t *comm,
                                   const plait_halo_problem_t *problem,
                                   plait_plan_t **plan_p)
{
    return halo_plan("halo_pad", &plait_op_halo_exchange, true, comm, problem, plan_p);
}

plait_status_t plait_halo_fold_plan(const plait_comm_t *comm,
                                    const plait_halo_problem_t *problem,
                                    plait_plan_t **plan_p)
{
    return halo_plan("halo_fold", &plait_op_halo_reduce, true, comm, problem, plan_p);
}

plait_status_t plait_halo_exchange_plan(const plait_comm_t *comm,
                                        const plait_halo_problem_t *problem,
                                        plait_plan_t **plan_p)
{
    return halo_plan("halo_exchange", &plait_op_halo_exchange, false, comm, problem,
                     plan_p);
}

plait_status_t plait_halo_reduce_plan(const plait_comm_t *comm,
                                      const plait_halo_problem_t *problem,
                                      plait_plan_t **plan_p)
{
    return halo_plan("halo_reduce", &plait_op_halo_reduce, false, comm, problem,
                     plan_p);
}

/* n_bytes: of each array. */
static plait_status_t check_arrays(const char *what, int n, const int64_t n_bytes[],
                                   const void *const arrays[])
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(n == 0 || arrays != NULL, PLAIT_ERR_INVALID, "%s is NULL", what);
    for (int i = 0; i < n; i++) {
        PLAIT_CHECK(n_bytes[i] == 0 || arrays[i] != NULL, PLAIT_ERR_INVALID,
                    "%s[%d] is NULL, expected %lld bytes", what, i,
                    (long long)n_bytes[i]);
    }
done:
    return status;
}

enum { PLACE_BYTES = 40 };

static const char *name_place(const plait_device_t *device, char text[PLACE_BYTES])
{
    (void)snprintf(text, PLACE_BYTES, "in host memory");
    if (device != NULL) {
        (void)snprintf(text, PLACE_BYTES, "on device %d", device->ordinal);
    }
    return text;
}

static plait_status_t check_place(const plait_plan_t *plan, const plait_comm_t *comm)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_t *device = comm->end.caps.device;
    char wanted[PLACE_BYTES];
    char given[PLACE_BYTES];

    PLAIT_CHECK(plan->device == device, PLAIT_ERR_INVALID,
                "the plan is for arrays %s, those of the communicator are %s",
                name_place(plan->device, wanted), name_place(device, given));
done:
    return status;
}

static plait_status_t check_execution(const plait_plan_t *plan, plait_comm_t *comm,
                                      const void *const args[], void *const rets[])
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(comm != NULL && plan != NULL, PLAIT_ERR_COMM,
                "plan or communicator is NULL");
    PLAIT_TRY(plait_comm_usable(comm));
    PLAIT_TRY(check_place(plan, comm));
    PLAIT_TRY(plait_exec_check(plan, &comm->end));
    PLAIT_TRY(check_arrays("args", plan->n_args,
                           &plan->slot_bytes[plait_slot_arg(plan, 0)], args));
    PLAIT_TRY(check_arrays("rets", plan->n_rets,
                           &plan->slot_bytes[plait_slot_ret(plan, 0)],
                           (const void *const *)rets));
done:
    if (status != PLAIT_OK && comm != NULL && plan != NULL) {
        plait_op_tell(plan, comm);
    }
    return status;
}

plait_status_t plait_plan_execute(const plait_plan_t *plan, plait_comm_t *comm,
                                  const void *const args[], void *const rets[])
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(check_execution(plan, comm, args, rets));
    const plait_exec_arrays_t arrays = {
        .args = args, .rets = rets, .stream = comm->stream};
    PLAIT_TRY(plait_op_run_plan(plan, comm, &arrays));
done:
    return status;
}

plait_status_t plait_plan_start(const plait_plan_t *plan, plait_comm_t *comm,
                                const void *const args[], void *const rets[],
                                plait_request_t *request_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(request_p != NULL, PLAIT_ERR_INVALID, "request_p is NULL");
    *request_p = (plait_request_t){0};
    PLAIT_TRY(check_execution(plan, comm, args, rets));
    PLAIT_CHECK(plan->device == NULL, PLAIT_ERR_UNSUPPORTED,
                "%s: plait_plan_start takes no arrays on a device; plait_plan_execute "
                "enqueues its work there and does not wait for it",
                plan->title);
    PLAIT_TRY(plait_op_start(plan, comm, args, rets, &request_p->number));
done:
    return status;
}

bool plait_request_is_done(const plait_request_t *request)
{
    return request == NULL || !plait_started_goes_on(request->number);
}

plait_status_t plait_request_wait(plait_request_t *request)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(request != NULL, PLAIT_ERR_INVALID, "request is NULL");
    if (request->number != 0) {
        status = plait_started_wait(request->number);
    }
    *request = (plait_request_t){0};
done:
    return status;
}
