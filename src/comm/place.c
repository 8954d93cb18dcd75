/* Where the arrays of a C program's handle are: on the host or on a device. In Python each call says so
 * (ffi/device_handler.c). */
#include "base/status.h"
#include "comm/comm.h"
#include "device/find.h"
#include "plait/cuda.h"

static plait_status_t mark(plait_comm_t *comm, plait_device_t *device)
{
    plait_status_t status = PLAIT_OK;

    if (comm->left == NULL) {
        PLAIT_TRY(device->table->event_create(device, &comm->left));
    }
    PLAIT_TRY(device->table->event_record(device, comm->left, comm->stream));
done:
    return status;
}

/* All exchanges of a communicator follow one stream (transport/device_link.h): a new stream begins after the
 * work on the last stream. */
static plait_status_t leave_stream(plait_comm_t *comm)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = comm->end.caps.device;

    if (device != NULL) {
        PLAIT_TRY(device->table->enter(device));
        status = mark(comm, device);
        device->table->leave(device);
    }
done:
    return status;
}

static plait_status_t follow(const plait_comm_t *comm, plait_device_t *device,
                             plait_stream_t stream)
{
    plait_status_t status = PLAIT_OK;

    if (comm->left != NULL) {
        PLAIT_TRY(device->table->enter(device));
        status = device->table->event_order(device, comm->left, stream);
        device->table->leave(device);
    }
done:
    return status;
}

plait_status_t plait_comm_on_cuda(plait_comm_t *comm, int ordinal, void *stream)
{
    plait_status_t status = PLAIT_OK;
    plait_device_t *device = NULL;

    PLAIT_CHECK(comm != NULL, PLAIT_ERR_COMM, "the communicator is NULL");
    plait_device_accept();
    PLAIT_CHECK(plait_device_is_there(), PLAIT_ERR_UNSUPPORTED,
                "PLAIT_CUDA is not 1, so that CUDA devices are not used");
    PLAIT_TRY(plait_device_find(ordinal, &device));
    PLAIT_CHECK(
        comm->device == NULL || comm->device == device, PLAIT_ERR_INVALID,
        "rank %d has its arrays on device %d, expected that one, not device %d: "
        "a communicator has one device",
        comm->end.rank, comm->device->ordinal, ordinal);
    if (comm->end.caps.device == NULL || comm->stream != stream) {
        PLAIT_TRY(leave_stream(comm));
        PLAIT_TRY(follow(comm, device, stream));
    }
    comm->device = device;
    comm->end.caps.device = device;
    comm->stream = stream;
done:
    return status;
}

plait_status_t plait_comm_on_host(plait_comm_t *comm)
{
    plait_status_t status = PLAIT_OK;

    PLAIT_CHECK(comm != NULL, PLAIT_ERR_COMM, "the communicator is NULL");
    PLAIT_TRY(leave_stream(comm));
    comm->end.caps.device = NULL;
    comm->stream = NULL;
done:
    return status;
}

void plait_comm_leave_device(plait_comm_t *comm)
{
    plait_device_t *device = comm->device;

    if (comm->left != NULL && device->table->enter(device) == PLAIT_OK) {
        device->table->event_destroy(device, comm->left);
        device->table->leave(device);
    }
    comm->left = NULL;
}
