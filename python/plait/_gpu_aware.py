"""Whether MPI reads the memory of GPUs: two ranks that prove it, and `plait doctor`'s report.

A library that claims to and cannot ends the ranks: that is an answer, too.
"""

import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from plait import _core, _errors, _gpus, _info, _launch, _world
from plait._finding import ERROR, NOTE, OK, WARNING, Finding

MARK = "plait-gpu-aware "  # starts rank 0's lines for the process that started the job
SUBJECT = "MPI and GPUs"
RIGHT = "right bytes"
LIMIT_S = 120
NEAR, FAR = 1, 2  # plait_aware_distance_t
DISTANCES = {NEAR: "one node", FAR: "two nodes"}


# ---- what each rank does -------------------------------------------------------------------


def say(**facts) -> None:
    """Prints one line for the starter of the job; at once, since it may be the last one."""
    print(MARK + json.dumps(facts), flush=True)


def ready(ordinal: int, distance: int) -> dict:
    """What this rank's proof would be valid for and where it is kept, or why there can be none."""
    facts = {}
    try:
        _core.ready_device(ordinal)
        facts["place"] = _gpus.mpi_key(ordinal, distance)
        _gpus.mpi_worth_trying()
    except (_errors.Error, ValueError) as error:
        facts["why"] = str(error)
    return facts


def try_it(ordinal: int) -> dict:
    """Tries the transfers; returns what was wrong with them, or that memory ran out."""
    try:
        _gpus.mpi_prove(ordinal)
    except MemoryError as error:
        return {"failed": str(error)}
    except (_errors.Error, ValueError) as error:
        return {"why": str(error)}
    return {}


def main() -> None:
    """One of two ranks. Rank 0 says what is tried before the trial, and then how it went."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    mpi = _world.mpi()
    comm = mpi.COMM_WORLD if mpi else None
    if comm is None or comm.size != 2:
        say(failed=f"{comm.size if comm else 1} ranks; expected 2")
        return
    near = comm.Split_type(mpi.COMM_TYPE_SHARED)
    distance = NEAR if near.size == 2 else FAR
    _core.tell_wheels()
    ordinal = near.rank % max(1, len(_gpus.names()))
    ranks = comm.allgather(ready(ordinal, distance))
    near.Free()
    whys = [facts["why"] for facts in ranks if "why" in facts]
    places = [facts["place"] for facts in ranks if "place" in facts]
    if comm.rank == 0:
        say(distance=distance, places=places if len(places) == 2 else [])
        if whys:
            say(answer="no", why=whys[0])
    if not whys:
        comm.Barrier()  # what was said is on its way by then
        ranks = comm.allgather(try_it(ordinal))
        found = [facts for facts in ranks if "failed" in facts] + [f for f in ranks if f]
        if comm.rank == 0:
            say(**({"answer": "no"} | found[0] if found else {"answer": "yes", "why": RIGHT}))


# ---- who starts them -----------------------------------------------------------------------


def command(launcher: str) -> list[str]:
    """The command of the job; launcher: starts two ranks, empty for `plait run`."""
    if launcher:
        return [*shlex.split(launcher), sys.executable, "-m", "mpi4py", "-m", "plait._gpu_aware"]
    run = [sys.executable, "-m", "plait", "run", "-n", "2", "--timeout", str(LIMIT_S)]
    return [*run, "-m", "plait._gpu_aware"]


def run_job(launcher: str) -> tuple[int | None, str, str]:
    """Exit code, None if the job did not end, and the output."""
    try:
        done = _launch.run_captured(command(launcher), LIMIT_S + 30, PLAIT_CUDA="1")
    except subprocess.TimeoutExpired:
        return None, "", ""
    return done.returncode, done.stdout, done.stderr


def said_in(output: str) -> dict:
    """All that rank 0 has said, without incomplete lines."""
    said = {}
    for line in output.splitlines():
        _, mark, text = line.partition(MARK)
        try:
            said |= json.loads(text) if mark else {}
        except ValueError:
            continue
    return said


def how_it_ended(code: int | None, errors: str) -> str:
    """One line on why there is no answer."""
    lines = [line.strip() for line in errors.splitlines() if "was killed by" in line]
    if code is None:
        return f"no end after {LIMIT_S} s"
    return lines[0].removeprefix("plait run: ") if lines else f"it ended with code {code}"


def remember(places: list, answer: str, why: str) -> None:
    """Keeps an answer where ranks look for it: the file is replaced whole or not at all."""
    for key, name in places:
        file = Path(name)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=file.parent, delete=False, errors="surrogateescape"
        ) as unfinished:
            unfinished.write(f"{key}\n{answer}\n{why.splitlines()[0]}\n")
        os.replace(unfinished.name, file)


def judge(code: int | None, output: str, errors: str) -> tuple[str, str, dict]:
    """The answer, empty if nothing could be tried; the reason; what rank 0 said."""
    said = said_in(output)
    if not said.get("places") or "failed" in said:
        last = said.get("failed") or said.get("why") or "\n".join(errors.strip().splitlines()[-6:])
        return "", last or how_it_ended(code, errors), said
    if "answer" not in said or (said["answer"] == "yes" and code != 0):
        return "no", how_it_ended(code, errors), said
    return said["answer"], said["why"], said


def check(launcher: str = "") -> Iterator[Finding]:
    """Repeats the proof and remembers the answer, if there is a GPU."""
    wanted = os.environ.get("PLAIT_GPU_AWARE", "auto")
    if not _info.gpus():
        return
    if wanted == "0":
        yield Finding(NOTE, SUBJECT, "switched off: PLAIT_GPU_AWARE=0", "unset PLAIT_GPU_AWARE")
        return
    answer, why, said = judge(*run_job(launcher))
    if not answer:
        mend = f"{shlex.join(command(launcher))}   # with PLAIT_CUDA=1, shows all of it"
        yield Finding(WARNING, SUBJECT, f"could not be tried: {why}", mend)
        return
    try:
        remember(said["places"], answer, why)
    except OSError as error:
        yield Finding(WARNING, SUBJECT, f"cannot be remembered: {error}", "export XDG_CACHE_HOME=…")
    where = f"between ranks of {DISTANCES[said['distance']]}"
    if answer == "yes":
        yield Finding(OK, SUBJECT, f"MPI reads the memory of GPUs: proved {where}")
    elif wanted == "1":
        seen = f"PLAIT_GPU_AWARE=1, and MPI does not read the memory of GPUs {where}: {why}"
        yield Finding(ERROR, SUBJECT, seen, "unset PLAIT_GPU_AWARE")
    else:
        seen = f"MPI gets copies in host memory {where}; it does not read that of GPUs: {why}"
        yield Finding(NOTE, SUBJECT, seen)


if __name__ == "__main__":
    main()
