"""Start the task's commands and track their processes until all have exited.

The caller must be a subreaper (`tree.become_subreaper`) and start processes only here. Then ECHILD from waitpid means
that all processes of the task have exited, including daemons. So no thread polls.
"""

from __future__ import annotations

import os
import pwd
import resource
import signal
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Callable, Mapping, Sequence, Union

from tf_executor.contract.reports import TaskEnd
from tf_executor.contract.settings import RunSettings
from tf_executor.lifecycle.events import Exited, TreeGone
from tf_executor.process.tree import (
    descendants,
    die_with_parent,
    forbid_new_privileges,
    signal_descendants,
    signal_process,
)

# User, resource limits and niceness: checked before the fork, set between fork and exec.

_LIMITS = {name[len("RLIMIT_") :].lower(): number for name, number in vars(resource).items() if name[:7] == "RLIMIT_"}
_UNLIMITED = -1
#: Scans for processes of a killed session; those that have exited may wait for their parent.
_SCANS = 5


class LimitsError(ValueError):
    """A user, limit or niceness is not available on this agent."""


@dataclass(frozen=True)
class ProcessLimits:
    """User, limits and niceness as numbers, so that the child only makes system calls."""

    nice: int = 0
    #: (resource number, (soft, hard))
    ulimits: tuple[tuple[int, tuple[int, int]], ...] = ()
    #: User id, group id and all groups; None: the executor's own.
    identity: tuple[int, int, tuple[int, ...]] | None = None
    #: Whether set-user-id programs and file capabilities have an effect.
    new_privileges: bool = False

    @property
    def owner(self) -> tuple[int, int] | None:
        return None if self.identity is None else self.identity[:2]

    def apply(self) -> None:
        """Apply in the child; the user comes last, because the other calls may need root."""
        for number, pair in self.ulimits:
            resource.setrlimit(number, pair)
        if self.nice:
            os.nice(self.nice)
        if self.identity is not None:
            user, group, groups = self.identity
            os.setgroups(groups)
            os.setgid(group)
            os.setuid(user)
        if not self.new_privileges:
            forbid_new_privileges()


def resolve_limits(user: str, settings: RunSettings) -> ProcessLimits:
    """Resolve and check user, niceness and limits. Raises LimitsError."""
    if settings.nice < 0 and os.geteuid() != 0:
        raise LimitsError(f"option nice: `{settings.nice}`: a negative value requires an executor that runs as root")
    # No core files by default: one of TensorFlow fills a disk. The hard limit stays.
    core = (resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    pairs = [core, *(_pair(name, limit) for name, limit in settings.ulimits.items())]
    return ProcessLimits(settings.nice, tuple(dict(pairs).items()), _identity(user), settings.new_privileges)


def _pair(name: str, limit: Sequence[int]) -> tuple[int, tuple[int, int]]:
    if name not in _LIMITS:
        raise LimitsError(f"option ulimits: `{name}`: unknown limit; expected one of {', '.join(sorted(_LIMITS))}")
    soft, hard = (resource.RLIM_INFINITY if value == _UNLIMITED else value for value in limit)
    if _amount(soft) > _amount(hard):
        raise LimitsError(f"ulimit {name}: soft limit {limit[0]} exceeds hard limit {limit[1]}")
    allowed = resource.getrlimit(_LIMITS[name])[1]
    if _amount(hard) > _amount(allowed) and os.geteuid() != 0:
        raise LimitsError(f"ulimit {name}: {limit[1]} exceeds this agent's limit of {allowed}")
    return _LIMITS[name], (soft, hard)


def _amount(limit: int) -> float:
    return float("inf") if limit == resource.RLIM_INFINITY else limit


def _identity(user: str) -> tuple[int, int, tuple[int, ...]] | None:
    """Return the user's ids; None if the program keeps the executor's user."""
    if not user or os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise LimitsError(f"service.user: `{user}`: user does not exist on this agent or in the image") from None
    if entry.pw_uid == 0:
        return None
    return entry.pw_uid, entry.pw_gid, tuple(os.getgrouplist(user, entry.pw_gid))


def preexec(limits: ProcessLimits, after: Callable[[], None], errors: int) -> Callable[[], None]:
    """Return a `preexec_fn` that applies the limits, then calls `after`.

    Errors are written to the descriptor `errors`, because subprocess hides the exception.
    """

    def prepare() -> None:
        try:
            limits.apply()
            after()
        except (OSError, ValueError) as error:
            os.write(errors, f"cannot set user, nice or ulimits: {error}".encode())
            raise

    return prepare


def chown_sandbox(sandbox: Path, user: int, group: int) -> None:
    """Give the sandbox and its direct entries to the program's user, as Mesos does.

    Deeper entries keep their owners, because a volume may have a million files. Raises OSError.
    """
    for path in (sandbox, *sandbox.iterdir()):
        os.chown(path, user, group, follow_symlinks=False)


# Supervisor.

OnEvent = Callable[[Union[Exited, TreeGone]], None]
OnEnd = Callable[[TaskEnd], None]


@dataclass(frozen=True)
class CommandContext:
    """Environment, folder, streams and limits of a command."""

    environment: Mapping[str, str]
    directory: str
    #: Descriptors.
    stdout: int
    stderr: int
    limits: ProcessLimits = ProcessLimits()
    stdin: int = subprocess.DEVNULL


class SpawnError(RuntimeError):
    """The system refused to start the command."""


class Supervisor:
    """Starts, signals and collects the processes of one task.

    A thread calls `on_event` with Exited for each `spawn`, and once with TreeGone when all processes have exited after
    `terminate` or `kill`.
    """

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._changed = threading.Condition()
        self._leader: int | None = None
        self._waiting: dict[int, OnEnd] = {}
        #: Leaders of the sessions of `run`.
        self._sessions: set[int] = set()
        self._has_children = self._closing = self._killing = False
        self._reaper = threading.Thread(target=self._reap, name="reaper", daemon=True)
        self._reaper.start()

    def spawn(self, command: str, context: CommandContext) -> int:
        """Start `/bin/sh -c command` in a new session; return its process id.

        The process is killed when the calling thread ends, so call this from the main thread. Raises SpawnError.
        """
        self._leader = self._start(command, context, lambda ending: self._on_event(Exited(ending)))
        return self._leader

    def run(
        self, command: str, context: CommandContext, timeout: float | None, *, has_grace: bool = False
    ) -> TaskEnd | None:
        """Run a command; return None if it exceeds `timeout` seconds. Raises SpawnError.

        Kills the processes that the command leaves in its session. `terminate` kills the command, unless `has_grace`
        gives it the grace period of the program.
        """
        endings: SimpleQueue[TaskEnd | None] = SimpleQueue()
        with self._changed:
            leader = self._start(command, context, endings.put)
            if not has_grace:
                self._sessions.add(leader)
        try:
            with suppress(Empty):
                return endings.get(timeout=timeout)
            return None
        finally:
            with self._changed:
                self._sessions.discard(leader)
            _kill_session(leader)

    def terminate(self) -> None:
        """Send SIGTERM to each process once: many programs save nothing on a second one."""
        self._close()
        with self._changed:
            sessions = tuple(self._sessions)
        for session in sessions:
            _kill_session(session)
        with self._changed:
            # The id of a process that is not collected, and so of its group, belongs to no other one.
            leader = self._leader if self._leader in self._waiting else None
            others = [pid for pid in descendants(os.getpid()) if _leader_of(pid, os.getpgid) != leader]
            if leader is not None:
                signal_process(-leader, signal.SIGTERM)
        signal_descendants(os.getpid(), others, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to every process, also to new processes, until all have exited."""
        self._killing = True
        self._close()
        _kill_all()

    def _close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def _start(self, command: str, context: CommandContext, on_end: OnEnd) -> int:
        """Start and register a command under the lock, before the reaper collects it."""
        with self._changed:
            if self._closing:
                raise SpawnError("the task is stopping")
            pid = _popen(command, context)
            self._waiting[pid] = on_end
            self._has_children = True
            self._changed.notify_all()
        return pid

    def _reap(self) -> None:
        """Collect exited processes in batches, because each scan reads all of /proc."""
        while self._await_children():
            with suppress(ChildProcessError):
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            while self._collect():
                pass
            if self._killing:
                # Processes forked after the last scan are children of the executor by now.
                _kill_all()
        self._on_event(TreeGone())

    def _await_children(self) -> bool:
        """Wait for a process; return False if none is left and none will be started."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_children or self._closing)
            return self._has_children

    def _collect(self) -> bool:
        """Collect an exited process; return whether there was one."""
        with self._changed:
            # Under the lock: the ids in `_waiting` stay valid, and no process starts meanwhile.
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._has_children = False
                return False
            on_end = self._waiting.pop(pid, None)
        if on_end is not None:
            signalled = os.WIFSIGNALED(status)
            on_end(TaskEnd(signal=os.WTERMSIG(status)) if signalled else TaskEnd(exit_code=os.WEXITSTATUS(status)))
        return pid != 0


def _popen(command: str, context: CommandContext) -> int:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            env=dict(context.environment),
            cwd=context.directory,
            stdin=context.stdin,
            stdout=context.stdout,
            stderr=context.stderr,
            # `close_descriptors_on_exec` does it: Python before 3.10 would list the child's descriptors, which the
            # kernel refuses to users that may not read the process.
            close_fds=False,
            start_new_session=True,
            preexec_fn=preexec(context.limits, die_with_parent(), writer),
        )
    except (OSError, ValueError) as error:
        raise SpawnError(str(error)) from error
    except subprocess.SubprocessError as error:
        raise SpawnError(_read_error(reader) or str(error)) from error
    finally:
        os.close(writer)
        os.close(reader)
    # The reaper waits instead of Popen; a return code avoids Popen's warning about a running process.
    process.returncode = 0
    return process.pid


def _read_error(descriptor: int) -> str:
    try:
        return os.read(descriptor, 1000).decode()
    except BlockingIOError:
        return ""


def _kill_all() -> None:
    signal_descendants(os.getpid(), descendants(os.getpid()), signal.SIGKILL)


def _kill_session(leader: int) -> None:
    """Kill a session's processes; scan again for processes forked in the meantime."""
    own = os.getpid()
    for _ in range(_SCANS):
        pids = [pid for pid in descendants(own) if _leader_of(pid, os.getsid) == leader]
        if not pids:
            return
        signal_descendants(own, pids, signal.SIGKILL, lambda pid: _leader_of(pid, os.getsid) == leader)


def _leader_of(pid: int, lookup: Callable[[int], int]) -> int:
    """Return the result of os.getsid or os.getpgid; 0 for an exited process."""
    try:
        return lookup(pid)
    except ProcessLookupError:
        return 0
