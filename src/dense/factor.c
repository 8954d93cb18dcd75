#include "dense/factor.h"

#include "base/checked.h"
#include "base/status.h"
#include "dense/scalar.h"
#include "dense/whole.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

int64_t plait_factor_n_panels(const plait_dealt_t *d)
{
    return (plait_min(d->m, d->n) + d->block - 1) / d->block;
}

int64_t plait_factor_n_pivots(const plait_dealt_t *d, int64_t k)
{
    return plait_min(plait_dealt_width(d, k), d->m - plait_dealt_column(d, k));
}

static plait_status_t add(plait_plan_t *plan, const plait_kernel_t *kernel,
                          const plait_factor_t *f)
{
    return plait_plan_kernel_copy(plan, kernel, f, sizeof(*f));
}

/* Fetches what other ranks need of panel k, with info and the side array's entries of its owner. */
static plait_status_t fetch(plait_plan_t *plan, const plait_factor_kind_t *kind,
                            plait_factor_t *f, int work_slot)
{
    plait_status_t status = PLAIT_OK;
    const plait_dealt_t *d = &f->d;
    const int owner = plait_dealt_owner(d, f->k);
    const int64_t column = plait_dealt_column(d, f->k);
    const int64_t row =
        kind->keeps_diagonal ? column : column + plait_factor_n_pivots(d, f->k);
    plait_move_t extra = {0};

    PLAIT_TRY(plait_dealt_share(owner, f->info_slot, 0,
                                (f->info_slot >= 0) ? sizeof(int32_t) : 0, &extra));
    PLAIT_TRY(plait_dealt_share(owner, f->side_slot, column * kind->side_bytes,
                                plait_factor_n_pivots(d, f->k) * kind->side_bytes,
                                &extra));
    PLAIT_TRY(plait_dealt_fetch(plan, d, f->slot, f->k, row,
                                (f->k + 1 < plait_dealt_n_blocks(d)) ? d->m - row : 0,
                                work_slot, &extra, &f->panel));
done:
    plait_move_clear(&extra);
    return status;
}

/* Updates the own blocks among [first, end) by panel k. Even without such blocks the step looks at info. */
static plait_status_t update(plait_plan_t *plan, const plait_factor_kind_t *kind,
                             plait_factor_t *f, int64_t first, int64_t end)
{
    f->first = first;
    f->end = end;
    return add(plan, kind->update, f);
}

static plait_status_t panel(plait_plan_t *plan, const plait_factor_kind_t *kind,
                            const plait_factor_t *f, int64_t k)
{
    plait_factor_t next = *f;

    next.k = k;
    return (plait_dealt_owner(&f->d, k) == f->rank) ? add(plan, kind->panel, &next)
                                                    : PLAIT_OK;
}

/* One rank factors the whole matrix, which is in one slot, by LAPACK. */
static plait_status_t add_alone(plait_plan_t *plan, const plait_factor_kind_t *kind,
                                const plait_factor_t *given, int src_slot, int slot)
{
    plait_status_t status = PLAIT_OK;
    plait_factor_t f = *given;

    f.d.n_ranks = 1;
    f.d.block = plait_max(f.d.n, 1); /* the same array */
    f.src_slot = src_slot;
    f.slot = slot;
    f.room = plan->slot_bytes[slot];
    PLAIT_TRY(add(plan, kind->start, &f));
    if (plait_factor_n_panels(&f.d) > 0) {
        PLAIT_TRY(panel(plan, kind, &f, 0));
    }
    if (kind->finish != NULL) {
        PLAIT_TRY(add(plan, kind->finish, &f));
    }
done:
    return status;
}

static plait_status_t add_whole(plait_plan_t *plan, const plait_factor_kind_t *kind,
                                const plait_factor_t *f)
{
    plait_status_t status = PLAIT_OK;
    int whole_slot = -1;
    int shared[2];
    int n_shared = 0;

    if (f->side_slot >= 0) {
        shared[n_shared++] = f->side_slot;
    }
    if (f->info_slot >= 0) {
        shared[n_shared++] = f->info_slot;
    }
    PLAIT_TRY(plait_whole_slot(plan, &f->d, &whole_slot));
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(
        plait_whole_collect(plan, &f->d, kind->is_lower, f->src_slot, whole_slot));
    if (plan->rank == PLAIT_WHOLE_ROOT) {
        PLAIT_TRY(add_alone(plan, kind, f, whole_slot, whole_slot));
    }
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(plait_whole_deal(plan, &f->d, kind->is_lower, whole_slot, 0, f->slot,
                               n_shared, shared));
    PLAIT_TRY(plait_plan_fence(plan));
done:
    return status;
}

static plait_status_t add_dealt(plait_plan_t *plan, const plait_factor_kind_t *kind,
                                const plait_factor_t *given)
{
    plait_status_t status = PLAIT_OK;
    plait_factor_t f = *given;
    const int64_t n_blocks = plait_dealt_n_blocks(&f.d);
    const int64_t n_panels = plait_factor_n_panels(&f.d);
    int work_slot = -1;

    PLAIT_TRY(plait_plan_add_work(plan, plait_dealt_panel_bytes(plan, &f.d, f.d.m),
                                  &work_slot));
    PLAIT_TRY(add(plan, kind->start, &f));
    if (n_panels > 0) {
        PLAIT_TRY(panel(plan, kind, &f, 0));
        PLAIT_TRY(plait_plan_arrive(plan));
    }
    for (f.k = 0; f.k < n_panels; f.k++) {
        const bool is_next = f.k + 1 < n_panels;
        const bool is_mine = is_next && plait_dealt_owner(&f.d, f.k + 1) == f.rank;
        PLAIT_TRY(plait_plan_fence(plan));
        PLAIT_TRY(fetch(plan, kind, &f, work_slot));
        if (is_mine) {
            PLAIT_TRY(update(plan, kind, &f, f.k + 1, f.k + 2));
            PLAIT_TRY(panel(plan, kind, &f, f.k + 1));
        }
        if (is_next) {
            PLAIT_TRY(plait_plan_arrive(plan));
        }
        PLAIT_TRY(update(plan, kind, &f, f.k + (is_mine ? 2 : 1), n_blocks));
    }
    PLAIT_TRY(plait_plan_fence(plan));
    f.k = n_panels;
    if (kind->finish != NULL) {
        PLAIT_TRY(add(plan, kind->finish, &f));
    }
done:
    return status;
}

bool plait_factor_is_whole(const plait_factor_kind_t *kind, const plait_dealt_t *d)
{
    const double k = (double)plait_min(d->m, d->n), l = (double)plait_max(d->m, d->n);
    const double complex_flops = plait_is_complex(d->dtype) ? 4 : 1;
    const double n_flops = kind->n_flops * complex_flops * (k * k * l - k * k * k / 3);

    return plait_dense_is_whole(d->m, d->n, plait_whole_is_cheaper(d, n_flops));
}

plait_status_t plait_factor_steps(plait_plan_t *plan, const plait_factor_kind_t *kind,
                                  const plait_factor_t *given)
{
    plait_status_t status = PLAIT_OK;
    plait_factor_t f = *given;

    plan->uses_blas = plan->device == NULL;
    plait_dealt_agree(plan, &f.d);
    f.src_slot = plait_slot_arg(plan, 0);
    f.slot = plait_slot_ret(plan, 0);
    f.room = plan->slot_bytes[f.slot];
    if (plan->n_ranks == 1) {
        PLAIT_TRY(add_alone(plan, kind, &f, f.src_slot, f.slot));
    } else if (plait_factor_is_whole(kind, &f.d)) {
        plait_plan_agree(plan, 1);
        PLAIT_TRY(add_whole(plan, kind, &f));
    } else {
        PLAIT_TRY(add_dealt(plan, kind, &f));
    }
done:
    return status;
}

int64_t plait_factor_n_columns(const plait_factor_t *f)
{
    int64_t n = 0;

    for (int64_t j = plait_dealt_next(&f->d, f->rank, f->first); j < f->end;
         j += f->d.n_ranks) {
        n += plait_dealt_width(&f->d, j);
    }
    return n;
}

char *plait_factor_at(const plait_factor_t *f, const plait_exec_t *exec, int64_t k,
                      int64_t row)
{
    return exec->slot[f->slot] + plait_dealt_at(&f->d, k, row);
}

int32_t *plait_factor_info(const plait_factor_t *f, const plait_exec_t *exec)
{
    return (int32_t *)(void *)exec->slot[f->info_slot];
}

void plait_factor_touch_info(const plait_factor_t *f, bool is_written,
                             plait_touch_fn_t touch, void *context)
{
    const plait_box_copy_t word = {.row_bytes = sizeof(int32_t)};

    if (f->info_slot >= 0) {
        touch(context, is_written, f->rank, f->info_slot, 0, &word);
    }
}

void plait_factor_touch_blocks(const plait_factor_t *f, bool is_written, int slot,
                               int64_t first, int64_t end, bool from_diagonal,
                               plait_touch_fn_t touch, void *context)
{
    const plait_dealt_t *d = &f->d;

    for (int64_t j = plait_dealt_next(d, f->rank, first); j < end; j += d->n_ranks) {
        int64_t row = from_diagonal ? plait_min(plait_dealt_column(d, j), d->m) : 0;
        plait_box_copy_t box = plait_columns_box(d->m - row, plait_dealt_width(d, j),
                                                 d->m, plait_dealt_item(d));
        touch(context, is_written, f->rank, slot, plait_dealt_at(d, j, row), &box);
    }
}

void plait_factor_touch_update(const plait_factor_t *f, plait_touch_fn_t touch,
                               void *context)
{
    const plait_dealt_t *d = &f->d;
    const int64_t first = plait_dealt_next(d, f->rank, f->first);
    const int64_t row = plait_dealt_column(d, f->k);
    const int64_t n_columns = plait_factor_n_columns(f);
    const plait_box_copy_t panel = plait_panel_box(&f->panel, plait_dealt_item(d));
    const plait_box_copy_t own =
        plait_columns_box(d->m - row, n_columns, d->m, plait_dealt_item(d));

    if (n_columns > 0) {
        touch(context, false, f->panel.peer, f->panel.slot, f->panel.offset, &panel);
        touch(context, false, f->rank, f->slot, plait_dealt_at(d, first, row), &own);
        touch(context, true, f->rank, f->slot, plait_dealt_at(d, first, row), &own);
    }
}

static plait_status_t copy_run(const void *params, plait_exec_t *exec)
{
    const plait_factor_t *f = params;
    const int64_t n_bytes =
        plait_dealt_owned(&f->d, f->rank) * plait_dealt_ld_bytes(&f->d);

    if (f->info_slot >= 0) {
        *plait_factor_info(f, exec) = 0;
    }
    if (n_bytes > 0 && exec->slot[f->slot] != exec->slot[f->src_slot]) {
        memcpy(exec->slot[f->slot], exec->slot[f->src_slot], (size_t)n_bytes);
    }
    plait_factor_zero_padding(f, exec);
    return PLAIT_OK;
}

static plait_status_t copy_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_factor_t *f = params;
    const plait_box_copy_t own = {.row_bytes = plait_dealt_owned(&f->d, f->rank) *
                                               plait_dealt_ld_bytes(&f->d)};

    if (f->info_slot >= 0) {
        PLAIT_TRY(plait_tile_zero(tiles, plait_factor_info_spot(f), sizeof(int32_t)));
    }
    PLAIT_TRY(plait_tile_box(tiles, PLAIT_DEVICE_COPY, PLAIT_U8,
                             (plait_spot_t){.slot = f->src_slot},
                             (plait_spot_t){.slot = f->slot}, &own));
    PLAIT_TRY(plait_factor_tile_padding(f, tiles));
done:
    return status;
}

static void copy_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_factor_t *f = params;
    const int64_t n_blocks = plait_dealt_n_blocks(&f->d);

    plait_factor_touch_blocks(f, false, f->src_slot, 0, n_blocks, false, touch,
                              context);
    plait_factor_touch_info(f, true, touch, context);
    plait_factor_touch_blocks(f, true, f->slot, 0, n_blocks, false, touch, context);
    plait_factor_touch_padding(f, touch, context);
}

const plait_kernel_t plait_factor_copy_kernel = {.name = "copy",
                                                 .run = copy_run,
                                                 .tiles = copy_tiles,
                                                 .touch = copy_touch,
                                                 .print = plait_factor_print};

/* Byte offset and size of what lies behind the own columns. */
static int64_t padding_of(const plait_factor_t *f, int64_t *n_bytes_p)
{
    const int64_t at = plait_dealt_owned(&f->d, f->rank) * plait_dealt_ld_bytes(&f->d);

    *n_bytes_p = f->room - at;
    return at;
}

void plait_factor_touch_padding(const plait_factor_t *f, plait_touch_fn_t touch,
                                void *context)
{
    int64_t n_bytes = 0;
    int64_t at = padding_of(f, &n_bytes);
    const plait_box_copy_t box = {.row_bytes = n_bytes};

    touch(context, true, f->rank, f->slot, at, &box);
}

void plait_factor_zero_padding(const plait_factor_t *f, const plait_exec_t *exec)
{
    int64_t n_bytes = 0;
    int64_t at = padding_of(f, &n_bytes);

    if (n_bytes > 0) { /* a slot without bytes has no address */
        memset(exec->slot[f->slot] + at, 0, (size_t)n_bytes);
    }
}

plait_spot_t plait_factor_spot(const plait_factor_t *f, int64_t k, int64_t row)
{
    return (plait_spot_t){.slot = f->slot, .offset = plait_dealt_at(&f->d, k, row)};
}

plait_spot_t plait_factor_info_spot(const plait_factor_t *f)
{
    return (plait_spot_t){.slot = f->info_slot};
}

plait_spot_t plait_factor_panel_spot(const plait_factor_t *f, int64_t row)
{
    return (plait_spot_t){.slot = f->panel.slot,
                          .offset = f->panel.offset + row * plait_dealt_item(&f->d)};
}

plait_status_t plait_factor_tile_padding(const plait_factor_t *f,
                                         const plait_tiles_t *tiles)
{
    int64_t n_bytes = 0;
    const int64_t at = padding_of(f, &n_bytes);

    return plait_tile_zero(tiles, (plait_spot_t){.slot = f->slot, .offset = at},
                           n_bytes);
}

int64_t plait_dense_first_bad(plait_dtype_t dtype, const char *block, int64_t n,
                              int64_t ld)
{
    int64_t first = 0;

    for (int64_t i = 0; i < n && first == 0; i++) {
        const double complex x = plait_scalar_get(dtype, block, i * (ld + 1));
        first = (isfinite(creal(x)) && isfinite(cimag(x))) ? 0 : i + 1;
    }
    return first;
}

void plait_dense_set_nan(plait_dtype_t dtype, void *x, int64_t n)
{
    const bool is_double = plait_real_of(dtype) == PLAIT_F64;
    const bool is_complex = plait_is_complex(dtype);

    for (int64_t i = 0; i < (is_complex ? 2 * n : n); i++) {
        if (is_double) {
            ((double *)x)[i] = NAN;
        } else {
            ((float *)x)[i] = NAN;
        }
    }
}

void plait_factor_print(const void *params, FILE *file)
{
    const plait_factor_t *f = params;

    (void)fprintf(file, "block %" PRId64 " of %" PRId64, f->k + 1,
                  plait_dealt_n_blocks(&f->d));
    if (f->end > f->first) {
        (void)fprintf(file, ", to own ones from %" PRId64 " on below %" PRId64,
                      f->first + 1, f->end + 1);
    }
}
