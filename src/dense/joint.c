#include "dense/joint.h"

#include "base/checked.h"
#include "base/status.h"
#include "dense/whole.h"
#include "plan/config.h"
#include "plan/tiles.h"

/* Columns of a block: cuSolverMg takes at most 1024. The caller's block is kept if it is between LEAST_BLOCK
 * and MOST_BLOCK, so that nothing has to be moved first. */
enum { BLOCK = 256, LEAST_BLOCK = 32, MOST_BLOCK = 1024 };

bool plait_joint_is_chosen(plait_choices_t choices, int64_t n, int n_ranks)
{
    return plait_choices_value(choices, PLAIT_CONFIG_DENSE_BACKEND) ==
               PLAIT_DENSE_CUSOLVER_MG &&
           n_ranks > 1 && n >= n_ranks;
}

static bool is_power_of_two(int64_t n)
{
    return (n & (n - 1)) == 0;
}

/* Every device has a block. According to its documentation, cuSOLVERMp's tridiagonal solver may fail if the
 * number of columns of a block is no power of two. */
static int64_t block_of(const plait_dealt_t *a, bool is_grid)
{
    const bool is_kept = a->block >= LEAST_BLOCK && a->block <= MOST_BLOCK &&
                         (!is_grid || is_power_of_two(a->block));
    int64_t block =
        plait_max(1, plait_min(is_kept ? a->block : BLOCK, a->n / a->n_ranks));

    while (is_grid && !is_power_of_two(block)) {
        block &= block - 1; /* clears the lowest bit */
    }
    return block;
}

plait_joint_t plait_joint_describe(const plait_dealt_t *a,
                                   const plait_joint_wish_t *wish, bool is_grid)
{
    return (plait_joint_t){.is_grid = is_grid,
                           .call = {.op = wish->op,
                                    .n_devices = a->n_ranks,
                                    .dtype = a->dtype,
                                    .has_vectors = wish->has_vectors,
                                    .n = a->n,
                                    .block = block_of(a, is_grid),
                                    .n_rhs = wish->n_rhs}};
}

plait_status_t plait_joint_ask(const plait_problem_t *problem, const plait_dealt_t *a,
                               const plait_joint_wish_t *wish, plait_joint_t *joint_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_joint_t *table = problem->caps.device->table->joint;
    char why[256];

    PLAIT_CHECK(
        problem->caps.devices != NULL, PLAIT_ERR_UNSUPPORTED,
        "the ranks' devices belong to several processes, which do not work as one, "
        "or are more than %d",
        PLAIT_MAX_JOINT);
    PLAIT_CHECK(table != NULL, PLAIT_ERR_UNSUPPORTED, "%s devices do not work as one",
                problem->caps.device->table->name);
    PLAIT_CHECK(problem->n_ranks <= PLAIT_MAX_JOINT, PLAIT_ERR_UNSUPPORTED,
                "%d devices", problem->n_ranks);
    *joint_p = plait_joint_describe(a, wish, false);
    for (int r = 0; r < problem->n_ranks; r++) {
        joint_p->call.devices[r] = problem->caps.devices[r];
    }
    PLAIT_TRY(table->plan(&joint_p->call, &joint_p->work_bytes));
done:
    if (status == PLAIT_ERR_UNSUPPORTED &&
        plait_joint_is_chosen(problem->choices, a->n, problem->n_ranks)) {
        (void)snprintf(why, sizeof(why), "%s", plait_error_text());
        status = plait_fail(status, "dense_backend is cuSolverMg: %s", why);
    }
    return status;
}

/* Moves the columns that block i of `from` and block k of `to` have in common. */
static plait_status_t add_common(const plait_plan_t *plan, const plait_dealt_t *from,
                                 int64_t i, int src, const plait_dealt_t *to, int64_t k,
                                 int64_t first_of_to, int dst, bool is_lower,
                                 plait_move_t *move)
{
    const int64_t first_from = plait_dealt_column(from, i);
    const int64_t first_to = first_of_to + plait_dealt_column(to, k);
    const int64_t first = plait_max(first_from, first_to);
    const int64_t end = plait_min(first_from + plait_dealt_width(from, i),
                                  first_to + plait_dealt_width(to, k));
    const int64_t row = is_lower ? first : 0, ld = plait_dealt_ld_bytes(from);
    const plait_block_t block = {
        .src_slot = src,
        .dst_slot = dst,
        .src_offset = plait_dealt_at(from, i, row) + (first - first_from) * ld,
        .dst_offset = plait_dealt_at(to, k, row) + (first - first_to) * ld,
        .box = plait_columns_box(from->m - row, end - first, from->m,
                                 plait_dealt_item(from))};

    return plait_dealt_between(plan, plait_dealt_owner(from, i),
                               plait_dealt_owner(to, k), &block, move);
}

plait_status_t plait_joint_redeal(const plait_plan_t *plan, const plait_dealt_t *from,
                                  int src, const plait_dealt_t *to, int64_t first,
                                  int dst, bool is_lower, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    int64_t k = 0;

    for (int64_t i = 0; i < plait_dealt_n_blocks(from); i++) {
        const int64_t end = plait_dealt_column(from, i) + plait_dealt_width(from, i);
        k = plait_max(0, plait_dealt_column(from, i) - first) / to->block;
        for (; k < plait_dealt_n_blocks(to) && first + k * to->block < end; k++) {
            PLAIT_TRY(
                add_common(plan, from, i, src, to, k, first, dst, is_lower, move));
        }
    }
done:
    return status;
}

plait_status_t plait_joint_add_redeal(plait_plan_t *plan, const plait_dealt_t *from,
                                      int src, const plait_dealt_t *to, int dst,
                                      bool is_lower)
{
    plait_status_t status = PLAIT_OK;
    plait_move_t move = {0};

    PLAIT_TRY(plait_joint_redeal(plan, from, src, to, 0, dst, is_lower, &move));
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

plait_status_t plait_joint_add_share(plait_plan_t *plan, int slot)
{
    plait_status_t status = PLAIT_OK;
    plait_move_t move = {0};

    PLAIT_TRY(plait_whole_share(plan, slot, &move));
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

static plait_status_t info_tiles(const void *params, const plait_tiles_t *tiles)
{
    const plait_spot_t info = {.slot = *(const int *)params};

    return plait_tile_zero(tiles, info, sizeof(int32_t));
}

static void info_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_box_copy_t box = {.row_bytes = sizeof(int32_t)};

    touch(context, true, PLAIT_ANY, *(const int *)params, 0, &box);
}

static void info_print(const void *params, FILE *file)
{
    (void)params;
    (void)fprintf(file, "an int32");
}

static const plait_kernel_t info_kernel = {.name = "no outcome yet",
                                           .tiles = info_tiles,
                                           .touch = info_touch,
                                           .print = info_print};

plait_status_t plait_joint_info(plait_plan_t *plan, int *slot_p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(plait_plan_add_work(plan, sizeof(int32_t), slot_p));
    PLAIT_TRY(plait_plan_kernel_copy(plan, &info_kernel, slot_p, sizeof(*slot_p)));
done:
    return status;
}

plait_status_t plait_joint_run(const plait_joint_t *joint, const plait_exec_t *exec,
                               const plait_joint_part_t parts[], void *w,
                               int32_t *info_p)
{
    void *a[PLAIT_MAX_JOINT], *b[PLAIT_MAX_JOINT], *work[PLAIT_MAX_JOINT];

    for (int r = 0; r < joint->call.n_devices; r++) {
        a[r] = parts[r].matrix;
        b[r] = parts[r].rhs;
        work[r] = parts[r].work;
    }
    return exec->device->device->table->joint->run(&joint->call, joint->work_bytes, a,
                                                   b, work, w, info_p);
}
