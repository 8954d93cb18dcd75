/* Ghost cells around the parts of a distributed array, and the exact adjoints.
 *
 * Along each axis the array of every rank has `before` ghosts in front of its cells and `after` ghosts
 * behind them. The cells of the whole axis have the numbers 0 to n - 1. Beyond them index g is a copy of
 *
 *   PERIODIC  cell g mod n                              n=4:  2 3 | 0 1 2 3 | 0 1
 *   ZERO      no cell: it is 0                                . . | 0 1 2 3 | . .
 *   EDGE      the cell at the nearer end                      0 0 | 0 1 2 3 | 3 3
 *   REFLECT   the cell as far from 0 as g is from the         2 1 | 0 1 2 3 | 2 1
 *             nearest multiple of 2 (n - 1); n = 1: EDGE
 *
 * These are wrap, constant, edge and reflect of numpy.pad. Widths may be larger than a neighbour's part,
 * and than the axis: the ghosts then come from several ranks, or several times from one rank. Corners
 * come from the ranks that own them, in the same round. Where the layout stores more than a rank owns
 * (layout.h), the ghosts lie directly around the cells. The elements behind the ghosts are never read, and
 * are zero in results. A rank without cells has no ghosts: its array is zero in results.
 *
 * In formulas: A has a row for every place of the padded arrays, with a 1 at the cell that the place is a
 * copy of, if there is one. C is A's part for the cells themselves. Then pad is A, fold is A', exchange is
 * A C', which ignores old ghosts and fills them anew, and reduce is C A'.
 *
 * All functions return COMM (comm is NULL), INVALID (another pointer is NULL), OVERFLOW (sizes),
 * UNSUPPORTED (a backend chosen by plait_config_set), NO_MEMORY, and the errors listed with each. */
#ifndef PLAIT_HALO_H
#define PLAIT_HALO_H

#include "plait/comm.h"
#include "plait/dtype.h"
#include "plait/layout.h"
#include "plait/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What lies beyond both ends of an axis. */
typedef enum {
    PLAIT_BOUNDARY_PERIODIC = 0,
    PLAIT_BOUNDARY_ZERO = 1,
    PLAIT_BOUNDARY_EDGE = 2,
    PLAIT_BOUNDARY_REFLECT = 3
} plait_boundary_t;

typedef struct {
    plait_dtype_t dtype;
    const plait_layout_t *cells;      /* without ghosts; no CYCLIC axis */
    const int64_t *before;            /* ghosts in front, per axis, >= 0 */
    const int64_t *after;             /* ghosts behind; NULL: as many as before */
    const plait_boundary_t *boundary; /* per axis; NULL: PERIODIC */
} plait_halo_problem_t;

/** Plans an array with ghosts from an array without: each ghost is a copy of its cell.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the operand is as cells->stored; the result has before + after more along each axis.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as above; INVALID (dtype, widths, boundary, layout).  Source: own. */
PLAIT_EXPORT plait_status_t plait_halo_pad_plan(const plait_comm_t *comm,
                                                const plait_halo_problem_t *problem,
                                                plait_plan_t **plan_p);

/** Plans the adjoint of plait_halo_pad_plan: every cell becomes the sum of itself and of the ghosts that are
 *  copies of it, in a fixed order; ghosts beyond a ZERO end are dropped.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: the operand is as plait_halo_pad_plan's result, the result as its operand; the dtype is one that
 *  can be added.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as above; INVALID (dtype, widths, boundary, layout).  Source: own. */
PLAIT_EXPORT plait_status_t plait_halo_fold_plan(const plait_comm_t *comm,
                                                 const plait_halo_problem_t *problem,
                                                 plait_plan_t **plan_p);

/** Plans the exchange: every ghost gets the value of the cell that it is a copy of.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: operand and result have before + after more than cells->stored along each axis. They may be the
 *  same memory; the cells are not touched then.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as above; INVALID (dtype, widths, boundary, layout).  Source: own. */
PLAIT_EXPORT plait_status_t
plait_halo_exchange_plan(const plait_comm_t *comm, const plait_halo_problem_t *problem,
                         plait_plan_t **plan_p);

/** Plans the adjoint of the exchange: every ghost is added to the cell that it is a copy of, and
 *  becomes 0; ghosts beyond a ZERO end are dropped.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: as plait_halo_exchange_plan; the dtype is one that can be added.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as above; INVALID (dtype, widths, boundary, layout).  Source: own. */
PLAIT_EXPORT plait_status_t plait_halo_reduce_plan(const plait_comm_t *comm,
                                                   const plait_halo_problem_t *problem,
                                                   plait_plan_t **plan_p);

#ifdef __cplusplus
}
#endif
#endif
