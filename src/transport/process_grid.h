/* Devices of several processes, one per process, that work as one (plait_device_grid_t). All ranks find out
 * together whether their devices do, and each takes its seat among them. */
#ifndef PLAIT_TRANSPORT_PROCESS_GRID_H
#define PLAIT_TRANSPORT_PROCESS_GRID_H

#include "transport/device_link.h"

/* Whether ranks have been asked, and the answer still holds: the same on all of them. */
bool plait_process_grid_is_known(const plait_endpoint_t *end);

/* Asks all ranks, which are at this place of one operation, and has them take their seats if they can: on all
 * or on none; PLAIT_LOG=info says why not. Not OK: the run's own failure, with which nothing is known, or the
 * transport's, with which it is_lost. */
plait_status_t plait_process_grid_open(plait_device_run_t *run);

/* NULL: the devices do not work as one, or not with this device. */
plait_process_grid_t *plait_process_grid(const plait_endpoint_t *end,
                                         const plait_device_t *device);

/* An operation that was in a call of the grid has failed: the grid is left, and ranks are to be asked again.
 * All ranks know, or this rank could not tell them. */
void plait_process_grid_abandon(plait_device_run_t *run);

/* Before the endpoint is closed; no operation is under way. is_whole: on all ranks. */
void plait_process_grid_close(plait_endpoint_t *end, bool is_whole);

#endif
