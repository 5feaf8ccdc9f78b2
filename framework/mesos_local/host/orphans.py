"""Find and stop a local cluster's processes: nodes, executors and containers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .errors import MesosLocalError
from .process import PROC, ProcessId, Stat, read_stat

MARK = "DCOS_TENSORFLOW_LOCAL"  # environment variable of every node with the cluster's directory
# Environment variables of nodes, executors and fetchers with paths in the cluster's directory.
_PATH_VARIABLES = (MARK, "MESOS_DIRECTORY", "MESOS_SANDBOX", "MESOS_WORK_DIR")
_KILL_TIMEOUT = 30.0  # seconds after SIGKILL: a process with much memory needs time to exit
_POLL_INTERVAL = 1.0  # seconds; an exiting process may leave a child


def find_orphans(directory: Path, spare: ProcessId | None = None) -> set[ProcessId]:
    """Return the cluster's processes, except this one, its ancestors and `spare`.

    They have the directory in their environment, or run in one of its sandboxes without a terminal (a user's shell has
    one), or descend from such a process or share its session.
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


def end_orphans(directory: Path, grace: float, spare: ProcessId | None = None) -> None:
    """Send SIGTERM, SIGKILL after `grace` s. Raises MesosLocalError if one survives."""
    left = find_orphans(directory, spare)
    _signal_all(left, signal.SIGTERM)
    _signal_all(left, signal.SIGCONT)
    _wait_all(left, grace)
    deadline = time.monotonic() + _KILL_TIMEOUT
    while left := find_orphans(directory, spare):
        if time.monotonic() > deadline:
            raise MesosLocalError(f"processes of the local cluster are still running: {sorted(p.pid for p in left)}")
        _signal_all(left, signal.SIGKILL)
        _wait_all(left, _POLL_INTERVAL)


def is_marked(directory: Path) -> bool:
    """Whether a process is marked as part of the cluster in exactly this directory."""
    mark = os.fsencode(f"{MARK}={directory.resolve()}")
    return any(mark in _environment(pid) for pid in _all_pids() if pid != os.getpid())


def _wait_all(processes: Iterable[ProcessId], timeout: float) -> None:
    """Wait up to `timeout` seconds in all."""
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
    except OSError:  # exited, or another user's
        return False
    entries = (entry.partition(b"=") for entry in _environment(pid))
    paths = (value for name, _, value in entries if name.decode("latin-1") in _PATH_VARIABLES)
    return any(_within(path, root) for path in paths) or (stat.terminal == 0 and _within(folder, root + b"/agents"))


def _environment(pid: int) -> list[bytes]:
    """Return the environment; empty for an exited process or another user's."""
    try:
        return (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _within(path: bytes, root: bytes) -> bool:
    return path == root or path.startswith(root + b"/")
