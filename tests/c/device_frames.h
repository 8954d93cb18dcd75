/* Call frames for check devices: the library finds the devices by their number, and XLA's allocator lends
 * their memory. */
#ifndef PLAIT_TESTS_DEVICE_FRAMES_H
#define PLAIT_TESTS_DEVICE_FRAMES_H

#include "check.h"
#include "check_device.h"
#include "device/find.h"
#include "device/pool.h"
#include "frames.h"
#include "plan/side.h"
#include "transport/device_link.h"

enum { MAX_DEVICES = 3 };

static plait_device_t *devices[MAX_DEVICES];

static inline plait_status_t find(int ordinal, plait_device_t **device_p)
{
    *device_p = devices[ordinal];
    return PLAIT_OK;
}

static inline void devices_begin(int n)
{
    for (int d = 0; d < n; d++) {
        devices[d] = check_device_create(d);
    }
    plait_device_set_finder(find);
}

static inline void devices_end(int n)
{
    for (int d = 0; d < n; d++) {
        plait_side_trim(devices[d]);
        plait_staged_trim(devices[d]);
        CHECK(check_device_destroy(&devices[d]) == 0, "device %d", d);
    }
    (void)plait_pool_trim();
}

/* XLA's allocator follows the order of its stream; memory is given back within the handler. */
static inline void *lend(int64_t n_bytes)
{
    return check_device_alloc(devices[my_ordinal], n_bytes);
}

static inline void take_back(void *memory)
{
    plait_device_t *device = devices[my_ordinal];

    device->table->give(device, my_stream, memory);
}

/* From now on this thread's calls are for that device. */
static inline void use(int ordinal)
{
    my_ordinal = ordinal;
    my_stream = check_device_stream(devices[ordinal]);
    my_memory.take = lend;
    my_memory.give = take_back;
    my_memory.n_calls = 0;
}

#endif
