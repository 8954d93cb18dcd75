#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"
#include "transport/device_link.h"
#include "transport/staged.h"

#include <pthread.h>

/* Sizes of rooms: small messages do not pin the memory that large messages need. */
static const int64_t rooms[] = {64 << 10, 512 << 10, 2 << 20};
enum { N_ROOMS = sizeof(rooms) / sizeof(rooms[0]) };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static plait_staging_t *idle; /* of all devices */

/* Between enter and leave. Copies from or to pinned memory end before the memory is given back; on a device
 * that does nothing any more, no copy is on its way. */
static void destroy(plait_staging_t *staging)
{
    if (staging != NULL) {
        plait_device_t *device = staging->device;
        const plait_device_table_t *table = device->table;
        const plait_stream_t streams[] = {staging->down, staging->up};
        plait_event_t *const events[] = {staging->begun, staging->brought};
        for (int i = 0; i < 2; i++) {
            if (streams[i] != NULL) {
                (void)table->stream_wait(device, streams[i]);
                table->stream_destroy(device, streams[i]);
            }
            if (events[i] != NULL) {
                table->event_destroy(device, events[i]);
            }
        }
        for (int i = 0; i < PLAIT_STAGED_FLIGHTS; i++) {
            plait_flight_t *flight = &staging->flights[i];
            if (flight->is_rising) {
                (void)table->event_wait(device, flight->up);
            }
            if (flight->down != NULL) {
                table->event_destroy(device, flight->down);
            }
            if (flight->up != NULL) {
                table->event_destroy(device, flight->up);
            }
        }
        if (staging->pinned != NULL) {
            table->host_give(device, staging->pinned);
        }
        plait_free(staging);
    }
}

plait_status_t plait_staging_part(plait_staging_t *staging, plait_stream_t stream)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = staging->device;
    const plait_device_table_t *table = device->table;

    PLAIT_TRY(table->event_record(device, staging->begun, stream));
    PLAIT_TRY(table->event_order(device, staging->begun, staging->down));
    PLAIT_TRY(table->event_order(device, staging->begun, staging->up));
done:
    return status;
}

plait_status_t plait_staging_join(plait_staging_t *staging, plait_stream_t stream)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = staging->device;
    const plait_device_table_t *table = device->table;

    PLAIT_TRY(table->event_record(device, staging->brought, staging->up));
    PLAIT_TRY(table->event_order(device, staging->brought, stream));
done:
    return status;
}

plait_status_t plait_staging_lower(plait_staging_t *staging, plait_stream_t stream,
                                   plait_flight_t *flight, const void *src,
                                   int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = staging->device;
    const plait_device_table_t *table = device->table;

    PLAIT_TRY(table->to_host(device, stream, flight->out, src, n_bytes));
    PLAIT_TRY(table->event_record(device, flight->down, stream));
done:
    return status;
}

plait_status_t plait_staging_lowered(plait_staging_t *staging, plait_flight_t *flight)
{
    return staging->device->table->event_wait(staging->device, flight->down);
}

plait_status_t plait_staging_raise(plait_staging_t *staging, plait_stream_t stream,
                                   plait_flight_t *flight, void *dst, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = staging->device;
    const plait_device_table_t *table = device->table;

    PLAIT_TRY(table->to_device(device, stream, dst, flight->in, n_bytes));
    flight->is_rising = true;
    PLAIT_TRY(table->event_record(device, flight->up, stream));
done:
    return status;
}

plait_status_t plait_staging_land(plait_staging_t *staging, plait_flight_t *flight)
{
    plait_status_t status = PLAIT_OK;

    if (flight->is_rising) {
        PLAIT_TRY(staging->device->table->event_wait(staging->device, flight->up));
        flight->is_rising = false;
    }
done:
    return status;
}

static plait_status_t make_room(plait_staging_t *staging, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = staging->device->table;
    int i = 0;

    while (i < N_ROOMS && rooms[i] < n_bytes) {
        i++;
    }
    PLAIT_CHECK(i < N_ROOMS, PLAIT_ERR_INTERNAL, "a chunk of %lld bytes",
                (long long)n_bytes);
    const int64_t room = rooms[i];
    if (room <= staging->room) {
        goto done;
    }
    for (i = 0; i < PLAIT_STAGED_FLIGHTS; i++) {
        PLAIT_TRY(plait_staging_land(staging, &staging->flights[i]));
    }
    if (staging->pinned != NULL) {
        table->host_give(staging->device, staging->pinned);
        staging->pinned = NULL;
        staging->room = 0;
    }
    PLAIT_TRY(table->host_take(staging->device, 2 * PLAIT_STAGED_FLIGHTS * room,
                               &staging->pinned));
    staging->room = room;
    for (i = 0; i < PLAIT_STAGED_FLIGHTS; i++) {
        staging->flights[i].out = (char *)staging->pinned + 2 * i * room;
        staging->flights[i].in = staging->flights[i].out + room;
    }
done:
    return status;
}

static plait_status_t create(plait_device_t *device, plait_staging_t **staging_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = device->table;
    plait_staging_t *staging = plait_alloc(1, sizeof(*staging));

    PLAIT_CHECK(staging != NULL, PLAIT_ERR_NO_MEMORY, "no memory for copies");
    staging->device = device;
    PLAIT_TRY(table->stream_create(device, &staging->down));
    PLAIT_TRY(table->stream_create(device, &staging->up));
    PLAIT_TRY(table->event_create(device, &staging->begun));
    PLAIT_TRY(table->event_create(device, &staging->brought));
    for (int i = 0; i < PLAIT_STAGED_FLIGHTS; i++) {
        PLAIT_TRY(table->event_create(device, &staging->flights[i].down));
        PLAIT_TRY(table->event_create(device, &staging->flights[i].up));
    }
    *staging_p = staging;
    staging = NULL;
done:
    destroy(staging);
    return status;
}

static plait_staging_t *take_idle(const plait_device_t *device)
{
    plait_staging_t *found = NULL;

    (void)pthread_mutex_lock(&mutex);
    for (plait_staging_t **place = &idle; *place != NULL && found == NULL;) {
        if ((*place)->device == device) {
            found = *place;
            *place = found->next;
        } else {
            place = &(*place)->next;
        }
    }
    (void)pthread_mutex_unlock(&mutex);
    return found;
}

plait_status_t plait_staging_take(plait_device_t *device, int64_t n_bytes,
                                  plait_staging_t **staging_p)
{
    plait_status_t status = PLAIT_OK;
    plait_staging_t *staging = take_idle(device);

    if (staging == NULL) {
        PLAIT_TRY(create(device, &staging));
    }
    PLAIT_TRY(make_room(staging, n_bytes));
    *staging_p = staging;
    staging = NULL;
done:
    destroy(staging);
    return status;
}

void plait_staging_give(plait_staging_t *staging, bool is_whole)
{
    if (!is_whole) {
        destroy(staging);
    } else if (staging != NULL) {
        (void)pthread_mutex_lock(&mutex);
        staging->next = idle;
        idle = staging;
        (void)pthread_mutex_unlock(&mutex);
    }
}

void plait_staged_trim(plait_device_t *device)
{
    plait_staging_t *staging = take_idle(device);

    if (staging != NULL && device->table->enter(device) == PLAIT_OK) {
        while (staging != NULL) {
            destroy(staging);
            staging = take_idle(device);
        }
        device->table->leave(device);
    }
}
