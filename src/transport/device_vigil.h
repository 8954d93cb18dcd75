/* Watches the processes for whose streams a stream of this process waits. An operation on a device returns
 * when its work is enqueued. If a peer's process ends after that, the stream waits for ever, and so does every
 * thread that waits for the stream. Only the end of this process can end such a wait: the vigil reports to a
 * thread that ends the process by an exception.
 *
 * A process that has left its program in order has done its part before. So only a process that was killed, or
 * has raised or failed, is held responsible, and only if work is still left on the stream then. */
#ifndef PLAIT_TRANSPORT_DEVICE_VIGIL_H
#define PLAIT_TRANSPORT_DEVICE_VIGIL_H

#include "transport/device_link.h"

/* The work that the run has put on its stream until now may wait for its peers (run->is_held). Called before
 * the thread waits for this work, and at the end of an operation. */
plait_status_t plait_vigil_note(const plait_device_run_t *run);

/* Around a call in which this thread itself waits for peers, and which only the end of the process could end.
 * From enter on, the run is held until it leaves. */
plait_status_t plait_vigil_enter(plait_device_run_t *run);
void plait_vigil_leave(plait_device_run_t *run);

/* For an endpoint that is to be closed, inside its device. */
void plait_vigil_forget(const plait_endpoint_t *end);

/* Waits until a process has ended in this way; PEER, and the text says which operation waits for which
 * process. */
PLAIT_EXPORT plait_status_t plait_vigil_wait(char *text, int n_bytes);

#endif
