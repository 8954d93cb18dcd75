/* Ghost cells around the parts of a distributed array, and the exact adjoints.
 *
 * Along each axis the array of every rank has `before` ghosts in front of its cells and `after`
 * behind them. With its cells numbered 0 to n - 1 the axis goes on in both directions:
 *
 *   PERIODIC  index g is a copy of cell g mod n         n=4:  2 3 | 0 1 2 3 | 0 1
 *   ZERO      of no cell: 0                                   . . | 0 1 2 3 | . .
 *   EDGE      of the nearer end                               0 0 | 0 1 2 3 | 3 3
 *   REFLECT   of the cell as far from 0 as g is from the      2 1 | 0 1 2 3 | 2 1
 *             nearest multiple of 2 (n - 1); n = 1: EDGE
 *
 * which are wrap, constant, edge and reflect of numpy.pad. Widths may be larger than a neighbour's
 * part, and than the axis: ghosts then come from several ranks, or several times from one. Corners
 * come from the ranks that own them, in the same round. Where the layout stores more than a rank
 * owns (layout.h), ghosts lie directly around the cells; what is behind them is never read, and
 * zero in results. A rank without cells has no ghosts: its array is zero in results.
 *
 * In formulas: A has a row for every place of the padded arrays, with a 1 at the cell that it is a
 * copy of, or none; C is A's part for the cells themselves. Then pad is A, fold is A', exchange
 * is A C', which leaves ghosts aside and fills them anew, and reduce is C A'.
 *
 * All functions return COMM (comm is NULL), INVALID (another pointer is), OVERFLOW (sizes),
 * UNSUPPORTED (a backend chosen by plait_config_set) and NO_MEMORY, besides what is said with
 * each. */
#ifndef PLAIT_HALO_H
#define PLAIT_HALO_H

#include "plait/comm.h"
#include "plait/dtype.h"
#include "plait/layout.h"
#include "plait/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is beyond both ends of an axis. */
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
    const int64_t *after;             /* ghosts behind; NULL: as many */
    const plait_boundary_t *boundary; /* per axis; NULL: PERIODIC */
} plait_halo_problem_t;

/** Plans an array with ghosts from one without: each is a copy of its cell.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: operand is cells->stored; result has before + after more along each axis.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as above; INVALID (dtype, widths, boundary, layout).  Source: own. */
PLAIT_EXPORT plait_status_t plait_halo_pad_plan(const plait_comm_t *comm,
                                                const plait_halo_problem_t *problem,
                                                plait_plan_t **plan_p);

/** Plans the adjoint of plait_halo_pad_plan: every cell gets the sum of itself and of the ghosts
 *  that are copies of it, in a fixed order; ghosts beyond a ZERO end are dropped.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: operand as plait_halo_pad_plan's result and the reverse; a dtype that can be added.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as above; INVALID (dtype, widths, boundary, layout).  Source: own. */
PLAIT_EXPORT plait_status_t plait_halo_fold_plan(const plait_comm_t *comm,
                                                 const plait_halo_problem_t *problem,
                                                 plait_plan_t **plan_p);

/** Plans the exchange: every ghost gets the value of the cell that it is a copy of.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: operand and result have before + after more than cells->stored along each axis; they
 *  may be the same memory, then cells are not touched.
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
