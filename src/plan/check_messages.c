#include "plan/check_messages.h"

#include "base/alloc.h"
#include "base/status.h"
#include "device/box.h"

/* The next block for this peer, from *at_p on; NULL: there are no more. */
static const plait_block_t *next_block(const plait_block_t *blocks, int64_t n, int peer,
                                       int64_t *at_p)
{
    for (; *at_p < n; *at_p += 1) {
        if (blocks[*at_p].peer == peer) {
            *at_p += 1;
            return &blocks[*at_p - 1];
        }
    }
    return NULL;
}

/* For one rank: the move that is checked now, and the step behind it. */
typedef struct {
    const plait_move_t *move;
    int next;
} turn_t;

/* Without direct access an empty move is a step, too, so the n-th move of one rank is the n-th of all. False:
 * there are no more moves, and this one is empty. */
static bool next_move(const plait_plan_t *plan, turn_t *turn)
{
    static const plait_move_t nothing = {0};
    const plait_move_t *found = NULL;

    for (; turn->next < plan->n_steps && found == NULL; turn->next++) {
        const plait_step_t *step = &plan->steps[turn->next];
        found = (step->kind == PLAIT_STEP_MOVE && !step->u.move.is_published)
                    ? &step->u.move
                    : NULL;
    }
    turn->move = (found != NULL) ? found : &nothing;
    return found != NULL;
}

static bool pair_fits(const plait_move_t *from, int to_rank, const plait_move_t *to,
                      int from_rank)
{
    int64_t at_out = 0;
    int64_t at_in = 0;
    bool fits = true;
    bool is_more = true;

    while (fits && is_more) {
        const plait_block_t *out = next_block(from->out, from->n_out, to_rank, &at_out);
        const plait_block_t *in = next_block(to->in, to->n_in, from_rank, &at_in);
        fits = (out == NULL) == (in == NULL) &&
               (out == NULL || plait_box_bytes(&out->box) == plait_box_bytes(&in->box));
        is_more = out != NULL;
    }
    return fits;
}

plait_status_t plait_plans_check_messages(plait_plan_t *const plans[], int n_ranks)
{
    plait_status_t status = PLAIT_OK;
    turn_t *turns = plait_alloc(n_ranks, sizeof(*turns));
    bool is_more = plans[0]->direct == PLAIT_DIRECT_NONE;

    PLAIT_CHECK(turns != NULL, PLAIT_ERR_NO_MEMORY, "no memory for the check");
    for (int n = 0; is_more; n++) {
        is_more = false;
        for (int r = 0; r < n_ranks; r++) {
            is_more = next_move(plans[r], &turns[r]) || is_more;
        }
        for (int i = 0; is_more && i < n_ranks * n_ranks; i++) {
            const int a = i / n_ranks, b = i % n_ranks;
            PLAIT_CHECK(a == b || pair_fits(turns[a].move, b, turns[b].move, a),
                        PLAIT_ERR_INTERNAL,
                        "%s: move %d, what rank %d sends is not what rank %d receives",
                        plans[0]->title, n + 1, a, b);
        }
    }
done:
    plait_free(turns);
    return status;
}
