#include "dense/heevd_joint.h"

#include "base/checked.h"
#include "base/log.h"
#include "base/status.h"
#include "dense/scalar.h"
#include "dense/whole.h"
#include "plan/joint.h"
#include "plan/tiles.h"

#include <inttypes.h>

/* Columns of a block: cuSolverMg takes 1024 at most. The caller's are kept where they are between
 * the two, so that nothing has to be moved before. */
enum { BLOCK = 256, LEAST_BLOCK = 32, MOST_BLOCK = 1024 };

/* Up to here one device does it alone: its matrix and work are about 2 GiB of float64 then. Chosen, not
 * measured. */
enum { ALONE = 8192 };

typedef plait_heevd_parts_t joint_t;

/* ---- Whether ------------------------------------------------------------------------------------ */

bool plait_heevd_wants_joint(int64_t n, int n_ranks)
{
    return n_ranks > 1 && n >= n_ranks && !plait_dense_is_whole(n, n, n <= ALONE);
}

static bool is_power_of_two(int64_t n)
{
    return (n & (n - 1)) == 0;
}

/* Every device has a block. cuSOLVERMp's tridiagonal solver may fail where its columns are no power of
 * two, says its documentation. */
static int64_t block_of(const plait_dealt_t *a, bool is_grid)
{
    const bool is_kept = a->block >= LEAST_BLOCK && a->block <= MOST_BLOCK &&
                         (!is_grid || is_power_of_two(a->block));
    int64_t block =
        plait_max(1, plait_min(is_kept ? a->block : BLOCK, a->n / a->n_ranks));

    while (is_grid && !is_power_of_two(block)) {
        block &= block - 1; /* without the least of its powers */
    }
    return block;
}

static plait_device_heevd_t describe(const plait_dealt_t *a, bool has_vectors,
                                     bool is_grid)
{
    return (plait_device_heevd_t){.n_devices = a->n_ranks,
                                  .dtype = a->dtype,
                                  .has_vectors = has_vectors,
                                  .n = a->n,
                                  .block = block_of(a, is_grid)};
}

static plait_status_t ask_grid(const plait_problem_t *problem, const plait_dealt_t *a,
                               bool has_vectors, plait_heevd_joint_t *joint)
{
    plait_status_t status = PLAIT_OK;
    const plait_caps_t *caps = &problem->caps;

    *joint =
        (plait_heevd_joint_t){.is_grid = true, .call = describe(a, has_vectors, true)};
    PLAIT_TRY(caps->device->table->grid->heevd_plan(caps->grid, &joint->call,
                                                    &joint->work_bytes));
done:
    return status;
}

static plait_status_t ask_devices(const plait_problem_t *problem,
                                  const plait_dealt_t *a, bool has_vectors,
                                  plait_heevd_joint_t *joint)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_joint_t *table = problem->caps.device->table->joint;

    PLAIT_CHECK(problem->caps.devices != NULL, PLAIT_ERR_UNSUPPORTED,
                "the ranks' devices are not all this process's, or more than %d, and "
                "those of several do not work as one",
                PLAIT_MAX_JOINT);
    PLAIT_CHECK(table != NULL, PLAIT_ERR_UNSUPPORTED, "%s devices do not work as one",
                problem->caps.device->table->name);
    PLAIT_CHECK(problem->n_ranks <= PLAIT_MAX_JOINT, PLAIT_ERR_UNSUPPORTED,
                "%d devices", problem->n_ranks);
    *joint = (plait_heevd_joint_t){.call = describe(a, has_vectors, false)};
    for (int r = 0; r < problem->n_ranks; r++) {
        joint->call.devices[r] = problem->caps.devices[r];
    }
    PLAIT_TRY(table->heevd_plan(&joint->call, &joint->work_bytes));
done:
    return status;
}

plait_status_t plait_heevd_joint_ask(const plait_problem_t *problem,
                                     const plait_dealt_t *a, bool has_vectors,
                                     plait_heevd_joint_t *joint_p, bool *do_p)
{
    plait_status_t status = PLAIT_OK;

    *do_p = false;
    if (problem->caps.device != NULL &&
        plait_heevd_wants_joint(a->n, problem->n_ranks)) {
        status = (problem->caps.grid != NULL)
                     ? ask_grid(problem, a, has_vectors, joint_p)
                     : ask_devices(problem, a, has_vectors, joint_p);
        *do_p = status == PLAIT_OK;
    }
    if (status == PLAIT_ERR_UNSUPPORTED) {
        plait_log(PLAIT_LOG_INFO, "rank %d of %d: heevd of %lld goes to device 0: %s",
                  problem->rank, problem->n_ranks, (long long)a->n, plait_error_text());
        status = PLAIT_OK;
    }
    return status;
}

/* ---- Columns from one deal to another ----------------------------------------------------------- */

/* Those that block i of `from` and block k of `to` have in common, of two deals of one matrix. */
static plait_status_t add_common(const plait_plan_t *plan, const plait_dealt_t *from,
                                 int64_t i, int src, const plait_dealt_t *to, int64_t k,
                                 int dst, bool is_lower, plait_move_t *move)
{
    const int64_t first_from = plait_dealt_column(from, i);
    const int64_t first_to = plait_dealt_column(to, k);
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

static plait_status_t add_deal(const plait_plan_t *plan, const plait_dealt_t *from,
                               int src, const plait_dealt_t *to, int dst, bool is_lower,
                               plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    int64_t k = 0;

    for (int64_t i = 0; i < plait_dealt_n_blocks(from); i++) {
        const int64_t end = plait_dealt_column(from, i) + plait_dealt_width(from, i);
        for (k = plait_dealt_column(from, i) / to->block; k * to->block < end; k++) {
            PLAIT_TRY(add_common(plan, from, i, src, to, k, dst, is_lower, move));
        }
    }
done:
    return status;
}

/* What is behind this rank's columns. */
static plait_box_copy_t padding_of(const plait_dealt_t *d, int rank)
{
    return (plait_box_copy_t){.row_bytes =
                                  (plait_dealt_stored(d) - plait_dealt_owned(d, rank)) *
                                  plait_dealt_ld_bytes(d)};
}

static int64_t padding_at(const plait_dealt_t *d, int rank)
{
    return plait_dealt_owned(d, rank) * plait_dealt_ld_bytes(d);
}

/* ---- The matrix as the library gets it ---------------------------------------------------------- */

/* The lower triangle; where it is not finite the library would get zeros, if it were called. */
static plait_status_t start_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const joint_t *p = params;
    const plait_dealt_t *d = &p->d;
    const int rank = p->q.rank;
    const plait_box_copy_t padding = padding_of(d, rank);
    const plait_spot_t behind = {.slot = p->matrix, .offset = padding_at(d, rank)};
    plait_tile_t t = {
        .call = {.dtype = d->dtype, .diag = 'R', .m = d->n, .lda = d->n, .ldc = d->n},
        .a = {.slot = p->from},
        .c = {.slot = p->matrix},
        .info = {.slot = p->q.info}};

    PLAIT_TRY(plait_tile_zero(tiles, t.info, sizeof(int32_t)));
    for (int64_t k = plait_dealt_next(d, rank, 0); k < plait_dealt_n_blocks(d);
         k += d->n_ranks) {
        t.call.n = plait_dealt_width(d, k);
        t.call.row = plait_dealt_column(d, k);
        t.a.offset = t.c.offset = plait_dealt_at(d, k, 0);
        t.call.op = PLAIT_TILE_TRIM;
        t.call.k = d->n;
        PLAIT_TRY(plait_tile_add(tiles, &t));
        t.call.op = PLAIT_TILE_SCREEN;
        t.call.k = d->n + 1;
        PLAIT_TRY(plait_tile_add(tiles, &t));
    }
    PLAIT_TRY(plait_tile_zero(tiles, behind, padding.row_bytes));
done:
    return status;
}

static void start_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const joint_t *p = params;
    const plait_dealt_t *d = &p->d;
    const plait_box_copy_t all = {.row_bytes =
                                      plait_dealt_stored(d) * plait_dealt_ld_bytes(d)};
    const plait_box_copy_t info = {.row_bytes = sizeof(int32_t)};

    for (int64_t k = plait_dealt_next(d, p->q.rank, 0); k < plait_dealt_n_blocks(d);
         k += d->n_ranks) {
        for (int64_t j = 0; j < plait_dealt_width(d, k); j++) {
            const int64_t row = plait_dealt_column(d, k) + j;
            const plait_box_copy_t column = {.row_bytes =
                                                 (d->n - row) * plait_dealt_item(d)};
            touch(context, false, p->q.rank, p->from,
                  plait_dealt_at(d, k, row) + j * plait_dealt_ld_bytes(d), &column);
        }
    }
    touch(context, true, p->q.rank, p->matrix, 0, &all);
    touch(context, true, p->q.rank, p->q.info, 0, &info);
}

void plait_heevd_print(const void *params, FILE *file)
{
    const joint_t *p = params;

    (void)fprintf(file, "%" PRId64 " x %" PRId64 " in blocks of %" PRId64, p->d.n,
                  p->d.n, p->d.block);
}

/* ---- The call ----------------------------------------------------------------------------------- */

/* The eigenvalues come to host memory, and from there to this rank's slot. */
static plait_status_t solve(const joint_t *p, plait_exec_t *exec,
                            const plait_joint_part_t parts[], int32_t *info_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_run_t *run = exec->device;
    const plait_device_table_t *table = run->device->table;
    const int64_t n_bytes = exec->plan->slot_bytes[p->q.w];
    void *a[PLAIT_MAX_JOINT], *work[PLAIT_MAX_JOINT], *w = NULL;

    for (int r = 0; r < p->d.n_ranks; r++) {
        a[r] = parts[r].matrix;
        work[r] = parts[r].work;
    }
    PLAIT_TRY(table->host_take(run->device, n_bytes, &w));
    PLAIT_TRY(
        table->joint->heevd(&p->joint.call, p->joint.work_bytes, a, work, w, info_p));
    PLAIT_TRY(
        table->to_device(run->device, run->stream, exec->slot[p->q.w], w, n_bytes));
    PLAIT_TRY(table->stream_wait(run->device, run->stream));
done:
    if (w != NULL) {
        table->host_give(run->device, w);
    }
    return status;
}

static plait_status_t call(const void *params, plait_exec_t *exec,
                           const plait_joint_part_t parts[])
{
    plait_status_t status = PLAIT_OK;
    const joint_t *p = params;
    int32_t info = 0;

    for (int r = 0; r < p->d.n_ranks; r++) {
        info = (parts[r].found != 0) ? parts[r].found : info;
    }
    if (info == 0) {
        PLAIT_TRY(solve(p, exec, parts, &info));
    }
    PLAIT_TRY(plait_exec_store(exec, p->q.info, &info, sizeof(info)));
done:
    return status;
}

static plait_status_t joint_run(const void *params, plait_exec_t *exec)
{
    const joint_t *p = params;

    return plait_exec_joint(exec, p->matrix, p->q.info, call, params);
}

static void joint_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const joint_t *p = params;
    const plait_heevd_slots_t *q = &p->q;
    const int64_t item = plait_dtype_bytes(plait_real_of(q->a.dtype));
    const plait_box_copy_t own = {.row_bytes = padding_at(&p->d, q->rank)};
    const plait_box_copy_t info = {.row_bytes = sizeof(int32_t)};
    const plait_box_copy_t w = {.row_bytes = p->d.n * item};

    touch(context, false, q->rank, q->info, 0, &info);
    touch(context, false, q->rank, p->matrix, 0, &own);
    touch(context, true, q->rank, p->matrix, 0, &own);
    if (q->rank == PLAIT_WHOLE_ROOT) {
        touch(context, true, q->rank, q->w, 0, &w);
        touch(context, true, q->rank, q->info, 0, &info);
    }
}

/* ---- Where none were found ---------------------------------------------------------------------- */

static plait_status_t finish_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_heevd_slots_t *q = &((const joint_t *)params)->q;
    const int64_t n = q->a.n;
    plait_tile_t t = {.call = {.op = PLAIT_TILE_SPOIL,
                               .dtype = q->a.dtype,
                               .m = n,
                               .n = plait_dealt_owned(&q->v, q->rank),
                               .row = -n, /* all of it */
                               .ldc = n},
                      .c = {.slot = q->vectors},
                      .info = {.slot = q->info}};

    PLAIT_TRY(plait_tile_add(tiles, &t));
    t.call.dtype = plait_real_of(q->a.dtype);
    t.call.n = 1;
    t.c.slot = q->w;
    PLAIT_TRY(plait_tile_add(tiles, &t));
done:
    return status;
}

static void finish_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_heevd_slots_t *q = &((const joint_t *)params)->q;
    const int64_t item = plait_dtype_bytes(plait_real_of(q->a.dtype));
    const plait_box_copy_t info = {.row_bytes = sizeof(int32_t)};
    const plait_box_copy_t own = {.row_bytes = padding_at(&q->v, q->rank)};
    const plait_box_copy_t w = {.row_bytes = q->a.n * item};

    touch(context, false, q->rank, q->info, 0, &info);
    touch(context, true, q->rank, q->vectors, 0, &own);
    touch(context, true, q->rank, q->w, 0, &w);
}

/* ---- The steps ---------------------------------------------------------------------------------- */

static const plait_kernel_t start_kernel = {.name = "heevd: lower triangle",
                                            .tiles = start_tiles,
                                            .touch = start_touch,
                                            .print = plait_heevd_print};
static const plait_kernel_t joint_kernel = {.name = "heevd: by all devices at once",
                                            .run_device = joint_run,
                                            .is_blocking = true,
                                            .touch = joint_touch,
                                            .print = plait_heevd_print};
static const plait_kernel_t finish_kernel = {.name = "heevd: NaN where none were found",
                                             .tiles = finish_tiles,
                                             .touch = finish_touch,
                                             .print = plait_heevd_print};

static plait_status_t add_vectors(plait_plan_t *plan, const joint_t *p)
{
    plait_status_t status = PLAIT_OK;
    const plait_dealt_t *v = &p->q.v;
    plait_block_t zeros = {.peer = plan->rank,
                           .kind = PLAIT_BLOCK_ZERO,
                           .src_slot = p->q.vectors,
                           .dst_slot = p->q.vectors,
                           .dst_offset = padding_at(v, plan->rank),
                           .box = padding_of(v, plan->rank)};
    plait_move_t move = {0};

    if (p->q.has_vectors) {
        PLAIT_TRY(add_deal(plan, &p->d, p->found, v, p->q.vectors, false, &move));
    }
    if (plait_box_bytes(&zeros.box) > 0) {
        PLAIT_TRY(plait_move_add_in(&move, &zeros));
    }
    PLAIT_TRY(plait_whole_share(plan, p->q.w, &move));
    PLAIT_TRY(plait_whole_share(plan, p->q.info, &move));
    PLAIT_TRY(plait_plan_move(plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

plait_status_t plait_heevd_joint_add(plait_plan_t *plan, const plait_heevd_slots_t *q,
                                     const plait_heevd_joint_t *joint)
{
    plait_status_t status = PLAIT_OK;
    joint_t p = {.q = *q, .joint = *joint, .d = q->a, .from = q->src};
    plait_move_t move = {0};
    int64_t n_bytes = 0;

    p.d.block = joint->call.block;
    n_bytes = plait_dealt_stored(&p.d) * plait_dealt_ld_bytes(&p.d);
    PLAIT_TRY(plait_plan_add_work(plan, n_bytes, &p.matrix));
    p.found = p.matrix;
    if (joint->is_grid && q->has_vectors) {
        PLAIT_TRY(plait_plan_add_work(plan, n_bytes, &p.found));
    }
    plait_plan_need_scratch(plan, joint->work_bytes);
    plait_plan_agree(plan, joint->is_grid ? 3 : 2); /* 1: one rank has all of it */
    plait_plan_agree(plan, (uint64_t)p.d.block);
    if (p.d.block != q->a.block) {
        PLAIT_TRY(add_deal(plan, &q->a, q->src, &p.d, p.matrix, true, &move));
        PLAIT_TRY(plait_plan_move(plan, &move));
        p.from = p.matrix;
    }
    PLAIT_TRY(plait_plan_kernel_copy(plan, &start_kernel, &p, sizeof(p)));
    PLAIT_TRY(plait_plan_kernel_copy(
        plan, joint->is_grid ? &plait_heevd_grid_kernel : &joint_kernel, &p,
        sizeof(p)));
    PLAIT_TRY(add_vectors(plan, &p));
    PLAIT_TRY(plait_plan_kernel_copy(plan, &finish_kernel, &p, sizeof(p)));
done:
    plait_move_clear(&move);
    return status;
}
