"""Recovery of a real training on a real Mesos after SIGKILL to its programs."""

import json
import os
import re
import signal
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from jobs import PATIENCE
from tf_scheduler.history.database import RunDatabase

pytestmark = pytest.mark.usefixtures("real_tensorflow")

DIGITS = Path(__file__).resolve().parents[3] / "examples" / "digits"


def programs(task, run_process):
    """Process ids of a task's program in this run, with its shell."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        in_run = any(str(run_process).encode() in value for value in environment)
        if in_run and f"TASK_NAME={task}".encode() in environment and b"train.py" in command:
            pids.append(int(folder.name))
    return pids


def read_until(process, lines, *texts) -> None:
    """Read lines of standard error until each of `texts` has occurred, in any order."""
    missing = set(texts)
    for line in iter(process.stderr.readline, ""):
        lines.append(line)
        missing -= {text for text in missing if text in line}
        if not missing:
            return
    raise AssertionError(f"the command exited without: {missing}\n{''.join(lines)}")


def kill(run_process, task) -> None:
    """Send SIGKILL to a task's program; the executor kills what a killed shell leaves."""
    pids = programs(task, run_process)
    assert pids
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def last_checkpoint(home):
    """Return the last checkpoint's number. os.walk tolerates concurrent removal."""
    names = [Path(name) for _, _, files in os.walk(home) for name in files]
    return max((int(name.stem.rpartition("-")[2]) for name in names if name.match("ckpt-*.index")), default=0)


def await_checkpoint(process, home, minimum) -> None:
    """Wait until the chief has written checkpoint `minimum`, one per epoch."""
    while last_checkpoint(home) < minimum:
        assert process.poll() is None
        threading.Event().wait(0.1)


def test_job_succeeds_after_worker_chief_and_ps_are_killed(start_process, tmp_path: Path) -> None:
    """Worker and chief restart alone; a ps restarts the chief from its checkpoint too.

    Slow: three losses one after the other, with eight launches that each import TensorFlow.
    """
    document = json.loads((DIGITS / "options.json").read_text())
    service = document["service"]
    end = tmp_path / "end"
    command = f"{service['command']} --epochs 1 --until {end} --target 0.5"
    service.update(job_url=(DIGITS / "train.py").as_uri(), command=command)
    (tmp_path / "options.json").write_text(json.dumps(document))
    process = start_process("local", "run", "-v", tmp_path / "options.json")
    log: list[str] = []
    home = tmp_path / "state"

    ready = "on agent-1 is running: TensorFlow server ready"
    read_until(process, log, f"chief-0 {ready}", f"worker-1 {ready}")
    kill(home, "worker-1")
    read_until(process, log, f"worker-1 {ready}")
    await_checkpoint(process, home, 2)
    kill(home, "chief-0")
    # The second chief must run when the ps is killed: only it writes a later checkpoint.
    before = last_checkpoint(home)
    read_until(process, log, f"chief-0 {ready}")
    await_checkpoint(process, home, before + 1)
    kill(home, "ps-0")
    read_until(process, log, f"chief-0 {ready}")
    await_checkpoint(process, home, last_checkpoint(home) + 10)  # long enough for the curve to have a speed
    end.touch()
    out, err = process.communicate(timeout=PATIENCE)

    assert 0 == process.returncode, "".join(log) + err
    assert "digits succeeded" in out
    (run,) = (home / "dcos-tensorflow" / "runs").iterdir()
    tasks = {task["name"]: task for task in json.loads((run / "result.json").read_text())["tasks"]}
    assert {1} == {task["generation"] for task in tasks.values()}, "all tasks restarted at their previous address"
    # The chief resumes from its checkpoint, and the curve in the history continues.
    (resumed,) = re.findall(r"^resumed after epoch (\d+)$", (run / "logs/chief-0/stdout").read_text(), re.MULTILINE)
    assert int(resumed) > before
    (stored,) = RunDatabase(home / "dcos-tensorflow" / "history.db").runs()
    curve = stored.curves["chief-0"]
    # The first points may have the epoch of the output only: event files are read later.
    steps = [point.step or 0 for point in curve]
    assert steps == sorted(steps)
    assert (0, True, True) == (
        (curve[-1].step or 1) % 44,
        (curve[-1].loss or 1) < 1,
        any(point.steps_per_second for point in curve),
    )
    launches = Counter(launch.task for launch in stored.launches)
    assert {"worker-0": 1, "worker-1": 2, "ps-0": 2, "chief-0": 3} == launches
