#include "dense/fan.h"

#include "base/status.h"

static int n_members(const plait_group_t *group)
{
    return group->n + group->has_guest;
}

static int member_at(const plait_group_t *group, int i)
{
    return (i < group->n) ? group->first + i * group->stride : group->guest;
}

/* A rank's place among the members; -1: it is no member. */
static int place_of(const plait_group_t *group, int rank)
{
    const int steps = rank - group->first;
    int place = -1;

    if (group->has_guest && rank == group->guest) {
        place = group->n;
    } else if (steps >= 0 && steps % group->stride == 0 &&
               steps / group->stride < group->n) {
        place = steps / group->stride;
    }
    return place;
}

static plait_status_t take(const plait_plan_t *plan, const plait_block_t *block,
                           bool is_kept, plait_move_t *move)
{
    return (plan->rank != block->peer || is_kept) ? plait_move_add_in(move, block)
                                                  : PLAIT_OK;
}

/* The block as a rank that has received it passes it on. */
static plait_block_t passed_on(const plait_block_t *block)
{
    plait_block_t b = *block;

    b.src_slot = b.dst_slot;
    b.src_offset = b.dst_offset;
    for (int d = 0; d < b.box.n_dims; d++) {
        b.box.src_stride[d] = b.box.dst_stride[d];
    }
    return b;
}

/* A block's part in the move in which its tree grows from `reach` members to twice as many. */
static plait_status_t add_message(const plait_group_t *group, int place, int reach,
                                  const plait_block_t *block, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    const int n = n_members(group);
    const int behind = (place - place_of(group, block->peer) + n) % n;
    plait_block_t b = (behind == 0) ? *block : passed_on(block);

    if (behind < reach && behind + reach < n) {
        b.peer = member_at(group, (place + reach) % n);
        PLAIT_TRY(plait_move_add_out(move, &b));
    } else if (behind >= reach && behind < 2 * reach) {
        b = *block;
        b.peer = member_at(group, (place - reach + n) % n);
        PLAIT_TRY(plait_move_add_in(move, &b));
    }
done:
    return status;
}

static plait_status_t by_messages(plait_plan_t *plan, const plait_group_t *group,
                                  bool is_kept, const plait_move_t *what)
{
    plait_status_t status = PLAIT_OK;
    const int n = n_members(group);
    const int place = place_of(group, plan->rank);
    plait_move_t move = {0};

    for (int reach = 1; reach < n || (reach == 1 && is_kept); reach *= 2) {
        for (int64_t i = 0; i < what->n_in && place >= 0; i++) {
            if (reach == 1 && plan->rank == what->in[i].peer) {
                PLAIT_TRY(take(plan, &what->in[i], is_kept, &move));
            }
            PLAIT_TRY(add_message(group, place, reach, &what->in[i], &move));
        }
        PLAIT_TRY(plait_plan_move(plan, &move));
    }
done:
    plait_move_clear(&move);
    return status;
}

static plait_status_t by_reads(plait_plan_t *plan, const plait_group_t *group,
                               bool is_kept, const plait_move_t *what)
{
    plait_status_t status = PLAIT_OK;
    const bool is_member = place_of(group, plan->rank) >= 0;
    plait_move_t move = {0};

    for (int64_t i = 0; i < what->n_in && is_member; i++) {
        PLAIT_TRY(take(plan, &what->in[i], is_kept, &move));
    }
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

plait_status_t plait_fan_out(plait_plan_t *plan, const plait_group_t *group,
                             bool is_kept, plait_move_t *what)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY((plan->direct == PLAIT_DIRECT_NONE)
                  ? by_messages(plan, group, is_kept, what)
                  : by_reads(plan, group, is_kept, what));
done:
    plait_move_clear(what);
    return status;
}
