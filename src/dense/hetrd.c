#include "dense/hetrd.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"
#include "dense/fan.h"
#include "dense/pieces.h"
#include "dense/scalar.h"
#include "kernel/blas.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* d, e and tau stand above a reflector, so that all of it is one message. */
enum { HEAD = 2, WIDTH = PLAIT_HETRD_WIDTH };

/* Columns of a rank's part that are multiplied, and updated, at a time. */
enum { MULTIPLY_COLUMNS = 64, UPDATE_COLUMNS = 128 };

/* Of a part that is multiplied from both sides: it is read from memory once and from the
 * second-level cache once. */
enum { TILE_BYTES = 192 << 10 };

typedef struct {
    plait_hetrd_t h;
    int64_t j; /* column */
} column_t;

static int64_t item_of(const plait_hetrd_t *h)
{
    return plait_dealt_item(&h->a);
}

static int64_t line(int64_t n_bytes)
{
    return (n_bytes + 63) / 64 * 64;
}

plait_hetrd_room_t plait_hetrd_room(const plait_hetrd_t *h)
{
    const int64_t n = h->a.n, item = item_of(h);
    const int64_t real = plait_dtype_bytes(plait_real_of(h->a.dtype));
    plait_hetrd_room_t r = {.pairs = 0, .ld = n + HEAD};

    r.stride = line((n + 2 * WIDTH) * item);
    r.pieces = line(2 * WIDTH * r.ld * item);
    r.sum = r.pieces + h->n_pieces * r.stride;
    r.d = r.sum + r.stride;
    r.e = r.d + line(n * real);
    r.tau = r.e + line(n * real);
    r.state = r.tau + line(n * item);
    r.norms = r.state + line((int64_t)sizeof(plait_hetrd_state_t));
    r.n_bytes = r.norms + line(h->n_pieces * (int64_t)sizeof(double));
    return r;
}

/* Which of the kept pieces is this rank's. */
static int64_t own_piece(const plait_hetrd_t *h)
{
    return (h->n_pieces > 1) ? h->rank : 0;
}

static int64_t n_owned(const plait_hetrd_t *h)
{
    return plait_dealt_owned(&h->a, h->rank);
}

/* Of a local column: which one it is. */
static int64_t global_of(const plait_hetrd_t *h, int64_t l)
{
    return (l / h->a.block * h->a.n_ranks + h->rank) * h->a.block + l % h->a.block;
}

/* The first local column that is column j of the matrix or behind it. */
static int64_t local_from(const plait_hetrd_t *h, int64_t j)
{
    const int64_t k = j / h->a.block;
    const int64_t next = plait_dealt_next(&h->a, h->rank, k);

    return plait_min(n_owned(h), plait_dealt_local(&h->a, next) +
                                     ((next == k) ? j % h->a.block : 0));
}

static bool is_owner(const plait_hetrd_t *h, int64_t j)
{
    return plait_dealt_owner(&h->a, j / h->a.block) == h->rank;
}

/* Row `row` of vector c of the panel, from its beginning. */
static int64_t pair_at(const plait_hetrd_t *h, int64_t c, int64_t row)
{
    return (c * plait_hetrd_room(h).ld + HEAD + row) * item_of(h);
}

/* ---- Memory of a rank while a kernel runs ------------------------------------------------------ */

static char *panel(const plait_hetrd_t *h, const plait_exec_t *exec, int64_t offset)
{
    return exec->slot[h->panel] + offset;
}

static char *pair(const plait_hetrd_t *h, const plait_exec_t *exec, int64_t c,
                  int64_t row)
{
    return panel(h, exec, pair_at(h, c, row));
}

/* Row `row` of a vector that is summed: this rank's part, or the sum. */
static char *own_part(const plait_hetrd_t *h, const plait_exec_t *exec, int64_t row)
{
    const plait_hetrd_room_t room = plait_hetrd_room(h);

    return panel(h, exec, room.pieces + own_piece(h) * room.stride + row * item_of(h));
}

static char *sum(const plait_hetrd_t *h, const plait_exec_t *exec, int64_t row)
{
    return panel(h, exec, plait_hetrd_room(h).sum + row * item_of(h));
}

static char *local(const plait_hetrd_t *h, const plait_exec_t *exec, int64_t l,
                   int64_t row)
{
    return exec->slot[h->copy] + (l * h->a.n + row) * item_of(h);
}

/* ---- What kernels touch ---------------------------------------------------------------------- */

typedef struct {
    plait_touch_fn_t touch;
    void *context;
    const plait_hetrd_t *h;
} toucher_t;

static void touch_columns(const toucher_t *t, bool is_write, int slot, int64_t offset,
                          int64_t n_rows, int64_t n_columns, int64_t ld)
{
    const plait_box_copy_t box =
        plait_columns_box(n_rows, n_columns, ld, item_of(t->h));

    if (n_rows > 0 && n_columns > 0) {
        t->touch(t->context, is_write, t->h->rank, slot, offset, &box);
    }
}

static void touch_bytes(const toucher_t *t, bool is_write, int64_t offset,
                        int64_t n_bytes)
{
    const plait_box_copy_t box = {.row_bytes = n_bytes};

    t->touch(t->context, is_write, t->h->rank, t->h->panel, offset, &box);
}

/* Rows [row, n) of the panel's first n_columns vectors. */
static void touch_pairs(const toucher_t *t, bool is_write, int64_t first,
                        int64_t n_columns, int64_t row)
{
    touch_columns(t, is_write, t->h->panel, pair_at(t->h, first, row), t->h->a.n - row,
                  n_columns, plait_hetrd_room(t->h).ld);
}

/* Rows [j, n) of this rank's columns from j on. */
static void touch_trailing(const toucher_t *t, bool is_write, int64_t j)
{
    const int64_t l = local_from(t->h, j), n = t->h->a.n;

    touch_columns(t, is_write, t->h->copy, (l * n + j) * item_of(t->h), n - j,
                  n_owned(t->h) - l, n);
}

/* ---- The copy, and its norm ------------------------------------------------------------------- */

static plait_status_t copy_run(const void *params, plait_exec_t *exec)
{
    const plait_hetrd_t *h = params;
    const int64_t n = h->a.n, item = item_of(h);
    const plait_dtype_t dtype = h->a.dtype;
    double *norm = (double *)(void *)panel(h, exec, plait_hetrd_room(h).norms);

    norm += own_piece(h);
    *norm = 0;
    for (int64_t l = 0; l < n_owned(h); l++) {
        const int64_t j = global_of(h, l);
        char *column = local(h, exec, l, 0);
        const char *from = exec->slot[h->src] + l * n * item;
        memset(column, 0, (size_t)(j * item));
        memcpy(column + j * item, from + j * item, (size_t)((n - j) * item));
        plait_scalar_put(dtype, column, j, creal(plait_scalar_get(dtype, column, j)));
        double largest =
            plait_blas_lange(dtype, 'M', n - j, 1, column + j * item, n, NULL);
        *norm = (largest > *norm || isnan(largest)) ? largest : *norm;
        if (isnan(*norm)) {
            break; /* nothing is computed with the rest */
        }
    }
    return PLAIT_OK;
}

static void copy_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_hetrd_t *h = params;
    const toucher_t t = {touch, context, h};
    const int64_t n = h->a.n, item = item_of(h);

    for (int64_t l = 0; l < n_owned(h); l++) {
        const int64_t j = global_of(h, l);
        touch_columns(&t, false, h->src, (l * n + j) * item, n - j, 1, n);
    }
    touch_columns(&t, true, h->copy, 0, n, n_owned(h), n);
    touch_bytes(&t, true,
                plait_hetrd_room(h).norms + own_piece(h) * (int64_t)sizeof(double),
                sizeof(double));
}

static void copy_print(const void *params, FILE *file)
{
    const plait_hetrd_t *h = params;

    (void)fprintf(file, "%" PRId64 " columns, and their largest element", n_owned(h));
}

static const plait_kernel_t copy_kernel = {
    .name = "copy", .run = copy_run, .touch = copy_touch, .print = copy_print};

/* As LAPACK's heevd: squares of what is kept neither overflow nor vanish. */
static double scale_for(plait_dtype_t dtype, double norm)
{
    const bool is_single = plait_real_of(dtype) == PLAIT_F32;
    const double least =
        is_single ? (double)(FLT_MIN / FLT_EPSILON) : DBL_MIN / DBL_EPSILON;
    const double low = sqrt(least), high = 1 / low;

    return (norm > 0 && norm < low) ? low / norm : (norm > high) ? high / norm : 1;
}

static void multiply(plait_dtype_t real, int64_t n, void *x, double factor)
{
    for (int64_t i = 0; i < n; i++) {
        if (real == PLAIT_F32) {
            ((float *)x)[i] = (float)(((float *)x)[i] * factor);
        } else {
            ((double *)x)[i] *= factor;
        }
    }
}

static plait_status_t scale_run(const void *params, plait_exec_t *exec)
{
    const plait_hetrd_t *h = params;
    const int64_t n = h->a.n;
    const plait_dtype_t real = plait_real_of(h->a.dtype);
    plait_hetrd_state_t *state = plait_hetrd_state(h, exec);

    state->scale = scale_for(h->a.dtype, state->norm);
    if (state->scale != 1 && !plait_hetrd_has_failed(h, exec)) {
        for (int64_t l = 0; l < n_owned(h); l++) {
            const int64_t j = global_of(h, l);
            multiply(real, (n - j) * item_of(h) / plait_dtype_bytes(real),
                     local(h, exec, l, j), state->scale);
        }
    }
    return PLAIT_OK;
}

static void scale_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_hetrd_t *h = params;
    const toucher_t t = {touch, context, h};
    const int64_t state = plait_hetrd_room(h).state;

    touch_bytes(&t, false, state, sizeof(double));
    touch_trailing(&t, false, 0);
    touch_trailing(&t, true, 0);
    touch_bytes(&t, true, state, sizeof(plait_hetrd_state_t));
}

static void scale_print(const void *params, FILE *file)
{
    (void)params;
    (void)fprintf(file, "where squares would overflow or vanish");
}

static const plait_kernel_t scale_kernel = {
    .name = "scale", .run = scale_run, .touch = scale_touch, .print = scale_print};

/* ---- A column: the last one's w, the trailing matrix, the next reflector -------------------------- */

/* y += a x, of one column a. */
static void add_multiple(plait_dtype_t dtype, int64_t m, const void *a,
                         double complex x, double beta, void *y)
{
    double complex number; /* room for a number of any dtype */

    plait_scalar_put(dtype, &number, 0, x);
    plait_blas_gemv(dtype, 'N', m, 1, 1, a, m, &number, 1, beta, y, 1);
}

/* w = tau (A v - v's of the panel (w's^H v) - w's (v's^H v)) and then - tau / 2 (w^H v) v, from the
 * sum of the ranks' A v, with the panel's vectors^H v behind it. */
static void make_w(const plait_hetrd_t *h, plait_exec_t *exec, int64_t j)
{
    const plait_dtype_t dtype = h->a.dtype;
    const int64_t n = h->a.n, i = j % WIDTH, m = n - j - 1;
    const char *products = sum(h, exec, n);
    char *v = pair(h, exec, 2 * i, j + 1), *w = pair(h, exec, 2 * i + 1, j + 1);
    double complex tau =
        plait_scalar_get(dtype, panel(h, exec, plait_hetrd_room(h).tau), j);
    double complex c[2 * WIDTH]; /* room for any dtype */
    double complex dot;

    add_multiple(dtype, m, sum(h, exec, j + 1), tau, 0, w);
    for (int64_t q = 0; q < 2 * i; q++) {
        plait_scalar_put(dtype, c, q, tau * plait_scalar_get(dtype, products, q ^ 1));
    }
    if (i > 0) {
        plait_blas_gemv(dtype, 'N', m, 2 * i, -1, pair(h, exec, 0, j + 1),
                        plait_hetrd_room(h).ld, c, 1, 1, w, 1);
    }
    plait_blas_gemv(dtype, 'C', m, 1, 1, w, m, v, 1, 0, &dot, 1);
    add_multiple(dtype, m, v, -tau / 2 * plait_scalar_get(dtype, &dot, 0), 1, w);
}

/* A - v w^H - w v^H for all vectors of the panel before column j, and this rank's columns from j
 * on; what stands above the diagonal is changed, too, and never read. */
static void update(const plait_hetrd_t *h, plait_exec_t *exec, int64_t j)
{
    const plait_dtype_t dtype = h->a.dtype;
    const int64_t n = h->a.n, item = item_of(h), ld = plait_hetrd_room(h).ld;

    for (int64_t l = local_from(h, j); l < n_owned(h); l += UPDATE_COLUMNS) {
        const int64_t width = plait_min(UPDATE_COLUMNS, n_owned(h) - l);
        const int64_t top = global_of(h, l);
        char *swapped = exec->scratch; /* w0 v0 w1 v1 ... of the columns' rows */
        for (int64_t c = 0; c < width; c++) {
            const char *row = pair(h, exec, 0, global_of(h, l + c));
            for (int64_t q = 0; q < 2 * WIDTH; q++) {
                memcpy(swapped + (q * width + c) * item, row + (q ^ 1) * ld * item,
                       (size_t)item);
            }
        }
        plait_blas_gemm(dtype, 'N', 'C', n - top, width, 2 * WIDTH, -1,
                        pair(h, exec, 0, top), ld, swapped, width, 1,
                        local(h, exec, l, top), n);
    }
}

/* The owner's: column j without what the panel's reflectors take from it, then its own. */
static void reflect(const plait_hetrd_t *h, plait_exec_t *exec, int64_t j)
{
    const plait_dtype_t dtype = h->a.dtype;
    const int64_t n = h->a.n, item = item_of(h), i = j % WIDTH;
    char *v = pair(h, exec, 2 * i, 0);
    char *column = local(h, exec, local_from(h, j), 0);
    double complex c[2 * WIDTH];

    memcpy(v + j * item, column + j * item, (size_t)((n - j) * item));
    for (int64_t q = 0; q < 2 * i; q++) {
        plait_scalar_put(dtype, c, q,
                         conj(plait_scalar_get(dtype, pair(h, exec, q ^ 1, j), 0)));
    }
    if (i > 0) {
        plait_blas_gemv(dtype, 'N', n - j, 2 * i, -1, pair(h, exec, 0, j),
                        plait_hetrd_room(h).ld, c, 1, 1, v + j * item, 1);
    }
    plait_scalar_put(dtype, v, j - 2, creal(plait_scalar_get(dtype, v, j)));
    plait_scalar_put(dtype, v, j - 1, 0);
    if (j + 1 < n) {
        plait_blas_larfg(dtype, n - j - 1, v + (j + 1) * item,
                         v + plait_min(j + 2, n - 1) * item, 1, v + j * item);
        plait_scalar_put(dtype, v, j - 1, creal(plait_scalar_get(dtype, v, j + 1)));
        plait_scalar_put(dtype, v, j + 1, 1);
        memcpy(column + (j + 1) * item, v + (j + 1) * item,
               (size_t)((n - j - 1) * item));
    }
}

static plait_status_t column_run(const void *params, plait_exec_t *exec)
{
    const column_t *p = params;
    const plait_hetrd_t *h = &p->h;

    if (!plait_hetrd_has_failed(h, exec)) {
        if (p->j > 0) {
            make_w(h, exec, p->j - 1);
        }
        if (p->j > 0 && p->j % WIDTH == 0) {
            update(h, exec, p->j);
        }
        if (is_owner(h, p->j)) {
            reflect(h, exec, p->j);
        }
    }
    return PLAIT_OK;
}

static void column_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const column_t *p = params;
    const plait_hetrd_t *h = &p->h;
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    const toucher_t t = {touch, context, h};
    const int64_t j = p->j, n = h->a.n, item = item_of(h), i = j % WIDTH;
    const int64_t before = (j - 1) % WIDTH, l = local_from(h, j);

    if (j > 0) {
        touch_columns(&t, false, h->panel, room.sum + j * item, n - j + 2 * before, 1,
                      n);
        touch_bytes(&t, false, room.tau + (j - 1) * item, item);
        touch_pairs(&t, false, 0, 2 * before + 1, j);
        touch_pairs(&t, true, 2 * before + 1, 1, j);
    }
    if (j > 0 && i == 0) {
        touch_pairs(&t, false, 0, 2 * WIDTH, j);
        touch_trailing(&t, false, j);
        touch_trailing(&t, true, j);
    }
    if (is_owner(h, j)) {
        touch_columns(&t, false, h->copy, (l * n + j) * item, n - j, 1, n);
        touch_pairs(&t, false, 0, 2 * i, j);
        touch_columns(&t, true, h->panel, pair_at(h, 2 * i, j - 2), n - j + 2, 1, n);
        touch_columns(&t, true, h->copy, (l * n + j + 1) * item, n - j - 1, 1, n);
    }
}

static void column_print(const void *params, FILE *file)
{
    const column_t *p = params;

    (void)fprintf(file, "%" PRId64 "%s%s%s", p->j, (p->j > 0) ? ", w of the last" : "",
                  (p->j > 0 && p->j % WIDTH == 0) ? ", update of the trailing matrix"
                                                  : "",
                  is_owner(&p->h, p->j) ? ", reflector" : "");
}

static const plait_kernel_t column_kernel = {
    .name = "column", .run = column_run, .touch = column_touch, .print = column_print};

/* ---- A column: the product with its reflector ---------------------------------------------------- */

/* Columns [from, to) of a rank's part, of one block or of whole small ones. */
typedef struct {
    int64_t from, to;
} chunk_t;

static chunk_t chunk_at(const plait_hetrd_t *h, int64_t l)
{
    const int64_t block = h->a.block;
    chunk_t c = {l, plait_min(l + MULTIPLY_COLUMNS, n_owned(h))};

    if (block >= MULTIPLY_COLUMNS) {
        c.to = plait_min(c.to, (l / block + 1) * block);
    }
    return c;
}

/* y += A v; both from row 0 of the matrix on. */
typedef struct {
    const plait_hetrd_t *h;
    plait_exec_t *exec;
    const char *v;
    char *y;
} product_t;

/* Rows [top, bottom) of some columns, from both sides; x is v at the columns, z takes what belongs
 * there. */
static void multiply_below(const product_t *p, chunk_t c, int64_t top, int64_t bottom,
                           const char *x, char *z)
{
    const plait_dtype_t dtype = p->h->a.dtype;
    const int64_t width = c.to - c.from, n = p->h->a.n, item = item_of(p->h);
    const int64_t n_tile = plait_max(64, TILE_BYTES / (width * item) / 64 * 64);

    for (int64_t row = top; row < bottom; row += n_tile) {
        const int64_t m = plait_min(n_tile, bottom - row);
        const char *a = local(p->h, p->exec, c.from, row);
        plait_blas_gemv(dtype, 'N', m, width, 1, a, n, x, 1, 1, p->y + row * item, 1);
        plait_blas_gemv(dtype, 'C', m, width, 1, a, n, p->v + row * item, 1, 1, z, 1);
    }
}

/* Columns of one block: its diagonal block, and the rows down to `bottom`. */
static void multiply_block(const product_t *p, chunk_t c, int64_t bottom)
{
    const int64_t n = p->h->a.n, item = item_of(p->h);
    const int64_t top = global_of(p->h, c.from), behind = top + c.to - c.from;

    plait_blas_hemv(p->h->a.dtype, 'L', c.to - c.from, 1,
                    local(p->h, p->exec, c.from, top), n, p->v + top * item, 1, 1,
                    p->y + top * item, 1);
    multiply_below(p, c, behind, bottom, p->v + top * item, p->y + top * item);
}

/* Columns of several blocks: the staircase block by block, what is below it at once. */
static void multiply_blocks(const product_t *p, chunk_t c)
{
    const plait_dtype_t dtype = p->h->a.dtype;
    const int64_t item = item_of(p->h), block = p->h->a.block, width = c.to - c.from;
    const int64_t foot = global_of(p->h, c.to - 1) + 1;
    char *x = p->exec->scratch, *z = x + width * item;

    for (int64_t l = c.from; l < c.to;) {
        const chunk_t one = {l, plait_min(c.to, (l / block + 1) * block)};
        const int64_t top = global_of(p->h, l);
        multiply_block(p, one, foot);
        memcpy(x + (l - c.from) * item, p->v + top * item,
               (size_t)((one.to - l) * item));
        l = one.to;
    }
    memset(z, 0, (size_t)(width * item));
    multiply_below(p, c, foot, p->h->a.n, x, z);
    for (int64_t l = 0; l < width; l++) {
        const int64_t g = global_of(p->h, c.from + l);
        plait_scalar_put(dtype, p->y, g,
                         plait_scalar_get(dtype, p->y, g) +
                             plait_scalar_get(dtype, z, l));
    }
}

/* The share of this rank's rows in the products of the panel's vectors with v. */
static void multiply_pairs(const product_t *p, int64_t j)
{
    const plait_hetrd_t *h = p->h;
    const int64_t i = j % WIDTH, n = h->a.n, item = item_of(h), m = n - j - 1;
    const int64_t from = j + 1 + m * h->rank / h->a.n_ranks;
    const int64_t to = j + 1 + m * (h->rank + 1) / h->a.n_ranks;

    if (i > 0 && to > from) {
        plait_blas_gemv(h->a.dtype, 'C', to - from, 2 * i, 1, pair(h, p->exec, 0, from),
                        plait_hetrd_room(h).ld, p->v + from * item, 1, 1,
                        p->y + n * item, 1);
    }
}

/* d, e and tau from above the reflector. */
static void keep(const plait_hetrd_t *h, plait_exec_t *exec, int64_t j)
{
    const plait_dtype_t dtype = h->a.dtype, real = plait_real_of(dtype);
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    const char *head = pair(h, exec, 2 * (j % WIDTH), j - 2);

    plait_scalar_put(real, panel(h, exec, room.d), j, plait_scalar_get(dtype, head, 0));
    plait_scalar_put(real, panel(h, exec, room.e), j, plait_scalar_get(dtype, head, 1));
    plait_scalar_put(dtype, panel(h, exec, room.tau), j,
                     (j + 1 < h->a.n) ? plait_scalar_get(dtype, head, 2) : 0);
}

static plait_status_t product_run(const void *params, plait_exec_t *exec)
{
    const column_t *q = params;
    const plait_hetrd_t *h = &q->h;
    const int64_t j = q->j, n = h->a.n, item = item_of(h), n_more = 2 * (j % WIDTH);
    const product_t p = {h, exec, pair(h, exec, 2 * (j % WIDTH), 0),
                         own_part(h, exec, 0)};

    if (plait_hetrd_has_failed(h, exec)) {
        goto done;
    }
    keep(h, exec, j);
    memset(p.y + (j + 1) * item, 0, (size_t)((n - j - 1 + n_more) * item));
    for (int64_t l = local_from(h, j + 1); l < n_owned(h);) {
        const chunk_t c = chunk_at(h, l);
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
    const column_t *p = params;
    const plait_hetrd_t *h = &p->h;
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    const toucher_t t = {touch, context, h};
    const int64_t j = p->j, n = h->a.n, item = item_of(h), i = j % WIDTH;
    const int64_t real = plait_dtype_bytes(plait_real_of(h->a.dtype));

    touch_columns(&t, false, h->panel, pair_at(h, 2 * i, j - 2), n - j + 2, 1, n);
    touch_bytes(&t, true, room.d + j * real, real);
    touch_bytes(&t, true, room.e + j * real, real);
    touch_bytes(&t, true, room.tau + j * item, item);
    touch_pairs(&t, false, 0, 2 * i, j + 1);
    touch_trailing(&t, false, j + 1);
    touch_columns(&t, true, h->panel,
                  room.pieces + own_piece(h) * room.stride + (j + 1) * item,
                  n - j - 1 + 2 * i, 1, n);
}

static void product_print(const void *params, FILE *file)
{
    const column_t *p = params;
    const int64_t l = local_from(&p->h, p->j + 1);

    (void)fprintf(file, "%" PRId64 ", %" PRId64 " columns", p->j, n_owned(&p->h) - l);
}

static const plait_kernel_t product_kernel = {.name = "product",
                                              .run = product_run,
                                              .touch = product_touch,
                                              .print = product_print};

/* ---- Steps --------------------------------------------------------------------------------------- */

static plait_status_t add_kernel(plait_plan_t *plan, const plait_kernel_t *kernel,
                                 const plait_hetrd_t *h, int64_t j)
{
    plait_status_t status = PLAIT_OK;
    column_t *params = plait_alloc(1, sizeof(*params));

    PLAIT_CHECK(params != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a plan");
    *params = (column_t){.h = *h, .j = j};
    PLAIT_TRY(plait_plan_kernel(plan, kernel, params));
done:
    return status;
}

/* Copy and scale: the largest element of all ranks decides. */
static plait_status_t add_copy(plait_plan_t *plan, const plait_hetrd_t *h)
{
    plait_status_t status = PLAIT_OK;
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    const plait_reduce_step_t largest = {.op = PLAIT_MAX,
                                         .dtype = PLAIT_F64,
                                         .n = 1,
                                         .src_slot = h->panel,
                                         .dst_slot = h->panel,
                                         .src_offset = room.norms,
                                         .dst_offset = room.state,
                                         .piece_stride = sizeof(double)};

    PLAIT_TRY(add_kernel(plan, &copy_kernel, h, 0));
    PLAIT_TRY(plait_pieces_reduce(plan, h->n_pieces > 1, &largest));
    PLAIT_TRY(add_kernel(plan, &scale_kernel, h, 0));
done:
    return status;
}

static plait_status_t add_column(plait_plan_t *plan, const plait_hetrd_t *h, int64_t j)
{
    plait_status_t status = PLAIT_OK;
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    const int64_t n = h->a.n, item = item_of(h), i = j % WIDTH;
    const int64_t at = pair_at(h, 2 * i, j - 2);
    const plait_reduce_step_t products = {.op = PLAIT_SUM,
                                          .dtype = h->a.dtype,
                                          .n = n - j - 1 + 2 * i,
                                          .src_slot = h->panel,
                                          .dst_slot = h->panel,
                                          .src_offset = room.pieces + (j + 1) * item,
                                          .dst_offset = room.sum + (j + 1) * item,
                                          .piece_stride = room.stride};
    const plait_group_t everyone = {.stride = 1, .n = plan->n_ranks};
    plait_move_t column = {0};

    PLAIT_TRY(add_kernel(plan, &column_kernel, h, j));
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(plait_dealt_share(plait_dealt_owner(&h->a, j / h->a.block), h->panel, at,
                                (n - j + 2) * item, &column));
    PLAIT_TRY(plait_fan_out(plan, &everyone, false, &column));
    PLAIT_TRY(add_kernel(plan, &product_kernel, h, j));
    if (j + 1 < n) {
        PLAIT_TRY(plait_pieces_reduce(plan, h->n_pieces > 1, &products));
    }
done:
    plait_move_clear(&column);
    return status;
}

plait_status_t plait_hetrd_add(plait_plan_t *plan, const plait_hetrd_t *h)
{
    plait_status_t status = PLAIT_OK;

    plait_plan_need_scratch(plan, 2 * WIDTH * UPDATE_COLUMNS * item_of(h));
    PLAIT_TRY(add_copy(plan, h));
    for (int64_t j = 0; j < h->a.n; j++) {
        PLAIT_TRY(add_column(plan, h, j));
    }
done:
    return status;
}
