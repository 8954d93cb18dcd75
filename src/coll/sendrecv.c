/* One message out and one message in at the same time; the partners may differ. Not a collective: only ranks
 * that send to or receive from each other need to call it. */
#include "base/status.h"
#include "coll/coll.h"

static const plait_attr_t sendrecv_attrs[] = {
    PLAIT_ATTR(plait_sendrecv_params_t, source),
    PLAIT_ATTR(plait_sendrecv_params_t, dest),
    PLAIT_ATTR(plait_sendrecv_params_t, sendtag),
    PLAIT_ATTR(plait_sendrecv_params_t, recvtag),
    PLAIT_ATTR(plait_sendrecv_params_t, status),
    PLAIT_ATTR_END,
};

static plait_status_t check(const plait_sendrecv_params_t *p, int n_ranks)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(plait_coll_check_peer("sendrecv", "dest", p->dest, n_ranks, false));
    PLAIT_TRY(plait_coll_check_peer("sendrecv", "source", p->source, n_ranks, true));
    PLAIT_TRY(plait_coll_check_tag("sendrecv", "sendtag", p->sendtag, false));
    PLAIT_TRY(plait_coll_check_tag("sendrecv", "recvtag", p->recvtag, true));
done:
    return status;
}

static plait_status_t sendrecv_plan(const void *params, const plait_problem_t *problem,
                                    plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_sendrecv_params_t *p = params;
    plait_plan_t *plan = NULL;
    int64_t n_bytes = 0;
    plait_native_step_t native = {.native = PLAIT_NATIVE_SENDRECV,
                                  .dtype = problem->args[0].dtype,
                                  .recv_dtype = problem->rets[0].dtype,
                                  .source = (int)p->source,
                                  .dest = (int)p->dest,
                                  .send_tag = (int)p->sendtag,
                                  .recv_tag = (int)p->recvtag,
                                  .status_id = p->status};

    PLAIT_TRY(check(p, problem->n_ranks));
    PLAIT_TRY(plait_coll_same("sendrecv", &problem->args[1], &problem->rets[0]));
    PLAIT_TRY(plait_array_size(&problem->args[0], &native.n, &n_bytes));
    PLAIT_TRY(plait_array_size(&problem->rets[0], &native.n_recv, &n_bytes));
    PLAIT_TRY(plait_plan_create(
        problem, &plan, "sendrecv(%s[%lld] -> %s, tag %d; %s[%lld] <- %s, tag %s)",
        plait_dtype_name(native.dtype), (long long)native.n,
        plait_rank_text(native.dest).text, native.send_tag,
        plait_dtype_name(native.recv_dtype), (long long)native.n_recv,
        plait_rank_text(native.source).text, plait_tag_text(native.recv_tag).text));
    native.src_slot = plait_slot_arg(plan, 0);
    native.template_slot = plait_slot_arg(plan, 1);
    native.dst_slot = plait_slot_ret(plan, 0);
    PLAIT_TRY(plait_plan_native(plan, &native));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_sendrecv = {
    .name = "sendrecv",
    .n_args = 2,
    .n_rets = 1,
    .params_size = sizeof(plait_sendrecv_params_t),
    .attrs = sendrecv_attrs,
    .adjoint = "sendrecv",
    .alias = 1,
    .is_matched = 1,
    .model = "rank",
    .doc = "Send one array and receive another at once.",
    .line = "MPI_Sendrecv <- {source} (tag {recvtag}, {result} items)"
            " / -> {dest} (tag {sendtag}, {items} items)",
    .plan = sendrecv_plan,
};
