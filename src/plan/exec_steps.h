/* The step kinds of the executor, one function each. */
#ifndef PLAIT_PLAN_EXEC_STEPS_H
#define PLAIT_PLAN_EXEC_STEPS_H

#include "plan/exec.h"

plait_status_t plait_exec_move(plait_exec_t *exec, const plait_move_t *move);
plait_status_t plait_exec_reduce(plait_exec_t *exec, const plait_reduce_step_t *reduce);
plait_status_t plait_exec_native(plait_exec_t *exec, const plait_native_step_t *native);

/* A box of a block of a move, whose source is readable here, to dst. */
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

/* By which link this execution reaches peers: for all ranks alike. Not OK: they leave here, as
 * one unless the device's run is lost. */
plait_status_t plait_exec_device_find_way(plait_exec_t *exec);

/* Any step but a fence. After a failure messages are all that is done of it, and meetings. */
plait_status_t plait_exec_device_step(plait_exec_t *exec, const plait_step_t *step);
plait_status_t plait_exec_device_move(plait_exec_t *exec, const plait_move_t *move);

/* All that is on the stream is done. */
plait_status_t plait_exec_device_wait(plait_exec_t *exec);

/* After a failure that all ranks know of, before they meet to say it: what its stream still does is over,
 * where nothing can keep it from that. So none gives back what a peer reads; one whose own device
 * is gone has nothing else to wait by. own: this rank's, which keeps its text. */
void plait_exec_device_drain(plait_exec_t *exec, plait_status_t own);

/* How this rank did, with the text of it; what is on its stream may go on after the call. */
plait_status_t plait_exec_device_verdict(const plait_exec_t *exec);

#endif
