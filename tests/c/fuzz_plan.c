/* Plans of all ranks, from any parameters and shapes: planning checks everything, and the plans of ranks that
 * agree fit together. If plans do not agree, the first fence ends the call. */
#include "fuzz.h"
#include "plan/check.h"
#include "plan/launch.h"

enum { MAX_BYTES = 1 << 14 }; /* of an array whose plan is run on shadow memory */

static const plait_caps_t all_caps[] = {
    {.direct = PLAIT_DIRECT_POINTER, .publish_bytes = PLAIT_PUBLISH_BYTES},
    {.direct = PLAIT_DIRECT_READ, .publish_bytes = PLAIT_PUBLISH_BYTES},
    {.direct = PLAIT_DIRECT_READ, .publish_bytes = -1},
    {.direct = PLAIT_DIRECT_NONE, .publish_bytes = -1},
    {.direct = PLAIT_DIRECT_NONE,
     .publish_bytes = PLAIT_PUBLISH_BYTES,
     .has_native = true,
     .native_reduce = {~0U, ~0U, ~0U, ~0U}},
};

static plait_status_t plan_rank(const fuzz_problem_t *p, const plait_caps_t *caps,
                                int rank, plait_plan_t **plan_p)
{
    plait_endpoint_t end = {.rank = rank, .size = p->n_ranks, .caps = *caps};
    plait_array_t args[PLAIT_MAX_ARRAYS];
    plait_array_t rets[PLAIT_MAX_ARRAYS];

    for (int i = 0; i < PLAIT_MAX_ARRAYS; i++) {
        args[i] = plain_array(&p->args[rank][i], NULL);
        rets[i] = plain_array(&p->rets[rank][i], NULL);
    }
    return plait_op_plan(p->op, p->params[rank], &end, args, rets, plan_p);
}

/* Compares every pair of ranks, as a fence does. */
static bool all_agree(plait_plan_t *const plans[], int n)
{
    bool do_agree = true;

    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++) {
            const plait_plan_t *a = plans[i];
            const plait_plan_t *b = plans[j];
            do_agree = do_agree && a->agree == b->agree &&
                       (a->agree_some == 0 || b->agree_some == 0 ||
                        a->agree_some == b->agree_some);
        }
    }
    return do_agree;
}

static bool is_small(const fuzz_problem_t *p)
{
    bool is = true;

    for (int r = 0; r < p->n_ranks; r++) {
        for (int i = 0; i < PLAIT_MAX_ARRAYS; i++) {
            is = is &&
                 (i >= p->op->n_args || fuzz_bytes(&p->args[r][i], MAX_BYTES) >= 0);
            is = is &&
                 (i >= p->op->n_rets || fuzz_bytes(&p->rets[r][i], MAX_BYTES) >= 0);
        }
    }
    return is;
}

static void print_nowhere(const plait_plan_t *plan)
{
    static FILE *nowhere;

    nowhere = (nowhere == NULL) ? fopen("/dev/null", "w") : nowhere;
    if (nowhere != NULL) {
        plait_plan_print(plan, nowhere);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fuzz_problem_t problem;
    input_t in = {.data = data, .size = size};
    plait_plan_t *plans[FUZZ_MAX_P] = {NULL};
    const plait_caps_t *caps =
        &all_caps[(size_t)next_byte(&in) % (sizeof(all_caps) / sizeof(all_caps[0]))];
    plait_status_t status = PLAIT_OK;
    int64_t before = plait_alloc_balance();

    fuzz_problem(&problem, &in, 1 + next_byte(&in) % FUZZ_MAX_P);
    if (is_small(&problem)) {
        for (int r = 0; r < problem.n_ranks && status == PLAIT_OK; r++) {
            status = plan_rank(&problem, caps, r, &plans[r]);
            if (status == PLAIT_OK) {
                print_nowhere(plans[r]);
            }
        }
        if (status == PLAIT_OK && all_agree(plans, problem.n_ranks)) {
            const plait_check_t options = {.alias = -1};
            n_far++;
            if (plait_plans_check(plans, problem.n_ranks, &options) != PLAIT_OK) {
                fault(&problem, "plans that agree do not fit together");
            }
        }
        if (status == PLAIT_ERR_INTERNAL) {
            fault(&problem, "planning failed");
        }
    } else { /* overflows: one rank's plan, which is not run */
        (void)plan_rank(&problem, caps, 0, &plans[0]);
    }
    for (int r = 0; r < problem.n_ranks; r++) {
        plait_plan_destroy(&plans[r]);
    }
    if (plait_alloc_balance() != before) {
        fault(&problem, "memory was not freed");
    }
    return 0;
}
