/* Ranks with one device each, and arrays there. The devices are check devices, or CUDA devices if a test asks
 * for them. Ranks share CUDA devices if there are not enough, with a stream of its own for each rank. */
#ifndef PLAIT_TESTS_RANK_DEVICE_H
#define PLAIT_TESTS_RANK_DEVICE_H

#include "check.h"
#include "check_device.h"
#include "device/cuda.h"
#include "team.h"

#include <string.h>

/* How many CUDA devices the ranks share; 0: ranks have check devices. */
static int on_device_n_cuda;
/* For ranks on CUDA devices: streams, and pinned memory through which arrays are copied. */
static plait_stream_t on_device_streams[TEAM_MAX];
static struct {
    void *memory;
    int64_t n_bytes;
} on_device_pinned[TEAM_MAX];

/* Gives ranks CUDA devices from now on. False: there is none; the reason is printed. */
static inline bool on_device_use_cuda(void)
{
    plait_device_t *first = NULL;
    plait_status_t status = plait_cuda_device(0, &first);

    if (status == PLAIT_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", plait_error_text());
    } else {
        CHECK(status == PLAIT_OK, "%s", plait_error_text());
        do {
            on_device_n_cuda++;
        } while (plait_cuda_device_say(on_device_n_cuda) != NULL);
    }
    return status != PLAIT_ERR_UNSUPPORTED;
}

static inline void on_device_begin(int n_ranks)
{
    for (int r = 0; r < n_ranks; r++) {
        if (on_device_n_cuda > 0) {
            plait_device_t *device = NULL;
            check_good(plait_cuda_device(r % on_device_n_cuda, &device));
            check_good(device->table->enter(device));
            check_good(device->table->stream_create(device, &on_device_streams[r]));
            device->table->leave(device);
            team_devices[r] = device;
        } else {
            team_devices[r] = check_device_create(r);
        }
    }
}

static inline void on_device_end(int n_ranks)
{
    for (int r = 0; r < n_ranks; r++) {
        plait_device_t *device = team_devices[r];
        plait_staged_trim(device);
        if (on_device_n_cuda > 0) {
            check_good(device->table->enter(device));
            device->table->stream_destroy(device, on_device_streams[r]);
            device->table->host_give(device, on_device_pinned[r].memory);
            device->table->leave(device);
            on_device_pinned[r].memory = NULL;
            on_device_pinned[r].n_bytes = 0;
            team_devices[r] = NULL;
        } else {
            CHECK(check_device_destroy(&team_devices[r]) == 0, "device of rank %d", r);
        }
    }
}

/* Below, `device` is the rank's; it is not a team's if ranks are MPI's. */
static inline plait_stream_t on_device_stream(plait_device_t *device, int rank)
{
    return (on_device_n_cuda > 0) ? on_device_streams[rank]
                                  : check_device_stream(device);
}

static inline void on_device_drain(plait_device_t *device, int rank)
{
    if (on_device_n_cuda > 0) {
        check_good(device->table->enter(device));
        check_good(device->table->stream_wait(device, on_device_streams[rank]));
        device->table->leave(device);
    } else {
        check_device_drain(device);
    }
}

/* n_bytes 0: NULL. */
static inline void *on_device_alloc(plait_device_t *device, int rank, int64_t n_bytes)
{
    void *memory = NULL;

    if (on_device_n_cuda > 0) {
        check_good(device->table->enter(device));
        check_good(
            device->table->take(device, on_device_streams[rank], n_bytes, &memory));
        device->table->leave(device);
    } else {
        memory = check_device_alloc(device, n_bytes);
    }
    return memory;
}

static inline void on_device_free(plait_device_t *device, int rank, void *memory)
{
    if (on_device_n_cuda > 0) {
        check_good(device->table->enter(device));
        device->table->give(device, on_device_streams[rank], memory);
        device->table->leave(device);
    } else {
        check_device_free(device, memory);
    }
}

/* The rank's pinned memory of at least n_bytes; its device must be entered. */
static inline void *on_device_room(int rank, int64_t n_bytes)
{
    plait_device_t *device = team_devices[rank];

    if (on_device_pinned[rank].n_bytes < n_bytes) {
        device->table->host_give(device, on_device_pinned[rank].memory);
        on_device_pinned[rank].n_bytes = 2 * n_bytes;
        check_good(device->table->host_take(device, 2 * n_bytes,
                                            &on_device_pinned[rank].memory));
    }
    return on_device_pinned[rank].memory;
}

/* Copies n_bytes from the host to the device, or back. Afterwards no work is under way on the rank's stream,
 * or the stream brings the bytes late. */
static inline void on_device_move(plait_device_t *device, int rank, void *there,
                                  void *here, int64_t n_bytes, bool is_back)
{
    if (on_device_n_cuda > 0) {
        const plait_device_table_t *table = device->table;
        plait_stream_t stream = on_device_streams[rank];
        check_good(table->enter(device));
        void *pinned = on_device_room(rank, n_bytes);
        if (is_back) {
            check_good(table->to_host(device, stream, pinned, there, n_bytes));
        } else {
            memcpy(pinned, here, (size_t)n_bytes);
            check_good(table->to_device(device, stream, there, pinned, n_bytes));
        }
        check_good(table->stream_wait(device, stream));
        if (is_back) {
            memcpy(here, pinned, (size_t)n_bytes);
        }
        table->leave(device);
    } else if (is_back) {
        memcpy(here, check_device_view(device, there), (size_t)n_bytes);
    } else {
        check_device_arrive(device, there, here, n_bytes);
    }
}

#endif
