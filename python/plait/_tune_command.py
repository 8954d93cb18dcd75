"""``plait tune``: gives JAX the devices asked for, then calls `plait.fft.autotune`."""

import sys

import jax
import plait
from plait import _launch, _world


def _set_up(arguments):
    """One device of each rank under a launcher, else several devices of this process."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", arguments.dtype in ("float64", "complex128"))
    size, _ = _world.launcher_size()
    if size == 1:
        jax.config.update("jax_num_cpu_devices", arguments.devices or _launch.n_cores())
        return
    if arguments.devices not in (0, size):
        raise ValueError(f"--devices {arguments.devices} on {size} ranks, which have one each")
    jax.config.update("jax_num_cpu_devices", 1)  # overrides the environment
    _world.mpi()
    jax.distributed.initialize(cluster_detection_method="mpi4py")


def _names(text):
    return [name.strip() for name in text.split(",")]


def run(arguments):
    """Prints the table on the first rank; returns the exit code."""
    try:
        _set_up(arguments)
        mesh = plait.fft.autotune(
            arguments.shape,
            dtype=arguments.dtype,
            operations=_names(arguments.operations),
            layouts=_names(arguments.layouts),
            repeats=arguments.repeats,
            file=arguments.file,
            fresh=arguments.fresh,
            verbose=True,
        )
    except ValueError as error:
        print(f"plait tune: {error}", file=sys.stderr)
        return 2
    except jax.errors.JaxRuntimeError as error:
        text = str(error).splitlines()[0]
        if "RESOURCE_EXHAUSTED" not in text:
            raise
        given = "x".join(map(str, arguments.shape))
        print(f"plait tune: {given} is too large for the memory here: {text}", file=sys.stderr)
        return 1
    if jax.process_index() == 0:
        grid = "x".join(map(str, mesh.devices.shape))
        chosen = ", ".join(f"{key}={value}" for key, value in mesh.settings.items())
        source = "remembered" if mesh.is_remembered else "measured now"
        print(f"best: grid {grid}, layout={mesh.layout!r}, {chosen} ({source})")
    return 0
