"""Which connections are taken at all, before a byte of them is read: they must not use up the process' descriptors."""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import time
from collections.abc import Callable
from typing import Any

from tf_scheduler.allowance import network_of

from .seats import Seats

log = logging.getLogger(__name__)

#: Descriptors that we want to have, if the system gives them, and how many of them are for all else.
_WANTED, _OTHERS = 8192, 256
#: Nothing can be accepted for now (accept(2)).
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
#: Seconds until the next attempt then, and between two lines of the log about it.
_PAUSE, _QUIET = 0.1, 60.0


def descriptors() -> int:
    """How many connections may take, of those that the process may have; the limit is raised as far as it can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    have = _WANTED if soft == resource.RLIM_INFINITY else soft
    return have - min(_OTHERS, have // 2)


class Listener(socket.socket):
    """Another handle of a socket that listens; connections beyond `seats` are closed as soon as they come."""

    def __init__(self, listener: socket.socket, seats: Seats) -> None:
        super().__init__(listener.family, listener.type, listener.proto, fileno=os.dup(listener.fileno()))
        self._seats = seats
        self._told_at = -_QUIET

    def accept(self) -> tuple[socket.socket, Any]:
        """As asyncio wants it: BlockingIOError and ConnectionAbortedError mean that there is none for now."""
        try:
            found, address = super().accept()
        except OSError as error:
            if error.errno not in _SHORT:
                raise
            self._wait(error)
            raise BlockingIOError from error
        client = network_of(address[0])
        if self._seats.take(client) is not None:
            found.close()
            raise ConnectionAbortedError
        return _Accepted(found, lambda: self._seats.leave(client)), address

    def _wait(self, error: OSError) -> None:
        """The system tells at once again that somebody waits: each attempt would be a line of the log."""
        if time.monotonic() >= self._told_at + _QUIET:
            self._told_at = time.monotonic()
            log.warning("the API takes no connections at the moment: %s", error.strerror)
        time.sleep(_PAUSE)


class _Accepted(socket.socket):
    """A connection that tells its end."""

    def __init__(self, found: socket.socket, on_close: Callable[[], None]) -> None:
        super().__init__(found.family, found.type, found.proto, fileno=found.detach())
        self._on_close: Callable[[], None] | None = on_close

    def close(self) -> None:
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()
        super().close()
