"""Start, find and end processes; file locks, claims to ports, deferred signals."""

from __future__ import annotations

import fcntl
import os
import random
import re
import select
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType


class MesosLocalError(Exception):
    """Error of the local cluster. The message names the cause and a remedy."""

    kind: str = "local_cluster_failed"
    exit_code: int = 1
    http_status: int = 500

    @property
    def sentence(self) -> str:
        """First line of the message."""
        return str(self).partition("\n")[0]


class NodeDiedError(MesosLocalError):
    """A node exited unexpectedly; the message ends with the last lines of its log."""


class DamagedRecordError(MesosLocalError):
    """A cluster record is invalid; the cluster's processes are known only by MARK."""


@contextmanager
def explain_os_errors(what: str, path: Path) -> Iterator[None]:
    """Translate OSError to MesosLocalError with `what` ("cache folder") and path."""
    try:
        yield
    except OSError as error:
        raise MesosLocalError(f"{what} {path} cannot be used: {os_error_text(error, path)}") from error


def os_error_text(error: OSError, path: Path) -> str:
    """Return the system's message; add the file name unless the file is `path`."""
    message = error.strerror or str(error)
    file = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(path)
    return message if file == str(path) else f"{message} ({file})"


def redirect_output(folder: str | None) -> None:
    """Redirect output and errors to the sandbox; otherwise the agent's log gets them."""
    if folder:
        for descriptor, name in ((1, "stdout"), (2, "stderr")):
            target = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(target, descriptor)
            os.close(target)


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
    """Return the fields; None if the process does not exist."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name in parentheses may contain any character
    return Stat(fields[0], int(fields[1]), int(fields[3]), int(fields[4]), int(fields[19]))


@dataclass(frozen=True, slots=True)
class ProcessId:
    """Process identity that is never reused: its id and start time (ticks after boot)."""

    pid: int
    start_time: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """Return the identity of a process; None if it does not exist."""
        stat = read_stat(pid)
        return cls(pid, stat.start_time) if stat else None

    @classmethod
    def current(cls) -> ProcessId:
        """Return the identity of this process."""
        process = cls.of(os.getpid())
        assert process is not None, "this process exists"
        return process

    def alive(self) -> bool:
        """Whether the process exists, even if stopped (frozen), and is not a zombie."""
        stat = read_stat(self.pid)
        return stat is not None and stat.start_time == self.start_time and stat.state not in "ZX"

    def signal(self, number: int) -> None:
        """Send a signal to this process, but never to a later process with the same id."""
        with _pidfd(self) as descriptor, suppress(ProcessLookupError):
            if descriptor is not None:
                signal.pidfd_send_signal(descriptor, number)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` s for the exit; return whether it exited. Reaps a child."""
        with _pidfd(self) as descriptor:
            if descriptor is not None:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                if not poll.poll(None if timeout is None else timeout * 1000):
                    return False
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return True

    def how_it_ended(self) -> str:
        """Return "exit code 1" or "killed by SIGKILL"; empty if reaped or not a child."""
        with suppress(ChildProcessError):
            result = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if result is not None and result.si_code == os.CLD_EXITED:
                return f"exit code {result.si_status}"
            if result is not None:
                return f"killed by {_signal_name(result.si_status)}"
        return ""

    def end(self, grace: float) -> None:
        """Send SIGTERM, and SIGKILL after `grace` seconds; wait until the process exits."""
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


@contextmanager
def _pidfd(process: ProcessId) -> Iterator[int | None]:
    """Yield a pidfd of exactly this process, even if its id is reused; None if exited."""
    descriptor = None
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process.pid)
    try:
        # Compare after opening: from here on the id cannot be reused unseen.
        yield descriptor if ProcessId.of(process.pid) == process else None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _inheritable() -> Iterator[int]:
    """Yield descriptors that a child would inherit; inherited pipes never reach EOF."""
    for descriptor in [int(entry.name) for entry in (PROC / "self" / "fd").iterdir()]:
        with suppress(OSError):  # the listing's own descriptor is closed
            if descriptor > 2 and os.get_inheritable(descriptor):
                yield descriptor


def spawn(
    command: Sequence[str], environment: Mapping[str, str], log: Path, inherited: Iterable[int] = ()
) -> ProcessId:
    """Start a process in a new session, safe from Ctrl-C, with its output in `log`.

    `inherited`: descriptors that stay open in it. Raises OSError if the log cannot be written.
    """
    with log.open("ab") as output:
        files: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
            (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
        ]
        files += [(os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable()]
        files += [(os.POSIX_SPAWN_DUP2, descriptor, descriptor) for descriptor in inherited]  # clears FD_CLOEXEC
        # A child would inherit signals that Python or a shell has set to be ignored.
        defaults = [signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ]
        pid = os.posix_spawn(
            command[0], list(command), environment, file_actions=files, setsid=True, setsigmask=[], setsigdef=defaults
        )
    process = ProcessId.of(pid)
    assert process is not None, "a child has an entry in /proc until it is reaped"
    return process


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer SIGINT, SIGTERM and SIGHUP to the block's end; then deliver the first.

    Does nothing outside the main thread, because Python handles signals in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def record(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    before = _replace(dict.fromkeys(_SIGNALS, record))
    try:
        yield
    finally:
        _replace(before)
        for number in received[:1]:
            signal.raise_signal(number)


def _replace(handlers: Mapping[signal.Signals, signal._HANDLER]) -> Mapping[signal.Signals, signal._HANDLER]:
    """Set all handlers atomically, skip ignored signals; return the previous handlers."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        before = {number: signal.getsignal(number) or signal.SIG_DFL for number in handlers}
        before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
        for number in before:
            signal.signal(number, handlers[number])
        return before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file lock, exclusive also among threads; the process's death releases it."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# Below the ports of agents (31000) and outgoing connections (32768), which could take a restarting node's port.
_CANDIDATES = range(20000, 30000)


def free_ports(count: int, claims: PortClaims | None = None) -> list[int]:
    """Return distinct free ports, chosen at random; `claims` keeps them claimed."""
    from tf_executor.process.ports import is_free  # helpers, which start for each container, need no port

    ports: list[int] = []
    with PortClaims() as own:
        for port in random.sample(_CANDIDATES, len(_CANDIDATES)):
            if len(ports) == count:
                return ports
            if (claims or own).add(port, port) and is_free(port):
                ports.append(port)
    raise MesosLocalError("not enough free ports between 20000 and 29999")


class PortClaims:
    """Ports that this process claims, for all users, until it closes the claims.

    A claim is an abstract Unix socket (unix(7)) with the range in its name: names exist in one network namespace, as
    ports do, and the kernel frees those of a killed process. Child processes may inherit claims (`spawn`).
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> PortClaims:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def descriptors(self) -> list[int]:
        return [each.fileno() for each in self._sockets]

    def add(self, first: int, last: int) -> bool:
        """Claim a range; return whether no other process has claimed a port of it."""
        own = socket.socket(socket.AF_UNIX)
        try:
            own.bind(f"\0{_CLAIM}{first}-{last}")
        except OSError:
            own.close()
            return False
        self._sockets.append(own)
        # After bind: of two processes that claim at the same time, at least one finds the claim of the other.
        text = (PROC / "thread-self" / "net" / "unix").read_text(errors="replace")
        mine = {each.getsockname()[1:].decode() for each in self._sockets}
        others = [match for match in _CLAIMS.finditer(text) if match[1] not in mine]
        if any(int(match[2]) <= last and first <= int(match[3]) for match in others):
            self._sockets.pop().close()
            return False
        return True

    def close(self) -> None:
        while self._sockets:
            self._sockets.pop().close()


#: Begin of the names of claims; and a name in /proc/net/unix, with its range.
_CLAIM = "dcos-tensorflow/ports/"
_CLAIMS = re.compile(rf"@({_CLAIM}(\d+)-(\d+))$", re.MULTILINE)

MARK = "DCOS_TENSORFLOW_LOCAL"  # environment variable of every node with the cluster's directory
# Environment variables of nodes, executors and fetchers with paths in the cluster's directory.
_PATH_VARIABLES = (MARK, "MESOS_DIRECTORY", "MESOS_SANDBOX", "MESOS_WORK_DIR")
_KILL_TIMEOUT = 30.0  # seconds after SIGKILL: a process with much memory needs time to exit
_POLL_INTERVAL = 1.0  # seconds; an exiting process may leave a child


def find_orphans(directory: Path, spare: ProcessId | None = None) -> set[ProcessId]:
    """Return the cluster's processes, except this one, its ancestors and `spare`.

    These are the processes that have the directory in their environment, and those without a terminal that run in one
    of its sandboxes (a user's shell has a terminal). Their descendants and all processes of their sessions count, too.
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
    """Send SIGTERM, after `grace` s SIGKILL. Raises MesosLocalError if any survives."""
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
    """Whether another process is marked as part of the cluster in this directory."""
    mark = os.fsencode(f"{MARK}={directory.resolve()}")
    return any(mark in _environment(pid) for pid in _all_pids() if pid != os.getpid())


def _wait_all(processes: Iterable[ProcessId], timeout: float) -> None:
    """Wait up to `timeout` seconds until all processes have exited."""
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
    """Return a process' environment; empty if it has exited or is another user's."""
    try:
        return (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _within(path: bytes, root: bytes) -> bool:
    return path == root or path.startswith(root + b"/")
