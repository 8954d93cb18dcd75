/* A CUDA device, and arrays on it beside their expected contents, for the tests of its table. */
#ifndef PLAIT_TESTS_CUDA_ARRAYS_H
#define PLAIT_TESTS_CUDA_ARRAYS_H

#include "boxes.h"
#include "check.h"
#include "cuda_stand_in.h"
#include "device/cuda.h"
#include "device/device.h"

#include <string.h>

typedef struct {
    plait_device_t *device;
    const plait_device_table_t *call;
    plait_stream_t stream;
    bool is_host; /* a stand-in, so problems are small */
} machine_t;

enum { SKIPPED = 77 };

static inline void good(plait_status_t status, const char *what)
{
    CHECK(status == PLAIT_OK, "%s", what);
}

/* A machine that is not open yet. With the argument `host` CUDA's libraries are stand-ins. */
static inline machine_t machine_of(int n_arguments, char **arguments)
{
    const machine_t m = {.is_host =
                             cuda_stands_in(n_arguments, arguments, FAKES_DIR, "3")};

    return m;
}

/* False: there is no device; the reason is printed. */
static inline bool machine_open(machine_t *m)
{
    const bool is_there = plait_cuda_device(0, &m->device) != PLAIT_ERR_UNSUPPORTED;

    if (is_there) {
        CHECK(m->device != NULL, "device");
        m->call = m->device->table;
        good(m->call->enter(m->device), "enter");
        good(m->call->stream_create(m->device, &m->stream), "stream");
    } else {
        printf("skipped: %s\n", plait_error_text());
    }
    return is_there;
}

static inline void machine_close(machine_t *m)
{
    m->call->stream_destroy(m->device, m->stream);
    m->call->leave(m->device);
    plait_cuda_release();
}

/* The same bytes on the device (dev, n_bytes behind `offset`), in pinned memory, and as expected. */
typedef struct {
    int64_t n_bytes;
    char *dev, *pinned, *expected;
} array_t;

static inline array_t array_create(const machine_t *m, int64_t n_bytes)
{
    array_t a = {.n_bytes = n_bytes};
    void *memory = NULL;

    good(m->call->take(m->device, m->stream, n_bytes, &memory), "take");
    a.dev = memory;
    good(m->call->host_take(m->device, n_bytes, &memory), "host_take");
    a.pinned = memory;
    a.expected = plait_alloc(n_bytes, 1);
    return a;
}

static inline void array_destroy(const machine_t *m, array_t *a)
{
    m->call->give(m->device, m->stream, a->dev);
    m->call->host_give(m->device, a->pinned);
    plait_free(a->expected);
    *a = (array_t){.n_bytes = 0};
}

/* Copies the pinned bytes to the device and to the expected ones. */
static inline void array_put(const machine_t *m, array_t *a)
{
    memcpy(a->expected, a->pinned, (size_t)a->n_bytes);
    good(m->call->to_device(m->device, m->stream, a->dev, a->pinned, a->n_bytes),
         "to_device");
    good(m->call->stream_wait(m->device, m->stream), "stream_wait");
}

static inline void array_get(const machine_t *m, array_t *a)
{
    memset(a->pinned, 0xa5, (size_t)a->n_bytes);
    good(m->call->to_host(m->device, m->stream, a->pinned, a->dev, a->n_bytes),
         "to_host");
    good(m->call->stream_wait(m->device, m->stream), "stream_wait");
}

static inline bool array_is_expected(const machine_t *m, array_t *a)
{
    array_get(m, a);
    return memcmp(a->pinned, a->expected, (size_t)a->n_bytes) == 0;
}

/* Noise with a prime period, which no stride repeats. */
static inline void array_fill(array_t *a, random_t *r)
{
    enum { PERIOD = 65537 };

    for (int64_t i = 0; i < a->n_bytes; i++) {
        a->pinned[i] = (i < PERIOD) ? (char)draw(r, -128, 127) : a->pinned[i - PERIOD];
    }
}

#endif
