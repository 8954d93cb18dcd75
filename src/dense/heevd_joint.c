#include "dense/heevd_joint.h"

#include "base/checked.h"
#include "base/log.h"
#include "base/status.h"
#include "dense/scalar.h"
#include "dense/whole.h"
#include "plan/config.h"
#include "plan/tiles.h"

#include <inttypes.h>

/* Up to this extent one device works alone: its matrix and work take about 2 GiB for float64. Chosen, not
 * measured. */
enum { ALONE = 8192 };

typedef plait_heevd_parts_t joint_t;

/* ---- Whether ------------------------------------------------------------------------------------ */

static int backend_of(plait_choices_t choices)
{
    return plait_choices_value(choices, PLAIT_CONFIG_DENSE_BACKEND);
}

bool plait_heevd_wants_joint(int64_t n, int n_ranks, plait_choices_t choices)
{
    return backend_of(choices) == PLAIT_DENSE_AUTO && n_ranks > 1 && n >= n_ranks &&
           !plait_dense_is_whole(n, n, n <= ALONE);
}

static plait_status_t ask_grid(const plait_problem_t *problem, const plait_dealt_t *a,
                               const plait_joint_wish_t *wish, plait_joint_t *joint)
{
    plait_status_t status = PLAIT_OK;
    const plait_caps_t *caps = &problem->caps;

    *joint = plait_joint_describe(a, wish, true);
    PLAIT_TRY(caps->device->table->grid->heevd_plan(caps->grid, &joint->call,
                                                    &joint->work_bytes));
done:
    return status;
}

plait_status_t plait_heevd_joint_ask(const plait_problem_t *problem,
                                     const plait_dealt_t *a, bool has_vectors,
                                     plait_joint_t *joint_p, bool *do_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_joint_wish_t wish = {.op = PLAIT_JOINT_HEEVD,
                                     .has_vectors = has_vectors};
    const bool is_chosen =
        plait_joint_is_chosen(problem->choices, a->n, problem->n_ranks);
    const bool is_wanted =
        plait_heevd_wants_joint(a->n, problem->n_ranks, problem->choices);

    *do_p = false;
    if (problem->caps.device != NULL && (is_chosen || is_wanted)) {
        status = (is_wanted && problem->caps.grid != NULL)
                     ? ask_grid(problem, a, &wish, joint_p)
                     : plait_joint_ask(problem, a, &wish, joint_p);
        *do_p = status == PLAIT_OK;
    }
    if (status == PLAIT_ERR_UNSUPPORTED && !is_chosen) {
        plait_log(PLAIT_LOG_INFO, "rank %d of %d: heevd of %lld goes to device 0: %s",
                  problem->rank, problem->n_ranks, (long long)a->n, plait_error_text());
        status = PLAIT_OK;
    }
    return status;
}

/* ---- The matrix as the library gets it ---------------------------------------------------------- */

/* The part of a rank's array behind its columns. */
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

/* Copies the lower triangle. If it is not finite, the library would get zeros, if it were called. */
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
    const plait_box_copy_t all = {.row_bytes = plait_dealt_bytes(d)};
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

/* Brings the eigenvalues to host memory, and from there to this rank's slot. */
static plait_status_t solve(const joint_t *p, plait_exec_t *exec,
                            const plait_joint_part_t parts[], int32_t *info_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_run_t *run = exec->device;
    const plait_device_table_t *table = run->device->table;
    const int64_t n_bytes = exec->plan->slot_bytes[p->q.w];
    void *w = NULL;

    PLAIT_TRY(table->host_take(run->device, n_bytes, &w));
    PLAIT_TRY(plait_joint_run(&p->joint, exec, parts, w, info_p));
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
    const plait_joint_slots_t slots = {p->matrix, -1, p->q.info};

    return plait_exec_joint(exec, &slots, call, params);
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
        PLAIT_TRY(plait_joint_redeal(plan, &p->d, p->found, v, p->q.first, p->q.vectors,
                                     false, &move));
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
                                     const plait_joint_t *joint)
{
    plait_status_t status = PLAIT_OK;
    joint_t p = {.q = *q, .joint = *joint, .d = q->a, .from = q->src};
    plait_move_t move = {0};
    int64_t n_bytes = 0;

    p.d.block = joint->call.block;
    n_bytes = plait_dealt_bytes(&p.d);
    PLAIT_TRY(plait_plan_add_work(plan, n_bytes, &p.matrix));
    p.found = p.matrix;
    if (joint->is_grid && q->has_vectors) {
        PLAIT_TRY(plait_plan_add_work(plan, n_bytes, &p.found));
    }
    plait_plan_need_scratch(plan, joint->work_bytes);
    plait_plan_agree(plan,
                     joint->is_grid ? 3 : 2); /* 1: one rank has the whole matrix */
    plait_plan_agree(plan, (uint64_t)p.d.block);
    if (p.d.block != q->a.block) {
        PLAIT_TRY(
            plait_joint_redeal(plan, &q->a, q->src, &p.d, 0, p.matrix, true, &move));
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
