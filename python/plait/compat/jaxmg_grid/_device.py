"""What the CUDA driver reports about a device, before JAX has started."""

import ctypes

VIRTUAL_MEMORY = 102  # CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED of cuda.h


def device_supports_vmm(device: int = 0) -> bool:
    """Whether a CUDA device has virtual memory, as JAX's allocator of that name needs.

    It asks the driver, not JAX, so it may be called before JAX starts.

    Collective: no.  Shapes: none.
    Raises: RuntimeError without a driver, or without such a device.
    Source: CUDA driver API, ``cuDeviceGetAttribute``.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise RuntimeError(
            "CUDA driver library (libcuda.so.1) is not available; cannot query CUDA device "
            "capabilities."
        ) from error
    if driver.cuInit(0) != 0:
        raise RuntimeError("cuInit failed; no usable CUDA driver or GPU present.")
    handle, value = ctypes.c_int(), ctypes.c_int()
    if driver.cuDeviceGet(ctypes.byref(handle), int(device)) != 0:
        raise RuntimeError(f"cuDeviceGet failed for device ordinal {device}.")
    if driver.cuDeviceGetAttribute(ctypes.byref(value), VIRTUAL_MEMORY, handle) != 0:
        raise RuntimeError(f"cuDeviceGetAttribute failed querying VMM support for device {device}.")
    return bool(value.value)
