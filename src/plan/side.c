#include "plan/side.h"

#include "base/alloc.h"
#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

struct plait_side {
    plait_device_t *device;
    plait_stream_t stream;
    plait_event_t *begun, *ended;
    float *number; /* pinned: on its way until `begun` */
    void *memory;
    plait_stream_t order; /* in which the memory exists, and may be given back */
    bool is_used;         /* `begun` has been recorded */
    plait_side_t *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static plait_side_t *idle;

static plait_side_t *find_idle(const plait_device_t *device)
{
    (void)pthread_mutex_lock(&mutex);
    plait_side_t **place = &idle;
    while (*place != NULL && (*place)->device != device) {
        place = &(*place)->next;
    }
    plait_side_t *found = *place;
    if (found != NULL) {
        *place = found->next;
    }
    (void)pthread_mutex_unlock(&mutex);
    return found;
}

/* Inside the device. */
static void destroy(plait_side_t *side)
{
    const plait_device_table_t *table = side->device->table;

    if (side->number != NULL) {
        table->host_give(side->device, side->number);
    }
    table->event_destroy(side->device, side->begun);
    table->event_destroy(side->device, side->ended);
    if (side->stream != NULL) {
        table->stream_destroy(side->device, side->stream);
    }
    plait_free(side);
}

static plait_status_t create(plait_device_t *device, plait_side_t **side_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = device->table;
    plait_side_t *side = plait_alloc(1, sizeof(*side));
    void *number = NULL;

    PLAIT_CHECK(side != NULL, PLAIT_ERR_NO_MEMORY, "no memory to start an operation");
    side->device = device;
    PLAIT_TRY(table->stream_create(device, &side->stream));
    PLAIT_TRY(table->event_create(device, &side->begun));
    PLAIT_TRY(table->event_create(device, &side->ended));
    PLAIT_TRY(table->host_take(device, PLAIT_NUMBER_FLOATS * (int64_t)sizeof(float),
                               &number));
    side->number = number;
    *side_p = side;
    side = NULL;
done:
    if (side != NULL) {
        destroy(side);
    }
    return status;
}

plait_status_t plait_side_take(plait_device_t *device, plait_stream_t program,
                               int64_t n_bytes, plait_side_t **side_p)
{
    plait_status_t status = PLAIT_OK;
    const plait_device_table_t *table = device->table;
    plait_side_t *side = NULL;
    bool is_inside = false;

    PLAIT_TRY(table->enter(device));
    is_inside = true;
    side = find_idle(device);
    if (side == NULL) {
        PLAIT_TRY(create(device, &side));
    }
    if (side->is_used) {
        PLAIT_TRY(table->event_wait(device, side->begun));
    }
    if (n_bytes > 0) {
        PLAIT_TRY(table->take(device, program, n_bytes, &side->memory));
        side->order = program;
    }
    *side_p = side;
    side = NULL;
done:
    if (is_inside) {
        table->leave(device);
    }
    plait_side_give(side);
    return status;
}

void *plait_side_memory(const plait_side_t *side)
{
    return side->memory;
}

plait_stream_t plait_side_stream(const plait_side_t *side)
{
    return side->stream;
}

static plait_status_t copy(plait_side_t *side, plait_stream_t program, int64_t n_boxes,
                           const plait_device_box_t boxes[])
{
    return (n_boxes == 0) ? PLAIT_OK
                          : side->device->table->boxes(side->device, program, PLAIT_U8,
                                                       n_boxes, boxes);
}

plait_status_t plait_side_begin(plait_side_t *side, plait_stream_t program,
                                int64_t n_boxes, const plait_device_box_t boxes[],
                                const float number[PLAIT_NUMBER_FLOATS], void *to)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = side->device;
    const plait_device_table_t *table = device->table;
    const int64_t n_bytes = PLAIT_NUMBER_FLOATS * (int64_t)sizeof(float);
    bool is_inside = false;

    PLAIT_TRY(table->enter(device));
    is_inside = true;
    PLAIT_TRY(copy(side, program, n_boxes, boxes));
    memcpy(side->number, number, (size_t)n_bytes);
    PLAIT_TRY(table->to_device(device, program, to, side->number, n_bytes));
    PLAIT_TRY(table->event_record(device, side->begun, program));
    side->is_used = true;
    PLAIT_TRY(table->event_order(device, side->begun, side->stream));
    side->order = side->stream;
done:
    if (is_inside) {
        table->leave(device);
    }
    return status;
}

plait_status_t plait_side_end(plait_side_t *side, plait_stream_t program,
                              int64_t n_boxes, const plait_device_box_t boxes[])
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = side->device;
    const plait_device_table_t *table = device->table;
    bool is_inside = false;

    PLAIT_TRY(table->enter(device));
    is_inside = true;
    PLAIT_TRY(table->event_record(device, side->ended, side->stream));
    PLAIT_TRY(table->event_order(device, side->ended, program));
    side->order = program;
    PLAIT_TRY(copy(side, program, n_boxes, boxes));
    if (side->memory != NULL) {
        table->give(device, side->order, side->memory);
        side->memory = NULL;
    }
done:
    if (is_inside) {
        table->leave(device);
    }
    return status;
}

void plait_side_give(plait_side_t *side)
{
    if (side == NULL) {
        return;
    }
    const plait_device_table_t *table = side->device->table;
    if (side->memory != NULL && table->enter(side->device) == PLAIT_OK) {
        table->give(side->device, side->order, side->memory);
        table->leave(side->device);
    }
    side->memory = NULL;
    (void)pthread_mutex_lock(&mutex);
    side->next = idle;
    idle = side;
    (void)pthread_mutex_unlock(&mutex);
}

void plait_side_trim(plait_device_t *device)
{
    plait_side_t *side = NULL;

    if (device->table->enter(device) == PLAIT_OK) {
        while ((side = find_idle(device)) != NULL) {
            destroy(side);
        }
        device->table->leave(device);
    }
}
