/* The eigenvalue call that devices of several processes make together. The steps before and after it are
 * the same as for devices of one process (heevd_joint.c). */
#include "base/status.h"
#include "dense/heevd_joint.h"
#include "dense/scalar.h"
#include "plan/joint.h"
#include "transport/process_grid.h"

static plait_process_grid_t *grid_of(const plait_exec_t *exec)
{
    return plait_process_grid(exec->session.end, exec->device->device);
}

/* A grid may have gone since the plan was made; then it has gone on all ranks. */
static plait_status_t begin(const void *params, plait_exec_t *exec)
{
    plait_status_t status = PLAIT_OK;
    const plait_heevd_parts_t *p = params;
    const plait_device_run_t *run = exec->device;
    const plait_grid_part_t part = {.matrix = exec->slot[p->matrix],
                                    .vectors =
                                        p->q.has_vectors ? exec->slot[p->found] : NULL,
                                    .w = exec->slot[p->q.w],
                                    .work = exec->scratch,
                                    .work_bytes = p->joint.work_bytes};

    PLAIT_CHECK(grid_of(exec) != NULL, PLAIT_ERR_UNSUPPORTED,
                "the ranks' devices do not work as one any more");
    PLAIT_TRY(run->device->table->grid->heevd_begin(grid_of(exec), run->stream,
                                                    &p->joint.call, &part));
done:
    return status;
}

static plait_status_t call(const void *params, plait_exec_t *exec)
{
    (void)params;
    return exec->device->device->table->grid->heevd(grid_of(exec));
}

static plait_status_t end(const void *params, plait_exec_t *exec, int32_t *info_p)
{
    (void)params;
    return exec->device->device->table->grid->heevd_end(grid_of(exec), info_p);
}

static plait_status_t run_grid(const void *params, plait_exec_t *exec)
{
    static const plait_grid_call_t calls = {.begin = begin, .call = call, .end = end};
    const plait_heevd_parts_t *p = params;

    return plait_exec_grid(exec, p->q.info, &calls, params);
}

static void touch(const void *params, plait_touch_fn_t touch_one, void *context)
{
    const plait_heevd_parts_t *p = params;
    const plait_heevd_slots_t *q = &p->q;
    const int64_t item = plait_dtype_bytes(plait_real_of(q->a.dtype));
    const plait_box_copy_t own = {.row_bytes = plait_dealt_owned(&p->d, q->rank) *
                                               plait_dealt_ld_bytes(&p->d)};
    const plait_box_copy_t info = {.row_bytes = sizeof(int32_t)};
    const plait_box_copy_t w = {.row_bytes = p->d.n * item};

    touch_one(context, false, q->rank, q->info, 0, &info);
    touch_one(context, false, q->rank, p->matrix, 0, &own);
    touch_one(context, true, q->rank, p->matrix, 0, &own);
    if (p->found != p->matrix) {
        touch_one(context, true, q->rank, p->found, 0, &own);
    }
    touch_one(context, true, q->rank, q->w, 0, &w);
    touch_one(context, true, q->rank, q->info, 0, &info);
}

const plait_kernel_t plait_heevd_grid_kernel = {
    .name = "heevd: by all processes' devices at once",
    .run_device = run_grid,
    .is_blocking = true,
    .touch = touch,
    .print = plait_heevd_print};
