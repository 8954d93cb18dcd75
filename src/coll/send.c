/* One message out. Not a collective: only the receiver takes part, too. A small message is copied, so that
 * two ranks may both send first and then receive. */
#include "base/status.h"
#include "coll/coll.h"

static const plait_attr_t send_attrs[] = {
    PLAIT_ATTR(plait_send_params_t, dest),
    PLAIT_ATTR(plait_send_params_t, tag),
    PLAIT_ATTR_END,
};

static plait_status_t send_plan(const void *params, const plait_problem_t *problem,
                                plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_send_params_t *p = params;
    plait_plan_t *plan = NULL;
    int64_t n_bytes = 0;
    plait_native_step_t native = {.native = PLAIT_NATIVE_SENDRECV,
                                  .dtype = problem->args[0].dtype,
                                  .dst_slot = -1,
                                  .template_slot = -1,
                                  .source = PLAIT_NO_RANK,
                                  .recv_tag = PLAIT_ANY};

    PLAIT_TRY(plait_coll_check_peer("send", "dest", p->dest, problem->n_ranks, false));
    PLAIT_TRY(plait_coll_check_tag("send", "tag", p->tag, false));
    native.dest = (int)p->dest;
    native.send_tag = (int)p->tag;
    PLAIT_TRY(plait_array_size(&problem->args[0], &native.n, &n_bytes));
    native.is_buffered = n_bytes <= PLAIT_SEND_BYTES && p->dest != PLAIT_NO_RANK;
    PLAIT_TRY(plait_plan_create(problem, &plan, "send(%s[%lld] -> %s, tag %d)",
                                plait_dtype_name(native.dtype), (long long)native.n,
                                plait_rank_text(native.dest).text, native.send_tag));
    native.src_slot = plait_slot_arg(plan, 0);
    PLAIT_TRY(plait_plan_native(plan, &native));
    *plan_p = plan;
    plan = NULL;
done:
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_send = {
    .name = "send",
    .n_args = 1,
    .n_rets = 0,
    .params_size = sizeof(plait_send_params_t),
    .attrs = send_attrs,
    .adjoint = "recv",
    .alias = -1,
    .is_matched = 1,
    .model = "rank",
    .doc = "Send an array to one rank.",
    .line = "MPI_Send -> {dest} (tag {tag}, {items} items)",
    .plan = send_plan,
};
