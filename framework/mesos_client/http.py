"""HTTP request and reply types, JSON encoding, handle to interrupt a socket wait."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Callable, Iterator, Mapping

#: What reading JSON of another form than expected raises.
MALFORMED = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
#: Maximum characters of an error answer.
MAX_TEXT = 500
#: Maximum seconds to connect. The kernel repeats the first packet after 1 s and 3 s; then try another master.
CONNECT_TIMEOUT = 4.0


class TransportError(Exception):
    """Missing or broken answer. The message omits the content of the request."""


class NotSentError(TransportError):
    """The request was certainly not sent."""


@dataclass(frozen=True)
class HttpRequest:
    """One POST; `timeout`: seconds for each socket wait up to the response head."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout: float


@dataclass(frozen=True)
class HttpReply:
    """A whole response."""

    status: int
    body: bytes

    @property
    def text(self) -> str:
        """Start of the body, for messages."""
        return self.body[: 4 * MAX_TEXT].decode("utf-8", "replace").strip()[:MAX_TEXT]


class SocketHandle:
    """Handle to interrupt a thread's wait on a socket or a registered operation.

    The interrupt shuts the socket down, which is safe at any time; closing a socket is not.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: Any = None
        self._interrupt: Callable[[], None] | None = None
        self.aborted = False

    def opened(self, current: Any) -> None:
        """Register the socket in use, connected or not. Raises OSError after `abort`."""
        with self._lock:
            self._socket = current
            self._refuse_if_aborted()

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Call `interrupt` to end a wait in the block. Raises OSError after `abort`."""
        with self._lock:
            self._refuse_if_aborted()
            self._interrupt = interrupt
        try:
            yield
        finally:
            with self._lock:
                self._interrupt = None

    def settimeout(self, seconds: float | None) -> None:
        """Set the maximum wait for bytes; None for unlimited."""
        with self._lock:
            if self._socket is not None:
                self._socket.settimeout(seconds)

    def interrupt(self) -> None:
        """End the current wait."""
        with self._lock:
            self._wake()

    def abort(self) -> None:
        """End the current wait, and reject sockets opened later."""
        with self._lock:
            self.aborted = True
            self._wake()

    def _refuse_if_aborted(self) -> None:
        if self.aborted:
            raise OSError("aborted")

    def _wake(self) -> None:
        if self._interrupt is not None:
            self._interrupt()
        if self._socket is not None:
            # Fails for a closed or reset socket, on which no thread waits.
            with suppress(OSError):
                # SSLSocket's own shutdown would discard the session that the reading thread uses.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


@contextmanager
def time_limit(handle: SocketHandle, seconds: float) -> Iterator[None]:
    """Raise TimeoutError in a block that reads from the handle's socket for longer.

    The timeout of a socket starts again with each byte, and http.client takes a head that is cut for complete.
    """
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        handle.interrupt()

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    # Fails at the limit of threads. Then only the timeout of the socket remains.
    with suppress(RuntimeError):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if expired.is_set():
        raise TimeoutError(f"response not complete within {seconds:g} s")


def clock_offset(date: str | None) -> float | None:
    """Return the seconds by which a Date header is ahead of now; None if unknown."""
    try:
        return parsedate_to_datetime(date).timestamp() - time.time() if date else None
    except (TypeError, ValueError, OverflowError):  # TypeError: Python before 3.10
        return None


JSON_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


@dataclass(frozen=True)
class Subscription:
    """Address of calls during one subscription."""

    url: str
    #: Mesos-Stream-Id header of the response; agents do not send one.
    stream_id: str

    @property
    def headers(self) -> dict[str, str]:
        """Headers that bind a call to the subscription, as a new dict."""
        return {"Mesos-Stream-Id": self.stream_id} if self.stream_id else {}


def encode(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body).encode()


def encode_data(data: bytes) -> str:
    """Encode a `bytes` field of Mesos' JSON as base64."""
    return base64.b64encode(data).decode()


def decode_data(text: str) -> bytes:
    """Decode a base64 field. Raises ValueError."""
    return base64.b64decode(text, validate=True)
