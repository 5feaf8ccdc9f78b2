"""The processes that belong to the cluster in a directory, nodes and containers alike, found by facts, not by name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .errors import MesosLocalError
from .process import PROC, ProcessId, Stat, read_stat

MARK = "DCOS_TENSORFLOW_LOCAL"  # every node has it in its environment: the cluster's directory
# What the agent tells its executors and fetchers, or a node is told: paths in the cluster's directory.
_TELLTALES = (MARK, "MESOS_DIRECTORY", "MESOS_SANDBOX", "MESOS_WORK_DIR")
_PATIENCE = 30.0  # seconds after SIGKILL: a process that holds much memory takes a while to go
_LOOK_AGAIN = 1.0  # seconds; meanwhile a process that is ending may have left a child


def find_leftovers(directory: Path, spare: ProcessId | None = None) -> set[ProcessId]:
    """Live processes of the cluster in `directory`, never ourselves nor those that started us, nor `spare`.

    They have the directory in their environment, or work in one of its sandboxes without a terminal (a person's shell
    there has one), or descend from such a process or share its session.
    """
    stats = {pid: stat for pid in _all_pids() if (stat := read_stat(pid)) and stat.state not in "ZX"}
    spared = {*_ancestors(os.getpid(), stats), *([spare.pid] if spare else [])}
    members = {pid for pid, stat in stats.items() if _belongs(pid, stat, directory.resolve())} - spared
    sessions = {stats[pid].session for pid in members} - {stats[pid].session for pid in spared if pid in stats}
    grown = True
    while grown:
        more = {pid for pid, stat in stats.items() if stat.parent in members or stat.session in sessions}
        grown = not more - spared <= members
        members |= more - spared
    return {ProcessId(pid, stats[pid].start_time) for pid in members}


def end_leftovers(directory: Path, grace: float, spare: ProcessId | None = None) -> None:
    """SIGTERM to all, after `grace` seconds SIGKILL, until none is left. Raises MesosLocalError if one does not go."""
    left = find_leftovers(directory, spare)
    _signal_all(left, signal.SIGTERM)
    _signal_all(left, signal.SIGCONT)
    _wait_all(left, grace)
    deadline = time.monotonic() + _PATIENCE
    while left := find_leftovers(directory, spare):
        if time.monotonic() > deadline:
            raise MesosLocalError(f"These processes of the local cluster do not end: {sorted(p.pid for p in left)}")
        _signal_all(left, signal.SIGKILL)
        _wait_all(left, _LOOK_AGAIN)


def is_marked(directory: Path) -> bool:
    """Whether a process runs that was told that it belongs to the cluster in exactly this directory."""
    mark = os.fsencode(f"{MARK}={directory.resolve()}")
    return any(mark in _environment(pid) for pid in _all_pids() if pid != os.getpid())


def _wait_all(processes: Iterable[ProcessId], timeout: float) -> None:
    """For all together, not for each."""
    deadline = time.monotonic() + timeout
    for process in processes:
        process.wait(max(0.0, deadline - time.monotonic()))


def _signal_all(processes: Iterable[ProcessId], number: int) -> None:
    for process in processes:
        process.signal(number)


def _all_pids() -> Iterator[int]:
    return (int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal())


def _ancestors(pid: int, stats: Mapping[int, Stat]) -> Iterator[int]:
    while pid in stats:
        yield pid
        pid = stats[pid].parent


def _belongs(pid: int, stat: Stat, directory: Path) -> bool:
    root = os.fsencode(directory)
    try:
        folder = os.fsencode((PROC / str(pid) / "cwd").readlink())
    except OSError:  # ended meanwhile, or another user's
        return False
    entries = (entry.partition(b"=") for entry in _environment(pid))
    told = (value for name, _, value in entries if name.decode("latin-1") in _TELLTALES)
    return any(_within(path, root) for path in told) or (stat.terminal == 0 and _within(folder, root + b"/agents"))


def _environment(pid: int) -> list[bytes]:
    """Empty for a process that has ended meanwhile, or that is another user's."""
    try:
        return (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _within(path: bytes, root: bytes) -> bool:
    return path == root or path.startswith(root + b"/")
