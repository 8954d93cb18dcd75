/* Ranks are threads of one process: several JAX devices, or tests of a C program. */
#ifndef PLAIT_TRANSPORT_LOCAL_H
#define PLAIT_TRANSPORT_LOCAL_H

#include "transport/transport.h"

/* Opens n endpoints that share one group; each is closed on its own. */
plait_status_t plait_local_open(int n, plait_endpoint_t ends[]);

#endif
