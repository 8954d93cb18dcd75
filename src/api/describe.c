#include "api/describe.h"

#include "base/status.h"
#include "ops/list.h"
#include "plan/launch.h"

#include <stdio.h>
#include <stdlib.h>

static const plait_caps_t ways[PLAIT_DESCRIBE_COUNT] = {
    [PLAIT_DESCRIBE_THREADS] = {.direct = PLAIT_DIRECT_POINTER,
                                .can_write = true,
                                .publish_bytes = PLAIT_PUBLISH_BYTES},
    [PLAIT_DESCRIBE_NODE] = {.direct = PLAIT_DIRECT_READ,
                             .can_write = true,
                             .publish_bytes = PLAIT_PUBLISH_BYTES,
                             .has_native = true,
                             .native_reduce = {~0U, ~0U, ~0U, ~0U}},
    [PLAIT_DESCRIBE_MESSAGES] = {.direct = PLAIT_DIRECT_NONE,
                                 .publish_bytes = -1,
                                 .has_native = true,
                                 .native_reduce = {~0U, ~0U, ~0U, ~0U}},
};

/* Reads n arrays from the words; returns the words behind them. */
static const int64_t *read_arrays(const int64_t *words, int n, plait_array_t arrays[])
{
    for (int i = 0; i < n; i++) {
        arrays[i] = (plait_array_t){
            .dtype = (plait_dtype_t)words[0], .ndim = (int)words[1], .dims = words + 2};
        words += 2 + words[1];
    }
    return words;
}

static plait_status_t print(const plait_plan_t *plan, char *text, int64_t n_bytes,
                            int64_t *n_text_p)
{
    plait_status_t status = PLAIT_OK;
    char *printed = NULL;
    size_t n_printed = 0;
    FILE *file = open_memstream(&printed, &n_printed);

    PLAIT_CHECK(file != NULL, PLAIT_ERR_NO_MEMORY, "no memory to print a plan");
    plait_plan_print(plan, file);
    PLAIT_CHECK(fclose(file) == 0, PLAIT_ERR_NO_MEMORY, "no memory to print a plan");
    (void)snprintf(text, (size_t)n_bytes, "%s", printed);
    *n_text_p = (int64_t)n_printed;
done:
    free(printed);
    return status;
}

plait_status_t plait_describe(const char *op, const void *params,
                              const plait_describe_rank_t *on, const int64_t arrays[],
                              char *text, int64_t n_bytes, int64_t *n_text_p,
                              plait_plan_cost_t *cost_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_op_t *row = plait_op_find(op);
    plait_endpoint_t end = {.rank = on->rank, .size = on->n_ranks};
    plait_array_t args[PLAIT_MAX_ARRAYS] = {{0}};
    plait_array_t rets[PLAIT_MAX_ARRAYS] = {{0}};
    plait_plan_t *plan = NULL;

    PLAIT_CHECK(row != NULL, PLAIT_ERR_INVALID, "there is no operation %s", op);
    PLAIT_CHECK(on->rank >= 0 && on->rank < on->n_ranks, PLAIT_ERR_INVALID,
                "rank %d is not one of %d ranks", on->rank, on->n_ranks);
    PLAIT_CHECK(on->way >= 0 && on->way < PLAIT_DESCRIBE_COUNT, PLAIT_ERR_INVALID,
                "way %d is outside 0..%d", on->way, PLAIT_DESCRIBE_COUNT - 1);
    end.caps = ways[on->way];
    (void)read_arrays(read_arrays(arrays, row->n_args, args), row->n_rets, rets);
    PLAIT_TRY(plait_op_plan(row, params, &end, args, rets, &plan));
    PLAIT_TRY(print(plan, text, n_bytes, n_text_p));
    *cost_p = plait_plan_cost(plan);
done:
    plait_plan_destroy(&plan);
    return status;
}
