"""Detect a task whose processes are stopped by a signal, or blocked in the kernel.

Silence proves nothing: many healthy programs print and report nothing for hours. A process in state T or D that uses no
CPU time does not work, and its peers wait for it. A stopped process (T) counts while others work, because its parent
may poll it, as torchrun does; a blocked one (D) counts only while no process of the task works.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Iterable

from .tree import descendants, read_proc

#: State of proc(5) -> meaning. Not `t`: a debugger is attached, whose user knows.
_FROZEN_STATES = {
    "T": "stopped by a signal (SIGSTOP)",
    "D": "blocked by a disk, device or network file system (uninterruptible sleep)",
}
_STOPPED = "T"
_EXITED = ("Z", "X")
_RUNNABLE = "R"
#: Fields of /proc/PID/stat after the name (proc(5)).
_STATE, _USER_TIME, _SYSTEM_TIME, _START_TIME = 0, 11, 12, 19


@dataclass(frozen=True)
class ProcessSample:
    """A process at one moment."""

    pid: int
    #: In clock ticks after the boot; process ids are reused.
    start_time: int
    state: str
    #: CPU time of all its threads in clock ticks.
    cpu: int

    @property
    def is_stopped(self) -> bool:
        return self.state == _STOPPED


def sample_processes(root: int) -> list[ProcessSample]:
    """Return the live processes below `root`."""
    samples = (_sample(pid) for pid in descendants(root))
    return [sample for sample in samples if sample is not None and sample.state not in _EXITED]


def _sample(pid: int) -> ProcessSample | None:
    # The name in parentheses may contain anything.
    fields = read_proc(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    if not fields:
        return None
    cpu = int(fields[_USER_TIME]) + int(fields[_SYSTEM_TIME])
    return ProcessSample(pid, int(fields[_START_TIME]), fields[_STATE], cpu)


class FreezeDetector:
    """Detect frozen processes in samples of a task; uses neither clock nor I/O.

    The task is frozen while a process is stopped at each sample. The task is also frozen while a process is blocked at
    each sample and no process works. Shells and data loaders sleep while they wait for a blocked process. Healthy
    processes are in state D, too, while they read files. CPU time of new processes, such as health checks, is ignored.
    """

    def __init__(self) -> None:
        #: Time of the first sample of the frozen task; None: not frozen.
        self._since: float | None = None
        #: (pid, start time) of processes that have been frozen since then, and state of the last sample.
        self._frozen: dict[tuple[int, int], str] = {}
        #: CPU time of each process at `_since`.
        self._cpu: dict[tuple[int, int], int] = {}

    def add(self, samples: Iterable[ProcessSample], now: float) -> float:
        """Add the samples of one moment; return how many seconds the task has been frozen."""
        current = {(item.pid, item.start_time): item for item in samples}
        frozen = {key: item.state for key, item in current.items() if item.state in _FROZEN_STATES}
        working = {
            key for key, item in current.items() if item.state == _RUNNABLE or item.cpu != self._cpu.get(key, item.cpu)
        }
        still = {
            key: state
            for key, state in frozen.items()
            if key in self._frozen and key not in working and (state == _STOPPED or not working)
        }
        if not still:
            self._since, still = now if frozen else None, frozen
            self._cpu = {key: item.cpu for key, item in current.items()}
        self._frozen = still
        return 0.0 if self._since is None else now - self._since

    def describe(self) -> str:
        """Return a text such as `process 12 is stopped by a signal (SIGSTOP)`."""
        pids = sorted(pid for pid, _ in self._frozen)
        meanings = " or ".join(sorted({_FROZEN_STATES[state] for state in self._frozen.values()}))
        if len(pids) == 1:
            return f"process {pids[0]} is {meanings} and uses no CPU time"
        return f"{len(pids)} processes, such as {pids[0]}, are {meanings} and use no CPU time"
