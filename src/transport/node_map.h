/* Maps work memory that peers of the node show into this process. */
#ifndef PLAIT_TRANSPORT_NODE_MAP_H
#define PLAIT_TRANSPORT_NODE_MAP_H

#include "plait/status.h"

#include <stdint.h>
#include <sys/types.h>

typedef struct plait_node_maps plait_node_maps_t;

/* For the ranks of a communicator. */
plait_status_t plait_node_maps_create(int n_ranks, plait_node_maps_t **maps_p);

/* No mapping may be in use. NULL is fine. */
void plait_node_maps_destroy(plait_node_maps_t **maps_p);

/* The address in this process of the memory that process pid of a peer shows by this token (device/pool.h),
 * valid until plait_node_unmap; NULL: it cannot be mapped. The memory stays mapped for the next time. */
char *plait_node_map(plait_node_maps_t *maps, int peer, pid_t pid, uint64_t token);

void plait_node_unmap(plait_node_maps_t *maps, int peer, uint64_t token);

#endif
