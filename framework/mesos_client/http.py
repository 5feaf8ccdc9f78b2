"""HTTP interface of the drivers: requests, event streams, and calls in order.

`requests_transport` and `stdlib_transport` implement it.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping

from .results import Failed, NotConnected, Rejected, SendResult, Sent

#: Maximum characters of an error answer.
MAX_TEXT = 500
#: Maximum seconds to connect. The kernel repeats the first packet after 1 s and 3 s; then try another master.
CONNECT_TIMEOUT = 4.0


class TransportError(Exception):
    """Missing or broken answer. The message names the cause, never the request's content."""


@dataclass(frozen=True)
class HttpRequest:
    """One POST. `timeout`: seconds for each wait on the socket until the response head arrives."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout: float

    @property
    def connect_timeout(self) -> float:
        """Seconds to connect to one address."""
        return min(self.timeout, CONNECT_TIMEOUT)


@dataclass(frozen=True)
class ResponseHead:
    """Status and headers of a response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]


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
    """Let another thread interrupt the one that is blocked on a socket or on a registered operation.

    It shuts the socket down, which is safe at any time; closing it is not.
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
        """Register the socket in use, connected or not. Raises OSError after `abort`."""
        with self._lock:
            self._socket = current
            self._refuse_if_aborted()

    @contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Call `interrupt` to end this thread's wait in the block. Raises OSError after `abort`."""
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
            self._aborted = True
            self._wake()

    def _refuse_if_aborted(self) -> None:
        if self._aborted:
            raise OSError("aborted")

    def _wake(self) -> None:
        if self._interrupt is not None:
            self._interrupt()
        if self._socket is not None:
            # Fails for a closed or reset socket, on which no thread waits.
            with suppress(OSError):
                # SSLSocket's own shutdown would discard the session that the reading thread uses.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class Stream(ABC):
    """One POST with an endless response. Used by one thread; only `abort` is thread-safe."""

    def __init__(self) -> None:
        self._handle = SocketHandle()

    @abstractmethod
    def open(self, request: HttpRequest) -> ResponseHead:
        """Send the request and wait for the response head. Raises TransportError."""

    @abstractmethod
    def chunks(self) -> Iterator[bytes]:
        """Yield pieces of the body on arrival. Raises TransportError if it breaks or exceeds the silence limit."""

    @abstractmethod
    def close(self) -> None:
        """Release the connection. Never raises; may be called in any state."""

    def text(self) -> str:
        """Return the start of an error response, for messages. Never raises."""
        body = b""
        try:
            for chunk in self.chunks():
                body += chunk
                if len(body) >= MAX_TEXT:
                    break
        except TransportError:
            pass  # a partial text is enough
        return HttpReply(0, body).text

    def set_silence_limit(self, seconds: float | None) -> None:
        """Set the seconds without a byte after which `chunks` raises; None for unlimited."""
        self._handle.settimeout(seconds)

    def abort(self) -> None:
        """Make current and later operations fail. Thread-safe."""
        self._handle.abort()


class Transport(ABC):
    """Create streams and send calls."""

    @abstractmethod
    def stream(self) -> Stream: ...

    @abstractmethod
    def post(self, request: HttpRequest) -> HttpReply:
        """Send one call and return its response; not thread-safe. Raises TransportError."""

    @abstractmethod
    def interrupt(self) -> None:
        """Make the current call fail. Thread-safe."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources; later calls raise TransportError. Thread-safe; may be called again."""


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


class CallSender:
    """Send calls in order: each is answered before the next is sent."""

    def __init__(self, transport: Transport, timeout: float) -> None:
        self._transport = transport
        self._timeout = timeout
        self._turn = threading.Lock()

    def send(
        self,
        session: Subscription,
        present: Callable[[], Subscription | None],
        headers: Mapping[str, str],
        body: Mapping[str, Any],
    ) -> SendResult:
        """POST `body`, after up to `timeout` seconds in the queue, and wait as long for the response.

        Returns NotConnected without sending if `session` is no longer the `present` one.
        """
        request = HttpRequest(session.url, {**JSON_HEADERS, **headers, **session.headers}, encode(body), self._timeout)
        if not self._turn.acquire(timeout=self._timeout):
            return Failed("timed out while earlier calls wait for their responses")
        try:
            return _result(self._transport.post(request)) if present() is session else NotConnected()
        except TransportError as error:
            return Failed(str(error))
        finally:
            self._turn.release()


def encode(body: Mapping[str, Any]) -> bytes:
    """Encode the body of a POST."""
    return json.dumps(body).encode()


def _result(reply: HttpReply) -> SendResult:
    if not 200 <= reply.status < 300:
        return Rejected(reply.status, reply.text[:MAX_TEXT])
    try:
        answer = json.loads(reply.body)
    except ValueError:
        return Sent()
    return Sent(answer) if isinstance(answer, dict) else Sent()


def encode_data(data: bytes) -> str:
    """Encode a `bytes` field of Mesos' JSON as base64."""
    return base64.b64encode(data).decode()


def decode_data(text: str) -> bytes:
    """Decode a base64 field. Raises ValueError."""
    return base64.b64decode(text, validate=True)
