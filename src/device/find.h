/* Which devices exist: CUDA devices, if PLAIT_CUDA=1 is in the environment or the program asks for them; or
 * devices of another driver, which gives a function that finds them. */
#ifndef PLAIT_DEVICE_FIND_H
#define PLAIT_DEVICE_FIND_H

#include "device/device.h"

/* Finds the device that XLA knows by this number among the process's own. The device lives as long as the
 * process. */
typedef plait_status_t (*plait_device_find_fn_t)(int ordinal,
                                                 plait_device_t **device_p);

/* Replaces what the environment says. NULL: there are no devices. */
PLAIT_EXPORT void plait_device_set_finder(plait_device_find_fn_t finder);

/* Uses CUDA devices, unless the environment decides on them. */
PLAIT_EXPORT void plait_device_accept(void);

/* Whether there may be any, so that operations are worth offering for them. Asks no device. */
PLAIT_EXPORT int plait_device_is_there(void);

/* UNSUPPORTED without a finder. */
plait_status_t plait_device_find(int ordinal, plait_device_t **device_p);

/* Finds the device before any work is to be done on it: the first time its kernels are compiled. */
PLAIT_EXPORT plait_status_t plait_device_ready(int ordinal);

#endif
