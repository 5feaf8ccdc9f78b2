"""Base class of both drivers: read events in a thread, reconnect, send calls."""

from __future__ import annotations

import json
import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Callable, Iterator, Mapping, TypeVar

from .backoff import AttemptRateLimit, Clock
from .credentials import Credentials
from .http import JSON_HEADERS, MALFORMED, HttpRequest, NotSentError, Subscription, TransportError, clock_offset, encode
from .results import DriverAborted, DriverState, Failed, NotConnected, Rejected, SendResult
from .transport import Stream, Transport

#: Maximum digits of a record's length: 9 GB, far above any event.
MAX_DIGITS = 10


class RecordError(ValueError):
    """The bytes are not RecordIO."""


class RecordDecoder:
    """Incremental RecordIO decoder (`LENGTH\\nBYTES`, repeated), in linear time.

    Apache Mesos, docs/scheduler-http-api.md, "RecordIO response format".
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._length = -1  # bytes of the current record; -1 while reading the length

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return completed records. Raises RecordError; the decoder is then unusable."""
        self._buffer += chunk
        records: list[bytes] = []
        while self._has_length() and len(self._buffer) >= self._length:
            records.append(bytes(self._buffer[: self._length]))
            del self._buffer[: self._length]
            self._length = -1
        return records

    @property
    def is_between_records(self) -> bool:
        """Whether the stream may end here without an incomplete record."""
        return self._length < 0 and not self._buffer

    def _has_length(self) -> bool:
        if self._length < 0:
            # One byte beyond the limit shows that a line is too long.
            line, newline, _ = bytes(self._buffer[: MAX_DIGITS + 1]).partition(b"\n")
            if len(line) > MAX_DIGITS or (line and not line.isdigit()) or (newline and not line):
                raise RecordError(f"not a record length: {line[:20]!r}")
            if newline:
                del self._buffer[: len(line) + 1]
                self._length = int(line)
        return self._length >= 0


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamLoss:
    """Cause of a failed or lost stream."""

    reason: str
    #: HTTP status of the response to SUBSCRIBE, if not 200.
    status: int | None = None
    #: Location header of a redirect.
    location: str | None = None
    #: The SUBSCRIBE call; None if none was sent.
    request: HttpRequest | None = None


def _event(record: bytes) -> dict[str, Any]:
    try:
        # Mesos copies texts of executors unchanged, including invalid UTF-8.
        event = json.loads(record.decode(errors="replace"))
    except MALFORMED:
        event = None
    if not isinstance(event, dict):
        # The content may include secrets.
        raise RecordError(f"a record of {len(record)} bytes is not a JSON object")
    return event


@contextmanager
def reading(event: Mapping[str, Any]) -> Iterator[None]:
    """Raise RecordError if the event lacks the form that the block expects."""
    try:
        yield
    except MALFORMED as error:
        raise RecordError(f"invalid {event.get('type')} event: {type(error).__name__}") from error


_T = TypeVar("_T")

OnEvent = Callable[[Mapping[str, Any]], None]
OnState = Callable[[DriverState], None]

UNAUTHORIZED = 401


class StreamProcess:
    """Base class of the drivers; it overrides the methods of pymesos' `Process`.

    A driver starts once. Both callbacks run in its reader thread and should only enqueue; their exceptions are logged.
    """

    def _prepare(
        self,
        transport: Transport,
        credentials: Credentials,
        on_event: OnEvent,
        on_state: OnState,
        name: str,
        call_timeout: float,
        clock: Clock,
    ) -> None:
        self._transport = transport
        self._credentials = credentials
        self._clock = clock
        self._on_event, self._on_state = on_event, on_state
        self._call_timeout = call_timeout
        self._state_lock = threading.Lock()
        self._session: Subscription | None = None
        self._subscriptions = 0
        self._last_failure: str | None = None
        self._running = False
        self._pace = AttemptRateLimit()
        self._stream_lock = threading.Lock()
        self._stream: Stream | None = None
        self._stopped, self._wake = threading.Event(), threading.Event()
        self._restarts = 0
        self._reader = threading.Thread(target=self._follow_master, name=name, daemon=True)

    # The reader thread connects, decodes events, and reconnects

    def _follow_master(self) -> None:
        while not self._stopped.is_set():
            delay = self._attempt()
            if delay is None:
                return
            self._clock.wait(self._wake, delay)
            self._wake.clear()

    def _attempt(self) -> float | None:
        """Run a subscription; return the delay before the next, or None. Never raises."""
        self._clock.wait(self._stopped, self._pace.wait(self._clock.now()))
        restarts, request = self._restarts, None
        try:
            request = self._subscription()
            if request is None:
                return threading.TIMEOUT_MAX
            self._pace.started(self._clock.now())
            loss = self._follow(request, restarts)
        except (TransportError, RecordError) as error:
            loss = StreamLoss(str(error))
        except Exception as error:
            logger.exception("event stream dropped after an internal error")
            loss = StreamLoss(f"internal error: {type(error).__name__}")
        return None if self._stopped.is_set() else self._lost(replace(loss, request=request))

    def _follow(self, request: HttpRequest, restarts: int) -> StreamLoss:
        return self._with_stream(restarts, lambda stream: self._read(stream, request))

    def _with_stream(self, restarts: int, use: Callable[[Stream], _T]) -> _T:
        """Call `use` with a new stream; `restart_stream` and `stop` abort the stream."""
        stream = self._transport.stream()
        with self._stream_lock:
            # A `restart_stream` since the request could not abort this stream.
            if self._stopped.is_set() or restarts != self._restarts:
                stream.abort()
            self._stream = stream
        try:
            return use(stream)
        finally:
            with self._stream_lock:
                self._stream = None
            stream.close()

    def _read(self, stream: Stream, request: HttpRequest) -> StreamLoss:
        head = stream.open(request)
        self._transport.clock_offset = clock_offset(head.headers.get("date"))
        if head.status != 200:
            return StreamLoss(f"HTTP {head.status}: {stream.text()}", head.status, head.headers.get("location"))
        if "chunked" not in head.headers.get("transfer-encoding", ""):
            raise TransportError("the response to SUBSCRIBE is not an event stream")
        session = Subscription(request.url, head.headers.get("mesos-stream-id", ""))
        decoder = RecordDecoder()
        for chunk in stream.chunks():
            for record in decoder.feed(chunk):
                if self._stopped.is_set():
                    return StreamLoss("stopped")
                self._received(_event(record), session, stream)
        return StreamLoss("the event stream ended" + ("" if decoder.is_between_records else " inside a record"))

    def _subscription(self) -> HttpRequest | None:
        """Return the SUBSCRIBE call; None: wait for `restart_stream`, no master is known."""
        raise NotImplementedError

    def _subscribed(self, event: Mapping[str, Any], session: Subscription, stream: Stream) -> None:
        """Handle the SUBSCRIBED event; call `_establish`."""
        raise NotImplementedError

    def _lost(self, loss: StreamLoss) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up."""
        raise NotImplementedError

    def _received(self, event: dict[str, Any], session: Subscription, stream: Stream) -> None:
        """Handle one event. An exception closes the stream. Raises RecordError."""
        kind = event.get("type")
        if kind == "HEARTBEAT":
            return
        if kind == "SUBSCRIBED":
            self._subscribed(event, session, stream)
        self.process_event(event)
        if kind == "ERROR":
            with reading(event):
                reason = str(event.get("error", {}).get("message", ""))
            self._give_up(reason)

    def _subscribe_request(self, url: str, body: Mapping[str, Any]) -> HttpRequest:
        headers = {**JSON_HEADERS, **authorization(self._credential()), "Connection": "close"}
        return HttpRequest(url, headers, encode(body), self._call_timeout)

    @property
    def connected(self) -> bool:
        """Whether calls can be sent: from SUBSCRIBED to the loss or stop of the stream."""
        return self._session is not None

    @property
    def aborted(self) -> bool:
        """Whether the driver does not run: it is not started yet, stopped or aborted."""
        return self._stopped.is_set() or not self._running

    @property
    def subscription(self) -> int:
        """Number of subscriptions so far; it grows before SUBSCRIBED is passed on."""
        return self._subscriptions

    @property
    def last_failure(self) -> str | None:
        """Why the driver is not subscribed; None while subscribed or if unknown."""
        return self._last_failure

    @property
    def clock_offset(self) -> float | None:
        """Seconds by which Mesos' clock was ahead at the last answer; None if unknown."""
        return self._transport.clock_offset

    def start(self) -> None:
        """Subscribe in the background. Raises RuntimeError if called twice."""
        with self._state_lock:
            if self._running or self._stopped.is_set():
                raise RuntimeError("the driver was already started; create a new one")
            self._running = True
        self._reader.start()

    def stop(self, failover: bool = True) -> None:  # noqa: ARG002
        """Disconnect and wait for the threads; tasks keep running. May be called again.

        `failover` is pymesos' flag and has no effect: this method never removes the framework.
        """
        self._halt()
        self.join(self._call_timeout + 1)
        if self._reader.is_alive() and self._reader is not threading.current_thread():
            logger.warning("the reader thread is still connecting; it exits later")

    def abort(self) -> None:
        self.stop()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the reader thread to exit; do not wait if unstarted or in that thread."""
        if self._reader.ident is not None and self._reader is not threading.current_thread():
            self._reader.join(timeout)

    def restart_stream(self) -> None:
        """Abort the connection or the current delay, and subscribe again now."""
        self._wake.set()
        with self._stream_lock:
            self._restarts += 1
            if self._stream is not None:
                self._stream.abort()

    def _halt(self) -> bool:
        """Halt the driver; return whether it was running until this call."""
        with self._state_lock:
            first, self._session = not self._stopped.is_set(), None
            self._stopped.set()
        self.restart_stream()
        self._transport.close()
        return first

    def _establish(self, session: Subscription) -> None:
        with self._state_lock:
            self._subscriptions += 1
            self._session = None if self._stopped.is_set() else session
        self._last_failure = None

    def _drop_session(self, reason: str, interrupt: bool = True) -> bool:
        """End the session; return whether there was one."""
        with self._state_lock:
            had_session, self._session = self._session is not None, None
        # End a pending call, which would otherwise wait for its timeout.
        if interrupt:
            self._transport.interrupt()
        if reason != self._last_failure:
            logger.warning("not subscribed: %s", reason)
        self._last_failure = reason
        return had_session

    def _give_up(self, reason: str, *, by_master: bool = True) -> None:
        if self._halt():
            self._last_failure = reason
            if by_master:
                logger.error("driver aborted: %s", reason)
            self._contained(self._on_state, DriverAborted(reason, by_master))

    def process_event(self, event: dict[str, Any]) -> None:
        """Pass on one event."""
        self._contained(self._on_event, event)

    def _contained(self, callback: Callable[..., Any], *arguments: Any) -> None:
        try:
            callback(*arguments)
        except Exception:
            logger.exception("driver callback failed")

    def _post(self, body: Mapping[str, Any], subscription: int | None = None) -> SendResult:
        with self._state_lock:
            session = self._session if subscription in (None, self._subscriptions) else None
        if session is None:
            return NotConnected()
        try:
            header, result = self._try(session, body)
            if isinstance(result, Rejected) and result.status == UNAUTHORIZED and self._credentials.renew(header):
                # Mesos did not process the call: resend it with a new token.
                header, result = self._try(session, body)
        except TransportError as error:
            return Failed(str(error), not isinstance(error, NotSentError))
        return result

    def _try(self, session: Subscription, body: Mapping[str, Any]) -> tuple[str | None, SendResult]:
        header = self._credential()
        return header, self._transport.send(session, lambda: self._session, authorization(header), body)

    def _credential(self) -> str | None:
        """Return the next Authorization header. Raises TransportError if unavailable."""
        try:
            return self._credentials.header()
        except Exception as error:  # any error of a login service
            raise NotSentError(f"no credentials: {type(error).__name__}: {error}") from error

    def _send(self, *_arguments: Any, **_options: Any) -> None:
        """Disable pymesos' call methods, which would open their own connections."""
        raise NotImplementedError("use send() instead of pymesos' call methods")


def authorization(header: str | None) -> dict[str, str]:
    return {"Authorization": header} if header else {}
