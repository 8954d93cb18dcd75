/* The transport of a single rank, which has nothing to wait for. */
#ifndef PLAIT_TRANSPORT_SELF_H
#define PLAIT_TRANSPORT_SELF_H

#include "transport/transport.h"

plait_status_t plait_self_open(plait_endpoint_t *end);

#endif
