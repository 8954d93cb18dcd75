/* Device memory for one call, lent by the caller: taken and given back in the order of the call's stream,
 * while the call lasts. */
#ifndef PLAIT_DEVICE_LENDER_H
#define PLAIT_DEVICE_LENDER_H

#include "plait/status.h"

#include <stdint.h>

typedef struct plait_lender plait_lender_t;

struct plait_lender {
    plait_status_t (*take)(plait_lender_t *lender, int64_t n_bytes, void **memory_p);
    void (*give)(plait_lender_t *lender, void *memory, int64_t n_bytes);
};

#endif
