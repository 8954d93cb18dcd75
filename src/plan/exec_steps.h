/* The step kinds of the executor, one function each. */
#ifndef PLAIT_PLAN_EXEC_STEPS_H
#define PLAIT_PLAN_EXEC_STEPS_H

#include "plan/exec.h"

plait_status_t plait_exec_move(plait_exec_t *exec, const plait_move_t *move);
plait_status_t plait_exec_reduce(plait_exec_t *exec, const plait_reduce_step_t *reduce);
plait_status_t plait_exec_native(plait_exec_t *exec, const plait_native_step_t *native);

/* Copies or adds a box of a move's block, whose source is readable here, to dst. */
void plait_exec_apply(const plait_block_t *block, const plait_move_t *move,
                      const plait_box_copy_t *box, const char *src, char *dst);

/* A block of a move from the peer (READ). */
plait_status_t plait_exec_take(plait_exec_t *exec, const plait_block_t *block,
                               const plait_move_t *move);

/* ---- on a device; each returns exec->device->failure ---- */

/* Memory for work and scratch, given back by the end. */
plait_status_t plait_exec_device_begin(plait_exec_t *exec, plait_device_run_t *run,
                                       const plait_exec_arrays_t *arrays,
                                       void **memory_p);
void plait_exec_device_end(plait_exec_t *exec, void *memory);

/* Finds the link by which this execution reaches peers: the same for all ranks. Not OK: the ranks leave here,
 * together unless the device's run is lost. */
plait_status_t plait_exec_device_find_way(plait_exec_t *exec);

/* Any step but a fence. After a failure, only messages and meetings are done. */
plait_status_t plait_exec_device_step(plait_exec_t *exec, const plait_step_t *step);
plait_status_t plait_exec_device_move(plait_exec_t *exec, const plait_move_t *move);

/* Waits until everything on the stream is done. */
plait_status_t plait_exec_device_wait(plait_exec_t *exec);

/* After a failure that all ranks know of, before they meet to report it: waits for the work left on this rank's
 * stream, if nothing can hold it up. So no rank gives back memory that a peer reads. A rank whose own device is
 * gone has nothing else to wait by. own: this rank's status, which keeps its text. */
void plait_exec_device_drain(plait_exec_t *exec, plait_status_t own);

/* This rank's status, with its text; work on its stream may go on after the call. */
plait_status_t plait_exec_device_verdict(const plait_exec_t *exec);

#endif
