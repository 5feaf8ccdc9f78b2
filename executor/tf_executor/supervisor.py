"""Starts the task's commands and keeps hold of every process that comes from them, until none is left.

The caller must be a subreaper (`processes.become_subreaper`) and start processes only here: then "our children are
gone" (waitpid says ECHILD) means "the task's processes are gone", also those that detached themselves. Nothing polls.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from dataclasses import dataclass
from typing import Callable, Mapping, Union

from tf_executor.events import Exited, TreeGone
from tf_executor.limits import Limits, in_child
from tf_executor.processes import descendants, die_with_parent, signal_group, signal_process
from tf_executor.reports import Ending

OnEvent = Callable[[Union[Exited, TreeGone]], None]
OnEnd = Callable[[Ending], None]


@dataclass(frozen=True)
class Surroundings:
    """What a command finds when it starts."""

    environment: Mapping[str, str]
    directory: str
    #: Descriptors for its stdout and stderr.
    stdout: int
    stderr: int
    limits: Limits = Limits()  # noqa: RUF009 - frozen


class SpawnError(RuntimeError):
    """The system would not start the command; the text says why."""


class Supervisor:
    """Commands of one task. `on_event` gets Exited for each `spawn`, and TreeGone once, after `terminate` or `kill`.

    It is called from a thread of the supervisor.
    """

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._changed = threading.Condition()
        self._leader: int | None = None
        self._waiting: dict[int, OnEnd] = {}
        self._has_children = self._closing = self._killing = False
        self._reaper = threading.Thread(target=self._reap, name="reaper", daemon=True)
        self._reaper.start()

    def spawn(self, command: str, around: Surroundings) -> int:
        """Start `/bin/sh -c command`; return its process id. Raise SpawnError when the system refuses.

        It leads a session and a process group of its own. It is killed when the calling thread ends, so call this from
        the main thread.
        """
        self._leader = self._start(command, around, lambda ending: self._on_event(Exited(ending)))
        return self._leader

    def run(self, command: str, around: Surroundings, timeout: float) -> Ending | None:
        """Run a command beside the task, to its end; None: it was killed after `timeout` seconds. Raise SpawnError."""
        ended = threading.Event()
        endings: list[Ending] = []

        def end(ending: Ending) -> None:
            endings.append(ending)
            ended.set()

        pid = self._start(command, around, end)
        if ended.wait(timeout):
            return endings[0]
        with self._changed:
            # Not yet collected: the id is still that of our process.
            if self._waiting.pop(pid, None) is not None:
                signal_group(pid, signal.SIGKILL)
        return None

    def terminate(self) -> None:
        """SIGTERM to every process of the task, once: at a second one many programs give up their checkpoint."""
        self._close()
        others = [pid for pid in descendants(os.getpid()) if _group_of(pid) != self._leader]
        if self._leader is not None:
            signal_group(self._leader, signal.SIGTERM)
        for pid in others:
            signal_process(pid, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to every process of the task, now and to those that appear until none is left."""
        self._killing = True
        self._close()
        _kill_all()

    def _close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def _start(self, command: str, around: Surroundings, on_end: OnEnd) -> int:
        """The lock keeps the reaper from looking for a process that is not in the table yet."""
        with self._changed:
            if self._closing:
                raise SpawnError("the task is about to end")
            pid = _popen(command, around)
            self._waiting[pid] = on_end
            self._has_children = True
            self._changed.notify_all()
        return pid

    def _reap(self) -> None:
        """Collect what ends. Several deaths are taken together: each look at the tree reads all of /proc."""
        while self._await_children():
            try:
                self._collect(*os.waitpid(-1, 0))
                while self._collect(*os.waitpid(-1, os.WNOHANG)):
                    pass
            except ChildProcessError:
                self._note_absence()
            if self._killing:
                # What the dead forked after our last look has become our child by now.
                _kill_all()
        self._on_event(TreeGone())

    def _await_children(self) -> bool:
        """False: there are none, and there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_children or self._closing)
            return self._has_children

    def _note_absence(self) -> None:
        """Look again under the lock: a process may have been started since waitpid found none."""
        with self._changed:
            try:
                self._collect(*os.waitpid(-1, os.WNOHANG))
            except ChildProcessError:
                self._has_children = False

    def _collect(self, pid: int, status: int) -> bool:
        with self._changed:
            on_end = self._waiting.pop(pid, None)
        if on_end is not None:
            signalled = os.WIFSIGNALED(status)
            on_end(Ending(signal=os.WTERMSIG(status)) if signalled else Ending(exit_code=os.WEXITSTATUS(status)))
        return pid != 0


def _popen(command: str, around: Surroundings) -> int:
    complaints, complain = os.pipe()
    os.set_blocking(complaints, False)
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            env=dict(around.environment),
            cwd=around.directory,
            stdin=subprocess.DEVNULL,
            stdout=around.stdout,
            stderr=around.stderr,
            start_new_session=True,
            preexec_fn=in_child(around.limits, die_with_parent(), complain),
        )
    except (OSError, ValueError) as error:
        raise SpawnError(str(error)) from error
    except subprocess.SubprocessError as error:
        raise SpawnError(_complaint(complaints) or str(error)) from error
    finally:
        os.close(complain)
        os.close(complaints)
    # The reaper waits in Popen's place; told so, it does not warn of a process that still runs.
    process.returncode = 0
    return process.pid


def _complaint(descriptor: int) -> str:
    try:
        return os.read(descriptor, 1000).decode()
    except BlockingIOError:
        return ""


def _kill_all() -> None:
    for pid in descendants(os.getpid()):
        signal_process(pid, signal.SIGKILL)


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0
