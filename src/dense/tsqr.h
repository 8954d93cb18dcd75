/* QR factorization of a tall matrix along a tree (tsqr.c): parameters of its kernels, on the host and on a
 * device (tsqr_tiles.c). */
#ifndef PLAIT_DENSE_TSQR_H
#define PLAIT_DENSE_TSQR_H

#include "plan/tiles.h"

typedef struct {
    plait_dtype_t dtype;
    int rank, n_ranks;
    int64_t m, n;   /* rows of a rank, columns */
    bool without_q; /* R alone: nothing is read again after it is factored */
    bool is_on_device;
    int a_slot, q_slot, r_slot;
    int own_slot;  /* a triangle: R of this rank's subtree, later R of all ranks */
    int in_slot;   /* what has come: a triangle, later coefficients */
    int pair_slot; /* this rank's pairs, one for each level; without Q only one */
    int rows_slot; /* the rows, factored; on the host Q's own */
    /* On a device reflectors stay as they are: behind the rows are the scalar factors of the rows, then of each
     * pair. And there is the product of a pair and coefficients. */
    int product_slot;
    int level;
    bool has_coefficients; /* else they are the identity */
} plait_tsqr_t;

static inline int64_t plait_tsqr_item(const plait_tsqr_t *t)
{
    return plait_dtype_bytes(t->dtype);
}

/* Packed on the host. Square on a device: an upper triangle from a factorization is kept transposed,
 * coefficients are not. */
static inline int64_t plait_tsqr_triangle_bytes(const plait_tsqr_t *t)
{
    return (t->is_on_device ? t->n * t->n : t->n * (t->n + 1) / 2) * plait_tsqr_item(t);
}

static inline int64_t plait_tsqr_pair_bytes(const plait_tsqr_t *t)
{
    return 2 * t->n * t->n * plait_tsqr_item(t);
}

static inline int64_t plait_tsqr_pair_offset(const plait_tsqr_t *t)
{
    return t->without_q ? 0 : t->level * plait_tsqr_pair_bytes(t);
}

static inline int64_t plait_tsqr_rows_bytes(const plait_tsqr_t *t)
{
    return t->m * t->n * plait_tsqr_item(t);
}

/* n elements: a column, or the scalar factors of the rows or of a pair. */
static inline int64_t plait_tsqr_column_bytes(const plait_tsqr_t *t)
{
    return t->n * plait_tsqr_item(t);
}

static inline int64_t plait_tsqr_tau_offset(const plait_tsqr_t *t, bool is_pair)
{
    const int64_t pair = t->without_q ? 1 : t->level + 1;

    return plait_tsqr_rows_bytes(t) + (is_pair ? pair : 0) * plait_tsqr_column_bytes(t);
}

/* The kernels of tsqr.c on a device. */
plait_status_t plait_tsqr_rows_tiles(const void *params, const plait_tiles_t *tiles);
plait_status_t plait_tsqr_pair_tiles(const void *params, const plait_tiles_t *tiles);
plait_status_t plait_tsqr_split_tiles(const void *params, const plait_tiles_t *tiles);
plait_status_t plait_tsqr_results_tiles(const void *params, const plait_tiles_t *tiles);

#endif
