/* One message in. Not a collective: only the sender takes part, too. The operand is a template; if there is
 * no source, the operand is the result. */
#include "base/status.h"
#include "coll/coll.h"

static const plait_attr_t recv_attrs[] = {
    PLAIT_ATTR(plait_recv_params_t, source),
    PLAIT_ATTR(plait_recv_params_t, tag),
    PLAIT_ATTR(plait_recv_params_t, status),
    PLAIT_ATTR_END,
};

static plait_status_t recv_plan(const void *params, const plait_problem_t *problem,
                                plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_recv_params_t *p = params;
    plait_plan_t *plan = NULL;
    int64_t n_bytes = 0;
    plait_native_step_t native = {.native = PLAIT_NATIVE_SENDRECV,
                                  .recv_dtype = problem->rets[0].dtype,
                                  .src_slot = -1,
                                  .dest = PLAIT_NO_RANK,
                                  .status_id = p->status};

    PLAIT_TRY(
        plait_coll_check_peer("recv", "source", p->source, problem->n_ranks, true));
    PLAIT_TRY(plait_coll_check_tag("recv", "tag", p->tag, true));
    PLAIT_TRY(plait_coll_same("recv", &problem->args[0], &problem->rets[0]));
    native.source = (int)p->source;
    native.recv_tag = (int)p->tag;
    PLAIT_TRY(plait_array_size(&problem->rets[0], &native.n_recv, &n_bytes));
    PLAIT_TRY(plait_plan_create(
        problem, &plan, "recv(%s[%lld] <- %s, tag %s)",
        plait_dtype_name(native.recv_dtype), (long long)native.n_recv,
        plait_rank_text(native.source).text, plait_tag_text(native.recv_tag).text));
    native.template_slot = plait_slot_arg(plan, 0);
    native.dst_slot = plait_slot_ret(plan, 0);
    PLAIT_TRY(plait_plan_native(plan, &native));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_recv = {
    .name = "recv",
    .n_args = 1,
    .n_rets = 1,
    .params_size = sizeof(plait_recv_params_t),
    .attrs = recv_attrs,
    .adjoint = "send",
    .alias = 0,
    .is_matched = 1,
    .model = "rank",
    .doc = "Receive an array from one rank.",
    .line = "MPI_Recv <- {source} (tag {tag}, {result} items)",
    .plan = recv_plan,
};
