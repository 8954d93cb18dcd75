/* Moves of a distributed array from any layout to any other. */
#ifndef PLAIT_REDIST_H
#define PLAIT_REDIST_H

#include "plait/comm.h"
#include "plait/dtype.h"
#include "plait/layout.h"
#include "plait/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Plans the move of a distributed array from one layout to another. If `from` holds replicas, they have to
 *  be equal, and any of them may be read.
 *  Collective: no; every rank plans for itself, all with the same layouts.
 *  Shapes: the operand is this rank's part of `from`, the result is its part of `to`; they do not
 *  overlap. Grids may differ; uneven, empty and block-cyclic parts are legal.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: INVALID (dtype, shapes differ, rank counts differ, NULL), COMM (comm is NULL),
 *  OVERFLOW (sizes), UNSUPPORTED (a backend chosen by plait_config_set), NO_MEMORY.
 *  Source: own; box intersections. */
PLAIT_EXPORT plait_status_t plait_redist_plan(const plait_comm_t *comm,
                                              plait_dtype_t dtype,
                                              const plait_layout_t *from,
                                              const plait_layout_t *to,
                                              plait_plan_t **plan_p);

/** plait_redist_plan with the last two axes exchanged on the way: result[…, j, i] = operand[…, i, j].
 *  Collective: no; every rank plans for itself, all with the same layouts.
 *  Shapes: as plait_redist_plan; `to` describes the array after the exchange of its last two axes.
 *  Owns: *plan_p is the caller's, and independent of comm's lifetime.
 *  Errors: as plait_redist_plan; INVALID (fewer than two axes).
 *  Source: own; box intersections. */
PLAIT_EXPORT plait_status_t plait_redist_turn_plan(const plait_comm_t *comm,
                                                   plait_dtype_t dtype,
                                                   const plait_layout_t *from,
                                                   const plait_layout_t *to,
                                                   plait_plan_t **plan_p);

#ifdef __cplusplus
}
#endif
#endif
