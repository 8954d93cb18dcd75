/* Whether the devices of the ranks' processes work as one: asked once for a communicator, by an operation of
 * its own before the first one that would have use for it. */
#ifndef PLAIT_PLAN_ASK_GRID_H
#define PLAIT_PLAN_ASK_GRID_H

#include "comm/comm.h"
#include "plan/exec.h"

/* Collective over the communicator, outside of its operations; then process_grid.h knows. Not OK: as an
 * operation's failure, of which all ranks know. */
plait_status_t plait_grid_ask(plait_comm_t *comm, int64_t run, plait_device_t *device,
                              plait_stream_t stream);

#endif
