/* Cholesky factors, and inverses made from them, by all devices of a process at once: the call of the devices'
 * library, in the caller's deal if the library takes it, and the work that the library leaves to be done. */
#include "base/checked.h"
#include "base/status.h"
#include "dense/joint.h"
#include "dense/potrf.h"
#include "dense/whole.h"

#include <inttypes.h>

typedef struct {
    plait_factor_t f; /* the result, in place */
    plait_factor_t
        there; /* the matrix as the devices have it: the result, or a work slot */
    plait_joint_t joint;
} parts_t;

static void print(const void *params, FILE *file)
{
    const parts_t *p = params;

    (void)fprintf(file, "%" PRId64 " x %" PRId64 " in blocks of %" PRId64, p->there.d.n,
                  p->there.d.n, p->there.d.block);
}

/* ---- The call ----------------------------------------------------------------------------------- */

static plait_status_t call(const void *params, plait_exec_t *exec,
                           const plait_joint_part_t parts[])
{
    plait_status_t status = PLAIT_OK;
    const parts_t *p = params;
    int32_t info = 0;

    PLAIT_TRY(plait_joint_run(&p->joint, exec, parts, NULL, &info));
    PLAIT_TRY(plait_exec_store(exec, p->f.info_slot, &info, sizeof(info)));
done:
    return status;
}

static plait_status_t joint_run(const void *params, plait_exec_t *exec)
{
    const parts_t *p = params;
    const plait_joint_slots_t slots = {p->there.slot, -1, p->f.info_slot};

    return plait_exec_joint(exec, &slots, call, params);
}

static void joint_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const parts_t *p = params;
    const plait_factor_t *f = &p->there;
    const int64_t n_blocks = plait_dealt_n_blocks(&f->d);

    plait_factor_touch_info(f, false, touch, context);
    plait_factor_touch_blocks(f, false, f->slot, 0, n_blocks, false, touch, context);
    plait_factor_touch_blocks(f, true, f->slot, 0, n_blocks, false, touch, context);
    if (p->f.rank == PLAIT_WHOLE_ROOT) {
        plait_factor_touch_info(&p->f, true, touch, context);
    }
}

/* ---- What it has found -------------------------------------------------------------------------- */

/* Above the diagonal the library may leave anything. */
static plait_status_t trim_tiles(const void *params, const plait_tiles_t *tiles)
{
    return plait_potrf_trim_tiles(&((const parts_t *)params)->f, 'R', tiles);
}

static void trim_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    plait_potrf_trim_touch(&((const parts_t *)params)->f, touch, context);
}

/* If an element of the factor is not finite, the library may not report it. */
static plait_status_t judge_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_factor_t *f = &((const parts_t *)params)->f;
    const plait_dealt_t *d = &f->d;

    PLAIT_TRY(plait_potrf_trim_tiles(f, 'R', tiles));
    for (int64_t k = plait_dealt_next(d, f->rank, 0); k < plait_dealt_n_blocks(d);
         k += d->n_ranks) {
        const int64_t row = plait_dealt_column(d, k);
        const plait_tile_t judge = {.call = {.op = PLAIT_TILE_JUDGE,
                                             .dtype = d->dtype,
                                             .m = plait_dealt_width(d, k),
                                             .n = plait_dealt_width(d, k),
                                             .row = row,
                                             .ldc = d->m},
                                    .c = plait_factor_spot(f, k, row),
                                    .info = plait_factor_info_spot(f)};
        PLAIT_TRY(plait_tile_add(tiles, &judge));
    }
done:
    return status;
}

static void judge_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_factor_t *f = &((const parts_t *)params)->f;

    plait_factor_touch_info(f, false, touch, context);
    plait_potrf_trim_touch(f, touch, context);
    plait_factor_touch_info(f, true, touch, context);
}

/* The least order that any rank has found is the first minor that is not positive. */
static plait_status_t settle(const void *params, plait_exec_t *exec,
                             const plait_joint_part_t parts[])
{
    const parts_t *p = params;
    int32_t least = 0;

    for (int r = 0; r < p->there.d.n_ranks; r++) {
        const int32_t found = parts[r].found;
        least = (found != 0 && (least == 0 || found < least)) ? found : least;
    }
    return plait_exec_store(exec, p->f.info_slot, &least, sizeof(least));
}

static plait_status_t settle_run(const void *params, plait_exec_t *exec)
{
    const parts_t *p = params;
    const plait_joint_slots_t slots = {p->f.slot, -1, p->f.info_slot};

    return plait_exec_joint(exec, &slots, settle, params);
}

static void settle_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_factor_t *f = &((const parts_t *)params)->f;

    plait_factor_touch_info(f, false, touch, context);
    if (f->rank == PLAIT_WHOLE_ROOT) {
        plait_factor_touch_info(f, true, touch, context);
    }
}

/* ---- The steps ---------------------------------------------------------------------------------- */

static const plait_kernel_t joint_kernel = {.name = "by all devices at once",
                                            .run_device = joint_run,
                                            .is_blocking = true,
                                            .touch = joint_touch,
                                            .print = print};
static const plait_kernel_t trim_kernel = {
    .name = "zero above", .tiles = trim_tiles, .touch = trim_touch, .print = print};
static const plait_kernel_t judge_kernel = {.name = "potrf: zero above, what was found",
                                            .tiles = judge_tiles,
                                            .touch = judge_touch,
                                            .print = print};
static const plait_kernel_t settle_kernel = {.name = "potrf: what all have found",
                                             .run_device = settle_run,
                                             .is_blocking = true,
                                             .touch = settle_touch,
                                             .print = print};

static plait_status_t add(plait_plan_t *plan, const plait_kernel_t *kernel,
                          const parts_t *p)
{
    return plait_plan_kernel_copy(plan, kernel, p, sizeof(*p));
}

/* Makes, in the result's place, what the library makes from the operand's lower triangle; info is the
 * library's. start: brings the triangle to where the library works on it, and sets info to 0. */
static plait_status_t add_call(plait_plan_t *plan, const plait_joint_t *joint,
                               const plait_factor_t *given, const plait_kernel_t *start,
                               parts_t *p)
{
    plait_status_t status = PLAIT_OK;
    const bool is_moved = joint->call.block != given->d.block;
    const plait_dealt_t *d = &p->there.d;

    *p = (parts_t){.f = *given, .there = *given, .joint = *joint};
    p->f.slot = p->f.src_slot = p->there.slot = plait_slot_ret(plan, 0);
    p->f.room = plan->slot_bytes[p->f.slot];
    p->f.k = plait_factor_n_panels(&p->f.d);
    p->there.src_slot = plait_slot_arg(plan, 0);
    p->there.d.block = joint->call.block;
    plait_plan_need_scratch(plan, joint->work_bytes);
    plait_plan_agree(plan, 2); /* 1: one rank has the whole matrix */
    plait_plan_agree(plan, (uint64_t)d->block);
    if (is_moved) {
        PLAIT_TRY(plait_plan_add_work(plan, plait_dealt_bytes(d), &p->there.slot));
        PLAIT_TRY(plait_joint_add_redeal(plan, &p->f.d, p->there.src_slot, d,
                                         p->there.slot, true));
        p->there.src_slot = p->there.slot;
    }
    p->there.room = plan->slot_bytes[p->there.slot];
    PLAIT_TRY(plait_plan_kernel_copy(plan, start, &p->there, sizeof(p->there)));
    PLAIT_TRY(add(plan, &joint_kernel, p));
    if (is_moved) {
        PLAIT_TRY(
            plait_joint_add_redeal(plan, d, p->there.slot, &p->f.d, p->f.slot, true));
    }
done:
    return status;
}

/* Brings the outcome to all ranks; NaN if the call failed. */
static plait_status_t add_finish(plait_plan_t *plan, const parts_t *p)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_TRY(plait_joint_add_share(plan, p->f.info_slot));
    PLAIT_TRY(
        plait_plan_kernel_copy(plan, &plait_potrf_finish_kernel, &p->f, sizeof(p->f)));
done:
    return status;
}

plait_status_t plait_potrf_joint_steps(plait_plan_t *plan, const plait_joint_t *joint,
                                       const plait_factor_t *given)
{
    plait_status_t status = PLAIT_OK;
    parts_t p;

    plait_dealt_agree(plan, &given->d);
    PLAIT_TRY(add_call(plan, joint, given, &plait_potrf_start_kernel, &p));
    PLAIT_TRY(add(plan, &judge_kernel, &p));
    PLAIT_TRY(add(plan, &settle_kernel, &p));
    PLAIT_TRY(add_finish(plan, &p));
done:
    return status;
}

plait_status_t plait_potri_joint_steps(plait_plan_t *plan, const plait_joint_t *joint,
                                       const plait_factor_t *given)
{
    plait_status_t status = PLAIT_OK;
    parts_t p;

    PLAIT_TRY(add_call(plan, joint, given, &plait_potri_start_kernel, &p));
    PLAIT_TRY(add(plan, &trim_kernel, &p));
    PLAIT_TRY(add_finish(plan, &p));
done:
    return status;
}
