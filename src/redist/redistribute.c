/* From any layout to any layout: every rank takes the boxes that its part of `to` has in common with the other
 * ranks' parts of `from`, on request with the last two axes exchanged. */
#include "base/checked.h"
#include "base/hash.h"
#include "plan/op.h"
#include "redist/blocks.h"
#include "redist/params.h"
#include "redist/put.h"

#include <string.h>

static const plait_attr_t redistribute_attrs[] = {
    PLAIT_ATTR_ARRAY(plait_redistribute_params_t, from),
    PLAIT_ATTR_ARRAY(plait_redistribute_params_t, to),
    PLAIT_ATTR(plait_redistribute_params_t, turn),
    PLAIT_ATTR_END,
};

plait_status_t plait_layout_fits(const plait_layout_t *layout,
                                 const plait_problem_t *problem,
                                 const plait_array_t *array, const char *what)
{
    plait_status_t status = PLAIT_OK;
    int64_t stored[PLAIT_MAX_NDIM];

    PLAIT_CHECK(plait_layout_n_ranks(layout) == problem->n_ranks, PLAIT_ERR_INVALID,
                "%s: the layout is for %d ranks, the communicator has %d", what,
                plait_layout_n_ranks(layout), problem->n_ranks);
    PLAIT_CHECK(array->ndim == layout->ndim, PLAIT_ERR_INVALID,
                "%s: the array has %d axes, its layout %d", what, array->ndim,
                layout->ndim);
    plait_layout_stored_shape(layout, problem->rank, stored);
    for (int a = 0; a < layout->ndim; a++) {
        PLAIT_CHECK(array->dims[a] == stored[a], PLAIT_ERR_INVALID,
                    "%s: rank %d has %lld along axis %d, its layout says %lld", what,
                    problem->rank, (long long)array->dims[a], a, (long long)stored[a]);
    }
done:
    return status;
}

void plait_layout_agree(plait_plan_t *plan, const plait_layout_t *layout)
{
    int64_t words[PLAIT_LAYOUT_WORDS];
    int n = plait_layout_pack(layout, words);

    plait_plan_agree(
        plan, plait_hash_bytes(PLAIT_HASH_SEED, words, (size_t)n * sizeof(*words)));
}

static plait_status_t check(const plait_layout_t *from, const plait_layout_t *to,
                            int64_t turn, const plait_problem_t *problem)
{
    plait_status_t status = PLAIT_OK;
    plait_layout_t seen = *from;

    PLAIT_CHECK(
        turn == 0 || (turn == 1 && from->ndim >= 2), PLAIT_ERR_INVALID,
        "redistribute: the last two axes are to be exchanged (turn %lld) of an array "
        "of %d axes; expected two axes at least",
        (long long)turn, from->ndim);
    if (turn == 1) {
        seen = plait_layout_turned(from);
    }
    PLAIT_CHECK(
        from->ndim == to->ndim &&
            memcmp(seen.shape, to->shape, (size_t)from->ndim * sizeof(int64_t)) == 0,
        PLAIT_ERR_INVALID,
        "redistribute: the two layouts have different global shapes");
    PLAIT_CHECK(problem->args[0].dtype == problem->rets[0].dtype, PLAIT_ERR_INVALID,
                "redistribute: operand is %s, result is %s",
                plait_dtype_name(problem->args[0].dtype),
                plait_dtype_name(problem->rets[0].dtype));
    PLAIT_TRY(
        plait_layout_fits(from, problem, &problem->args[0], "redistribute operand"));
    PLAIT_TRY(plait_layout_fits(to, problem, &problem->rets[0], "redistribute result"));
done:
    return status;
}

static plait_status_t redistribute_plan(const void *params,
                                        const plait_problem_t *problem,
                                        plait_plan_t **plan_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_redistribute_params_t *p = params;
    const int64_t item_bytes = plait_dtype_bytes(problem->args[0].dtype);
    plait_plan_t *plan = NULL;
    plait_layout_t from;
    plait_layout_t to;
    plait_move_t move = {0};
    char from_text[80];
    char to_text[80];

    PLAIT_TRY(plait_layout_unpack(p->from, p->n_from, &from));
    PLAIT_TRY(plait_layout_unpack(p->to, p->n_to, &to));
    PLAIT_TRY(check(&from, &to, p->turn, problem));
    plait_layout_print(&from, from_text, sizeof(from_text));
    plait_layout_print(&to, to_text, sizeof(to_text));
    PLAIT_TRY(plait_plan_create(problem, &plan, "redistribute %s %s -> %s%s",
                                plait_dtype_name(problem->args[0].dtype), from_text,
                                (p->turn == 1) ? "turned " : "", to_text));
    plait_layout_agree(plan, &from);
    plait_layout_agree(plan, &to);
    plait_plan_agree(plan, problem->args[0].dtype);
    plait_plan_agree(plan, (uint64_t)p->turn);
    const plait_change_t change = {.from = &from,
                                   .to = &to,
                                   .src_slot = plait_slot_arg(plan, 0),
                                   .dst_slot = plait_slot_ret(plan, 0),
                                   .item_bytes = item_bytes,
                                   .is_turned = p->turn == 1,
                                   .may_put = true};
    PLAIT_TRY(plait_redist_move(plan, &change, &move));
    PLAIT_TRY(
        plait_redist_zero(&to, plan->rank, plait_slot_ret(plan, 0), item_bytes, &move));
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(plait_redist_put(plan, &move));
    PLAIT_TRY(plait_plan_move(plan, &move));
    PLAIT_TRY(plait_plan_fence(plan));
    *plan_p = plan;
    plan = NULL;
done:
    plait_move_clear(&move);
    plait_plan_destroy(&plan);
    return status;
}

const plait_op_t plait_op_redistribute = {
    .name = "redistribute",
    .n_args = 1,
    .n_rets = 1,
    .params_size = sizeof(plait_redistribute_params_t),
    .attrs = redistribute_attrs,
    .adjoint = "redistribute",
    .alias = -1,
    .family = PLAIT_FAMILY_REDIST,
    .model = "mesh",
    .doc = "Move a distributed array from one layout to another.",
    .plan = redistribute_plan,
};
