#include "coll/coll.h"

#include "base/status.h"

#include <string.h>

plait_status_t plait_coll_same(const char *name, const plait_array_t *x,
                               const plait_array_t *y)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(x->dtype == y->dtype, PLAIT_ERR_INVALID,
                "%s: operand is %s, result is %s", name, plait_dtype_name(x->dtype),
                plait_dtype_name(y->dtype));
    PLAIT_CHECK(x->ndim == y->ndim &&
                    (x->ndim == 0 || memcmp(x->dims, y->dims,
                                            (size_t)x->ndim * sizeof(x->dims[0])) == 0),
                PLAIT_ERR_INVALID, "%s: operand and result have different shapes",
                name);
done:
    return status;
}

bool plait_coll_publishes(const plait_problem_t *problem, int64_t n_bytes)
{
    enum { MAX_READ = 256 << 10 };

    return n_bytes <= problem->caps.publish_bytes &&
           n_bytes * problem->n_ranks <= MAX_READ;
}

plait_status_t plait_coll_copy(plait_plan_t *plan, int src_slot, int dst_slot,
                               int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    plait_move_t move = {0};
    const plait_block_t block = {.peer = plan->rank,
                                 .kind = PLAIT_BLOCK_COPY,
                                 .src_slot = src_slot,
                                 .dst_slot = dst_slot,
                                 .box = {.row_bytes = n_bytes}};

    PLAIT_TRY(plait_move_add_in(&move, &block));
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}
