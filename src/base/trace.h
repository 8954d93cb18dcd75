/* Log of executed operations, in the order in which they ran; off unless started. Tests
 * observe program order with it. */
#ifndef PLAIT_BASE_TRACE_H
#define PLAIT_BASE_TRACE_H

#include "plait/status.h"

/* Called once per execution; costs one load while the log is off. */
void plait_trace_add(const char *title, int rank, plait_status_t status);

/* Empties the log and starts (1) or stops (0) it. */
PLAIT_EXPORT void plait_trace_start(int is_on);

/* Number of entries since the start; entries beyond the room of the log are not kept. */
PLAIT_EXPORT int plait_trace_count(void);

/* Entry i as text "thread rank status title"; empty if there is none. Writes n_bytes at most. */
PLAIT_EXPORT void plait_trace_read(int i, char *text, int n_bytes);

#endif
