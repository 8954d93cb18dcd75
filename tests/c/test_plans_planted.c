/* The purpose of plait_plans_check: it finds faults planted in the plans of some ranks, and names them. */
#include "plans.h"
#include "redist/params.h"

typedef void (*plant_t)(plait_plan_t *plan);

static plait_step_t *first_of(plait_plan_t *plan, plait_step_kind_t kind)
{
    for (int i = 0; i < plan->n_steps; i++) {
        if (plan->steps[i].kind == kind) {
            return &plan->steps[i];
        }
    }
    abort();
}

static void drop_block(plait_plan_t *plan)
{
    first_of(plan, PLAIT_STEP_MOVE)->u.move.n_in--;
}

static void double_block(plait_plan_t *plan)
{
    plait_move_t *move = &first_of(plan, PLAIT_STEP_MOVE)->u.move;

    move->in[0] = move->in[1];
}

static void shift_block(plait_plan_t *plan)
{
    first_of(plan, PLAIT_STEP_MOVE)->u.move.in[0].src_offset += 1 << 20;
}

/* Shifts the result by less than an element. */
static void shift_result(plait_plan_t *plan)
{
    first_of(plan, PLAIT_STEP_MOVE)->u.move.in[0].dst_offset += 1;
}

static void other_agreement(plait_plan_t *plan)
{
    plan->agree++;
}

/* Published bytes are read one fence too late. */
static void check_stale(void)
{
    const int64_t n = 4;
    const plait_allreduce_params_t sum = {.reduce = PLAIT_SUM};
    const plait_check_t options = {.alias = -1};
    problem_t p = {.op = &plait_op_allreduce,
                   .dtype = PLAIT_F64,
                   .shape = vector_shape,
                   .context = &n};
    plait_plan_t *plans[MAX_P] = {NULL};

    memcpy(p.params, &sum, sizeof(sum));
    CHECK(make_plans(&p, 3, &all_caps[0], plans) == PLAIT_OK, "allreduce");
    for (int r = 0; r < 3; r++) {
        plait_step_t last = plans[r]->steps[plans[r]->n_steps - 1];
        CHECK(plait_plan_meet(plans[r]) == PLAIT_OK, "meet");
        plans[r]->steps[plans[r]->n_steps - 2] = plans[r]->steps[plans[r]->n_steps - 1];
        plans[r]->steps[plans[r]->n_steps - 1] = last;
    }
    CHECK(plait_plans_check(plans, 3, &options) == PLAIT_ERR_INTERNAL,
          "a stale read is not found");
    for (int r = 0; r < 3; r++) {
        plait_plan_destroy(&plans[r]);
    }
}

static void check_planted(void)
{
    static const plant_t plants[] = {drop_block, double_block, shift_block,
                                     shift_result, other_agreement};
    const int64_t shape[] = {6, 4};
    const int grid[] = {3};

    for (size_t i = 0; i < sizeof(plants) / sizeof(plants[0]); i++) {
        pair_t pair = {0};
        problem_t p = {.op = &plait_op_redistribute,
                       .dtype = PLAIT_S16,
                       .shape = pair_shape,
                       .context = &pair};
        plait_redistribute_params_t params = {0};
        plait_plan_t *plans[MAX_P] = {NULL};
        const plait_check_t options = {.alias = -1};
        (void)layout_of(1, 2, shape, 1, grid, PLAIT_SPLIT_EVEN, &pair.from);
        (void)layout_of(2, 2, shape, 1, grid, PLAIT_SPLIT_EVEN, &pair.to);
        params.n_from = plait_layout_pack(&pair.from, params.from);
        params.n_to = plait_layout_pack(&pair.to, params.to);
        memcpy(p.params, &params, sizeof(params));
        CHECK(make_plans(&p, 3, &all_caps[0], plans) == PLAIT_OK, "plant %zu", i);
        plants[i](plans[1]);
        CHECK(plait_plans_check(plans, 3, &options) == PLAIT_ERR_INTERNAL,
              "plant %zu is not found", i);
        for (int r = 0; r < 3; r++) {
            plait_plan_destroy(&plans[r]);
        }
    }
}

/* Plans of `p` for 3 ranks, with one fault on each rank or on one. */
static void check_plant(problem_t *p, const plait_caps_t *caps, int alias,
                        void (*plant)(plait_plan_t *plan), const char *what)
{
    plait_plan_t *plans[MAX_P] = {NULL};
    const plait_check_t options = {.alias = alias};
    plait_status_t status = PLAIT_OK;

    CHECK(make_plans(p, 3, caps, plans) == PLAIT_OK, "%s", p->op->name);
    for (int r = 0; r < 3 && plant != NULL; r++) {
        plant(plans[r]);
    }
    status = plait_plans_check(plans, 3, &options);
    CHECK(status == PLAIT_ERR_INTERNAL && strstr(plait_error_text(), what) != NULL,
          "%s is not found in %s", what, p->op->name);
    for (int r = 0; r < 3; r++) {
        plait_plan_destroy(&plans[r]);
    }
}

static void remove_step(plait_plan_t *plan, int i)
{
    (void)memmove(plan->steps + i, plan->steps + i + 1,
                  (size_t)(plan->n_steps - i - 1) * sizeof(*plan->steps));
    plan->n_steps--;
}

static void remove_third(plait_plan_t *plan)
{
    remove_step(plan, 2);
}

static void remove_first(plait_plan_t *plan)
{
    remove_step(plan, 0);
}

/* Rank 1's pieces are collected in the place of rank 0's. */
static void overlap_pieces(plait_plan_t *plan)
{
    plait_move_t *move = &first_of(plan, PLAIT_STEP_MOVE)->u.move;

    move->in[1].dst_offset = move->in[0].dst_offset;
}

static void other_blocks(plait_plan_t *plan)
{
    plan->agree_some += (plan->rank == 2) ? 2 : 0;
}

static void check_planted_steps(void)
{
    const plait_caps_t *direct = &all_caps[1];
    const plait_caps_t *messages = &all_caps[4];
    int64_t n = 1 << 14;
    problem_t p = {.op = &plait_op_allreduce,
                   .dtype = PLAIT_F64,
                   .shape = vector_shape,
                   .context = &n};
    blocks_t b = {.n_ranks = 3, .n = 4, .roles = {SENT, RECEIVED}, .root = -1};
    problem_t alltoall = {.op = &plait_op_alltoall,
                          .dtype = PLAIT_F64,
                          .shape = blocks_shape,
                          .context = &b};
    graph_t g = {.n = 3, .n_in = {1, 1, 1}, .n_out = {1, 1, 1}};
    problem_t route = {.op = &plait_op_route,
                       .dtype = PLAIT_F64,
                       .shape = graph_shape,
                       .adapt = graph_params,
                       .context = &g};

    /* a fence left out on all ranks: peers read what is being written */
    check_plant(&p, direct, -1, remove_third, "reads what nobody has written");
    check_plant(&p, direct, 0, remove_third, "in the same phase");
    check_plant(&alltoall, direct, 0, remove_first, "in the same phase");
    /* in place: blocks come before those that they overwrite have left */
    check_plant(&alltoall, messages, 0, NULL,
                "sends what the same move has overwritten");
    check_plant(&p, messages, -1, overlap_pieces, "writes twice");
    check_plant(&route, direct, -1, other_blocks, "agreement");
}

int main(void)
{
    check_planted();
    check_stale();
    check_planted_steps();
    return report("test_plans_planted");
}
