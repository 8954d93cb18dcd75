/* The step kinds of the executor, one function each. */
#ifndef PLAIT_PLAN_EXEC_STEPS_H
#define PLAIT_PLAN_EXEC_STEPS_H

#include "plan/exec.h"

plait_status_t plait_exec_move(plait_exec_t *exec, const plait_move_t *move);
plait_status_t plait_exec_reduce(plait_exec_t *exec, const plait_reduce_step_t *reduce);
plait_status_t plait_exec_native(plait_exec_t *exec, const plait_native_step_t *native);

#endif
