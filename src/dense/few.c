/* Let k_0, k_1, ... be the blocks in the order of the substitution.
 *
 * Without transposition the owner of block k_t has all of column k_t, and solves for x there alone. It
 * subtracts all ranks' sums of products for these rows from b; the sums of each other rank come as a piece.
 * Then it adds its own products to its sums, first for the rows of k_t+1, for which the next owner waits. The
 * other rows are cut into as many chunks as there are ranks, and the owner does one chunk in each phase until
 * it is its turn again. So all ranks work, and everything that fence t + c needs is done before it.
 *
 * With transposition x of block k_t goes to all ranks. Each rank multiplies it with those of its columns that
 * are still to be solved for, and adds the products. The owner of block k_t+1 does that block first, solves
 * for it, arrives at the fence, and then does the rest.
 * Source: Heath, Romine, Parallel solution of triangular systems on distributed-memory
 * multiprocessors, SIAM J. Sci. Stat. Comput. 9(3), 1988 (fan-in and fan-out by columns). */
#include "dense/few.h"

#include "base/checked.h"
#include "base/status.h"
#include "dense/scalar.h"
#include "kernel/blas.h"
#include "plan/tiles.h"

#include <inttypes.h>
#include <string.h>

/* What a kernel works on. */
typedef struct {
    plait_few_t q;
    int64_t k;          /* block of x */
    int n_pieces;       /* sums of other ranks */
    int64_t first, end; /* of the own sums, those that the products are added to */
} step_t;

static bool is_plain(const plait_few_t *q)
{
    return q->trans == 'N';
}

/* Block k_t. */
static int64_t block_at(const plait_few_t *q, int64_t t)
{
    const bool is_forward = (q->uplo == 'L') == is_plain(q);

    return is_forward ? t : plait_dealt_n_blocks(&q->a) - 1 - t;
}

static bool is_mine(const plait_few_t *q, int64_t t)
{
    return plait_dealt_owner(&q->a, block_at(q, t)) == q->rank;
}

/* Elements between columns of sums: sums are of all rows, or with transposition of the own columns. */
static int64_t sums_ld(const plait_few_t *q)
{
    return is_plain(q) ? q->a.m : plait_dealt_stored(&q->a);
}

static int64_t sums_row(const plait_few_t *q, int64_t k)
{
    return is_plain(q) ? plait_dealt_column(&q->a, k) : plait_dealt_local(&q->a, k);
}

/* Rows of block k in x or b: offset and box. */
static int64_t x_at(const plait_few_t *q, int64_t k)
{
    return plait_dealt_column(&q->a, k) * plait_dealt_item(&q->a);
}

static plait_box_copy_t x_box(const plait_few_t *q, int64_t k)
{
    return plait_columns_box(plait_dealt_width(&q->a, k), q->n_rhs, q->a.m,
                             plait_dealt_item(&q->a));
}

static plait_box_copy_t sums_box(const plait_few_t *q, int64_t n_rows)
{
    return plait_columns_box(n_rows, q->n_rhs, sums_ld(q), plait_dealt_item(&q->a));
}

/* Bytes from piece to piece. */
static int64_t piece_bytes(const plait_few_t *q)
{
    return plait_min(q->a.block, q->a.n) * q->n_rhs * plait_dealt_item(&q->a);
}

static plait_box_copy_t piece_box(const plait_few_t *q, int64_t k)
{
    const int64_t width = plait_dealt_width(&q->a, k);

    return plait_columns_box(width, q->n_rhs, width, plait_dealt_item(&q->a));
}

static void print(const void *params, FILE *file)
{
    const step_t *s = params;

    (void)fprintf(file, "block %" PRId64 " of %" PRId64, s->k + 1,
                  plait_dealt_n_blocks(&s->q.a));
    if (s->end > s->first) {
        (void)fprintf(file, ", to %" PRId64 " sums from %" PRId64 " on",
                      s->end - s->first, s->first);
    }
}

/* ---- start: the own rows of b; sums are zero ---- */

static plait_status_t start_run(const void *params, plait_exec_t *exec)
{
    const plait_few_t *q = &((const step_t *)params)->q;
    const int64_t n_sums = sums_ld(q) * q->n_rhs;

    for (int64_t k = q->rank; k < plait_dealt_n_blocks(&q->a); k += q->a.n_ranks) {
        const plait_box_copy_t box = x_box(q, k);
        const char *from = exec->slot[q->b_slot] + x_at(q, k);
        char *to = exec->slot[q->x_slot] + x_at(q, k);
        if (from != to) {
            plait_host_copy_box(&box, from, to);
        }
    }
    memset(exec->slot[q->sums], 0, (size_t)(n_sums * plait_dealt_item(&q->a)));
    return PLAIT_OK;
}

static plait_status_t start_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_few_t *q = &((const step_t *)params)->q;
    const int64_t n_sums = sums_ld(q) * q->n_rhs;

    for (int64_t k = q->rank; k < plait_dealt_n_blocks(&q->a); k += q->a.n_ranks) {
        const plait_box_copy_t box = x_box(q, k);
        const plait_spot_t from = {.slot = q->b_slot, .offset = x_at(q, k)};
        const plait_spot_t to = {.slot = q->x_slot, .offset = x_at(q, k)};
        PLAIT_TRY(plait_tile_box(tiles, PLAIT_DEVICE_COPY, PLAIT_U8, from, to, &box));
    }
    PLAIT_TRY(plait_tile_zero(tiles, (plait_spot_t){.slot = q->sums},
                              n_sums * plait_dealt_item(&q->a)));
done:
    return status;
}

static void start_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const plait_few_t *q = &((const step_t *)params)->q;
    const int slots[] = {q->b_slot, q->x_slot};
    const plait_box_copy_t sums = sums_box(q, sums_ld(q));

    for (int i = 0; i < 2; i++) {
        for (int64_t k = q->rank; k < plait_dealt_n_blocks(&q->a); k += q->a.n_ranks) {
            const plait_box_copy_t box = x_box(q, k);
            touch(context, i == 1, q->rank, slots[i], x_at(q, k), &box);
        }
    }
    touch(context, true, q->rank, q->sums, 0, &sums);
}

static const plait_kernel_t start_kernel = {.name = "trsm: begin",
                                            .run = start_run,
                                            .tiles = start_tiles,
                                            .touch = start_touch,
                                            .print = print};

/* ---- solve: own block k ---- */

/* x -= y, of n real numbers. */
static void subtract(bool is_double, int64_t n, char *x, const char *y)
{
    double *x_double = (double *)(void *)x;
    float *x_float = (float *)(void *)x;

    for (int64_t i = 0; i < n && is_double; i++) {
        x_double[i] -= ((const double *)(const void *)y)[i];
    }
    for (int64_t i = 0; i < n && !is_double; i++) {
        x_float[i] -= ((const float *)(const void *)y)[i];
    }
}

static void take_out(const plait_few_t *q, int64_t k, char *x, const char *sums,
                     int64_t ld)
{
    const plait_dtype_t dtype = q->a.dtype;
    const int64_t item = plait_dealt_item(&q->a);
    const int64_t n = plait_dealt_width(&q->a, k) * (plait_is_complex(dtype) ? 2 : 1);

    for (int64_t j = 0; j < q->n_rhs; j++) {
        subtract(plait_real_of(dtype) == PLAIT_F64, n, x + j * q->a.m * item,
                 sums + j * ld * item);
    }
}

static plait_status_t solve_run(const void *params, plait_exec_t *exec)
{
    const step_t *s = params;
    const plait_few_t *q = &s->q;
    const int64_t width = plait_dealt_width(&q->a, s->k);
    const int64_t item = plait_dealt_item(&q->a);
    const char *a = exec->slot[q->a_slot] +
                    plait_dealt_at(&q->a, s->k, plait_dealt_column(&q->a, s->k));
    char *x = exec->slot[q->x_slot] + x_at(q, s->k);

    take_out(q, s->k, x, exec->slot[q->sums] + sums_row(q, s->k) * item, sums_ld(q));
    for (int i = 0; i < s->n_pieces; i++) {
        take_out(q, s->k, x, exec->slot[q->pieces] + i * piece_bytes(q), width);
    }
    plait_blas_trsm(q->a.dtype, 'L', q->uplo, q->trans, q->diag, width, q->n_rhs, 1, a,
                    q->a.m, x, q->a.m);
    return PLAIT_OK;
}

/* On a device sums are negated: adding them subtracts the products. */
static plait_status_t put_out(const plait_tiles_t *tiles, const plait_few_t *q,
                              int64_t k, plait_spot_t sums, int64_t ld)
{
    const plait_spot_t x = {.slot = q->x_slot, .offset = x_at(q, k)};
    plait_box_copy_t box = x_box(q, k);

    box.src_stride[0] = ld * plait_dealt_item(&q->a);
    return plait_tile_box(tiles, PLAIT_DEVICE_ADD, q->a.dtype, sums, x, &box);
}

static plait_status_t solve_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const step_t *s = params;
    const plait_few_t *q = &s->q;
    const int64_t width = plait_dealt_width(&q->a, s->k);
    const int64_t item = plait_dealt_item(&q->a);
    const plait_spot_t sums = {.slot = q->sums, .offset = sums_row(q, s->k) * item};
    const plait_tile_t solve = {
        .call = {.op = PLAIT_TILE_TRSM,
                 .dtype = q->a.dtype,
                 .side = 'L',
                 .uplo = q->uplo,
                 .trans = q->trans,
                 .diag = q->diag,
                 .m = width,
                 .n = q->n_rhs,
                 .lda = q->a.m,
                 .ldc = q->a.m},
        .a = {.slot = q->a_slot,
              .offset = plait_dealt_at(&q->a, s->k, plait_dealt_column(&q->a, s->k))},
        .c = {.slot = q->x_slot, .offset = x_at(q, s->k)}};

    PLAIT_TRY(put_out(tiles, q, s->k, sums, sums_ld(q)));
    for (int i = 0; i < s->n_pieces; i++) {
        const plait_spot_t piece = {.slot = q->pieces, .offset = i * piece_bytes(q)};
        PLAIT_TRY(put_out(tiles, q, s->k, piece, width));
    }
    PLAIT_TRY(plait_tile_add(tiles, &solve));
done:
    return status;
}

static void solve_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const step_t *s = params;
    const plait_few_t *q = &s->q;
    const int64_t width = plait_dealt_width(&q->a, s->k);
    const int64_t item = plait_dealt_item(&q->a);
    const plait_box_copy_t a = plait_columns_box(width, width, q->a.m, item);
    const plait_box_copy_t x = x_box(q, s->k), sums = sums_box(q, width);
    const plait_box_copy_t piece = piece_box(q, s->k);

    touch(context, false, q->rank, q->a_slot,
          plait_dealt_at(&q->a, s->k, plait_dealt_column(&q->a, s->k)), &a);
    touch(context, false, q->rank, q->x_slot, x_at(q, s->k), &x);
    touch(context, false, q->rank, q->sums, sums_row(q, s->k) * item, &sums);
    for (int i = 0; i < s->n_pieces; i++) {
        touch(context, false, q->rank, q->pieces, i * piece_bytes(q), &piece);
    }
    touch(context, true, q->rank, q->x_slot, x_at(q, s->k), &x);
}

static const plait_kernel_t solve_kernel = {.name = "trsm: solve",
                                            .run = solve_run,
                                            .tiles = solve_tiles,
                                            .touch = solve_touch,
                                            .print = print};

/* ---- add: products with block k of x ---- */

/* The factor in the own columns: block column k at rows, or the rows of block k in own columns. */
static int64_t factor_at(const step_t *s, plait_box_copy_t *box)
{
    const plait_few_t *q = &s->q;
    const int64_t width = plait_dealt_width(&q->a, s->k), n = s->end - s->first;
    const int64_t item = plait_dealt_item(&q->a);

    *box = is_plain(q) ? plait_columns_box(n, width, q->a.m, item)
                       : plait_columns_box(width, n, q->a.m, item);
    return is_plain(q) ? plait_dealt_at(&q->a, s->k, s->first)
                       : s->first * plait_dealt_ld_bytes(&q->a) + x_at(q, s->k);
}

static plait_status_t add_run(const void *params, plait_exec_t *exec)
{
    const step_t *s = params;
    const plait_few_t *q = &s->q;
    const int64_t width = plait_dealt_width(&q->a, s->k), n = s->end - s->first;
    plait_box_copy_t box;
    const char *a = exec->slot[q->a_slot] + factor_at(s, &box);
    const char *x = exec->slot[q->x_slot] + x_at(q, s->k);
    char *sums = exec->slot[q->sums] + s->first * plait_dealt_item(&q->a);

    if (q->n_rhs == 1) {
        plait_blas_gemv(q->a.dtype, q->trans, is_plain(q) ? n : width,
                        is_plain(q) ? width : n, 1, a, q->a.m, x, 1, 1, sums, 1);
    } else {
        plait_blas_gemm(q->a.dtype, q->trans, 'N', n, q->n_rhs, width, 1, a, q->a.m, x,
                        q->a.m, 1, sums, sums_ld(q));
    }
    return PLAIT_OK;
}

static plait_status_t add_tiles(const void *params, const plait_tiles_t *tiles)
{
    const step_t *s = params;
    const plait_few_t *q = &s->q;
    plait_box_copy_t box;
    const plait_tile_t product = {
        .call = {.op = PLAIT_TILE_GEMM,
                 .dtype = q->a.dtype,
                 .trans = q->trans,
                 .trans_b = 'N',
                 .m = s->end - s->first,
                 .n = q->n_rhs,
                 .k = plait_dealt_width(&q->a, s->k),
                 .lda = q->a.m,
                 .ldb = q->a.m,
                 .ldc = sums_ld(q),
                 .alpha = -1,
                 .beta = 1},
        .a = {.slot = q->a_slot, .offset = factor_at(s, &box)},
        .b = {.slot = q->x_slot, .offset = x_at(q, s->k)},
        .c = {.slot = q->sums, .offset = s->first * plait_dealt_item(&q->a)}};

    return plait_tile_add(tiles, &product);
}

static void add_touch(const void *params, plait_touch_fn_t touch, void *context)
{
    const step_t *s = params;
    const plait_few_t *q = &s->q;
    const plait_box_copy_t x = x_box(q, s->k), sums = sums_box(q, s->end - s->first);
    const int64_t sums_at = s->first * plait_dealt_item(&q->a);
    plait_box_copy_t a;
    const int64_t a_at = factor_at(s, &a);

    touch(context, false, q->rank, q->a_slot, a_at, &a);
    touch(context, false, q->rank, q->x_slot, x_at(q, s->k), &x);
    touch(context, false, q->rank, q->sums, sums_at, &sums);
    touch(context, true, q->rank, q->sums, sums_at, &sums);
}

static const plait_kernel_t add_kernel = {.name = "trsm: add",
                                          .run = add_run,
                                          .tiles = add_tiles,
                                          .touch = add_touch,
                                          .print = print};

/* ---- the plan ---- */

typedef struct {
    plait_few_t q;
    plait_plan_t *plan;
} walk_t;

static plait_status_t put(const walk_t *w, const plait_kernel_t *kernel, int64_t k,
                          int n_pieces, int64_t first, int64_t end)
{
    const step_t step = {w->q, k, n_pieces, first, end};

    return plait_plan_kernel_copy(w->plan, kernel, &step, sizeof(step));
}

static plait_status_t put_add(const walk_t *w, int64_t t, int64_t first, int64_t end)
{
    return (end > first) ? put(w, &add_kernel, block_at(&w->q, t), 0, first, end)
                         : PLAIT_OK;
}

/* Adds products to the rows of the blocks k_from to k_end-1. */
static plait_status_t put_rows(const walk_t *w, int64_t t, int64_t from, int64_t end)
{
    const plait_dealt_t *a = &w->q.a;
    plait_status_t status = PLAIT_OK;

    if (from < end) {
        const int64_t k = block_at(&w->q, from), l = block_at(&w->q, end - 1);
        const int64_t last = plait_max(k, l);
        status = put_add(w, t, plait_dealt_column(a, plait_min(k, l)),
                         plait_dealt_column(a, last) + plait_dealt_width(a, last));
    }
    return status;
}

/* This rank's share, in phase t, of the products with its last block that it still has to add. */
static plait_status_t put_chunk(const walk_t *w, int64_t t)
{
    const int64_t n_blocks = plait_dealt_n_blocks(&w->q.a), n_ranks = w->q.a.n_ranks;
    int64_t turn = t; /* when this rank solved last */

    while (turn >= 0 && !is_mine(&w->q, turn)) {
        turn--;
    }
    const int64_t n_left = n_blocks - turn - 2;
    const int64_t each = (n_left + n_ranks - 1) / n_ranks;
    const int64_t from = turn + 2 + (t - turn) * each;

    return (turn >= 0 && n_left > 0)
               ? put_rows(w, turn, from, plait_min(n_blocks, from + each))
               : PLAIT_OK;
}

/* Number of sums that the owner of block k_t lacks: those of the owners before it. */
static int n_pieces_at(const plait_few_t *q, int64_t t)
{
    return (int)plait_min(t, q->a.n_ranks - 1);
}

static plait_status_t collect_sums(const walk_t *w, int64_t t)
{
    plait_status_t status = PLAIT_OK;
    const plait_few_t *q = &w->q;
    const int64_t k = block_at(q, t), item = plait_dealt_item(&q->a);
    plait_move_t move = {0};

    for (int i = 0; i < n_pieces_at(q, t); i++) {
        const int peer = plait_dealt_owner(&q->a, block_at(q, t - 1 - i));
        plait_block_t block = {.src_slot = q->sums,
                               .dst_slot = q->pieces,
                               .src_offset = sums_row(q, k) * item,
                               .dst_offset = i * piece_bytes(q),
                               .box = sums_box(q, plait_dealt_width(&q->a, k))};
        block.box.dst_stride[0] = piece_box(q, k).src_stride[0];
        PLAIT_TRY(plait_dealt_between(w->plan, peer, plait_dealt_owner(&q->a, k),
                                      &block, &move));
    }
    PLAIT_TRY(plait_plan_move(w->plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

/* Brings block k of x to all other ranks. */
static plait_status_t add_share(const walk_t *w, int64_t k, plait_move_t *move)
{
    plait_status_t status = PLAIT_OK;
    const plait_few_t *q = &w->q;
    const int owner = plait_dealt_owner(&q->a, k);

    for (int peer = 0; peer < q->a.n_ranks; peer++) {
        plait_block_t block = {.src_slot = q->x_slot,
                               .dst_slot = q->x_slot,
                               .src_offset = x_at(q, k),
                               .dst_offset = x_at(q, k),
                               .box = x_box(q, k)};
        if (peer != owner) {
            PLAIT_TRY(plait_dealt_between(w->plan, owner, peer, &block, move));
        }
    }
done:
    return status;
}

/* Brings blocks [first, end) of x to all ranks. */
static plait_status_t share(const walk_t *w, int64_t first, int64_t end)
{
    plait_status_t status = PLAIT_OK;
    plait_move_t move = {0};

    for (int64_t k = first; k < end; k++) {
        PLAIT_TRY(add_share(w, k, &move));
    }
    PLAIT_TRY(plait_plan_move(w->plan, &move));
done:
    plait_move_clear(&move);
    return status;
}

static plait_status_t add_plain(const walk_t *w)
{
    plait_status_t status = PLAIT_OK;
    const plait_few_t *q = &w->q;
    const int64_t n_blocks = plait_dealt_n_blocks(&q->a);

    for (int64_t t = 0; t < n_blocks; t++) {
        const bool is_next = t + 1 < n_blocks;
        if (t > 0) {
            PLAIT_TRY(plait_plan_fence(w->plan));
            PLAIT_TRY(collect_sums(w, t));
        }
        if (is_mine(q, t)) {
            PLAIT_TRY(put(w, &solve_kernel, block_at(q, t), n_pieces_at(q, t), 0, 0));
            PLAIT_TRY(put_rows(w, t, t + 1, plait_min(t + 2, n_blocks)));
        }
        if (is_next) {
            PLAIT_TRY(plait_plan_arrive(w->plan));
        }
        PLAIT_TRY(put_chunk(w, t));
    }
    if (!q->stays) {
        PLAIT_TRY(plait_plan_fence(w->plan));
        PLAIT_TRY(share(w, 0, n_blocks));
        PLAIT_TRY(plait_plan_fence(w->plan));
    }
done:
    return status;
}

/* Adds products of block k_t of x with the own columns of the blocks from k_from on, which are all adjacent. */
static plait_status_t put_columns(const walk_t *w, int64_t t, int64_t from)
{
    const plait_few_t *q = &w->q;
    const plait_dealt_t *a = &q->a;
    const int64_t n_blocks = plait_dealt_n_blocks(a);
    const bool is_forward = q->uplo == 'U';
    const int64_t k = (from < n_blocks) ? block_at(q, from)
                      : is_forward      ? n_blocks
                                        : -1;
    plait_dealt_t left = *a; /* blocks up to k */

    left.n = plait_min(a->n, (k + 1) * a->block);
    return is_forward
               ? put_add(w, t, plait_dealt_local(a, plait_dealt_next(a, q->rank, k)),
                         plait_dealt_owned(a, q->rank))
               : put_add(w, t, 0, plait_dealt_owned(&left, q->rank));
}

static plait_status_t put_next(const walk_t *w, int64_t t)
{
    plait_status_t status = PLAIT_OK;
    const plait_few_t *q = &w->q;
    const int64_t next = block_at(q, t + 1);
    const int64_t first = plait_dealt_local(&q->a, next);

    PLAIT_TRY(put_add(w, t, first, first + plait_dealt_width(&q->a, next)));
    PLAIT_TRY(put(w, &solve_kernel, next, 0, 0, 0));
done:
    return status;
}

static plait_status_t add_transposed(const walk_t *w)
{
    plait_status_t status = PLAIT_OK;
    const plait_few_t *q = &w->q;
    const int64_t n_blocks = plait_dealt_n_blocks(&q->a);

    if (is_mine(q, 0)) {
        PLAIT_TRY(put(w, &solve_kernel, block_at(q, 0), 0, 0, 0));
    }
    PLAIT_TRY(plait_plan_arrive(w->plan));
    for (int64_t t = 0; t < n_blocks; t++) {
        const bool is_next = t + 1 < n_blocks;
        const bool is_next_mine = is_next && is_mine(q, t + 1);
        const int64_t k = block_at(q, t);
        PLAIT_TRY(plait_plan_fence(w->plan));
        PLAIT_TRY(share(w, k, k + 1));
        if (is_next_mine) {
            PLAIT_TRY(put_next(w, t));
        }
        if (is_next) {
            PLAIT_TRY(plait_plan_arrive(w->plan));
        }
        PLAIT_TRY(put_columns(w, t, t + (is_next_mine ? 2 : 1)));
    }
    PLAIT_TRY(plait_plan_fence(w->plan));
done:
    return status;
}

plait_status_t plait_few_add(plait_plan_t *plan, const plait_few_t *given)
{
    plait_status_t status = PLAIT_OK;
    walk_t w = {.q = *given, .plan = plan};
    plait_few_t *q = &w.q;
    const int64_t n_sums = sums_ld(q) * q->n_rhs;

    PLAIT_TRY(plait_plan_add_work(plan, n_sums * plait_dealt_item(&q->a), &q->sums));
    PLAIT_TRY(plait_plan_add_work(
        plan, is_plain(q) ? (plan->n_ranks - 1) * piece_bytes(q) : 0, &q->pieces));
    PLAIT_TRY(put(&w, &start_kernel, 0, 0, 0, 0));
    PLAIT_TRY(is_plain(q) ? add_plain(&w) : add_transposed(&w));
done:
    return status;
}
