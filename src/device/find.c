#include "device/find.h"

#include "base/setting.h"
#include "base/status.h"
#include "device/cuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic(plait_device_find_fn_t) finder;

static void read_setting(void)
{
    static const char *const names[] = {"0", "1", NULL};

    if (plait_setting("PLAIT_CUDA", names, 0) == 1) {
        atomic_store(&finder, plait_cuda_device);
    }
}

static plait_device_find_fn_t finder_now(void)
{
    (void)pthread_once(&once, read_setting);
    return atomic_load(&finder);
}

void plait_device_set_finder(plait_device_find_fn_t found)
{
    (void)finder_now(); /* reads the environment first, so that `found` replaces it */
    atomic_store(&finder, found);
}

void plait_device_accept(void)
{
    const char *said = getenv("PLAIT_CUDA");

    if (finder_now() == NULL && (said == NULL || said[0] == '\0')) {
        atomic_store(&finder, plait_cuda_device);
    }
}

int plait_device_is_there(void)
{
    return finder_now() != NULL;
}

plait_status_t plait_device_find(int ordinal, plait_device_t **device_p)
{
    plait_status_t status = PLAIT_OK;
    plait_device_find_fn_t find = finder_now();

    PLAIT_CHECK(find != NULL, PLAIT_ERR_UNSUPPORTED,
                "device %d cannot be used: set PLAIT_CUDA=1 to use CUDA devices",
                ordinal);
    PLAIT_TRY(find(ordinal, device_p));
done:
    return status;
}

plait_status_t plait_device_ready(int ordinal)
{
    plait_device_t *device = NULL;

    return plait_device_find(ordinal, &device);
}
