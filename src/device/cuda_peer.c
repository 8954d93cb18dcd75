/* Copies between CUDA devices of one process. If a device can reach the other one's memory, this access is
 * enabled before the first copy. Otherwise the driver copies through the host. */
#include "base/status.h"
#include "device/cuda_state.h"

#include <stdbool.h>

enum {
    ALREADY_ENABLED = 704, /* CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: JAX did it */
    TOO_MANY = 711         /* CUDA_ERROR_TOO_MANY_PEERS: eight, without NVSwitch */
};

/* Done once for each pair, or whenever the caller asks for *can_p. */
plait_status_t plait_cuda_reach(plait_cuda_state_t *state, plait_cuda_state_t *from,
                                bool *can_p)
{
    plait_status_t status = PLAIT_OK;
    const uint64_t bit = UINT64_C(1) << from->device.ordinal;
    const bool is_known = can_p == NULL && (atomic_load(&state->reached) & bit) != 0;
    int can = 1;

    if (from == state || is_known) {
        goto done;
    }
    PLAIT_TRY(plait_cuda_must(
        state, state->cuda->cuDeviceCanAccessPeer(&can, state->id, from->id),
        "asking whether it reaches another device's memory"));
    if (can != 0) {
        int result = state->cuda->cuCtxEnablePeerAccess(from->context, 0);
        can = result != TOO_MANY;
        PLAIT_TRY(plait_cuda_must(
            state,
            (result == ALREADY_ENABLED || result == TOO_MANY) ? PLAIT_CU_OK : result,
            "reaching another device's memory"));
    }
    (void)atomic_fetch_or(&state->reached, bit);
done:
    if (can_p != NULL) {
        *can_p = can != 0;
    }
    return status;
}

plait_status_t plait_cuda_copy(plait_device_t *device, plait_stream_t stream, void *dst,
                               plait_device_t *from, const void *src, int64_t n_bytes)
{
    plait_status_t status = PLAIT_OK;
    plait_cuda_state_t *state = plait_cuda_state(device);
    plait_cuda_state_t *source = (from != NULL) ? plait_cuda_state(from) : state;

    if (n_bytes == 0) {
        goto done;
    }
    PLAIT_TRY(plait_cuda_reach(state, source, NULL));
    if (source == state) {
        PLAIT_TRY(plait_cuda_must(
            state,
            state->cuda->cuMemcpyDtoDAsync_v2(
                plait_cu_address(dst), plait_cu_address(src), (size_t)n_bytes, stream),
            "copying on the device"));
    } else {
        PLAIT_TRY(plait_cuda_must(
            state,
            state->cuda->cuMemcpyPeerAsync(plait_cu_address(dst), state->context,
                                           plait_cu_address(src), source->context,
                                           (size_t)n_bytes, stream),
            "copying from another device"));
    }
done:
    return status;
}
