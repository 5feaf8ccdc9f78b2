"""Measure OOM kills (cgroups), used memory and CPU time (/proc)."""

from __future__ import annotations

import logging
import math
import os
import resource
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Sequence

from tf_executor.contract.reports import Usage

from .freezing import ProcessSample, sample_processes
from .tree import read_proc

ROOT = Path("/")


@dataclass(frozen=True)
class OomKills:
    """Processes that the kernel has killed so far for lack of memory; None: unknown."""

    container: int | None = None
    host: int | None = None
    #: Memory limit of the container in bytes; None: none or unknown.
    limit: int | None = None

    def since(self, before: OomKills, *, killed: bool) -> tuple[bool, str]:
        """Return whether the kernel killed a task process since `before`, and a message.

        `killed`: whether SIGKILL ended the program; kills elsewhere on the host do not explain another end.
        """
        container, host = _grown(before.container, self.container), _grown(before.host, self.host)
        if container:
            limit = f", whose limit is {self.limit >> 20} MB" if self.limit else ""
            return True, f"out of memory: the kernel killed {_processes(container)} of the task's container{limit}"
        if host and killed:
            # /proc/vmstat also counts processes that exceeded the limit of their container (Linux: mm/oom_kill.c).
            count = f"the kernel killed {_processes(host)} on this host"
            return False, f"{count}: it or another container was out of memory"
        return False, ""


def read_oom_kills(root: Path = ROOT) -> OomKills:
    """Return the current counters. `root`: root of the file system, for tests."""
    group = _memory_group(root)
    container = limit = None
    if group is not None:
        container = _field(group / "memory.events", "oom_kill")
        if container is None:
            container = _field(group / "memory.oom_control", "oom_kill")
        limit = _limit(group)
    return OomKills(container, _field(root / "proc/vmstat", "oom_kill"), limit)


def _memory_group(root: Path) -> Path | None:
    """Return the folder of the executor's memory control group.

    The path `/` is either the host's group, or the group of a container with its own name space. Only the container's
    group has a limit.
    """
    for line in read_proc(root / "proc/self/cgroup").splitlines():
        _number, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        group = root / ("sys/fs/cgroup/memory" if controllers else "sys/fs/cgroup") / path.lstrip("/")
        counts = any((group / name).exists() for name in ("memory.events", "memory.oom_control"))
        if counts and (path != "/" or _limit(group) is not None):
            return group
    return None


def _limit(group: Path) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        text = read_proc(group / name).strip()
        # Without a limit cgroup v1 reports a huge number.
        if text.isdigit() and int(text) < 1 << 60:
            return int(text)
    return None


def _field(path: Path, name: str) -> int | None:
    for line in read_proc(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return None


def _grown(before: int | None, after: int | None) -> int:
    return 0 if before is None or after is None else after - before


def _processes(count: int) -> str:
    return f"{count} process{'' if count == 1 else 'es'}"


# Use of memory and CPUs.

#: Seconds after which usage is measured first.
FIRST_MEASUREMENT = 3.0
#: Seconds between two checks of a memory limit.
LIMIT_INTERVAL = 0.5
_KB = 1024
_TICKS = os.sysconf("SC_CLK_TCK")
#: Resident memory of a process alone, of files, of shared segments, and its largest so far (proc(5), status).
_PARTS = ("RssAnon", "RssFile", "RssShmem", "VmHWM")

log = logging.getLogger(__name__)


def _resident(pid: int, root: Path) -> list[int]:
    """Return _PARTS in kB; zeros if the process has exited."""
    fields = _kilobytes(root / str(pid) / "status")
    # Linux before 4.5 tells only the sum.
    fields.setdefault("RssAnon", fields.get("VmRSS", 0))
    return [fields.get(name, 0) for name in _PARTS]


def _kilobytes(path: Path) -> dict[str, int]:
    lines = (line.partition(":") for line in read_proc(path).splitlines())
    return {name: int(value.split()[0]) for name, _, value in lines if value.endswith(" kB")}


class UsageMeter:
    """Compute usage from samples of a task's processes; reads memory from /proc."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root
        #: (pid, start time) -> CPU ticks at the last measurement, and its time.
        self._cpu: dict[tuple[int, int], int] = {}
        self._time = -math.inf
        self._peak = 0.0

    def measure(self, samples: Sequence[ProcessSample], now: float) -> Usage:
        """Return the usage of these processes; memory that they share counts once."""
        used, largest = self._memory(samples)
        # A process may have had more memory between two measurements.
        self._peak = max(self._peak, used, largest)
        ticks = sum(item.cpu - self._cpu.get((item.pid, item.start_time), 0) for item in samples)
        cpus = ticks / _TICKS / (now - self._time)
        self._cpu, self._time = {(item.pid, item.start_time): item.cpu for item in samples}, now
        return Usage(round(self._peak, 1), round(used, 1), round(cpus, 2))

    def excess(self, samples: Sequence[ProcessSample], limit: float) -> float:
        """Return the used MB if they exceed `limit`, else 0.

        Forked processes share memory. Only `smaps_rollup` (Linux 4.14), which is slower, counts shared memory once.
        """
        used, largest = self._memory(samples)
        if used > limit >= largest:
            shares = [_kilobytes(self._root / str(sample.pid) / "smaps_rollup").get("Pss", 0) for sample in samples]
            used = sum(shares) / _KB or used
        used = max(used, largest)
        return used if used > limit else 0.0

    def _memory(self, samples: Sequence[ProcessSample]) -> tuple[float, float]:
        """Return the used MB of all processes, and the highest peak of one process."""
        parts = [_resident(sample.pid, self._root) for sample in samples] or [[0, 0, 0, 0]]
        own, files, shared, peaks = zip(*parts)
        return (sum(own) + max(files) + max(shared)) / _KB, max(peaks) / _KB

    def end(self, largest_kb: int) -> Usage:
        """Return the last report; `largest_kb`: peak of the largest process."""
        return Usage(round(max(self._peak, largest_kb / _KB), 1))


class UsageReporter:
    """Measure and send the usage of the task's processes, in a thread.

    `send` may block. `interval`: seconds between two messages. `on_excess` is called once if the processes use more
    than `limit` MB; 0: unlimited.
    """

    def __init__(
        self,
        task_id: str,
        send: Callable[[bytes], bool],
        interval: float,
        limit: int,
        on_excess: Callable[[str], None],
    ) -> None:
        self._meter, self._task_id, self._send = UsageMeter(), task_id, send
        self._interval, self._limit, self._on_excess = interval, limit, on_excess
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Send the peak and stop, within `timeout` seconds."""
        self._stopped.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            wait = FIRST_MEASUREMENT
            self._measure()
            while not self._has_ended(wait):
                self._send(self._measure().encode(self._task_id))
                wait = self._interval
            # The executor waits for all processes of the task.
            end = self._meter.end(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
            self._send(end.encode(self._task_id))
        except Exception:  # a bug here must not disturb the task
            log.exception("the usage is not reported any more")

    def _has_ended(self, seconds: float) -> bool:
        """Wait `seconds` and check the limit meanwhile; return whether the task ended."""
        deadline = time.monotonic() + seconds
        while self._limit and (left := deadline - time.monotonic()) > 0:
            if self._stopped.wait(min(left, LIMIT_INTERVAL)):
                return True
            used = self._meter.excess(sample_processes(os.getpid()), self._limit)
            if used:
                self._on_excess(f"out of memory: the task used {used:.0f} MB, but mem is {self._limit} MB")
                self._limit = 0
        return self._stopped.wait(max(0.0, deadline - time.monotonic()))

    def _measure(self) -> Usage:
        return self._meter.measure(sample_processes(os.getpid()), time.monotonic())
