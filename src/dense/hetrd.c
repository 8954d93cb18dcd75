#include "dense/hetrd.h"

#include "base/checked.h"
#include "base/status.h"
#include "dense/fan.h"
#include "dense/hetrd_memory.h"
#include "dense/pieces.h"
#include "dense/scalar.h"

#include <inttypes.h>
#include <string.h>

enum { WIDTH = PLAIT_HETRD_WIDTH };

/* Columns of a rank's part that are updated together. */
enum { UPDATE_COLUMNS = 128 };

/* ---- A column: the last one's w, the trailing matrix, the next reflector -------------------------- */

/* y = a x + beta y with a column a. */
static void add_multiple(plait_dtype_t dtype, int64_t m, const void *a,
                         double complex x, double beta, void *y)
{
    double complex number; /* room for a number of any dtype */

    plait_scalar_put(dtype, &number, 0, x);
    plait_blas_gemv(dtype, 'N', m, 1, 1, a, m, &number, 1, beta, y, 1);
}

/* w = tau (A v - v's of the panel (w's^H v) - w's (v's^H v)), and then - tau / 2 (w^H v) v. Reads the sum of
 * the ranks' A v, which is followed by the panel's vectors^H v. */
static void make_w(const plait_hetrd_t *h, plait_exec_t *exec, int64_t j)
{
    const plait_dtype_t dtype = h->a.dtype;
    const int64_t n = h->a.n, i = j % WIDTH, m = n - j - 1;
    const char *products = plait_hetrd_sum(h, exec, n);
    char *v = plait_hetrd_pair(h, exec, 2 * i, j + 1),
         *w = plait_hetrd_pair(h, exec, 2 * i + 1, j + 1);
    double complex tau =
        plait_scalar_get(dtype, plait_hetrd_panel(h, exec, plait_hetrd_room(h).tau), j);
    double complex c[2 * WIDTH]; /* room for any dtype */
    double complex dot;

    add_multiple(dtype, m, plait_hetrd_sum(h, exec, j + 1), tau, 0, w);
    for (int64_t q = 0; q < 2 * i; q++) {
        plait_scalar_put(dtype, c, q, tau * plait_scalar_get(dtype, products, q ^ 1));
    }
    if (i > 0) {
        plait_blas_gemv(dtype, 'N', m, 2 * i, -1, plait_hetrd_pair(h, exec, 0, j + 1),
                        plait_hetrd_room(h).ld, c, 1, 1, w, 1);
    }
    plait_blas_gemv(dtype, 'C', m, 1, 1, w, m, v, 1, 0, &dot, 1);
    add_multiple(dtype, m, v, -tau / 2 * plait_scalar_get(dtype, &dot, 0), 1, w);
}

/* A - v w^H - w v^H for all vectors of the panel before column j, in this rank's columns from j on. Elements
 * above the diagonal change, too, but are never read. */
static void update(const plait_hetrd_t *h, plait_exec_t *exec, int64_t j)
{
    const plait_dtype_t dtype = h->a.dtype;
    const int64_t n = h->a.n, item = plait_hetrd_item(h), ld = plait_hetrd_room(h).ld;

    for (int64_t l = plait_hetrd_local(h, j); l < plait_hetrd_n_owned(h);
         l += UPDATE_COLUMNS) {
        const int64_t width = plait_min(UPDATE_COLUMNS, plait_hetrd_n_owned(h) - l);
        const int64_t top = plait_hetrd_column(h, l);
        char *swapped = exec->scratch; /* w0 v0 w1 v1 ... at the columns' rows */
        for (int64_t c = 0; c < width; c++) {
            const char *row =
                plait_hetrd_pair(h, exec, 0, plait_hetrd_column(h, l + c));
            for (int64_t q = 0; q < 2 * WIDTH; q++) {
                memcpy(swapped + (q * width + c) * item, row + (q ^ 1) * ld * item,
                       (size_t)item);
            }
        }
        plait_blas_gemm(dtype, 'N', 'C', n - top, width, 2 * WIDTH, -1,
                        plait_hetrd_pair(h, exec, 0, top), ld, swapped, width, 1,
                        plait_hetrd_at(h, exec, l, top), n);
    }
}

/* On the owner: applies the panel's reflectors to column j, then makes the column's own reflector. */
static void reflect(const plait_hetrd_t *h, plait_exec_t *exec, int64_t j)
{
    const plait_dtype_t dtype = h->a.dtype;
    const int64_t n = h->a.n, item = plait_hetrd_item(h), i = j % WIDTH;
    char *v = plait_hetrd_pair(h, exec, 2 * i, 0);
    char *column = plait_hetrd_at(h, exec, plait_hetrd_local(h, j), 0);
    double complex c[2 * WIDTH];

    memcpy(v + j * item, column + j * item, (size_t)((n - j) * item));
    for (int64_t q = 0; q < 2 * i; q++) {
        plait_scalar_put(
            dtype, c, q,
            conj(plait_scalar_get(dtype, plait_hetrd_pair(h, exec, q ^ 1, j), 0)));
    }
    if (i > 0) {
        plait_blas_gemv(dtype, 'N', n - j, 2 * i, -1, plait_hetrd_pair(h, exec, 0, j),
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
    const plait_hetrd_step_t *p = params;
    const plait_hetrd_t *h = &p->h;

    if (!plait_hetrd_has_failed(h, exec)) {
        if (p->j > 0) {
            make_w(h, exec, p->j - 1);
        }
        if (p->j > 0 && p->j % WIDTH == 0) {
            update(h, exec, p->j);
        }
        if (plait_hetrd_is_owner(h, p->j)) {
            reflect(h, exec, p->j);
        }
    }
    return PLAIT_OK;
}

static void column_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_hetrd_step_t *p = params;
    const plait_hetrd_t *h = &p->h;
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    const plait_hetrd_touch_t t = {touch, context, h};
    const int64_t j = p->j, n = h->a.n, item = plait_hetrd_item(h), i = j % WIDTH;
    const int64_t before = (j - 1) % WIDTH, l = plait_hetrd_local(h, j);

    if (j > 0) {
        plait_hetrd_touch_columns(&t, false, h->panel, room.sum + j * item,
                                  n - j + 2 * before, 1, n);
        plait_hetrd_touch_bytes(&t, false, room.tau + (j - 1) * item, item);
        plait_hetrd_touch_pairs(&t, false, 0, 2 * before + 1, j);
        plait_hetrd_touch_pairs(&t, true, 2 * before + 1, 1, j);
    }
    if (j > 0 && i == 0) {
        plait_hetrd_touch_pairs(&t, false, 0, 2 * WIDTH, j);
        plait_hetrd_touch_trailing(&t, false, j);
        plait_hetrd_touch_trailing(&t, true, j);
    }
    if (plait_hetrd_is_owner(h, j)) {
        plait_hetrd_touch_columns(&t, false, h->copy, (l * n + j) * item, n - j, 1, n);
        plait_hetrd_touch_pairs(&t, false, 0, 2 * i, j);
        plait_hetrd_touch_columns(
            &t, true, h->panel, plait_hetrd_pair_at(h, 2 * i, j - 2), n - j + 2, 1, n);
        plait_hetrd_touch_columns(&t, true, h->copy, (l * n + j + 1) * item, n - j - 1,
                                  1, n);
    }
}

static void column_print(const void *params, FILE *file)
{
    const plait_hetrd_step_t *p = params;

    (void)fprintf(file, "%" PRId64 "%s%s%s", p->j, (p->j > 0) ? ", w of the last" : "",
                  (p->j > 0 && p->j % WIDTH == 0) ? ", update of the trailing matrix"
                                                  : "",
                  plait_hetrd_is_owner(&p->h, p->j) ? ", reflector" : "");
}

static const plait_kernel_t column_kernel = {
    .name = "column", .run = column_run, .touch = column_touch, .print = column_print};

/* ---- Steps --------------------------------------------------------------------------------------- */

static plait_status_t add(plait_plan_t *plan, const plait_kernel_t *kernel,
                          const plait_hetrd_t *h, int64_t j)
{
    const plait_hetrd_step_t step = {.h = *h, .j = j};

    return plait_plan_kernel_copy(plan, kernel, &step, sizeof(step));
}

plait_status_t plait_hetrd_copy_add(plait_plan_t *plan, const plait_hetrd_t *h)
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

    PLAIT_TRY(add(plan, &plait_hetrd_copy_kernel, h, 0));
    PLAIT_TRY(plait_pieces_reduce(plan, h->n_pieces > 1, &largest));
    PLAIT_TRY(add(plan, &plait_hetrd_scale_kernel, h, 0));
done:
    return status;
}

/* All ranks get the same bits: "MPI requires that all processes [...] receive identical results" (MPI 4.0,
 * section 6.9.6). */
static plait_status_t add_native(plait_plan_t *plan, const plait_reduce_step_t *r)
{
    const plait_native_step_t native = {.native = PLAIT_NATIVE_ALLREDUCE,
                                        .op = r->op,
                                        .dtype = r->dtype,
                                        .n = r->n,
                                        .src_slot = r->src_slot,
                                        .dst_slot = r->dst_slot,
                                        .src_offset = r->src_offset,
                                        .dst_offset = r->dst_offset,
                                        .n_recv = r->n,
                                        .recv_dtype = r->dtype};

    return plait_plan_native(plan, &native);
}

plait_status_t plait_hetrd_sum_add(plait_plan_t *plan, const plait_hetrd_t *h,
                                   const plait_reduce_step_t *r)
{
    return h->is_native ? add_native(plan, r)
                        : plait_pieces_reduce(plan, h->n_pieces > 1, r);
}

static plait_status_t add_column(plait_plan_t *plan, const plait_hetrd_t *h, int64_t j)
{
    plait_status_t status = PLAIT_OK;
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    const int64_t n = h->a.n, item = plait_hetrd_item(h), i = j % WIDTH;
    const int64_t at = plait_hetrd_pair_at(h, 2 * i, j - 2);
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

    PLAIT_TRY(add(plan, &column_kernel, h, j));
    PLAIT_TRY(plait_plan_fence(plan));
    PLAIT_TRY(plait_dealt_share(plait_dealt_owner(&h->a, j / h->a.block), h->panel, at,
                                (n - j + 2) * item, &column));
    PLAIT_TRY(plait_fan_out(plan, &everyone, false, &column));
    PLAIT_TRY(add(plan, &plait_hetrd_product_kernel, h, j));
    if (j + 1 < n) {
        PLAIT_TRY(plait_hetrd_sum_add(plan, h, &products));
    }
done:
    plait_move_clear(&column);
    return status;
}

plait_status_t plait_hetrd_add(plait_plan_t *plan, const plait_hetrd_t *h)
{
    plait_status_t status = PLAIT_OK;

    plait_plan_need_scratch(plan, 2 * WIDTH * UPDATE_COLUMNS * plait_hetrd_item(h));
    PLAIT_TRY(plait_hetrd_copy_add(plan, h));
    for (int64_t j = 0; j < h->a.n; j++) {
        PLAIT_TRY(add_column(plan, h, j));
    }
done:
    return status;
}
