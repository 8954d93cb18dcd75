"""What the core reports about CUDA devices, and what MPI does with their memory."""

import ctypes
import os

from plait import _core

for _text in ("plait_cuda_device_say", "plait_gpu_aware_say"):
    getattr(_core.lib, _text).restype = ctypes.c_char_p


def names() -> list[str]:
    """The CUDA devices, in words; the wheels' libraries are known by then."""
    found = []
    while said := _core.lib.plait_cuda_device_say(len(found)):
        if b", sm_" not in said:  # the text says why there is none
            break
        found.append(said.decode())
    return found


def mpi_key(ordinal: int, distance: int) -> tuple[str, str]:
    """What a proof that MPI reads a device's memory is valid for, and the file that keeps it."""
    key, file = ctypes.create_string_buffer(4096), ctypes.create_string_buffer(4096)
    _core.check(_core.lib.plait_gpu_aware_key(ordinal, distance, key, len(key), file, len(file)))
    return key.value.decode(errors="surrogateescape"), os.fsdecode(file.value)


def mpi_worth_trying() -> None:
    """Raises if the library says that it cannot."""
    _core.check(_core.lib.plait_gpu_aware_worth_trying())


def mpi_prove(ordinal: int) -> None:
    """Lets MPI read and write a device's memory. Collective over two ranks."""
    _core.check(_core.lib.plait_gpu_aware_prove(ordinal))


def mpi_say(ordinal: int) -> str:
    """What MPI does with a device's memory."""
    return _core.lib.plait_gpu_aware_say(ordinal).decode()
