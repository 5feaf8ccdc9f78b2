"""Self-healing with real training on a real Mesos: programs are killed with SIGKILL, the job ends in success."""

import json
import os
import re
import signal
import threading
from pathlib import Path

import pytest

from jobs import PATIENCE
from tf_scheduler.history.shelf import Shelf

pytestmark = [pytest.mark.mesos, pytest.mark.tensorflow]

DIGITS = Path(__file__).resolve().parents[3] / "examples" / "digits"
#: Long enough for a ps that is killed after the fourth to be missed.
EPOCHS = 14


def programs(task):
    """Processes of one task's program, the shell that started it included."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if f"TASK_NAME={task}".encode() in environment and b"train.py" in command:
            found.append(int(folder.name))
    return found


def read_until(process, text, told):
    """Read what the command tells until `text` is in it."""
    for line in iter(process.stderr.readline, ""):
        told.append(line)
        if text in line:
            return
    raise AssertionError(f"the command ended without: {text}\n{''.join(told)}")


def kill(run, task):
    """SIGKILL to the program of a task of this run."""
    mine = [pid for pid in programs(task) if str(run).encode() in Path(f"/proc/{pid}/environ").read_bytes()]
    assert mine
    for pid in mine:
        os.kill(pid, signal.SIGKILL)


def await_checkpoint(process, home, least):
    """Until the chief has written that many: there is one for each epoch, and only the last is kept."""
    while max((int(path.stem.rpartition("-")[2]) for path in home.rglob("ckpt-*.index")), default=0) < least:
        assert process.poll() is None
        threading.Event().wait(0.1)


def test_whoever_is_killed_the_job_goes_on_to_its_success(start, tmp_path):
    """Worker and chief come back alone; the ps takes the chief along, which goes on from its checkpoint each time."""
    document = json.loads((DIGITS / "options.json").read_text())
    service = document["service"]
    service.update(
        job_url=(DIGITS / "train.py").as_uri(), command=f"{service['command']} --epochs {EPOCHS} --target 0.5"
    )
    (tmp_path / "options.json").write_text(json.dumps(document))
    process, told = start("local", "run", tmp_path / "options.json"), []
    home = tmp_path / "state"

    read_until(process, "chief-0 on agent-1 is running: its TensorFlow server answers", told)
    kill(home, "worker-1")
    read_until(process, "worker-1 on agent-1 is running: its TensorFlow server answers", told)
    await_checkpoint(process, home, 2)
    kill(home, "chief-0")
    await_checkpoint(process, home, 4)
    kill(home, "ps-0")
    out, err = process.communicate(timeout=PATIENCE)

    assert 0 == process.returncode, "".join(told) + err
    assert "digits succeeded" in out
    (run,) = (home / "dcos-tensorflow" / "runs").iterdir()
    tasks = {task["name"]: task for task in json.loads((run / "result.json").read_text())["tasks"]}
    assert {1} == {task["generation"] for task in tasks.values()}, "everybody came back at the old address"
    # The chief begins where it was, not anew; what it says of that is what the history keeps.
    (resumed,) = re.findall(r"^resumed after epoch (\d+)$", (run / "logs/chief-0/stdout").read_text(), re.MULTILINE)
    assert int(resumed) >= 4
    curve = Shelf(home / "dcos-tensorflow" / "history.db").all()[0].curves["chief-0"]
    assert [point.step for point in curve] == sorted(point.step for point in curve)
    assert (EPOCHS * 44, True, True) == (curve[-1].step, curve[-1].loss < 1, any(point.speed for point in curve))
    log = "".join(told) + err
    assert 2 == log.count("worker-1 goes to ")
    assert 2 == log.count("ps-0 goes to ")
    assert 1 == log.count("worker-0 goes to ")
    assert 3 == log.count("chief-0 goes to ")
