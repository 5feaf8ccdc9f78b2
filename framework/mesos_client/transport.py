"""The few things that the drivers want of HTTP.

One implementation uses requests, the other only the standard library.
"""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping

#: Characters of an error answer that are kept.
MAX_TEXT = 500
#: Longest wait for a connection, in seconds. The kernel repeats the first packet after 1 s and 3 s: who has not
#: answered then is away, and another master may be there.
CONNECT_TIMEOUT = 4.0


class TransportError(Exception):
    """No answer, or a broken one. The text names the cause, never what was sent."""


@dataclass(frozen=True)
class Request:
    """One POST. `timeout` is in seconds, for each wait on the socket until the answer's head is there."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout: float

    @property
    def connect_timeout(self) -> float:
        """Seconds for the connection itself, per address."""
        return min(self.timeout, CONNECT_TIMEOUT)


@dataclass(frozen=True)
class Head:
    """Start of an answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Reply:
    """A whole answer."""

    status: int
    body: bytes

    @property
    def text(self) -> str:
        """Its start, for people."""
        return self.body[: 4 * MAX_TEXT].decode("utf-8", "replace").strip()[:MAX_TEXT]


class SocketHandle:
    """Lets another thread wake the one that is blocked on a socket, or on something else that it registers.

    Shutting a socket down is safe at any moment, closing it is not.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: Any = None
        self._interrupt: Callable[[], None] | None = None
        self._aborted = False

    @property
    def aborted(self) -> bool:
        return self._aborted

    def opened(self, current: Any) -> None:
        """Remember the socket in use, connected or not yet. Raise OSError when `abort` came first."""
        with self._lock:
            self._socket = current
            self._refuse_if_aborted()

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Within, `interrupt` ends what this thread waits for. Raise OSError when `abort` came first."""
        with self._lock:
            self._refuse_if_aborted()
            self._interrupt = interrupt
        try:
            yield
        finally:
            with self._lock:
                self._interrupt = None

    def settimeout(self, seconds: float | None) -> None:
        """Change the longest wait for bytes; None waits for ever."""
        with self._lock:
            if self._socket is not None:
                self._socket.settimeout(seconds)

    def interrupt(self) -> None:
        """End what waits now."""
        with self._lock:
            self._wake()

    def abort(self) -> None:
        """End what waits now, and refuse what would be opened later."""
        with self._lock:
            self._aborted = True
            self._wake()

    def _refuse_if_aborted(self) -> None:
        if self._aborted:
            raise OSError("aborted")

    def _wake(self) -> None:
        if self._interrupt is not None:
            self._interrupt()
        if self._socket is not None:
            # Fails when it is closed or reset already: then nobody waits on it.
            with suppress(OSError):
                # Not the method of SSLSocket: that would take the session away from under the reading thread.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class Stream(ABC):
    """One POST whose answer does not end. Used by one thread; only `abort` may come from another."""

    def __init__(self) -> None:
        self._handle = SocketHandle()

    @abstractmethod
    def open(self, request: Request) -> Head:
        """Send, and wait for the head of the answer. Raise TransportError."""

    @abstractmethod
    def chunks(self) -> Iterator[bytes]:
        """Pieces of the body as they come. Raise TransportError when it breaks or is silent for too long."""

    @abstractmethod
    def close(self) -> None:
        """Release the connection. Never raises; may be called in any state."""

    def text(self) -> str:
        """The start of an error answer, for people. Never raises."""
        body = b""
        try:
            for chunk in self.chunks():
                body += chunk
                if len(body) >= MAX_TEXT:
                    break
        except TransportError:
            pass  # half an explanation is better than none
        return Reply(0, body).text

    def set_silence_limit(self, seconds: float | None) -> None:
        """Seconds without a byte after which `chunks` raises; None: never."""
        self._handle.settimeout(seconds)

    def abort(self) -> None:
        """Make every waiting or later operation fail. Safe from any thread."""
        self._handle.abort()


class Transport(ABC):
    """Makes streams, and does short calls."""

    @abstractmethod
    def stream(self) -> Stream: ...

    @abstractmethod
    def post(self, request: Request) -> Reply:
        """One call, one answer. Raise TransportError. Not to be called by two threads at once."""

    @abstractmethod
    def interrupt(self) -> None:
        """Make a call that is waiting now fail. Safe from any thread."""

    @abstractmethod
    def close(self) -> None:
        """Release everything; later calls raise TransportError. Safe from any thread, any number of times."""
