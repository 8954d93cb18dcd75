/* Resources of copies between a device and the host: pinned memory for the chunks of messages in flight,
 * separate streams, events. They are kept after an execution, for the next one on the device.
 *
 * Chunk i of a message has flight i mod PLAIT_STAGED_FLIGHTS. */
#ifndef PLAIT_TRANSPORT_STAGED_H
#define PLAIT_TRANSPORT_STAGED_H

#include "device/device.h"

enum { PLAIT_STAGED_FLIGHTS = 3 };

/* Room for one chunk each way. */
typedef struct {
    char *out, *in;
    plait_event_t *down; /* a chunk has come from the device to `out` */
    plait_event_t *up;   /* a chunk has gone from `in` to the device */
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

/* A staging that nobody uses, with room for chunks of n_bytes. */
plait_status_t plait_staging_take(plait_device_t *device, int64_t n_bytes,
                                  plait_staging_t **staging_p);

/* is_whole: nothing failed; else the staging is not used again. NULL is fine. */
void plait_staging_give(plait_staging_t *staging, bool is_whole);

/* Part: the staging's streams go on after the work on `stream`. Join: `stream` goes on when everything that was
 * raised on the staging's streams is on the device. */
plait_status_t plait_staging_part(plait_staging_t *staging, plait_stream_t stream);
plait_status_t plait_staging_join(plait_staging_t *staging, plait_stream_t stream);

/* Copies a chunk from the device to the flight's `out`; waits until it is there. */
plait_status_t plait_staging_lower(plait_staging_t *staging, plait_stream_t stream,
                                   plait_flight_t *flight, const void *src,
                                   int64_t n_bytes);
plait_status_t plait_staging_lowered(plait_staging_t *staging, plait_flight_t *flight);

/* Copies a chunk from the flight's `in` to the device; waits until `in` may be written again. */
plait_status_t plait_staging_raise(plait_staging_t *staging, plait_stream_t stream,
                                   plait_flight_t *flight, void *dst, int64_t n_bytes);
plait_status_t plait_staging_land(plait_staging_t *staging, plait_flight_t *flight);

/* The next chunk of a message of which `at` bytes are done. Depends on the message's size alone, so that both
 * of its ranks cut it alike. */
int64_t plait_staged_chunk(int64_t n_bytes, int64_t at);

/* The largest chunk of a message. */
int64_t plait_staged_largest_chunk(int64_t n_bytes);

#endif
