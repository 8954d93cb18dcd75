/* Asks whether the devices of the ranks' processes work as one. This is asked once per communicator, by a
 * separate operation before the first operation that could use the answer. */
#ifndef PLAIT_PLAN_ASK_GRID_H
#define PLAIT_PLAN_ASK_GRID_H

#include "comm/comm.h"
#include "plan/exec.h"

/* Collective over the communicator, outside of its operations; then process_grid.h knows the answer. Not OK:
 * like an operation's failure, which all ranks know. */
plait_status_t plait_grid_ask(plait_comm_t *comm, int64_t run, plait_device_t *device,
                              plait_stream_t stream);

#endif
