"""Processes by id *and* start time: a process id alone may by now belong to somebody else."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Stat:
    """Fields of /proc/PID/stat, proc(5)."""

    state: str
    parent: int
    session: int
    terminal: int  # 0: no controlling terminal
    start_time: int  # clock ticks after boot


def read_stat(pid: int) -> Stat | None:
    """None if there is no such process."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name, in parentheses, may hold anything
    return Stat(fields[0], int(fields[1]), int(fields[3]), int(fields[4]), int(fields[19]))


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process for ever: no other has both its id and its start time (clock ticks after boot)."""

    pid: int
    start_time: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """None if there is no such process."""
        stat = read_stat(pid)
        return cls(pid, stat.start_time) if stat else None

    def alive(self) -> bool:
        """Whether it exists and is not a zombie. A stopped (frozen) process is alive."""
        stat = read_stat(self.pid)
        return stat is not None and stat.start_time == self.start_time and stat.state not in "ZX"

    def signal(self, number: int) -> None:
        """Send a signal to this process, never to a successor with its id; nothing happens if it has ended."""
        with _PidFd(self) as descriptor, suppress(ProcessLookupError):
            if descriptor is not None:
                signal.pidfd_send_signal(descriptor, number)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait, at most `timeout` seconds, for its end; True if it has ended. Reaps it if it is our child."""
        with _PidFd(self) as descriptor:
            if descriptor is not None:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                if not poll.poll(None if timeout is None else timeout * 1000):
                    return False
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return True

    def how_it_ended(self) -> str:
        """Such as "exit code 1" or "killed by SIGKILL"; empty if we are not its parent, or waited for it before."""
        with suppress(ChildProcessError):
            result = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if result is not None and result.si_code == os.CLD_EXITED:
                return f"exit code {result.si_status}"
            if result is not None:
                return f"killed by {_signal_name(result.si_status)}"
        return ""

    def end(self, grace: float) -> None:
        """SIGTERM, then after `grace` seconds SIGKILL; returns when it has ended."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a stopped process cannot act on SIGTERM
        if not self.wait(grace):
            self.signal(signal.SIGKILL)
            self.wait()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


class _PidFd:
    """A descriptor of the process, which stays with it whatever becomes of its id; None if it has ended."""

    def __init__(self, process: ProcessId) -> None:
        self._process = process
        self._descriptor: int | None = None

    def __enter__(self) -> int | None:
        with suppress(ProcessLookupError):
            self._descriptor = os.pidfd_open(self._process.pid)
            stat = read_stat(self._process.pid)  # after opening: from here on the id cannot be reused unseen
            if stat is None or stat.start_time != self._process.start_time:
                self.__exit__()
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _inheritable() -> Iterator[int]:
    """Descriptors that a child would get from whoever started us; a pipe among them would never see its end."""
    for descriptor in [int(entry.name) for entry in (PROC / "self" / "fd").iterdir()]:
        with suppress(OSError):  # the listing's own is closed by now
            if descriptor > 2 and os.get_inheritable(descriptor):
                yield descriptor


def spawn(command: Sequence[str], environment: Mapping[str, str], log: Path) -> ProcessId:
    """Start a process in a session of its own, so that a terminal's Ctrl-C is not sent to it; output goes to `log`.

    Raises OSError that names the log if that cannot be written.
    """
    with log.open("ab") as output:
        files: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
            (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
        ]
        files += [(os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable()]
        # Python ignores two of them, a shell may have had the others ignored for us, and a child would inherit that.
        defaults = [signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ]
        pid = os.posix_spawn(
            command[0], list(command), environment, file_actions=files, setsid=True, setsigmask=[], setsigdef=defaults
        )
    process = ProcessId.of(pid)
    assert process is not None, "a child that was not waited for has an entry in /proc, dead or alive"
    return process
