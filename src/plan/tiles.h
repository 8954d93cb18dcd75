/* Kernels made of tiles: matrix operations of a device's library. Such a kernel names its tiles by slots, not
 * by addresses. During planning each tile is asked for the memory that it wants, which becomes scratch. When
 * the plan is executed, the same tiles are enqueued. So planning and execution know the same tiles. */
#ifndef PLAIT_PLAN_TILES_H
#define PLAIT_PLAN_TILES_H

#include "plan/exec.h"
#include "plan/plan.h"

/* A place: bytes behind the begin of one of this rank's slots. */
typedef struct {
    int slot;
    int64_t offset;
} plait_spot_t;

/* `call` without its addresses: the spots of its operation replace them. */
typedef struct {
    plait_device_tile_t call;
    plait_spot_t a, b, c, extra, info;
} plait_tile_t;

struct plait_tiles {
    plait_plan_t *plan; /* NULL: the tiles are executed */
    plait_exec_t *exec; /* NULL: the tiles are planned */
};

/* Does nothing if c is empty. */
plait_status_t plait_tile_add(const plait_tiles_t *tiles, const plait_tile_t *tile);

/* A box between slots of this rank, or within one; does nothing if the box is empty or is copied to itself. */
plait_status_t plait_tile_box(const plait_tiles_t *tiles, plait_device_box_kind_t kind,
                              plait_dtype_t dtype, plait_spot_t src, plait_spot_t dst,
                              const plait_box_copy_t *box);

/* Sets n_bytes to 0. */
plait_status_t plait_tile_zero(const plait_tiles_t *tiles, plait_spot_t spot,
                               int64_t n_bytes);

/* All tiles of a kernel: while its plan is made, and when it is executed. */
plait_status_t plait_tiles_plan(plait_plan_t *plan, const plait_kernel_t *kernel,
                                const void *params);
plait_status_t plait_tiles_run(plait_exec_t *exec, const plait_kernel_t *kernel,
                               const void *params);

#endif
