#include "plan/tiles.h"

#include "base/status.h"

/* Which spots an operation has. */
typedef struct {
    bool a, b, extra, info;
} spots_t;

static const spots_t spots[PLAIT_TILE_COUNT] = {
    [PLAIT_TILE_GEMM] = {.a = true, .b = true},
    [PLAIT_TILE_HERK] = {.a = true},
    [PLAIT_TILE_TRSM] = {.a = true},
    [PLAIT_TILE_TRMM] = {.a = true},
    [PLAIT_TILE_POTRF] = {.info = true},
    [PLAIT_TILE_GETRF] = {.extra = true, .info = true},
    [PLAIT_TILE_LASWP] = {.extra = true},
    [PLAIT_TILE_GEQRF] = {.extra = true},
    [PLAIT_TILE_ORMQR] = {.a = true, .extra = true},
    [PLAIT_TILE_HEEVD] = {.extra = true, .info = true},
    [PLAIT_TILE_TRIM] = {.a = true},
    [PLAIT_TILE_SPOIL] = {.info = true},
    [PLAIT_TILE_SCREEN] = {.info = true},
    [PLAIT_TILE_JUDGE] = {.info = true},
};

static char *address_of(const plait_exec_t *exec, plait_spot_t spot)
{
    return exec->slot[spot.slot] + spot.offset;
}

static plait_status_t run(const plait_exec_t *exec, const plait_tile_t *tile)
{
    const plait_device_run_t *on = exec->device;
    const spots_t *has = &spots[tile->call.op];
    plait_device_tile_t call = tile->call;

    call.a = has->a ? address_of(exec, tile->a) : NULL;
    call.b = has->b ? address_of(exec, tile->b) : NULL;
    call.c = address_of(exec, tile->c);
    call.extra = has->extra ? address_of(exec, tile->extra) : NULL;
    call.info = has->info ? (int32_t *)(void *)address_of(exec, tile->info) : NULL;
    return on->device->table->tile(on->device, on->stream, &call, exec->scratch);
}

static plait_status_t plan(plait_plan_t *made, const plait_device_tile_t *call)
{
    plait_status_t status = PLAIT_OK;
    int64_t work_bytes = 0;

    PLAIT_TRY(made->device->table->tile_plan(made->device, call, &work_bytes));
    plait_plan_need_scratch(made, work_bytes);
done:
    return status;
}

plait_status_t plait_tile_add(const plait_tiles_t *tiles, const plait_tile_t *tile)
{
    const bool is_empty = tile->call.m <= 0 || tile->call.n <= 0;

    return is_empty                ? PLAIT_OK
           : (tiles->exec != NULL) ? run(tiles->exec, tile)
                                   : plan(tiles->plan, &tile->call);
}

plait_status_t plait_tile_box(const plait_tiles_t *tiles, plait_device_box_kind_t kind,
                              plait_dtype_t dtype, plait_spot_t src, plait_spot_t dst,
                              const plait_box_copy_t *box)
{
    plait_status_t status = PLAIT_OK;
    const plait_exec_t *exec = tiles->exec;

    if (exec != NULL && plait_box_bytes(box) > 0) {
        const plait_device_run_t *on = exec->device;
        const plait_device_box_t one = {
            .kind = kind,
            .src = (kind == PLAIT_DEVICE_ZERO) ? NULL : address_of(exec, src),
            .dst = address_of(exec, dst),
            .box = *box};
        if (kind != PLAIT_DEVICE_COPY || one.src != one.dst) {
            status = on->device->table->boxes(on->device, on->stream, dtype, 1, &one);
        }
    }
    return status;
}

plait_status_t plait_tile_zero(const plait_tiles_t *tiles, plait_spot_t spot,
                               int64_t n_bytes)
{
    const plait_box_copy_t box = {.row_bytes = n_bytes};

    return plait_tile_box(tiles, PLAIT_DEVICE_ZERO, PLAIT_U8, spot, spot, &box);
}

plait_status_t plait_tiles_plan(plait_plan_t *plan, const plait_kernel_t *kernel,
                                const void *params)
{
    plait_status_t status = PLAIT_OK;
    const plait_tiles_t tiles = {.plan = plan};
    plait_device_t *device = plan->device;

    PLAIT_TRY(device->table->enter(device));
    status = kernel->tiles(params, &tiles);
    device->table->leave(device);
done:
    return status;
}

plait_status_t plait_tiles_run(plait_exec_t *exec, const plait_kernel_t *kernel,
                               const void *params)
{
    const plait_tiles_t tiles = {.exec = exec};

    return kernel->tiles(params, &tiles);
}
