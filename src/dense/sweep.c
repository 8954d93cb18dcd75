#include "dense/sweep.h"

#include "base/checked.h"
#include "base/status.h"
#include "kernel/blas.h"

#include <inttypes.h>
#include <string.h>

int64_t plait_sweep_block(int n_ranks, int64_t block, int64_t n, bool has_tiles)
{
    return (n_ranks > 1) ? block : has_tiles ? PLAIT_SWEEP_TILE : plait_max(1, n);
}

plait_status_t plait_sweep_fence(plait_plan_t *plan)
{
    return (plan->n_ranks > 1) ? plait_plan_fence(plan) : PLAIT_OK;
}

/* The matrix without the blocks that begin at or behind row_end. */
static plait_dealt_t left_of(const plait_own_t *own, int64_t row_end)
{
    plait_dealt_t d = own->d;
    int64_t n_blocks = (row_end + d.block - 1) / d.block;

    if (own->is_lower && n_blocks < plait_dealt_n_blocks(&d)) {
        d.n = n_blocks * d.block;
    }
    return d;
}

int64_t plait_own_columns(const plait_own_t *own, int64_t row_end)
{
    const plait_dealt_t d = left_of(own, row_end);

    return plait_dealt_owned(&d, own->rank);
}

int plait_own_readers(const plait_own_t *own, int64_t row_end)
{
    const plait_dealt_t d = left_of(own, row_end);

    return (int)plait_min(d.n_ranks, plait_dealt_n_blocks(&d));
}

plait_panel_t plait_panel_part(const plait_panel_t *panel, int64_t item_bytes,
                               int64_t row, int64_t n_rows, int64_t column,
                               int64_t n_columns)
{
    plait_panel_t part = *panel;

    part.offset += (column * panel->ld + row) * item_bytes;
    part.n_rows = n_rows;
    part.width = n_columns;
    return part;
}

static int64_t rows_offset(const plait_rows_t *rows, int64_t item, int64_t row,
                           int64_t column)
{
    return (column * rows->ld + rows->row + row) * item;
}

/* Touches rows [row, row + n_rows), counted from rows->row, of columns [column, column + n_columns). */
static void touch_rows(plait_touch_fn_t touch, void *context, bool is_write, int rank,
                       const plait_rows_t *rows, int64_t item, int64_t row,
                       int64_t n_rows, int64_t column, int64_t n_columns)
{
    const plait_box_copy_t box = plait_columns_box(n_rows, n_columns, rows->ld, item);

    touch(context, is_write, rank, rows->slot, rows_offset(rows, item, row, column),
          &box);
}

/* ---- product -------------------------------------------------------------------------------- */

/* Columns that a product treats alike: it leaves out their first `cut` rows. */
typedef struct {
    int64_t column, n_columns, cut;
} flight_t;

/* The flight behind *f, which starts as {0}; false at the end. Stairs are level down to the first row; from
 * there on each block is one step. */
static bool next_flight(const plait_product_t *p, flight_t *f)
{
    const plait_dealt_t *d = &p->own.d;
    int64_t column = f->column + f->n_columns;
    int64_t first = (p->stairs == PLAIT_STAIRS_SRC) ? p->src.row : p->dst.row;
    int64_t level =
        (p->stairs == PLAIT_STAIRS_NONE)
            ? p->n_columns
            : plait_min(p->n_columns, plait_own_columns(&p->own, first + 1));

    f->column = column;
    if (column < level) {
        f->n_columns = level - column;
        f->cut = 0;
    } else if (column < p->n_columns) {
        int64_t k = column / d->block * d->n_ranks + p->own.rank;
        f->n_columns = plait_dealt_width(d, k);
        f->cut = plait_dealt_column(d, k) - first;
    }
    return column < p->n_columns;
}

/* Extents of one of a product's BLAS calls, and where the call begins in `part`. */
typedef struct {
    int64_t n_out, n_in, src_row, dst_row;
    int64_t part_row, part_column;
} extents_t;

static extents_t extents_of(const plait_product_t *p, const flight_t *f)
{
    const bool is_plain = (p->trans == 'N');
    const int64_t out_cut = (p->stairs == PLAIT_STAIRS_DST) ? f->cut : 0;
    const int64_t in_cut = (p->stairs == PLAIT_STAIRS_SRC) ? f->cut : 0;

    return (extents_t){
        .n_out = (is_plain ? p->part.n_rows : p->part.width) - out_cut,
        .n_in = (is_plain ? p->part.width : p->part.n_rows) - in_cut,
        .src_row = in_cut,
        .dst_row = out_cut,
        .part_row = is_plain ? out_cut : in_cut,
        .part_column = is_plain ? in_cut : out_cut,
    };
}

/* One of a product's BLAS calls. gemv for one column: gemm packs its operands, which takes half as long again
 * (OpenBLAS 0.3, n = 4000). */
static void multiply(const plait_product_t *p, const flight_t *f, const char *part,
                     const char *src, char *dst)
{
    const plait_dtype_t dtype = p->own.d.dtype;
    const int64_t item = plait_dealt_item(&p->own.d);
    const extents_t e = extents_of(p, f);
    const bool is_plain = (p->trans == 'N');

    part += (e.part_column * p->part.ld + e.part_row) * item;
    src += rows_offset(&p->src, item, e.src_row, f->column);
    dst += rows_offset(&p->dst, item, e.dst_row, f->column);
    if (f->n_columns == 1) {
        plait_blas_gemv(dtype, p->trans, is_plain ? e.n_out : e.n_in,
                        is_plain ? e.n_in : e.n_out, p->alpha, part, p->part.ld, src, 1,
                        p->beta, dst, 1);
    } else {
        plait_blas_gemm(dtype, p->trans, 'N', e.n_out, f->n_columns, e.n_in, p->alpha,
                        part, p->part.ld, src, p->src.ld, p->beta, dst, p->dst.ld);
    }
}

static plait_status_t product_run(const void *params, plait_exec_t *exec)
{
    const plait_product_t *p = params;

    for (flight_t f = {0}; next_flight(p, &f);) {
        multiply(p, &f, plait_panel_address(exec, &p->part), exec->slot[p->src.slot],
                 exec->slot[p->dst.slot]);
    }
    return PLAIT_OK;
}

static plait_spot_t rows_spot(const plait_rows_t *rows, int64_t item, int64_t row,
                              int64_t column)
{
    return (plait_spot_t){.slot = rows->slot,
                          .offset = rows_offset(rows, item, row, column)};
}

static plait_status_t product_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_product_t *p = params;
    const int64_t item = plait_dealt_item(&p->own.d);

    for (flight_t f = {0}; next_flight(p, &f);) {
        const extents_t e = extents_of(p, &f);
        const plait_tile_t multiply_tile = {
            .call = {.op = PLAIT_TILE_GEMM,
                     .dtype = p->own.d.dtype,
                     .trans = p->trans,
                     .trans_b = 'N',
                     .m = e.n_out,
                     .n = f.n_columns,
                     .k = e.n_in,
                     .lda = p->part.ld,
                     .ldb = p->src.ld,
                     .ldc = p->dst.ld,
                     .alpha = p->alpha,
                     .beta = p->beta},
            .a = {.slot = p->part.slot,
                  .offset = p->part.offset +
                            (e.part_column * p->part.ld + e.part_row) * item},
            .b = rows_spot(&p->src, item, e.src_row, f.column),
            .c = rows_spot(&p->dst, item, e.dst_row, f.column)};
        PLAIT_TRY(plait_tile_add(tiles, &multiply_tile));
    }
done:
    return status;
}

static void product_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_product_t *p = params;
    const int64_t item = plait_dealt_item(&p->own.d);
    const plait_box_copy_t part = plait_panel_box(&p->part, item);

    touch(context, false, p->part.peer, p->part.slot, p->part.offset, &part);
    for (flight_t f = {0}; next_flight(p, &f);) {
        const extents_t e = extents_of(p, &f);
        touch_rows(touch, context, false, p->own.rank, &p->src, item, e.src_row, e.n_in,
                   f.column, f.n_columns);
        if (p->beta != 0) {
            touch_rows(touch, context, false, p->own.rank, &p->dst, item, e.dst_row,
                       e.n_out, f.column, f.n_columns);
        }
    }
    for (flight_t f = {0}; next_flight(p, &f);) {
        const extents_t e = extents_of(p, &f);
        touch_rows(touch, context, true, p->own.rank, &p->dst, item, e.dst_row, e.n_out,
                   f.column, f.n_columns);
    }
}

static void product_print(const void *params, FILE *file)
{
    const plait_product_t *p = params;

    (void)fprintf(
        file,
        "rows from %" PRId64 ", %s %s%" PRId64 " x %" PRId64
        " of rank %d's panel%s, times rows from %" PRId64 " of %" PRId64 " columns%s",
        p->dst.row, (p->beta == 0) ? "set to" : "updated with",
        (p->alpha < 0) ? "- " : "", p->part.n_rows, p->part.width, p->part.peer,
        (p->trans == 'N')   ? ""
        : (p->trans == 'T') ? " transposed"
                            : " adjoint",
        p->src.row, p->n_columns, (p->stairs == PLAIT_STAIRS_NONE) ? "" : ", lower");
}

static const plait_kernel_t product_kernel = {
    .name = "gemm",
    .run = product_run,
    .tiles = product_tiles,
    .touch = product_touch,
    .print = product_print,
};

plait_status_t plait_sweep_product(plait_plan_t *plan, const plait_product_t *product)
{
    const bool is_empty = product->n_columns == 0 || product->part.n_rows == 0 ||
                          product->part.width == 0;

    return is_empty ? PLAIT_OK
                    : plait_plan_kernel_copy(plan, &product_kernel, product,
                                             sizeof(*product));
}

/* ---- triangle ------------------------------------------------------------------------------- */

static bool is_in_place(const plait_triangle_t *t)
{
    return t->src.slot == t->dst.slot && t->src.row == t->dst.row;
}

static plait_status_t triangle_run(const void *params, plait_exec_t *exec)
{
    const plait_triangle_t *t = params;
    const plait_dtype_t dtype = t->own.d.dtype;
    const int64_t item = plait_dealt_item(&t->own.d), n = t->part.n_rows;
    const char *part = plait_panel_address(exec, &t->part);
    const char *src = exec->slot[t->src.slot] + rows_offset(&t->src, item, 0, 0);
    char *dst = exec->slot[t->dst.slot] + rows_offset(&t->dst, item, 0, 0);

    if (!is_in_place(t)) {
        plait_box_copy_t box = plait_columns_box(n, t->n_columns, t->src.ld, item);
        box.dst_stride[0] = t->dst.ld * item;
        plait_host_copy_box(&box, src, dst);
    }
    if (t->is_solve) {
        plait_blas_trsm(dtype, 'L', t->uplo, t->trans, t->diag, n, t->n_columns, 1,
                        part, t->part.ld, dst, t->dst.ld);
    } else {
        plait_blas_trmm(dtype, 'L', t->uplo, t->trans, t->diag, n, t->n_columns, 1,
                        part, t->part.ld, dst, t->dst.ld);
    }
    return PLAIT_OK;
}

static plait_status_t triangle_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_triangle_t *t = params;
    const int64_t item = plait_dealt_item(&t->own.d), n = t->part.n_rows;
    const plait_spot_t src = rows_spot(&t->src, item, 0, 0);
    const plait_spot_t dst = rows_spot(&t->dst, item, 0, 0);
    const plait_tile_t tile = {
        .call = {.op = t->is_solve ? PLAIT_TILE_TRSM : PLAIT_TILE_TRMM,
                 .dtype = t->own.d.dtype,
                 .side = 'L',
                 .uplo = t->uplo,
                 .trans = t->trans,
                 .diag = t->diag,
                 .m = n,
                 .n = t->n_columns,
                 .lda = t->part.ld,
                 .ldc = t->dst.ld},
        .a = {.slot = t->part.slot, .offset = t->part.offset},
        .c = dst};
    plait_box_copy_t box = plait_columns_box(n, t->n_columns, t->src.ld, item);

    box.dst_stride[0] = t->dst.ld * item;
    if (!is_in_place(t)) {
        PLAIT_TRY(plait_tile_box(tiles, PLAIT_DEVICE_COPY, PLAIT_U8, src, dst, &box));
    }
    PLAIT_TRY(plait_tile_add(tiles, &tile));
done:
    return status;
}

static void triangle_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_triangle_t *t = params;
    const int64_t item = plait_dealt_item(&t->own.d), n = t->part.n_rows;
    const plait_box_copy_t part = plait_panel_box(&t->part, item);

    touch(context, false, t->part.peer, t->part.slot, t->part.offset, &part);
    touch_rows(touch, context, false, t->own.rank, &t->src, item, 0, n, 0,
               t->n_columns);
    touch_rows(touch, context, true, t->own.rank, &t->dst, item, 0, n, 0, t->n_columns);
}

static void triangle_print(const void *params, FILE *file)
{
    const plait_triangle_t *t = params;

    (void)fprintf(file,
                  "rows from %" PRId64 " of %" PRId64
                  " columns %s %s%s triangle of %" PRId64 " of rank %d's panel",
                  t->dst.row, t->n_columns, t->is_solve ? "solved with" : "times",
                  (t->diag == 'U') ? "unit " : "", (t->uplo == 'L') ? "lower" : "upper",
                  t->part.n_rows, t->part.peer);
    (void)fprintf(file, "%s",
                  (t->trans == 'N')   ? ""
                  : (t->trans == 'T') ? " transposed"
                                      : " adjoint");
}

static const plait_kernel_t triangle_kernel = {
    .name = "triangle",
    .run = triangle_run,
    .tiles = triangle_tiles,
    .touch = triangle_touch,
    .print = triangle_print,
};

plait_status_t plait_sweep_triangle(plait_plan_t *plan,
                                    const plait_triangle_t *triangle)
{
    const bool is_empty = triangle->n_columns == 0 || triangle->part.n_rows == 0;

    return is_empty ? PLAIT_OK
                    : plait_plan_kernel_copy(plan, &triangle_kernel, triangle,
                                             sizeof(*triangle));
}

/* ---- outline -------------------------------------------------------------------------------- */

/* Columns in which the same rows are kept. */
typedef struct {
    int64_t column, n_columns; /* in the rank's array */
    int64_t first, end;        /* rows */
} strip_t;

/* The strip behind *s, which starts as {0}: columns of a lower matrix one by one, then the columns behind the
 * rank's own. */
static bool next_strip(const plait_outline_t *o, strip_t *s)
{
    const plait_dealt_t *d = &o->own.d;
    const int64_t n_own = plait_dealt_owned(d, o->own.rank);
    const int64_t column = s->column + s->n_columns;

    *s = (strip_t){.column = column, .n_columns = n_own - column, .end = o->n_rows};
    if (column >= n_own) {
        s->n_columns = o->n_stored - column;
        s->end = 0;
    } else if (o->own.is_lower) {
        int64_t k = column / d->block * d->n_ranks + o->own.rank;
        s->n_columns = 1;
        s->first = plait_min(plait_dealt_column(d, k) + column % d->block, o->n_rows);
    }
    return s->n_columns > 0;
}

/* Rows [first, end) of a strip, in a slot. */
static plait_box_copy_t strip_box(const plait_outline_t *o, const strip_t *s,
                                  int64_t first, int64_t end, int64_t *offset_p)
{
    const int64_t item = plait_dealt_item(&o->own.d), ld = o->own.d.m;
    plait_box_copy_t box = plait_columns_box(end - first, s->n_columns, ld, item);

    *offset_p = (s->column * ld + first) * item;
    plait_box_simplify(&box);
    return box;
}

static plait_status_t outline_run(const void *params, plait_exec_t *exec)
{
    const plait_outline_t *o = params;
    const char *src = (o->src_slot >= 0) ? exec->slot[o->src_slot] : NULL;
    char *dst = exec->slot[o->dst_slot];
    plait_box_copy_t box;
    int64_t at = 0;

    for (strip_t s = {0}; next_strip(o, &s);) {
        box = strip_box(o, &s, 0, s.first, &at);
        plait_host_zero_box(&box, dst + at);
        box = strip_box(o, &s, s.end, o->own.d.m, &at);
        plait_host_zero_box(&box, dst + at);
        if (src != NULL && src != dst) {
            box = strip_box(o, &s, s.first, s.end, &at);
            plait_host_copy_box(&box, src + at, dst + at);
        }
    }
    return PLAIT_OK;
}

/* The own columns of a lower matrix, block by block. */
static plait_status_t lower_tiles(const plait_outline_t *o, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_dealt_t *d = &o->own.d;
    const int src = (o->src_slot >= 0) ? o->src_slot : o->dst_slot;

    for (int64_t k = o->own.rank; k < plait_dealt_n_blocks(d); k += d->n_ranks) {
        const int64_t at = plait_dealt_at(d, k, 0);
        const plait_tile_t trim = {.call = {.op = PLAIT_TILE_TRIM,
                                            .dtype = d->dtype,
                                            .diag = 'N',
                                            .m = d->m,
                                            .n = plait_dealt_width(d, k),
                                            .k = o->n_rows,
                                            .row = plait_dealt_column(d, k),
                                            .lda = d->m,
                                            .ldc = d->m},
                                   .a = {.slot = src, .offset = at},
                                   .c = {.slot = o->dst_slot, .offset = at}};
        PLAIT_TRY(plait_tile_add(tiles, &trim));
    }
done:
    return status;
}

static plait_status_t outline_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_outline_t *o = params;

    for (strip_t s = {0}; next_strip(o, &s);) {
        plait_spot_t dst = {.slot = o->dst_slot};
        plait_box_copy_t box = strip_box(o, &s, s.end, o->own.d.m, &dst.offset);
        const bool is_behind = s.column >= plait_dealt_owned(&o->own.d, o->own.rank);
        if (o->own.is_lower && !is_behind) {
            continue;
        }
        PLAIT_TRY(plait_tile_box(tiles, PLAIT_DEVICE_ZERO, PLAIT_U8, dst, dst, &box));
        if (o->src_slot >= 0) {
            box = strip_box(o, &s, s.first, s.end, &dst.offset);
            const plait_spot_t src = {.slot = o->src_slot, .offset = dst.offset};
            PLAIT_TRY(
                plait_tile_box(tiles, PLAIT_DEVICE_COPY, PLAIT_U8, src, dst, &box));
        }
    }
    if (o->own.is_lower) {
        PLAIT_TRY(lower_tiles(o, tiles));
    }
done:
    return status;
}

static void outline_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_outline_t *o = params;
    plait_box_copy_t box;
    int64_t at = 0;

    for (strip_t s = {0}; o->src_slot >= 0 && next_strip(o, &s);) {
        box = strip_box(o, &s, s.first, s.end, &at);
        touch(context, false, o->own.rank, o->src_slot, at, &box);
    }
    for (strip_t s = {0}; next_strip(o, &s);) {
        box = strip_box(o, &s, 0, s.first, &at);
        touch(context, true, o->own.rank, o->dst_slot, at, &box);
        box = strip_box(o, &s, s.end, o->own.d.m, &at);
        touch(context, true, o->own.rank, o->dst_slot, at, &box);
        if (o->src_slot >= 0) {
            box = strip_box(o, &s, s.first, s.end, &at);
            touch(context, true, o->own.rank, o->dst_slot, at, &box);
        }
    }
}

static void outline_print(const void *params, FILE *file)
{
    const plait_outline_t *o = params;

    (void)fprintf(file, "%s %" PRId64 " x %" PRId64 "%s, zero elsewhere",
                  (o->src_slot >= 0) ? "operand," : "keeps", o->n_rows,
                  plait_dealt_owned(&o->own.d, o->own.rank),
                  o->own.is_lower ? " lower" : "");
}

static const plait_kernel_t outline_kernel = {
    .name = "outline",
    .run = outline_run,
    .tiles = outline_tiles,
    .touch = outline_touch,
    .print = outline_print,
};

plait_status_t plait_sweep_outline(plait_plan_t *plan, const plait_outline_t *outline)
{
    const plait_own_t *own = &outline->own;
    const bool is_whole = outline->n_rows == own->d.m && !own->is_lower &&
                          outline->n_stored == plait_dealt_owned(&own->d, own->rank);
    const bool is_empty = own->d.m == 0 || outline->n_stored == 0;

    return (is_empty || (is_whole && outline->src_slot < 0))
               ? PLAIT_OK
               : plait_plan_kernel_copy(plan, &outline_kernel, outline,
                                        sizeof(*outline));
}
