"""The processes of a local cluster's tasks, found by their environment."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from mesos_local.host import PROC, ProcessId, find_orphans, read_stat
from mesos_local.node import agent_directory

#: In the command line of processes that have neither the environment nor the session of their task.
DETACHED = "of $TASK_NAME for $CHECKPOINT_DIR"


@dataclass(frozen=True, slots=True)
class Member:
    """`launch`: Mesos task id. `program`: a user's process, else the executor's."""

    process: ProcessId
    launch: str
    program: bool

    @property
    def task(self) -> str:
        return self.launch.partition("__")[0]


def members(directory: Path) -> list[Member]:
    """Processes of the tasks of the cluster in `directory`, without its nodes."""
    found = ((process, environment(process.pid)) for process in find_orphans(directory))
    return [
        Member(process, variables["MESOS_EXECUTOR_ID"], "TASK_NAME" in variables)
        for process, variables in found
        if "MESOS_EXECUTOR_ID" in variables
    ]


def everything_on(directory: Path, agent: str) -> list[ProcessId]:
    """Process ids of the agent, its executors and their programs."""
    home = f"{agent_directory(directory, agent)}/"
    names = ("MESOS_DIRECTORY", "MESOS_SANDBOX", "MESOS_WORK_DIR")

    def is_there(process: ProcessId) -> bool:
        variables = environment(process.pid)
        return any(f"{variables.get(name, '')}/".startswith(home) for name in names)

    return [process for process in find_orphans(directory) if is_there(process)]


def detached(checkpoints: Path, task: str = "") -> list[ProcessId]:
    """Processes in the sessions of DETACHED; of all tasks of the training by default."""
    mark = os.fsencode(f"of {task} for {checkpoints}" if task else f"for {checkpoints}")
    stats = {pid: stat for pid in _all_pids() if (stat := read_stat(pid)) and stat.state not in "ZX"}
    sessions = {stat.session for pid, stat in stats.items() if mark in _content(pid, "cmdline")}
    return [ProcessId(pid, stat.start_time) for pid, stat in stats.items() if stat.session in sessions]


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal()]


def environment(pid: int) -> dict[str, str]:
    """The environment of a process; empty if it has exited."""
    entries = (os.fsdecode(entry).partition("=") for entry in _content(pid, "environ").split(b"\0") if entry)
    return {name: value for name, _, value in entries}


def _content(pid: int, name: str) -> bytes:
    """Content of a file of proc(5); empty if the process has exited."""
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""


def kill(found: Iterable[ProcessId]) -> None:
    """Send SIGKILL to all."""
    for process in found:
        process.signal(signal.SIGKILL)


def of_task(task: str, *, program: bool) -> Callable[[Member], bool]:
    """Whether one is a process of this task: of its program, or of its executor."""
    return lambda member: member.task == task and member.program is program
