/* Each rank's part of the product of a reduction's trailing matrix with a panel's V (band.h), from both
 * sides; and what is kept of the panel: its part of the band, and V. */
#include "base/checked.h"
#include "dense/band.h"
#include "dense/scalar.h"
#include "dense/whole.h"

#include <inttypes.h>
#include <string.h>

enum { WIDTH = PLAIT_BAND_WIDTH };

/* Columns of a rank's part that are multiplied together. */
enum { MULTIPLY_COLUMNS = 128 };

/* A tile, which is multiplied from both sides: it is read from memory once and from the second-level cache
 * once. */
enum { TILE_BYTES = 512 << 10 };

/* Y += A V. V begins at row 0 of the matrix, columns ld apart; Y begins at the panel's row, columns m apart. */
typedef struct {
    const plait_hetrd_t *h;
    plait_exec_t *exec;
    plait_band_panel_t q;
    int64_t ld;
} product_t;

static const char *v_at(const product_t *p, int64_t row)
{
    return plait_hetrd_pair(p->h, p->exec, 0, row);
}

static char *y_at(const product_t *p, int64_t row)
{
    return plait_hetrd_part(p->h, p->exec, row - p->q.row);
}

/* A matrix whose columns are `ld` elements apart. */
typedef struct {
    char *x;
    int64_t ld;
} columns_t;

/* Multiplies rows [top, bottom) of some columns from both sides: x is V at the columns, z takes the product
 * there. */
static void multiply_below(const product_t *p, plait_hetrd_chunk_t c, int64_t top,
                           int64_t bottom, columns_t x, columns_t z)
{
    const plait_dtype_t dtype = p->h->a.dtype;
    const int64_t width = c.to - c.from, n = p->h->a.n, item = plait_hetrd_item(p->h),
                  k = p->q.n_reflectors;
    const int64_t n_tile = plait_max(64, TILE_BYTES / (width * item) / 64 * 64);

    for (int64_t row = top; row < bottom; row += n_tile) {
        const int64_t m = plait_min(n_tile, bottom - row);
        const char *a = plait_hetrd_at(p->h, p->exec, c.from, row);
        plait_blas_gemm(dtype, 'N', 'N', m, k, width, 1, a, n, x.x, x.ld, 1,
                        y_at(p, row), p->q.m);
        plait_blas_gemm(dtype, 'C', 'N', width, k, m, 1, a, n, v_at(p, row), p->ld, 1,
                        z.x, z.ld);
    }
}

/* V at a column's row, in its place. */
static columns_t x_of(const product_t *p, int64_t row)
{
    return (columns_t){plait_hetrd_pair(p->h, p->exec, 0, row), p->ld};
}

/* Multiplies columns of one block: its diagonal block, and the rows down to `bottom`. */
static void multiply_block(const product_t *p, plait_hetrd_chunk_t c, int64_t bottom)
{
    const int64_t n = p->h->a.n, width = c.to - c.from;
    const int64_t top = plait_hetrd_column(p->h, c.from);
    const columns_t z = {y_at(p, top), p->q.m};

    plait_blas_hemm(p->h->a.dtype, 'L', 'L', width, p->q.n_reflectors, 1,
                    plait_hetrd_at(p->h, p->exec, c.from, top), n, v_at(p, top), p->ld,
                    1, z.x, z.ld);
    multiply_below(p, c, top + width, bottom, x_of(p, top), z);
}

/* Packs the rows of V that belong to columns. */
static void pack(const product_t *p, plait_hetrd_chunk_t c, char *packed)
{
    const int64_t item = plait_hetrd_item(p->h), width = c.to - c.from;
    const char *v = v_at(p, 0);

    for (int64_t l = 0; l < width; l++) {
        const char *row = v + plait_hetrd_column(p->h, c.from + l) * item;
        for (int64_t i = 0; i < p->q.n_reflectors; i++) {
            memcpy(packed + (i * width + l) * item, row + i * p->ld * item,
                   (size_t)item);
        }
    }
}

/* Adds rows of Y that were computed in packed form. */
static void unpack(const product_t *p, plait_hetrd_chunk_t c, const char *packed)
{
    const plait_dtype_t dtype = p->h->a.dtype;
    const int64_t item = plait_hetrd_item(p->h), width = c.to - c.from;
    char *y = y_at(p, p->q.row);

    for (int64_t l = 0; l < width; l++) {
        char *row = y + (plait_hetrd_column(p->h, c.from + l) - p->q.row) * item;
        for (int64_t i = 0; i < p->q.n_reflectors; i++) {
            plait_scalar_put(dtype, row, i * p->q.m,
                             plait_scalar_get(dtype, row, i * p->q.m) +
                                 plait_scalar_get(dtype, packed, i * width + l));
        }
    }
}

/* Multiplies columns of several blocks: the staircase block by block, all rows below the staircase at once. */
static void multiply_blocks(const product_t *p, plait_hetrd_chunk_t c)
{
    const int64_t item = plait_hetrd_item(p->h), block = p->h->a.block,
                  width = c.to - c.from, n_bytes = width * p->q.n_reflectors * item;
    const int64_t foot = plait_hetrd_column(p->h, c.to - 1) + 1;
    const columns_t x = {p->exec->scratch, width},
                    z = {p->exec->scratch + n_bytes, width};

    for (int64_t l = c.from; l < c.to;) {
        const int64_t end = plait_min(c.to, (l / block + 1) * block);
        multiply_block(p, (plait_hetrd_chunk_t){l, end}, foot);
        l = end;
    }
    pack(p, c, x.x);
    memset(z.x, 0, (size_t)n_bytes);
    multiply_below(p, c, foot, p->h->a.n, x, z);
    unpack(p, c, z.x);
}

/* Keeps the panel's columns of the band, with zeros where bulges will be. */
static void keep(const plait_band_t *b, plait_exec_t *exec, const plait_band_panel_t *q)
{
    const plait_hetrd_t *h = &b->h;
    const plait_dtype_t dtype = h->a.dtype;
    const int64_t item = plait_hetrd_item(h), n = h->a.n;
    const char *head = plait_hetrd_panel(h, exec, plait_hetrd_room(h).head);

    for (int64_t c = 0; c < q->width; c++) {
        const int64_t j = q->first + c, n_rows = plait_min(WIDTH + 1, n - j);
        char *column = plait_hetrd_panel(h, exec, b->band + j * PLAIT_BAND_LD * item);
        memcpy(column, head + (c * PLAIT_BAND_HEAD + c) * item,
               (size_t)(n_rows * item));
        memset(column + n_rows * item, 0, (size_t)((PLAIT_BAND_LD - n_rows) * item));
        plait_scalar_put(dtype, column, 0, creal(plait_scalar_get(dtype, column, 0)));
    }
}

/* Copies V to its places in the copy. */
static void keep_v(const plait_hetrd_t *h, plait_exec_t *exec,
                   const plait_band_panel_t *q)
{
    for (int64_t c = 0; c < q->n_reflectors; c++) {
        const int64_t j = q->first + c;
        if (plait_hetrd_is_owner(h, j)) {
            memcpy(plait_hetrd_at(h, exec, plait_hetrd_local(h, j), q->row),
                   plait_hetrd_pair(h, exec, c, q->row),
                   (size_t)(q->m * plait_hetrd_item(h)));
        }
    }
}

static plait_status_t product_run(const void *params, plait_exec_t *exec)
{
    const plait_band_step_t *s = params;
    const plait_hetrd_t *h = &s->b.h;
    const product_t p = {h, exec, plait_band_panel(h, s->p), plait_hetrd_room(h).ld};

    if (plait_hetrd_has_failed(h, exec)) {
        goto done;
    }
    if (h->rank == PLAIT_WHOLE_ROOT) {
        keep(&s->b, exec, &p.q);
    }
    if (s->b.has_vectors) {
        keep_v(h, exec, &p.q);
    }
    memset(plait_hetrd_part(h, exec, 0), 0,
           (size_t)(p.q.m * p.q.n_reflectors * plait_hetrd_item(h)));
    for (int64_t l = plait_hetrd_local(h, p.q.row); l < plait_hetrd_n_owned(h);) {
        const plait_hetrd_chunk_t c = plait_hetrd_chunk(h, l, MULTIPLY_COLUMNS);
        if (h->a.block >= MULTIPLY_COLUMNS || h->a.n_ranks == 1) {
            multiply_block(&p, c, h->a.n);
        } else {
            multiply_blocks(&p, c);
        }
        l = c.to;
    }
done:
    return PLAIT_OK;
}

static void touch_v(const plait_band_t *b, const plait_hetrd_touch_t *t,
                    const plait_band_panel_t *q)
{
    const plait_hetrd_t *h = t->h;

    for (int64_t j = q->first; j < q->first + q->n_reflectors && b->has_vectors; j++) {
        if (plait_hetrd_is_owner(h, j)) {
            const int64_t at =
                (plait_hetrd_local(h, j) * h->a.n + q->row) * plait_hetrd_item(h);
            plait_hetrd_touch_columns(t, true, h->copy, at, q->m, 1, h->a.n);
        }
    }
}

static void product_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_band_step_t *s = params;
    const plait_hetrd_t *h = &s->b.h;
    const plait_hetrd_touch_t t = {touch, context, h};
    const plait_band_panel_t q = plait_band_panel(h, s->p);
    const int64_t item = plait_hetrd_item(h);

    if (h->rank == PLAIT_WHOLE_ROOT) {
        plait_hetrd_touch_columns(&t, false, h->panel, plait_hetrd_room(h).head,
                                  q.n_head, q.width, PLAIT_BAND_HEAD);
        plait_hetrd_touch_bytes(&t, true, s->b.band + q.first * PLAIT_BAND_LD * item,
                                q.width * PLAIT_BAND_LD * item);
    }
    if (q.m > 0) {
        plait_hetrd_touch_columns(&t, false, h->panel, plait_hetrd_pair_at(h, 0, q.row),
                                  q.m, q.n_reflectors, plait_hetrd_room(h).ld);
        touch_v(&s->b, &t, &q);
        plait_hetrd_touch_trailing(&t, false, q.row);
        plait_hetrd_touch_bytes(&t, true, plait_hetrd_part_at(h),
                                q.m * q.n_reflectors * item);
    }
}

static void product_print(const void *params, FILE *file)
{
    const plait_band_step_t *s = params;
    const plait_band_panel_t q = plait_band_panel(&s->b.h, s->p);

    (void)fprintf(file, "%" PRId64 ", %" PRId64 " columns with %" PRId64, s->p,
                  plait_hetrd_n_owned(&s->b.h) - plait_hetrd_local(&s->b.h, q.row),
                  q.n_reflectors);
}

const plait_kernel_t plait_band_product_kernel = {.name = "product",
                                                  .run = product_run,
                                                  .touch = product_touch,
                                                  .print = product_print};
