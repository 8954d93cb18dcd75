"""The bench's command keeps and prints its measurements, whatever ends a group or the run."""

import importlib
import json
import pathlib
import signal
import sys
import threading

import pytest

BENCH = pathlib.Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch):
    """Import modules of the bench by name; remove them after the test."""
    monkeypatch.syspath_prepend(str(BENCH))
    yield importlib.import_module
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(BENCH)):
            del sys.modules[name]


@pytest.fixture
def run(bench, monkeypatch, tmp_path):
    """Run the command with these groups: its exit code, and the file that it leaves."""
    command = bench("run")
    monkeypatch.setattr(command, "ROOT", tmp_path)

    def run(**groups):
        file = tmp_path / "results.json"
        monkeypatch.setattr(command, "GROUPS", groups)
        monkeypatch.setattr(sys, "argv", ["run.py", "--json", str(file)])
        return command.main(), json.loads(file.read_text())

    return run


@pytest.fixture
def measured(bench):
    """A group with one measured row."""
    row = bench("_result").Row("group", "measured", "C", "other", 1.0, 2.0, 2.0)
    return lambda jobs: [row]


@pytest.fixture
def jobs(bench, tmp_path):
    module = bench("_jobs")
    return module.Jobs(tmp_path / "bench", module.QUICK)


def verdicts(result):
    return [(row["name"], row["verdict"]) for row in result["rows"]]


@pytest.mark.parametrize("error", [KeyError("name"), OSError("no file"), ValueError("half a line")])
def test_a_group_that_fails_is_a_row_and_the_others_are_measured(run, measured, capsys, error):
    def broken(jobs):
        raise error

    code, result = run(first=measured, broken=broken, last=measured)
    assert code == 1
    assert verdicts(result) == [("measured", ""), ("all rows", "FAILED"), ("measured", "")]
    assert type(error).__name__ in capsys.readouterr().out


def test_what_was_measured_before_an_interrupt_is_printed_and_stored(run, measured, capsys):
    def interrupted(jobs):
        jobs.records.append({"name": "of the group that was interrupted"})
        signal.raise_signal(signal.SIGINT)

    code, result = run(first=measured, interrupted=interrupted, never=measured)
    assert code == 128 + signal.SIGINT
    assert verdicts(result) == [("measured", "")]
    assert [record["name"] for record in result["records"]] == ["of the group that was interrupted"]
    out = capsys.readouterr().out
    assert "measured" in out and "interrupted" in out


def test_results_are_stored_after_each_group(run, measured, tmp_path):
    def second(jobs):
        stored = json.loads((tmp_path / "results.json").read_text())
        assert verdicts(stored) == [("measured", "")]
        return measured(jobs)

    assert run(first=measured, second=second)[0] == 0


def test_a_program_that_writes_half_a_line_is_a_failure(jobs):
    script = "import sys; open(sys.argv[1][4:], 'w').write('{')"
    with pytest.raises(RuntimeError, match="failed: "):
        jobs._run([sys.executable, "-c", script], "out=", {})


def test_an_interrupt_ends_the_program_that_runs(jobs, tmp_path):
    script = "import signal, sys, time; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    script += f"open({str(tmp_path / 'began')!r}, 'w').close(); time.sleep(60)"

    def interrupt():
        while not (tmp_path / "began").exists():
            pass
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        jobs._run([sys.executable, "-c", script], "out=", {})
    thread.join()
    assert jobs.n_running == 0


def test_plans_that_cannot_be_measured_leave_the_other_rows_of_fft_c(bench, jobs, monkeypatch):
    fft_c, module = bench("rows.fft_c"), bench("_jobs")

    def absent(self, *_):
        raise module.Absent("no compiler")

    monkeypatch.setattr(module.Jobs, "c_program", absent)
    names = [row.name for row in fft_c.measure(jobs)]
    assert {"128^3 c128, transposed", "128^3 c64", "time and memory"} <= set(names)


def test_where_to_get_what_is_missing_is_said_once(bench, jobs, monkeypatch):
    fft_c, module = bench("rows.fft_c"), bench("_jobs")
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    monkeypatch.setattr(module.Jobs, "c_program", lambda self, *_: "program")
    *_, missing = fft_c._program_of_ranks(jobs, False)
    assert missing.count("bench/setup") == 1


def test_two_runs_at_once_have_files_of_their_own(bench, jobs, tmp_path):
    module = bench("_jobs")
    other = module.Jobs(tmp_path / "bench", module.QUICK)
    script = "import json, sys; out = sys.argv[1][4:]\n"
    script += "open(out, 'w').write(json.dumps({'file': out}) + '\\n')"
    command = [sys.executable, "-c", script]
    files = {of._run(command, "out=", {})[0]["file"] for of in (jobs, other, jobs)}
    assert len(files) == 3
    assert not list((tmp_path / "bench").glob("*.jsonl"))


def test_what_other_programs_take_of_the_cores_marks_the_row(bench, jobs):
    result = bench("_result")
    script = "import sys, time; began = time.process_time()\n"
    script += "while time.process_time() < began + 0.5: pass\n"
    script += "open(sys.argv[1][4:], 'w').write('{}\\n')"
    [alone] = jobs._run([sys.executable, "-c", script], "out=", {})
    assert alone["others"] is None or alone["others"] >= 0
    record = {"canary": [1.0] * 5, "facts": {}, "cases": {"a": [1.0] * 5, "b": [1.0] * 5}}
    for others, is_noisy in ((None, False), (0.01, False), (0.5, True)):
        row = result.Rounds(record | {"others": others}, 5).row("group", "name", "C", "a", "b", "")
        result.mark_noise([row], 5)
        assert row.is_noisy == is_noisy


def test_more_than_all_of_the_communication_hidden_is_doubtful(bench, jobs, monkeypatch):
    overlap = bench("rows.overlap")
    for computed, is_doubtful in ((1.2, False), (0.5, True)):
        times = {"sequence": 2.0, "implicit": computed, "started": computed, "communication": 1.0}
        cases = {key: [seconds] * 5 for key, seconds in times.items()}
        record = {"name": "late", "canary": [1.0] * 5, "facts": {}, "cases": cases}
        monkeypatch.setattr(type(jobs), "worker", lambda *_, record=record: [record])
        rows = overlap.measure(jobs)
        assert [row.is_doubtful for row in rows] == [is_doubtful] * 2
        assert all(row.verdict == "met" for row in rows)
        assert ("met?" in bench("_result").table(rows)) == is_doubtful


def test_what_one_process_alone_computes_may_use_all_cores(bench, jobs, monkeypatch):
    module, given = bench("_jobs"), []

    def worker(self, name, arguments, n_ranks, environment=(), **_):
        given.append(dict(environment))
        raise module.Absent("not now")

    monkeypatch.setattr(module.Jobs, "worker", worker)
    for group in ("dense_jax", "fft_jax"):
        bench(f"rows.{group}").measure(jobs)
    names = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    assert given and all(e.get(name) == "2" for e in given for name in names)


@pytest.mark.parametrize("group", ["latency", "peers"])
def test_short_messages_are_measured_at_both_thread_levels_and_say_which(
    bench, jobs, monkeypatch, group
):
    def worker(self, name, arguments, n_ranks, environment=(), *_, **__):
        level = dict(environment)["MPI4PY_RC_THREAD_LEVEL"].upper()
        keys = ["raw", "loop", "alone", "eager", "jitted", "plain", "plain awaited"]
        keys += [
            f"{jit}{end}" for jit in ("plait.jit", "jax.jit", "alone") for end in ("", " awaited")
        ]
        keys += [f"{who} {what}" for who in ("plait", "peer") for what in ("loop", "call", "large")]
        facts = {"mpi": "MPI", "jax": "0", "peer": "peer", "level": level, "n_compiled": 0}
        return [{"canary": [1.0] * 5, "facts": facts, "cases": {key: [1.0] * 5 for key in keys}}]

    monkeypatch.setattr(type(jobs), "worker", worker)
    monkeypatch.setattr(type(jobs), "raw_mpi", lambda self: "raw_mpi.so")
    rows = bench(f"rows.{group}")
    found = rows._pair(jobs, "") if group == "latency" else rows._beside(jobs, "mpi4jax", "")
    loops = [row for row in found if "in a jitted fori_loop" in row.name]
    assert [row.name.split(", ")[1] for row in loops] == ["MULTIPLE", "SERIALIZED"]
    assert all(row.comparator.endswith(row.name.split(", ")[1]) for row in loops)
