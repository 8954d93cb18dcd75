#include "device/find.h"

#include "base/status.h"

#include <stdatomic.h>
#include <stddef.h>

static _Atomic(plait_device_find_fn_t) finder;

void plait_device_set_finder(plait_device_find_fn_t found)
{
    atomic_store(&finder, found);
}

int plait_device_is_there(void)
{
    return atomic_load(&finder) != NULL;
}

plait_status_t plait_device_find(int ordinal, plait_device_t **device_p)
{
    plait_status_t status = PLAIT_OK;
    plait_device_find_fn_t find = atomic_load(&finder);

    PLAIT_CHECK(find != NULL, PLAIT_ERR_UNSUPPORTED,
                "this library has nothing that drives device %d", ordinal);
    PLAIT_TRY(find(ordinal, device_p));
done:
    return status;
}
