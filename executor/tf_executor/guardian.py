"""Ends the task's processes when the executor is killed, and removes what it would have removed: a process of its own,
that waits for just that.

Of what the executor starts, the kernel kills only its direct children with it (prctl(2), PR_SET_PDEATHSIG). A shell's
children live on, and hold the task's port: a Mesos agent with the posix launcher does not find them either, because
they have a session of their own. The guardian holds one end of a pipe; when the executor is gone, however it went, the
kernel closes the other.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Callable, Mapping

from tf_executor.guarding import END

#: Variables whose values all processes of one launch share, and no others.
_MARKS = ("MESOS_EXECUTOR_ID", "MESOS_SANDBOX")
#: Isolated and without site-packages, and not as part of its package, which would load more.
_CODE = "import sys; sys.path.insert(0, {!r}); import guarding; guarding.main()"
_HOME = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - may be inside a zip


def start_guardian(environ: Mapping[str, str]) -> Callable[[str], None]:
    """Start it, before there are threads, and before we are a subreaper: it must not count as a process of the task.

    Return what tells it of a folder that it is to remove then; that raises OSError when the guardian has gone.
    """
    waiting, alive = os.pipe()
    child = os.fork()
    if child == 0:
        _detach(waiting, [f"{name}={environ[name]}" for name in _MARKS if name in environ])
    os.waitpid(child, 0)
    os.close(waiting)

    def tell(path: str) -> None:
        os.write(alive, os.fsencode(path) + END)

    return tell


def _detach(waiting: int, marks: list[str]) -> None:
    """In the child: never returns. The child's child belongs to init."""
    try:
        if os.fork() == 0:
            os.setsid()
            os.chdir("/")
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)  # which outlives the exec
            null = os.open(os.devnull, os.O_RDWR)
            for source, target in ((waiting, 0), (null, 1), (null, 2)):
                os.dup2(source, target)
            command = [sys.executable, "-I", "-S", "-c", _CODE.format(_HOME), *marks]
            os.execve(sys.executable, command, {})  # noqa: S606 - we become it
    finally:
        os._exit(0)
