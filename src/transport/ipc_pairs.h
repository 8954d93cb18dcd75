/* Matched transfers between processes of one node that open each other's memory and events (link_ipc.c). */
#ifndef PLAIT_TRANSPORT_IPC_PAIRS_H
#define PLAIT_TRANSPORT_IPC_PAIRS_H

#include "transport/device_link.h"

extern const plait_matched_link_t plait_ipc_pairs;

/* Whether ranks open each other's virtual memory; state: the link's. */
bool plait_ipc_has_virtual(const void *state);

#endif
