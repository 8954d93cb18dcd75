/* Each rank's part of the product of a reduction's trailing matrix (hetrd.h) with a column's reflector, from
 * both sides. */
#include "base/checked.h"
#include "dense/hetrd_memory.h"
#include "dense/scalar.h"

#include <inttypes.h>
#include <string.h>

/* Columns of a rank's part that are multiplied together. */
enum { MULTIPLY_COLUMNS = 64 };

/* A tile, which is multiplied from both sides: it is read from memory once and from the second-level cache
 * once. */
enum { TILE_BYTES = 192 << 10 };

/* y += A v. Both begin at row 0 of the matrix. */
typedef struct {
    const plait_hetrd_t *h;
    plait_exec_t *exec;
    const char *v;
    char *y;
} product_t;

/* Multiplies rows [top, bottom) of some columns from both sides: x is v at the columns, z takes the product
 * there. */
static void multiply_below(const product_t *p, plait_hetrd_chunk_t c, int64_t top,
                           int64_t bottom, const char *x, char *z)
{
    const plait_dtype_t dtype = p->h->a.dtype;
    const int64_t width = c.to - c.from, n = p->h->a.n, item = plait_hetrd_item(p->h);
    const int64_t n_tile = plait_max(64, TILE_BYTES / (width * item) / 64 * 64);

    for (int64_t row = top; row < bottom; row += n_tile) {
        const int64_t m = plait_min(n_tile, bottom - row);
        const char *a = plait_hetrd_at(p->h, p->exec, c.from, row);
        plait_blas_gemv(dtype, 'N', m, width, 1, a, n, x, 1, 1, p->y + row * item, 1);
        plait_blas_gemv(dtype, 'C', m, width, 1, a, n, p->v + row * item, 1, 1, z, 1);
    }
}

/* Multiplies columns of one block: its diagonal block, and the rows down to `bottom`. */
static void multiply_block(const product_t *p, plait_hetrd_chunk_t c, int64_t bottom)
{
    const int64_t n = p->h->a.n, item = plait_hetrd_item(p->h);
    const int64_t top = plait_hetrd_column(p->h, c.from), behind = top + c.to - c.from;

    plait_blas_hemv(p->h->a.dtype, 'L', c.to - c.from, 1,
                    plait_hetrd_at(p->h, p->exec, c.from, top), n, p->v + top * item, 1,
                    1, p->y + top * item, 1);
    multiply_below(p, c, behind, bottom, p->v + top * item, p->y + top * item);
}

/* Multiplies columns of several blocks: the staircase block by block, all rows below the staircase at once. */
static void multiply_blocks(const product_t *p, plait_hetrd_chunk_t c)
{
    const plait_dtype_t dtype = p->h->a.dtype;
    const int64_t item = plait_hetrd_item(p->h), block = p->h->a.block,
                  width = c.to - c.from;
    const int64_t foot = plait_hetrd_column(p->h, c.to - 1) + 1;
    char *x = p->exec->scratch, *z = x + width * item;

    for (int64_t l = c.from; l < c.to;) {
        const plait_hetrd_chunk_t one = {l, plait_min(c.to, (l / block + 1) * block)};
        const int64_t top = plait_hetrd_column(p->h, l);
        multiply_block(p, one, foot);
        memcpy(x + (l - c.from) * item, p->v + top * item,
               (size_t)((one.to - l) * item));
        l = one.to;
    }
    memset(z, 0, (size_t)(width * item));
    multiply_below(p, c, foot, p->h->a.n, x, z);
    for (int64_t l = 0; l < width; l++) {
        const int64_t g = plait_hetrd_column(p->h, c.from + l);
        plait_scalar_put(dtype, p->y, g,
                         plait_scalar_get(dtype, p->y, g) +
                             plait_scalar_get(dtype, z, l));
    }
}

/* This rank's rows' share in the products of the panel's vectors with v. */
static void multiply_pairs(const product_t *p, int64_t j)
{
    const plait_hetrd_t *h = p->h;
    const int64_t i = j % PLAIT_HETRD_WIDTH, n = h->a.n, item = plait_hetrd_item(h),
                  m = n - j - 1;
    const int64_t from = j + 1 + m * h->rank / h->a.n_ranks;
    const int64_t to = j + 1 + m * (h->rank + 1) / h->a.n_ranks;

    if (i > 0 && to > from) {
        plait_blas_gemv(h->a.dtype, 'C', to - from, 2 * i, 1,
                        plait_hetrd_pair(h, p->exec, 0, from), plait_hetrd_room(h).ld,
                        p->v + from * item, 1, 1, p->y + n * item, 1);
    }
}

/* Keeps d, e and tau, which came above the reflector. */
static void keep(const plait_hetrd_t *h, plait_exec_t *exec, int64_t j)
{
    const plait_dtype_t dtype = h->a.dtype, real = plait_real_of(dtype);
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    const char *head = plait_hetrd_pair(h, exec, 2 * (j % PLAIT_HETRD_WIDTH), j - 2);

    plait_scalar_put(real, plait_hetrd_panel(h, exec, room.d), j,
                     plait_scalar_get(dtype, head, 0));
    plait_scalar_put(real, plait_hetrd_panel(h, exec, room.e), j,
                     plait_scalar_get(dtype, head, 1));
    plait_scalar_put(dtype, plait_hetrd_panel(h, exec, room.tau), j,
                     (j + 1 < h->a.n) ? plait_scalar_get(dtype, head, 2) : 0);
}

static plait_status_t product_run(const void *params, plait_exec_t *exec)
{
    const plait_hetrd_step_t *q = params;
    const plait_hetrd_t *h = &q->h;
    const int64_t j = q->j, n = h->a.n, item = plait_hetrd_item(h),
                  n_more = 2 * (j % PLAIT_HETRD_WIDTH);
    const product_t p = {h, exec,
                         plait_hetrd_pair(h, exec, 2 * (j % PLAIT_HETRD_WIDTH), 0),
                         plait_hetrd_part(h, exec, 0)};

    if (plait_hetrd_has_failed(h, exec)) {
        goto done;
    }
    keep(h, exec, j);
    memset(p.y + (j + 1) * item, 0, (size_t)((n - j - 1 + n_more) * item));
    for (int64_t l = plait_hetrd_local(h, j + 1); l < plait_hetrd_n_owned(h);) {
        const plait_hetrd_chunk_t c = plait_hetrd_chunk(h, l, MULTIPLY_COLUMNS);
        if (h->a.block >= MULTIPLY_COLUMNS || h->a.n_ranks == 1) {
            multiply_block(&p, c, n);
        } else {
            multiply_blocks(&p, c);
        }
        l = c.to;
    }
    multiply_pairs(&p, j);
done:
    return PLAIT_OK;
}

static void product_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_hetrd_step_t *p = params;
    const plait_hetrd_t *h = &p->h;
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    const plait_hetrd_touch_t t = {touch, context, h};
    const int64_t j = p->j, n = h->a.n, item = plait_hetrd_item(h),
                  i = j % PLAIT_HETRD_WIDTH;
    const int64_t real = plait_dtype_bytes(plait_real_of(h->a.dtype));

    plait_hetrd_touch_columns(&t, false, h->panel, plait_hetrd_pair_at(h, 2 * i, j - 2),
                              n - j + 2, 1, n);
    plait_hetrd_touch_bytes(&t, true, room.d + j * real, real);
    plait_hetrd_touch_bytes(&t, true, room.e + j * real, real);
    plait_hetrd_touch_bytes(&t, true, room.tau + j * item, item);
    plait_hetrd_touch_pairs(&t, false, 0, 2 * i, j + 1);
    plait_hetrd_touch_trailing(&t, false, j + 1);
    plait_hetrd_touch_columns(&t, true, h->panel,
                              plait_hetrd_part_at(h) + (j + 1) * item,
                              n - j - 1 + 2 * i, 1, n);
}

static void product_print(const void *params, FILE *file)
{
    const plait_hetrd_step_t *p = params;
    const int64_t l = plait_hetrd_local(&p->h, p->j + 1);

    (void)fprintf(file, "%" PRId64 ", %" PRId64 " columns", p->j,
                  plait_hetrd_n_owned(&p->h) - l);
}

const plait_kernel_t plait_hetrd_product_kernel = {.name = "product",
                                                   .run = product_run,
                                                   .touch = product_touch,
                                                   .print = product_print};
