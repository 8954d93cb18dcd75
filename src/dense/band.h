/* Reduction of a Hermitian matrix that is dealt out to tridiagonal form in two stages: to a band of
 * PLAIT_BAND_WIDTH diagonals below the main one (band.c), and from there by chasing bulges (chase.h).
 *
 * The first stage does all its work in products of matrices and needs two fences per panel. The reduction in
 * one stage (hetrd.h) reads the trailing matrix from memory for every column and needs two fences per
 * column. Eigenvectors have to go back through both stages; if all are wanted, this costs more than it saves.
 *
 * A panel's owner makes V and T with Q = 1 - V T V^H such that Q^H makes the panel upper triangular. Every
 * rank multiplies its own part of the trailing matrix with V, and the parts are summed. With X = A V T and
 * W = X - V (T^H V^H X) / 2 the trailing matrix becomes A - V W^H - W V^H. The band is collected on one rank.
 * Source: Bischof, Lang, Sun, "A framework for symmetric band reduction", ACM TOMS 26(4), 2000; LAPACK's
 * hetrd_he2hb. */
#ifndef PLAIT_DENSE_BAND_H
#define PLAIT_DENSE_BAND_H

#include "dense/hetrd_memory.h"
#include "kernel/bulge.h"

/* A panel's V and W are kept where the reduction in one stage keeps a panel's pairs. */
enum { PLAIT_BAND_WIDTH = PLAIT_HETRD_WIDTH };
_Static_assert((int)PLAIT_BAND_WIDTH == (int)PLAIT_BULGE_ROWS,
               "kernels are for bands of one width");

typedef struct {
    plait_hetrd_t h; /* its panel has V, W, and at the end d and e */
    bool
        has_vectors; /* reflectors of both stages are kept, the first stage's in the copy */
    int64_t
        sweeps; /* byte offset of the second stage's reflectors in `copy`: plait_chase_bytes() */
    int64_t band; /* byte offset of the band in `panel`: plait_band_bytes() */
} plait_band_t;

/* What a kernel of one panel works on. */
typedef struct {
    plait_band_t b;
    int64_t p; /* panel */
} plait_band_step_t;

/* Rows of a column of the band. Bulges reach twice as far as the band. Element (i, j), i >= j, is in row i -
 * j. */
enum { PLAIT_BAND_LD = 2 * PLAIT_BAND_WIDTH };

/* Bytes of the band on a rank. Only one rank has the band. Behind it are two groups of sweeps that will go to
 * other ranks, if there are any and vectors are wanted. */
int64_t plait_band_bytes(const plait_hetrd_t *h, bool has_vectors);

/* Bytes of the band alone. */
static inline int64_t plait_band_only(const plait_hetrd_t *h)
{
    return PLAIT_BAND_LD * h->a.n * plait_hetrd_item(h);
}

/* For tests: sets the smallest extent of a matrix that is reduced in two stages; negative: where two stages are
 * faster. Applies to plans that are made afterwards; to be called on all ranks. */
PLAIT_EXPORT void plait_band_choose(int64_t n);

/* The smallest extent at which two stages are faster. */
enum { PLAIT_BAND_LEAST = 1024 };

/* Whether two stages are faster if n_vectors are wanted, and a sum of panels takes less memory than a rank's
 * part of the matrix. */
bool plait_band_is_cheaper(const plait_hetrd_t *h, int64_t n_vectors);

/* Rows of a panel's part of the band: its diagonal block, and R below it. */
enum { PLAIT_BAND_HEAD = 2 * PLAIT_BAND_WIDTH };

/* Panel p: its first column, its number of columns, its first row below the diagonal block, its number of rows
 * from there on (may be 0), its reflectors, and the rows of its part of the band. */
typedef struct {
    int64_t first, width, row, m, n_reflectors, n_head;
} plait_band_panel_t;

plait_band_panel_t plait_band_panel(const plait_hetrd_t *h, int64_t p);

/* Adds the steps. Afterwards d and e are in `panel` on all ranks; T belongs to A times state.scale. */
plait_status_t plait_band_add(plait_plan_t *plan, const plait_band_t *b);

/* Params: plait_band_step_t. The product of the trailing matrix with V (band_product.c). */
extern const plait_kernel_t plait_band_product_kernel;

#endif
