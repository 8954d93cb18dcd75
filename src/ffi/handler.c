/* The XLA handlers: one body for all operations, driven by the operation's row. Handlers run on XLA's
 * threads, without the GIL, several at once. Small operations are done before the handler returns. Operations
 * that are large, or wait for other devices of the process, run on a thread of plait's own, with a future for
 * XLA. */
#include "base/alloc.h"
#include "base/site.h"
#include "base/workers.h"
#include "comm/mates.h"
#include "device/host.h"
#include "ffi/frame.h"
#include "ffi/future.h"
#include "ops/list.h"
#include "plan/launch.h"

/* Asks for huge pages for fresh results before anything is written to them. */
static void prepare(const plait_call_t *call)
{
    for (int r = 0; r < call->op->n_rets; r++) {
        bool is_fresh = true;
        for (int a = 0; a < call->op->n_args; a++) {
            is_fresh = is_fresh && call->args[a].data != call->rets[r].data;
        }
        if (is_fresh) {
            plait_host_prepare_result(call->rets[r].data,
                                      plait_array_bytes(&call->rets[r]));
        }
    }
}

/* A call on its way to another thread. */
typedef struct {
    plait_call_t *call;
    const plait_ffi_api_t *api;
    plait_ffi_future_t *future;
} later_t;

static void run_later(void *context)
{
    later_t later = *(later_t *)context;

    plait_free(context);
    plait_site_enter(later.call->site, later.call->comm->id);
    plait_status_t status = plait_op_run(later.call);
    plait_free(later.call);
    plait_op_release();
    plait_ffi_future_complete(later.api, later.future, status);
}

static void later_destroy(later_t *later)
{
    if (later != NULL) {
        plait_free(later->call);
        plait_free(later);
    }
}

/* Without memory *future_p stays NULL and the caller does the call. Without a thread the call is done here. */
static plait_ffi_error_t *hand_over(const plait_call_t *call,
                                    const plait_ffi_api_t *api,
                                    plait_ffi_future_t **future_p)
{
    plait_ffi_error_t *error = NULL;
    later_t *later = plait_alloc(1, sizeof(*later));

    if (later == NULL || plait_call_copy(call, &later->call) != PLAIT_OK) {
        goto done;
    }
    later->api = api;
    error = plait_ffi_future_create(api, &later->future);
    if (error != NULL) {
        plait_op_give_up(call, PLAIT_ERR_INTERNAL);
        goto done;
    }
    plait_ffi_future_t *future = later->future;
    plait_op_hold();
    if (plait_workers_run(run_later, later) != PLAIT_OK) {
        run_later(later);
    }
    later = NULL; /* owned by the worker */
    *future_p = future;
done:
    later_destroy(later);
    return error;
}

static bool goes_later(const plait_call_t *call, const plait_ffi_api_t *api)
{
    plait_mates_enter(call->comm, call->run);
    return plait_ffi_is_async(api, plait_call_bytes(call)) ||
           (call->comm->has_mates && plait_ffi_is_async(api, INT64_MAX) &&
            plait_mates_are_late(call->comm));
}

static plait_ffi_error_t *run(const plait_op_t *op, plait_ffi_frame_t *frame)
{
    plait_ffi_error_t *error = NULL;
    plait_ffi_future_t *future = NULL;
    plait_ffi_call_t c;

    if (plait_ffi_answers_query(frame)) {
        return NULL;
    }
    error = plait_ffi_decode(op, frame, false, &c);
    if (error != NULL) {
        goto done;
    }
    prepare(&c.call);
    plait_ffi_pass_tokens(frame, op->n_args, op->n_rets);
    if (goes_later(&c.call, frame->api)) {
        error = hand_over(&c.call, frame->api, &future);
    }
    if (error == NULL && future == NULL) {
        plait_status_t status = plait_op_run(&c.call);
        error = (status != PLAIT_OK) ? plait_ffi_error(frame->api, status) : NULL;
    }
    if (future != NULL) {
        frame->future = future;
    }
done:
    return error;
}

/* One symbol per operation, so that compiled programs say "plait_allreduce". */
#define HANDLER(_name)                                                           \
    PLAIT_EXPORT plait_ffi_error_t *plait_ffi_##_name(plait_ffi_frame_t *frame); \
    plait_ffi_error_t *plait_ffi_##_name(plait_ffi_frame_t *frame)               \
    {                                                                            \
        return run(&plait_op_##_name, frame);                                    \
    }
PLAIT_OP_FOR_EACH(HANDLER)
