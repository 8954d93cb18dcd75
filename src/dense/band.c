/* The first stage of a reduction in two (band.h): panels of a band. */
#include "dense/band.h"

#include "base/checked.h"
#include "base/status.h"
#include "dense/chase.h"
#include "dense/fan.h"
#include "dense/scalar.h"
#include "dense/whole.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

enum { WIDTH = PLAIT_BAND_WIDTH };

/* Columns of a rank's part that are updated together. */
enum { UPDATE_COLUMNS = 128 };

/* Two stages are faster if at most this part (1 / PART) of the vectors is wanted. */
enum { PART = 4 };

static _Atomic int64_t chosen = -1;

int64_t plait_band_bytes(const plait_hetrd_t *h, bool has_vectors)
{
    const bool leave = has_vectors && h->a.n_ranks > 1;

    return (h->rank == PLAIT_WHOLE_ROOT)
               ? plait_band_only(h) + (leave ? 2 * plait_chase_group_bytes(h) : 0)
               : 0;
}

void plait_band_choose(int64_t n)
{
    atomic_store(&chosen, n);
}

bool plait_band_is_cheaper(const plait_hetrd_t *h, int64_t n_vectors)
{
    const int64_t least = atomic_load(&chosen), n = h->a.n;
    const int64_t n_pieces = h->is_native ? 1 : h->n_pieces; /* of a sum, on a rank */

    return (least >= 0) ? n >= least
                        : n >= PLAIT_BAND_LEAST && n_vectors <= n / PART &&
                              n_pieces * PLAIT_BAND_WIDTH <= n / h->a.n_ranks;
}

plait_band_panel_t plait_band_panel(const plait_hetrd_t *h, int64_t p)
{
    const int64_t n = h->a.n;
    plait_band_panel_t q = {.first = p * WIDTH, .row = (p + 1) * WIDTH};

    q.width = plait_min(WIDTH, n - q.first);
    q.m = plait_max(0, n - q.row);
    q.n_reflectors = plait_min(WIDTH, q.m);
    q.n_head = plait_min(PLAIT_BAND_HEAD, n - q.first);
    return q;
}

static int root_of(const plait_hetrd_t *h, const plait_band_panel_t *q)
{
    return plait_dealt_owner(&h->a, q->first / h->a.block);
}

/* Whether one rank has all columns of the panel. */
static bool is_together(const plait_hetrd_t *h, const plait_band_panel_t *q)
{
    return h->a.n_ranks == 1 ||
           q->first / h->a.block == (q->first + q->width - 1) / h->a.block;
}

/* Whether this rank can factorize the panel by itself. */
static bool has_all(const plait_hetrd_t *h, const plait_band_panel_t *q)
{
    return is_together(h, q) && h->rank == root_of(h, q);
}

/* ---- A panel: the last one's W, the trailing matrix, the next V -------------------------------------- */

/* Makes W from the sum of all ranks' A V. */
static void make_w(const plait_hetrd_t *h, plait_exec_t *exec,
                   const plait_band_panel_t *q)
{
    const plait_dtype_t dtype = h->a.dtype;
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    const int64_t item = plait_hetrd_item(h), ld = room.ld, m = q->m,
                  k = q->n_reflectors;
    const char *v = plait_hetrd_pair(h, exec, 0, q->row);
    char *w = plait_hetrd_pair(h, exec, k, q->row);
    char *t = exec->scratch, *inner = t + k * k * item;

    plait_blas_larft(dtype, m, k, v, ld,
                     plait_hetrd_panel(h, exec, room.tau + q->first * item), t, k);
    for (int64_t c = 0; c < k; c++) {
        memcpy(w + c * ld * item, plait_hetrd_sum(h, exec, c * m), (size_t)(m * item));
    }
    plait_blas_trmm(dtype, 'R', 'U', 'N', 'N', m, k, 1, t, k, w, ld);
    plait_blas_gemm(dtype, 'C', 'N', k, k, m, 1, v, ld, w, ld, 0, inner, k);
    plait_blas_trmm(dtype, 'L', 'U', 'C', 'N', k, k, 1, t, k, inner, k);
    plait_blas_gemm(dtype, 'N', 'N', m, k, k, -0.5, v, ld, inner, k, 1, w, ld);
}

/* A - V W^H - W V^H in this rank's columns. Elements above the diagonal change, too, but are never read. */
static void update(const plait_hetrd_t *h, plait_exec_t *exec,
                   const plait_band_panel_t *q)
{
    const plait_dtype_t dtype = h->a.dtype;
    const int64_t n = h->a.n, item = plait_hetrd_item(h), ld = plait_hetrd_room(h).ld,
                  k = q->n_reflectors;
    const char *v = plait_hetrd_pair(h, exec, 0, 0);

    for (int64_t l = plait_hetrd_local(h, q->row); l < plait_hetrd_n_owned(h);
         l += UPDATE_COLUMNS) {
        const int64_t width = plait_min(UPDATE_COLUMNS, plait_hetrd_n_owned(h) - l);
        const int64_t top = plait_hetrd_column(h, l);
        char *swapped = exec->scratch; /* W and V at the columns' rows */
        for (int64_t c = 0; c < width; c++) {
            const char *row = v + plait_hetrd_column(h, l + c) * item;
            for (int64_t i = 0; i < 2 * k; i++) {
                memcpy(swapped + (i * width + c) * item,
                       row + (i + k) % (2 * k) * ld * item, (size_t)item);
            }
        }
        plait_blas_gemm(dtype, 'N', 'C', n - top, width, 2 * k, -1,
                        plait_hetrd_pair(h, exec, 0, top), ld, swapped, width, 1,
                        plait_hetrd_at(h, exec, l, top), n);
    }
}

/* Copies this rank's columns of the panel, from its first row on, to where V will be. */
static void take(const plait_hetrd_t *h, plait_exec_t *exec,
                 const plait_band_panel_t *q)
{
    const int64_t item = plait_hetrd_item(h);

    for (int64_t j = q->first; j < q->first + q->width; j++) {
        if (plait_hetrd_is_owner(h, j)) {
            memcpy(plait_hetrd_pair(h, exec, j - q->first, q->first),
                   plait_hetrd_at(h, exec, plait_hetrd_local(h, j), q->first),
                   (size_t)((h->a.n - q->first) * item));
        }
    }
}

static plait_blas_work_t work_of(const plait_hetrd_t *h)
{
    plait_blas_work_t work = {.n = -1};

    (void)plait_blas_geqrf(h->a.dtype, h->a.n, plait_min(WIDTH, h->a.n), NULL,
                           h->a.n + PLAIT_HETRD_HEAD, NULL, &work);
    return work;
}

/* Splits the panel into its part of the band, and V below the band. V begins with zeros and a 1. */
static void divide(const plait_hetrd_t *h, plait_exec_t *exec,
                   const plait_band_panel_t *q)
{
    const int64_t item = plait_hetrd_item(h);
    char *head = plait_hetrd_panel(h, exec, plait_hetrd_room(h).head);

    for (int64_t c = 0; c < q->width; c++) {
        memcpy(head + c * PLAIT_BAND_HEAD * item,
               plait_hetrd_pair(h, exec, c, q->first), (size_t)(q->n_head * item));
    }
    for (int64_t c = 0; c < q->n_reflectors; c++) {
        char *v = plait_hetrd_pair(h, exec, c, q->row);
        memset(v, 0, (size_t)(c * item));
        plait_scalar_put(h->a.dtype, v, c, 1);
    }
}

static void factor(const plait_hetrd_t *h, plait_exec_t *exec,
                   const plait_band_panel_t *q)
{
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    plait_blas_work_t work = work_of(h);

    work.work = exec->scratch;
    if (q->m > 0) {
        (void)plait_blas_geqrf(
            h->a.dtype, q->m, q->width, plait_hetrd_pair(h, exec, 0, q->row), room.ld,
            plait_hetrd_panel(h, exec, room.tau + q->first * plait_hetrd_item(h)),
            &work);
    }
    divide(h, exec, q);
}

static plait_status_t panel_run(const void *params, plait_exec_t *exec)
{
    const plait_band_step_t *s = params;
    const plait_hetrd_t *h = &s->b.h;
    const plait_band_panel_t last = plait_band_panel(h, s->p - 1),
                             next = plait_band_panel(h, s->p);

    if (!plait_hetrd_has_failed(h, exec)) {
        if (s->p > 0) {
            make_w(h, exec, &last);
            update(h, exec, &last);
        }
        take(h, exec, &next);
        if (has_all(h, &next)) {
            factor(h, exec, &next);
        }
    }
    return PLAIT_OK;
}

static plait_status_t factor_run(const void *params, plait_exec_t *exec)
{
    const plait_band_step_t *s = params;
    const plait_band_panel_t q = plait_band_panel(&s->b.h, s->p);

    if (!plait_hetrd_has_failed(&s->b.h, exec)) {
        factor(&s->b.h, exec, &q);
    }
    return PLAIT_OK;
}

static void touch_factor(const plait_hetrd_touch_t *t, const plait_band_panel_t *q)
{
    const plait_hetrd_room_t room = plait_hetrd_room(t->h);
    const int64_t item = plait_hetrd_item(t->h);

    plait_hetrd_touch_pairs(t, false, 0, q->width, q->first);
    plait_hetrd_touch_pairs(t, true, 0, q->width, q->row);
    plait_hetrd_touch_bytes(t, true, room.tau + q->first * item,
                            q->n_reflectors * item);
    plait_hetrd_touch_columns(t, true, t->h->panel, room.head, q->n_head, q->width,
                              PLAIT_BAND_HEAD);
}

static void factor_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_band_step_t *s = params;
    const plait_hetrd_touch_t t = {touch, context, &s->b.h};
    const plait_band_panel_t q = plait_band_panel(&s->b.h, s->p);

    touch_factor(&t, &q);
}

static void touch_update(const plait_hetrd_touch_t *t, const plait_band_panel_t *q)
{
    const plait_hetrd_room_t room = plait_hetrd_room(t->h);
    const int64_t item = plait_hetrd_item(t->h), k = q->n_reflectors;

    plait_hetrd_touch_bytes(t, false, room.sum, q->m * k * item);
    plait_hetrd_touch_bytes(t, false, room.tau + q->first * item, k * item);
    plait_hetrd_touch_pairs(t, false, 0, k, q->row);
    plait_hetrd_touch_pairs(t, true, k, k, q->row);
    plait_hetrd_touch_trailing(t, false, q->row);
    plait_hetrd_touch_trailing(t, true, q->row);
}

static void panel_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_band_step_t *s = params;
    const plait_hetrd_t *h = &s->b.h;
    const plait_hetrd_touch_t t = {touch, context, h};
    const plait_band_panel_t last = plait_band_panel(h, s->p - 1),
                             next = plait_band_panel(h, s->p);
    const int64_t item = plait_hetrd_item(h), n = h->a.n;

    if (s->p > 0) {
        touch_update(&t, &last);
    }
    for (int64_t j = next.first; j < next.first + next.width; j++) {
        if (plait_hetrd_is_owner(h, j)) {
            const int64_t at = (plait_hetrd_local(h, j) * n + next.first) * item;
            plait_hetrd_touch_columns(&t, false, h->copy, at, n - next.first, 1, n);
            plait_hetrd_touch_pairs(&t, true, j - next.first, 1, next.first);
        }
    }
    if (has_all(h, &next)) {
        touch_factor(&t, &next);
    }
}

static void panel_print(const void *params, FILE *file)
{
    const plait_band_step_t *s = params;
    const plait_band_panel_t q = plait_band_panel(&s->b.h, s->p);

    (void)fprintf(file, "%" PRId64 "%s%s", s->p,
                  (s->p > 0) ? ", update of the trailing matrix" : "",
                  (q.m > 0 && has_all(&s->b.h, &q)) ? ", reflectors" : "");
}

static void factor_print(const void *params, FILE *file)
{
    const plait_band_step_t *s = params;

    (void)fprintf(file, "%" PRId64 ", reflectors", s->p);
}

static const plait_kernel_t panel_kernel = {
    .name = "panel", .run = panel_run, .touch = panel_touch, .print = panel_print};

static const plait_kernel_t factor_kernel = {
    .name = "factor", .run = factor_run, .touch = factor_touch, .print = factor_print};

/* ---- Steps -------------------------------------------------------------------------------------------- */

static plait_status_t add(plait_plan_t *plan, const plait_kernel_t *kernel,
                          const plait_band_t *b, int64_t p)
{
    const plait_band_step_t step = {.b = *b, .p = p};

    return plait_plan_kernel_copy(plan, kernel, &step, sizeof(step));
}

/* A block of n_rows x n_columns at byte offset `at` of the slot `panel`. */
static plait_block_t block_of(const plait_hetrd_t *h, int64_t at, int64_t n_rows,
                              int64_t n_columns, int64_t ld)
{
    plait_block_t block = {
        .kind = PLAIT_BLOCK_COPY,
        .src_slot = h->panel,
        .dst_slot = h->panel,
        .src_offset = at,
        .dst_offset = at,
        .box = plait_columns_box(n_rows, n_columns, ld, plait_hetrd_item(h))};

    plait_box_simplify(&block.box);
    return block;
}

/* Vectors [first, first + n) of the panel, from `row` on. */
static plait_block_t vectors_of(const plait_hetrd_t *h, int64_t first, int64_t n,
                                int64_t row)
{
    return block_of(h, plait_hetrd_pair_at(h, first, row), h->a.n - row, n,
                    plait_hetrd_room(h).ld);
}

/* Brings a panel of several ranks to the first of these ranks, which factorizes it. */
static plait_status_t add_together(plait_plan_t *plan, const plait_band_t *b, int64_t p)
{
    plait_status_t status = PLAIT_OK;
    const plait_hetrd_t *h = &b->h;
    const plait_band_panel_t q = plait_band_panel(h, p);
    const int64_t block = h->a.block, end = q.first + q.width;
    const int root = root_of(h, &q);
    plait_move_t move = {0};

    PLAIT_TRY(plait_plan_fence(plan));
    for (int64_t j = q.first; j < end;) {
        const int64_t next = plait_min(end, (j / block + 1) * block);
        const int owner = plait_dealt_owner(&h->a, j / block);
        const plait_block_t columns = vectors_of(h, j - q.first, next - j, q.first);
        if (owner != root) {
            PLAIT_TRY(plait_dealt_between(plan, owner, root, &columns, &move));
        }
        j = next;
    }
    PLAIT_TRY(plait_plan_move(plan, &move));
    if (h->rank == root) {
        PLAIT_TRY(add(plan, &factor_kernel, b, p));
    }
done:
    plait_move_clear(&move);
    return status;
}

static plait_status_t add_sum(plait_plan_t *plan, const plait_band_t *b,
                              const plait_band_panel_t *q)
{
    const plait_hetrd_t *h = &b->h;
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    const plait_reduce_step_t products = {.op = PLAIT_SUM,
                                          .dtype = h->a.dtype,
                                          .n = q->m * q->n_reflectors,
                                          .src_slot = h->panel,
                                          .dst_slot = h->panel,
                                          .src_offset = room.pieces,
                                          .dst_offset = room.sum,
                                          .piece_stride = room.stride};

    return plait_hetrd_sum_add(plan, h, &products);
}

/* Brings V to all ranks, and the panel's part of the band to the rank that has the band. */
static plait_status_t add_moves(plait_plan_t *plan, const plait_hetrd_t *h,
                                const plait_band_panel_t *q)
{
    plait_status_t status = PLAIT_OK;
    const plait_hetrd_room_t room = plait_hetrd_room(h);
    const plait_group_t everyone = {.stride = 1, .n = plan->n_ranks};
    const int64_t item = plait_hetrd_item(h);
    const int root = root_of(h, q);
    const plait_block_t head =
        block_of(h, room.head, q->n_head, q->width, PLAIT_BAND_HEAD);
    plait_move_t move = {0};

    PLAIT_TRY(plait_plan_fence(plan));
    if (root != PLAIT_WHOLE_ROOT) {
        PLAIT_TRY(plait_dealt_between(plan, root, PLAIT_WHOLE_ROOT, &head, &move));
        PLAIT_TRY(plait_plan_move(plan, &move));
    }
    if (q->m > 0) {
        plait_block_t v = vectors_of(h, 0, q->n_reflectors, q->row);
        v.peer = root;
        PLAIT_TRY(plait_move_add_in(&move, &v));
        PLAIT_TRY(plait_dealt_share(root, h->panel, room.tau + q->first * item,
                                    q->n_reflectors * item, &move));
        PLAIT_TRY(plait_fan_out(plan, &everyone, false, &move));
    }
done:
    plait_move_clear(&move);
    return status;
}

static plait_status_t add_panel(plait_plan_t *plan, const plait_band_t *b, int64_t p)
{
    plait_status_t status = PLAIT_OK;
    const plait_band_panel_t q = plait_band_panel(&b->h, p);

    PLAIT_TRY(add(plan, &panel_kernel, b, p));
    if (!is_together(&b->h, &q)) {
        PLAIT_TRY(add_together(plan, b, p));
    }
    PLAIT_TRY(add_moves(plan, &b->h, &q));
    PLAIT_TRY(add(plan, &plait_band_product_kernel, b, p));
    if (q.m > 0) {
        PLAIT_TRY(add_sum(plan, b, &q));
    }
done:
    return status;
}

plait_status_t plait_band_add(plait_plan_t *plan, const plait_band_t *b)
{
    plait_status_t status = PLAIT_OK;
    const plait_hetrd_t *h = &b->h;
    const int64_t item = plait_hetrd_item(h);

    plait_plan_need_scratch(plan, 2 * WIDTH * UPDATE_COLUMNS * item);
    plait_plan_need_scratch(plan, 2 * WIDTH * WIDTH * item);
    plait_plan_need_scratch(plan, work_of(h).n * item);
    PLAIT_TRY(plait_hetrd_copy_add(plan, h));
    for (int64_t p = 0; p * WIDTH < h->a.n; p++) {
        PLAIT_TRY(add_panel(plan, b, p));
    }
    PLAIT_TRY(plait_chase_add(plan, b));
done:
    return status;
}
