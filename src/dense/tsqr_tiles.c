/* The kernels of tsqr.c on a device, made of its library's matrix operations. The library forms no explicit
 * Q, so a pair and the rows are kept as reflectors, which are applied to coefficients. The library can keep
 * only the lower triangle of a matrix, so R is transposed between its own factorization and the next one, of
 * which it is a part. */
#include "base/status.h"
#include "dense/reflect.h"
#include "dense/tsqr.h"

static plait_spot_t spot(int slot, int64_t offset)
{
    return (plait_spot_t){.slot = slot, .offset = offset};
}

static plait_spot_t pair_spot(const plait_tsqr_t *t)
{
    return spot(t->pair_slot, plait_tsqr_pair_offset(t));
}

/* Moves n x n elements, columns `from_ld` and `to_ld` elements apart. */
static plait_status_t move(const plait_tsqr_t *t, const plait_tiles_t *tiles,
                           plait_spot_t from, int64_t from_ld, plait_spot_t to,
                           int64_t to_ld, bool is_turned)
{
    const int64_t item = plait_tsqr_item(t);
    const plait_box_copy_t box = {.n_dims = 2,
                                  .count = {t->n, t->n},
                                  .src_stride = {from_ld * item, item},
                                  .dst_stride = {is_turned ? item : to_ld * item,
                                                 is_turned ? to_ld * item : item},
                                  .row_bytes = item};

    return plait_tile_box(tiles, PLAIT_DEVICE_COPY, t->dtype, from, to, &box);
}

/* n x n: what is above the diagonal becomes 0; with 'U' the diagonal becomes 1. */
static plait_status_t trim(const plait_tsqr_t *t, const plait_tiles_t *tiles,
                           plait_spot_t c, int64_t ld, char diag)
{
    const plait_tile_t tile = {.call = {.op = PLAIT_TILE_TRIM,
                                        .dtype = t->dtype,
                                        .diag = diag,
                                        .m = t->n,
                                        .n = t->n,
                                        .k = t->n,
                                        .lda = ld,
                                        .ldc = ld},
                               .a = c,
                               .c = c};

    return plait_tile_add(tiles, &tile);
}

/* m x n columns become reflectors, and R goes, transposed, to the own triangle. */
static plait_status_t factor(const plait_tsqr_t *t, const plait_tiles_t *tiles,
                             plait_spot_t c, int64_t m, int64_t tau)
{
    plait_status_t status = PLAIT_OK;
    const plait_spot_t own = spot(t->own_slot, 0);
    const plait_tile_t tile = {.call = {.op = PLAIT_TILE_GEQRF,
                                        .dtype = t->dtype,
                                        .m = m,
                                        .n = t->n,
                                        .ldc = m},
                               .c = c,
                               .extra = spot(t->rows_slot, tau)};

    PLAIT_TRY(plait_tile_add(tiles, &tile));
    PLAIT_TRY(move(t, tiles, c, m, own, t->n, true));
    PLAIT_TRY(trim(t, tiles, own, t->n, 'N'));
done:
    return status;
}

/* m x n: applies the reflectors to the coefficients that have come, with zeros below them. */
static plait_status_t multiply(const plait_tsqr_t *t, const plait_tiles_t *tiles,
                               plait_spot_t v, int64_t tau, int64_t m, plait_spot_t c)
{
    plait_status_t status = PLAIT_OK;
    const plait_reflect_t reflect = {
        .dtype = t->dtype,
        .panel = {.slot = v.slot, .offset = v.offset, .ld = m, .n_rows = m},
        .n = t->n,
        .tau_slot = t->rows_slot,
        .tau_offset = tau,
        .slot = c.slot,
        .offset = c.offset,
        .ld = m,
        .n_columns = t->n};

    PLAIT_TRY(plait_tile_zero(tiles, c, m * t->n * plait_tsqr_item(t)));
    PLAIT_TRY(t->has_coefficients
                  ? move(t, tiles, spot(t->in_slot, 0), t->n, c, m, false)
                  : trim(t, tiles, c, m, 'U'));
    PLAIT_TRY(plait_reflect_tiles(&reflect, tiles));
done:
    return status;
}

plait_status_t plait_tsqr_rows_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_tsqr_t *t = params;
    const plait_box_copy_t all = {.row_bytes = plait_tsqr_rows_bytes(t)};
    const plait_spot_t rows = spot(t->rows_slot, 0);

    PLAIT_TRY(plait_tile_box(tiles, PLAIT_DEVICE_COPY, t->dtype, spot(t->a_slot, 0),
                             rows, &all));
    PLAIT_TRY(factor(t, tiles, rows, t->m, plait_tsqr_tau_offset(t, false)));
done:
    return status;
}

plait_status_t plait_tsqr_pair_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_tsqr_t *t = params;
    const plait_spot_t pair = pair_spot(t);
    const plait_spot_t below =
        spot(pair.slot, pair.offset + plait_tsqr_column_bytes(t));

    PLAIT_TRY(move(t, tiles, spot(t->own_slot, 0), t->n, pair, 2 * t->n, true));
    PLAIT_TRY(move(t, tiles, spot(t->in_slot, 0), t->n, below, 2 * t->n, true));
    PLAIT_TRY(factor(t, tiles, pair, 2 * t->n, plait_tsqr_tau_offset(t, true)));
done:
    return status;
}

/* Own coefficients go to where they are kept; the other rank's go to the beginning of the pair, which is not
 * needed any more. */
plait_status_t plait_tsqr_split_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_tsqr_t *t = params;
    const plait_spot_t pair = pair_spot(t);
    const plait_spot_t product = spot(t->product_slot, 0);
    const plait_spot_t below = spot(product.slot, plait_tsqr_column_bytes(t));

    PLAIT_TRY(
        multiply(t, tiles, pair, plait_tsqr_tau_offset(t, true), 2 * t->n, product));
    PLAIT_TRY(move(t, tiles, product, 2 * t->n, spot(t->in_slot, 0), t->n, false));
    PLAIT_TRY(move(t, tiles, below, 2 * t->n, pair, t->n, false));
done:
    return status;
}

plait_status_t plait_tsqr_results_tiles(const void *params, const plait_tiles_t *tiles)
{
    plait_status_t status = PLAIT_OK;
    const plait_tsqr_t *t = params;

    if (!t->without_q) {
        PLAIT_TRY(multiply(t, tiles, spot(t->rows_slot, 0),
                           plait_tsqr_tau_offset(t, false), t->m, spot(t->q_slot, 0)));
    }
    PLAIT_TRY(
        move(t, tiles, spot(t->own_slot, 0), t->n, spot(t->r_slot, 0), t->n, true));
done:
    return status;
}
