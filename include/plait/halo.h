/* Halo exchange on padded local arrays, and its adjoint. */
#ifndef PLAIT_HALO_H
#define PLAIT_HALO_H

#include "plait/comm.h"
#include "plait/dtype.h"
#include "plait/layout.h"
#include "plait/plan.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Along axis a every rank's array has extents[a] ghost cells before its interior and as many
 * after it. */
typedef struct {
    plait_dtype_t dtype;
    const plait_layout_t *interior; /* without ghosts; no CYCLIC axis */
    const int64_t *extents;         /* per axis, >= 0 */
    const bool *periodic;           /* per axis; else ghosts beyond an end are 0 */
} plait_halo_problem_t;

/** Plans the exchange: every ghost gets the value of the interior cell of its global index.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: operand and result are this rank's interior plus ghosts; they may be the same
 *  memory, then interiors are not touched. Extents may exceed a neighbour's interior.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: INVALID (extents, layout), NO_MEMORY.  Source: own. */
PLAIT_EXPORT plait_status_t
plait_halo_exchange_plan(const plait_comm_t *comm, const plait_halo_problem_t *problem,
                         plait_plan_t **plan_p);

/** Plans the adjoint of the exchange: every ghost is added to the interior cell that it is a
 *  copy of, and becomes 0; ghosts beyond an end are dropped.
 *  Collective: no; every rank plans for itself, all with the same problem.
 *  Shapes: as plait_halo_exchange_plan; the dtype is one that can be added.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: INVALID (extents, layout, dtype), NO_MEMORY.  Source: own. */
PLAIT_EXPORT plait_status_t plait_halo_reduce_plan(const plait_comm_t *comm,
                                                   const plait_halo_problem_t *problem,
                                                   plait_plan_t **plan_p);

#ifdef __cplusplus
}
#endif
#endif
