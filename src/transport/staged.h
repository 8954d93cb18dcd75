/* What copies between a device and the host need: pinned memory for the chunks of messages that
 * are in flight, streams of their own, events. Kept when an execution is over, for the next one
 * on the device. */
#ifndef PLAIT_TRANSPORT_STAGED_H
#define PLAIT_TRANSPORT_STAGED_H

#include "device/device.h"

enum { PLAIT_STAGED_FLIGHTS = 3 };

/* Room for one chunk each way. */
typedef struct {
    char *out, *in;
    plait_event_t *down; /* `out` has come from the device */
    plait_event_t *up;   /* `in` has gone to it */
    bool is_rising;      /* `up` was recorded and nobody has waited for it */
} plait_flight_t;

typedef struct plait_staging {
    plait_device_t *device;
    plait_stream_t down, up;
    plait_event_t *begun, *brought;
    int64_t room; /* bytes of each way of a flight */
    void *pinned; /* all of it */
    plait_flight_t flights[PLAIT_STAGED_FLIGHTS];
    struct plait_staging *next;
} plait_staging_t;

/* One that nobody uses, with room for chunks of n_bytes. */
plait_status_t plait_staging_take(plait_device_t *device, int64_t n_bytes,
                                  plait_staging_t **staging_p);

/* is_whole: nothing failed; else it is not used again. NULL is fine. */
void plait_staging_give(plait_staging_t *staging, bool is_whole);

/* The flight's `in` may be written. */
plait_status_t plait_staging_land(plait_staging_t *staging, plait_flight_t *flight);

#endif
