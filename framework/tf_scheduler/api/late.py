"""An API whose port is taken at once, and whose web server is loaded when somebody asks, and there is time: who asks
meanwhile waits.

To load it takes a fifth of a second of processor time, which a job that is being launched has better use for.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

log = logging.getLogger(__name__)

#: Seconds that who asks has to wait at most, and then for what it takes to load.
LATEST = 1.0


class LateServer:
    """A context manager: inside, `make` is called in a thread when somebody asks after `due` is set or LATEST is over.

    `make` gives a server that serves within its own block, on `listener`. What it raises is raised at the end of ours;
    `on_failure` is told at once, in that thread.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], AbstractContextManager[object]],
        due: threading.Event,
        on_failure: Callable[[], None],
    ) -> None:
        self._listener, self._make = listener, make
        self._due, self._on_failure = due, on_failure
        self._end = threading.Event()
        #: Nothing is written to it: it is closed at the end.
        self._ends, self._lives = os.pipe()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="late api", daemon=True)

    def __enter__(self) -> LateServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._due.set()
        os.close(self._lives)
        self._thread.join()
        os.close(self._ends)
        self._listener.close()
        if self._error is not None and kind is None:
            raise self._error

    def _run(self) -> None:
        self._due.wait(LATEST)
        if not self._asked():
            return
        try:
            with self._make():
                self._end.wait()
        except Exception as error:
            log.exception("the API cannot be served")
            self._error = error
            self._on_failure()

    def _asked(self) -> bool:
        """Wait until somebody connects; False: the end came first."""
        waiting = select.poll()
        waiting.register(self._listener, select.POLLIN)
        waiting.register(self._ends, select.POLLHUP)
        waiting.poll()
        return not self._end.is_set()
