/* The choices of plait/config.h, in the form in which plans use them. */
#ifndef PLAIT_PLAN_CONFIG_H
#define PLAIT_PLAN_CONFIG_H

#include "plait/config.h"
#include "transport/transport.h"

/* Which keys an operation follows, none by default; bits, since a key may have several families. */
typedef enum {
    PLAIT_FAMILY_NONE = 0,
    PLAIT_FAMILY_REDIST = 1,
    PLAIT_FAMILY_FFT = 2,
    PLAIT_FAMILY_HALO = 4,
    PLAIT_FAMILY_DENSE = 8
} plait_family_t;

typedef enum {
    PLAIT_CONFIG_TRANSPOSE_BACKEND,
    PLAIT_CONFIG_HALO_BACKEND,
    PLAIT_CONFIG_TRANSPOSE_EXCHANGE,
    PLAIT_CONFIG_DENSE_BACKEND,
    PLAIT_CONFIG_COUNT
} plait_config_index_t;

/* Values, in the order of their names in config.c; defaults are 0. */
typedef enum {
    PLAIT_BACKEND_AUTO,
    PLAIT_BACKEND_MPI,
    PLAIT_BACKEND_NODE,
    PLAIT_BACKEND_NCCL,
    PLAIT_BACKEND_NVSHMEM
} plait_backend_t;

typedef enum { PLAIT_EXCHANGE_FUSED, PLAIT_EXCHANGE_SEPARATE } plait_exchange_t;

/* Who does the work that a library can do with several GPUs as one. */
typedef enum {
    PLAIT_DENSE_AUTO,
    PLAIT_DENSE_PLAIT,
    PLAIT_DENSE_CUSOLVER_MG
} plait_dense_backend_t;

/* The values of all keys that one operation follows, a byte each, 0 for the other keys. They are part of a
 * plan's key and of what ranks agree on, so choices made again find their old plans. */
typedef uint64_t plait_choices_t;

plait_choices_t plait_choices_now(plait_family_t family);

/* The value of one key (plait_config_index_t). */
static inline int plait_choices_value(plait_choices_t choices, int key)
{
    return (int)(choices >> (8 * key) & 0xff);
}

/* "transpose_comm_backend MPI": the values that are not default. */
void plait_choices_print(plait_choices_t choices, char *text, size_t n_bytes);

/* Lowers caps to what the chosen backend uses of the endpoint's caps; on a device, caps then say which links
 * may be taken. INVALID for an unknown value in the environment, UNSUPPORTED for a value that is not available
 * here, with the reason. */
plait_status_t plait_choices_apply(plait_choices_t choices, const plait_endpoint_t *end,
                                   plait_caps_t *caps);

#endif
