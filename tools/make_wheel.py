"""Build the wheel, check its requirements, and try it in empty environments.

Leaves dist/plait-VERSION-py3-none-manylinux_*.whl. Ends with 1 if a check fails; a missing
interpreter is named as skipped.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
SMOKE = """
import jax
jax.config.update("jax_num_cpu_devices", 2)
import numpy as np, plait
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
x = np.random.default_rng(0).random((8, 6, 5), np.float32)
spread = jax.device_put(x, NamedSharding(mesh, P("x")))
assert np.allclose(plait.fft.pfft3d(spread), np.fft.fftn(x), atol=1e-4)
loss = plait.jit(lambda x: plait.sum(plait.fft.pifft3d(plait.fft.pfft3d(x)).real ** 2))
assert np.allclose(jax.grad(loss)(spread), 2 * x, atol=1e-4)
print("smoke program: right on 2 devices")
"""


def call(*command, **options):
    """Run a command; if it fails, this program ends."""
    return subprocess.run([str(word) for word in command], check=True, **options)


def build(folder):
    """The wheel as this machine's compiler makes it; the environment has the build tools."""
    call(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    [wheel] = Path(folder).glob("plait-*.whl")
    return wheel


def repair(wheel):
    """Give the wheel the manylinux tag that its symbols allow."""
    shutil.rmtree(DIST, ignore_errors=True)
    call(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", DIST, wheel)
    [repaired] = DIST.glob("plait-*.whl")
    return repaired


def check(wheel):
    """Check tag, contents and requirements."""
    tag = wheel.stem.split("-", 2)[2]
    if not tag.startswith("py3-none-manylinux"):
        sys.exit(f"make_wheel: the tag is {tag}, not py3-none-manylinux")
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.namelist()
        libraries = [name for name in names if ".so" in name]
        if libraries != ["plait/libplait.so"]:
            sys.exit(f"make_wheel: expected plait/libplait.so alone, found {libraries}")
        library = archive.extract(libraries[0], folder)
        call(sys.executable, ROOT / "tools/check_exports.py", library)
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, needs glibc only")


def newer_python():
    """A Python newer than this one, on PATH or among pyenv's, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for minor in range(20, sys.version_info.minor, -1):
        for name in (f"python3.{minor}", *pyenv.glob(f"3.{minor}.*/bin/python")):
            if (
                shutil.which(name)
                and not subprocess.run(
                    [name, "-c", "import ensurepip, venv"], capture_output=True, check=False
                ).returncode
            ):
                return str(name)
    return None


def try_in(python, wheel):
    """Install the wheel into an empty environment of `python` and run the smoke program."""
    with tempfile.TemporaryDirectory() as folder:
        call(python, "-m", "venv", folder)
        inside = Path(folder, "bin/python")
        call(inside, "-m", "pip", "--quiet", "install", wheel)
        kept = ("PATH", "HOME", "LANG", "TMPDIR")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        call(inside, "-c", SMOKE, cwd=folder, env=environment)
        version = call(
            Path(folder, "bin/plait"), "--version", capture_output=True, text=True, env=environment
        ).stdout.strip()
        print(f"{version} works under {python}", flush=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        wheel = repair(build(folder))
    check(wheel)
    try_in(sys.executable, wheel)
    newer = newer_python()
    if newer:
        try_in(newer, wheel)
    else:
        print("skipped: there is no newer Python on this machine")
    print(f"{wheel.relative_to(ROOT)} is ready")


if __name__ == "__main__":
    main()
