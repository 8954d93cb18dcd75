/* Factorizations by block columns: potrf, getrf and geqrf differ in their kernels only.
 *
 * For every block column k, its owner factors it (the panel); all ranks get the part of the panel that they
 * need, and apply it to their own columns behind it. Look-ahead: the owner of block column k + 1 updates this
 * column first, factors it, and arrives at the fence before it updates its other columns. So the next panel
 * is done when the other ranks have updated their columns. A panel stays unchanged until the final fence.
 * Source: Kurzak, Dongarra, "Implementing linear algebra routines on multi-core processors with
 * pipelining and a look ahead", LAPACK Working Note 178, 2006. */
#ifndef PLAIT_DENSE_FACTOR_H
#define PLAIT_DENSE_FACTOR_H

#include "dense/dealt.h"
#include "plan/op.h"
#include "plan/tiles.h"

#include <stdbool.h>

/* What a kernel of a factorization works on. */
typedef struct {
    plait_dealt_t d;
    int rank;
    int src_slot;        /* the operand: only the first kernel reads it */
    int slot;            /* the result */
    int side_slot;       /* pivots or scalar factors of the reflectors; -1: none */
    int info_slot;       /* int32; -1: none */
    int64_t room;        /* bytes of the result */
    int64_t k;           /* the panel */
    int64_t first, end;  /* own blocks among these are updated */
    plait_panel_t panel; /* the part of panel k that was fetched */
} plait_factor_t;

/* A kind of factorization. Its kernels' params are plait_factor_t. If a failure can end it, `panel` and
 * `update` do nothing once *info is set. */
typedef struct {
    const plait_kernel_t *start;  /* copies the operand's columns to the result */
    const plait_kernel_t *panel;  /* factors block k */
    const plait_kernel_t *update; /* updates own blocks of [first, end) by block k */
    const plait_kernel_t *finish; /* after the last fence; NULL: none */
    bool is_lower; /* rows above a block are not read, and zero in the result */
    bool
        keeps_diagonal; /* other ranks need the panel from its diagonal block on, not only below it */
    int64_t
        side_bytes; /* bytes of an entry of the side array; a panel has one entry for each column */
    double n_flops; /* real operations for each k^2 l - k^3 / 3 of extents k <= l */
} plait_factor_kind_t;

/* Adds all steps to a plan. `given` says what to factor and where; k, first, end and panel are filled in here.
 * Small matrices are factored by one rank alone (whole.h), with the same kernels. */
plait_status_t plait_factor_steps(plait_plan_t *plan, const plait_factor_kind_t *kind,
                                  const plait_factor_t *given);

/* Block columns that are factored: those with a row on the diagonal. And the columns of block k that have a
 * diagonal element. */
int64_t plait_factor_n_panels(const plait_dealt_t *d);
int64_t plait_factor_n_pivots(const plait_dealt_t *d, int64_t k);

/* Whether one rank factors the whole matrix, by cost. */
bool plait_factor_is_whole(const plait_factor_kind_t *kind, const plait_dealt_t *d);

/* Number of own columns among the blocks [first, end). They are adjacent in memory. */
int64_t plait_factor_n_columns(const plait_factor_t *f);

/* For kernels: address of a row of an own block of the result; address of info. */
char *plait_factor_at(const plait_factor_t *f, const plait_exec_t *exec, int64_t k,
                      int64_t row);
int32_t *plait_factor_info(const plait_factor_t *f, const plait_exec_t *exec);

/* For kernels' touch: info, read or written; rows [row, m) of the own blocks among [first, end), or the part of
 * the rank's array behind its columns. */
void plait_factor_touch_info(const plait_factor_t *f, bool is_written,
                             plait_touch_fn_t touch, void *context);
void plait_factor_touch_blocks(const plait_factor_t *f, bool is_written, int slot,
                               int64_t first, int64_t end, bool from_diagonal,
                               plait_touch_fn_t touch, void *context);
void plait_factor_touch_padding(const plait_factor_t *f, plait_touch_fn_t touch,
                                void *context);

/* The same for an update that reads the panel and all rows of the own columns from the panel on. */
void plait_factor_touch_update(const plait_factor_t *f, plait_touch_fn_t touch,
                               void *context);

/* As `start`: copies the operand's columns, info = 0. */
extern const plait_kernel_t plait_factor_copy_kernel;

/* Number, counted from 1, of the first of a block's n diagonal elements that is not finite; 0: none. Some
 * libraries do not report such elements. */
int64_t plait_dense_first_bad(plait_dtype_t dtype, const char *block, int64_t n,
                              int64_t ld);

/* For kernels' tiles: a row of an own block of the result; info; zeros behind the own columns. */
plait_spot_t plait_factor_spot(const plait_factor_t *f, int64_t k, int64_t row);
plait_spot_t plait_factor_info_spot(const plait_factor_t *f);
plait_status_t plait_factor_tile_padding(const plait_factor_t *f,
                                         const plait_tiles_t *tiles);

/* Rows of a panel from `row` on, as a tile's operand. On a device the panel is in this rank's memory. */
plait_spot_t plait_factor_panel_spot(const plait_factor_t *f, int64_t row);

/* Zeroes what lies behind the own columns; sets n elements to NaN. */
void plait_factor_zero_padding(const plait_factor_t *f, const plait_exec_t *exec);
void plait_dense_set_nan(plait_dtype_t dtype, void *x, int64_t n);

/* Prints "block 3 of 8" and so on. */
void plait_factor_print(const void *params, FILE *file);

#endif
