"""Start a watchdog process that cleans up when the executor is killed.

The watchdog kills the task's processes and removes its temporary folders. The kernel kills only direct children
together with the executor (prctl(2), PR_SET_PDEATHSIG). Children of the program's shell would live on and hold the
task's port; a Mesos agent with the posix launcher cannot find them, because they have their own session. The watchdog
reads a pipe that the kernel closes when the executor exits for any reason.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Callable, Iterable, Mapping

from .freezing import ProcessSample
from .watchdog_process import END, process_entry

#: Variables whose values identify the processes of one launch.
_MARKS = ("MESOS_EXECUTOR_ID", "MESOS_SANDBOX")
#: Isolated, without site-packages, and not as part of this package, to load few modules.
_CODE = "import sys; sys.path.insert(0, {!r}); import watchdog_process; watchdog_process.main()"
_FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - may be inside a zip


def start_watchdog(environ: Mapping[str, str]) -> Callable[[str], None]:
    """Start the watchdog; call this before starting threads or subreaping.

    A watchdog that is started later would count as a process of the task. Return a function that adds a folder to
    remove, or a session or process to kill (`watchdog_process`). It raises OSError when the watchdog has exited.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _detach(reader, [f"{name}={environ[name]}" for name in _MARKS if name in environ])
    os.waitpid(child, 0)
    os.close(reader)

    def watch(entry: str) -> None:
        os.write(writer, os.fsencode(entry) + END)

    return watch


def _detach(reader: int, marks: list[str]) -> None:
    """Become the watchdog in a grandchild, which init adopts; never returns."""
    try:
        if os.fork() == 0:
            os.setsid()
            os.chdir("/")
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)  # also after exec
            null = os.open(os.devnull, os.O_RDWR)
            for source, target in ((reader, 0), (null, 1), (null, 2)):
                os.dup2(source, target)
            command = [sys.executable, "-I", "-S", "-c", _CODE.format(_FOLDER), *marks]
            os.execve(sys.executable, command, {})  # noqa: S606
    finally:
        os._exit(0)


class WatchedProcesses:
    """Tell the watchdog about processes that left the session of their stage.

    A program may start many short-lived processes. So the watchdog gets only processes that two samples in a row have.
    """

    def __init__(self, watch: Callable[[str], None]) -> None:
        self._watch = watch
        #: (pid, start time) of the last sample, and of those that the watchdog knows.
        self._sampled: set[tuple[int, int]] = set()
        self._known: set[tuple[int, int]] = set()

    def add(self, samples: Iterable[ProcessSample], session: int, *, with_new: bool = False) -> None:
        """Add a sample. `with_new`: include new processes, because the stage is over."""
        current = {(item.pid, item.start_time) for item in samples}
        for pid, start_time in (current if with_new else current & self._sampled) - self._known:
            with suppress(OSError):  # exited, or without the watchdog
                if os.getsid(pid) != session:
                    self._watch(process_entry(pid, start_time))
                    self._known.add((pid, start_time))
        self._sampled, self._known = current, self._known & current
