"""Run an example on a real Mesos, or as bare processes with only TF_CONFIG."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kit.commands import ENVIRONMENT, run_command

EXAMPLES = Path(__file__).parents[2] / "examples"


def free_addresses(count: int) -> list[str]:
    """Free loopback addresses; all are held until all are known, so they differ."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for held in sockets:
            held.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{held.getsockname()[1]}" for held in sockets]


@dataclass(frozen=True)
class Cluster:
    """One example's tasks. Every task that `start` starts is ended when the test ends."""

    script: Path
    spec: dict[str, list[str]]
    folder: Path
    stack: ExitStack = field(repr=False)

    @property
    def model_dir(self) -> Path:
        """Where the tasks keep checkpoints and the model."""
        return self.folder / "model"

    def start(self, job: str, index: int, *arguments: str) -> subprocess.Popen[str]:
        """Start one task in a folder of its own.

        Its stdout is a pipe, its stderr the file `<job>-<index>.err`.
        """
        task = {"cluster": self.spec, "task": {"type": job, "index": index}}
        quick = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}  # as the examples' options have it
        environment = {**os.environ, "TF_CONFIG": json.dumps(task), **quick}
        self.folder_of(job, index).mkdir(exist_ok=True)
        with self.stderr_of(job, index).open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, str(self.script), "--model-dir", str(self.model_dir), *arguments],
                env=environment,
                cwd=self.folder_of(job, index),
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self.stack.callback(end, process)
        return process

    def folder_of(self, job: str, index: int) -> Path:
        """The working directory of a task."""
        return self.folder / f"{job}-{index}"

    def stderr_of(self, job: str, index: int) -> Path:
        """The file that has what the task wrote on stderr."""
        return self.folder / f"{job}-{index}.err"


def end(process: subprocess.Popen[str]) -> None:
    """Kill the process if it still runs, and close its pipe."""
    process.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()


@dataclass(frozen=True)
class Training:
    """What `local run` left."""

    result: dict[str, Any]
    state_home: Path

    def tasks(self, start: str | tuple[str, ...]) -> dict[str, str]:
        """Name and state of each task whose name starts so."""
        return {task["name"]: task["state"] for task in self.result["tasks"] if task["name"].startswith(start)}

    def output(self, task: str, file: str = "stdout") -> str:
        """What the task has written."""
        (path,) = self.state_home.glob(f"dcos-tensorflow/runs/*/logs/{task}/{file}")
        return path.read_text()

    def check_two_workers(self, epochs: int) -> None:
        """Check that two workers saw the same losses, and that rank 0 tested the model."""
        assert {"worker-0": "finished", "worker-1": "finished"} == self.tasks("worker")
        first, second = (self.output(f"worker-{index}").splitlines() for index in range(2))
        assert [f"epoch {number}" for number in range(1, epochs + 1)] == [line.partition(":")[0] for line in second]
        assert all(line.endswith(", 2 workers") for line in second)
        assert second == first[:-1]
        assert first[-1].startswith("test accuracy 0.9")


@pytest.fixture
def train_on_mesos(tmp_path: Path) -> Callable[[Path], Training]:
    """Run an options file to its success on a cluster of its own."""

    def train(options: Path) -> Training:
        environment = ENVIRONMENT | {"XDG_STATE_HOME": str(tmp_path)}
        ended = run_command("local", "run", "--json", options, env=environment, timeout=500)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        training = Training(json.loads(ended.stdout), tmp_path)
        assert "succeeded" == training.result["state"]
        return training

    return train


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[[str, dict[str, int]], Cluster]]:
    """Make an example's cluster from task counts per job, on free loopback ports."""
    with ExitStack() as stack:

        def make(example: str, counts: dict[str, int]) -> Cluster:
            addresses = iter(free_addresses(sum(counts.values())))
            spec = {job: [next(addresses) for _ in range(count)] for job, count in counts.items()}
            return Cluster(EXAMPLES / example / "train.py", spec, tmp_path, stack)

        yield make
