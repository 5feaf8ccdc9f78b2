"""A tf.data service on a real Mesos survives SIGKILL to its tasks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from kit.commands import command_line
from kit.waiting import wait_until
from mesos_local.host import read_stat
from tf_scheduler.history.database import RunDatabase

pytestmark = [pytest.mark.usefixtures("real_tensorflow"), pytest.mark.timeout(900)]

COUNT = 6000
#: Reads every element once, and waits at some of them for a file. One request at a time, so that little is in flight.
READER = f"""
import os, pathlib, sys, time
import tensorflow as tf
service = tf.data.experimental.service
policy, address = service.ShardingPolicy.DYNAMIC, os.environ["DATA_SERVICE_ADDRESS"]
data = tf.data.Dataset.range({COUNT})
data = data.apply(service.distribute(policy, address, job_name="once", max_outstanding_requests=1))
folder, seen = pathlib.Path(sys.argv[1]), []
print("pid", os.getpid(), flush=True)
for element in data:
    seen.append(int(element))
    if len(seen) in (1000, 2000):
        (folder / f"at-{{len(seen)}}").touch()
        while not (folder / f"go-{{len(seen)}}").exists():
            time.sleep(0.05)
print("read", len(seen), len(set(seen)), flush=True)
"""


class Run:
    """A `local run` of the reader and its data service; it ends with the test."""

    def __init__(self, stack: ExitStack, folder: Path, checkpoints: str, workers: int) -> None:
        self._folder = folder
        folder.mkdir()
        small = {"cpus": 0.1, "mem": 768, "disk": 0}
        service = {"name": "fed", "strategy": "independent", "checkpoint_dir": checkpoints}
        document = {
            "service": {**service, "command": f"exec python {folder}/read.py {folder}"},
            "parameter_server": {"count": 0},
            "worker": {"count": 1, **small},
            "data_service": {"workers": workers, **small, "dispatcher_cpus": 0.1, "dispatcher_mem": 768},
        }
        (folder / "read.py").write_text(READER)
        (folder / "options.json").write_text(json.dumps(document))
        command = command_line("local", "run", "--json", folder / "options.json")
        environment = {**os.environ, "XDG_STATE_HOME": str(folder), "TF_CPP_MIN_LOG_LEVEL": "2"}
        self._process = stack.enter_context(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE))
        stack.callback(self._process.terminate)

    def kill_at(self, element: int, task: str, *, executor: bool = False) -> None:
        """Kill a task's program, or its executor, at an element of the reader."""
        self._await(element)
        (program,) = self._programs(task)
        parent = read_stat(program)
        assert parent is not None
        os.kill(parent.parent if executor else program, signal.SIGKILL)
        (self._folder / f"go-{element}").touch()

    def go(self) -> None:
        """Let the reader go on at each element."""
        for element in (1000, 2000):
            (self._folder / f"go-{element}").touch()

    def end(self) -> tuple[list[str], Counter[str]]:
        """Wait for the success; return the reader's output, and launches by task."""
        self._process.communicate(timeout=600)
        assert 0 == self._process.returncode
        (out,) = self._folder.glob("dcos-tensorflow/runs/*/logs/worker-0/stdout")
        (stored,) = RunDatabase(self._folder / "dcos-tensorflow" / "history.db").runs()
        return out.read_text().splitlines(), Counter(launch.task for launch in stored.launches)

    def _await(self, element: int) -> None:
        wait_until(lambda: (self._folder / f"at-{element}").exists() or self._process.poll() is not None)

    def _programs(self, task: str) -> Iterator[int]:
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                variables = (process / "environ").read_bytes()
                # CHECKPOINT_DIR is next to the folder.
                is_own = bytes(self._folder.parent) in variables and f"TASK_NAME={task}\0".encode() in variables
                if is_own and b"tf_executor.data_service" in (process / "cmdline").read_bytes():
                    yield int(process.name)


@pytest.fixture
def start_job(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Start runs with a shared folder, each with a local Mesos of its own."""
    with ExitStack() as stack:

        def begin(name: str, checkpoints: Any = tmp_path / "shared", workers: int = 1) -> Run:
            return Run(stack, tmp_path / name, str(checkpoints), workers)

        yield begin


def test_lost_dispatcher_restarts_alone(start_job: Callable[..., Run], tmp_path: Path) -> None:
    """The reader gets each element once; a second run reads all again.

    Slow: two trainings, with two restarts of the dispatcher.
    """
    first = start_job("first")
    first.kill_at(1000, "data-dispatcher-0")
    first.kill_at(2000, "data-dispatcher-0", executor=True)
    lines, launches = first.end()
    second = start_job("second")
    second.go()
    again, _ = second.end()

    assert f"read {COUNT} {COUNT}" == lines[-1] == again[-1]
    assert 2 == len(lines), "one process has read all"
    assert {"worker-0": 1, "data-worker-0": 1, "data-dispatcher-0": 3} == launches
    assert 1 == len(list((tmp_path / "shared" / ".dcos-tensorflow" / "fed.journals").iterdir()))


def test_lost_data_worker_costs_only_what_it_had(start_job: Callable[..., Run]) -> None:
    """TensorFlow delivers each element at most once: some were in its memory.

    Slow: four launches import TensorFlow.
    """
    run = start_job("run")
    run.kill_at(1000, "data-worker-0")
    run.go()
    lines, launches = run.end()

    _, read, distinct = lines[-1].split()
    assert read == distinct
    assert COUNT - 100 <= int(read) <= COUNT
    assert {"worker-0": 1, "data-worker-0": 2, "data-dispatcher-0": 1} == launches
