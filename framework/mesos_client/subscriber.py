"""The thread that keeps an event stream open: connect, decode, hand over, wait, again."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import dataclass, replace
from typing import Any

from mesos_client.backoff import Pace
from mesos_client.calls import Session
from mesos_client.clock import Clock
from mesos_client.recordio import Decoder, RecordError
from mesos_client.transport import Head, Request, Stream, Transport, TransportError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loss:
    """Why there is no stream (any more)."""

    reason: str
    #: HTTP status, when the subscription was answered with another one than 200.
    status: int | None = None
    #: Location header of a redirect.
    location: str | None = None
    #: The SUBSCRIBE call that was not answered well; None when none was made.
    request: Request | None = None


class Peer:
    """What a subscriber asks its driver. All methods are called in the subscriber's thread."""

    def _subscription(self) -> Request | None:
        """The SUBSCRIBE call, or None when there is nobody to send it to: then `reconnect` starts the next attempt."""
        raise NotImplementedError

    def _received(self, event: dict[str, Any], session: Session, stream: Stream) -> None:
        """One event. An exception means that the stream cannot be trusted."""
        raise NotImplementedError

    def _lost(self, loss: Loss) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up."""
        raise NotImplementedError


class Subscriber:
    """Owns the reader thread. `start` once, `stop` any number of times from any thread."""

    def __init__(self, peer: Peer, transport: Transport, name: str, clock: Clock) -> None:
        self._peer = peer
        self._transport = transport
        self._clock, self._pace = clock, Pace()
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._stopped = threading.Event()
        self._restarts = 0
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread soon; it may be blocked in a read, and is woken."""
        self._stopped.set()
        self.reconnect()

    def reconnect(self) -> None:
        """Drop the present stream, or end the present wait, and subscribe again now."""
        self._wake.set()
        with self._lock:
            self._restarts += 1
            if self._stream is not None:
                self._stream.abort()

    def join(self, timeout: float | None = None) -> bool:
        """Return whether the thread has ended. Does not wait in the thread itself, nor for one that was not started."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.is_set():
            delay = self._attempt()
            if delay is None:
                return
            self._clock.wait(self._wake, delay)
            self._wake.clear()

    def _attempt(self) -> float | None:
        """One subscription from start to end. Nothing may end the thread but the peer's word."""
        self._clock.wait(self._stopped, self._pace.wait(self._clock.now()))
        restarts, request = self._restarts, None
        try:
            request = self._peer._subscription()
            if request is None:
                return threading.TIMEOUT_MAX
            self._pace.started(self._clock.now())
            loss = self._follow(request, restarts)
        except (TransportError, RecordError) as error:
            loss = Loss(str(error))
        except Exception as error:
            logger.exception("the event stream is given up because of a defect")
            loss = Loss(f"internal error: {type(error).__name__}")
        return None if self._stopped.is_set() else self._peer._lost(replace(loss, request=request))

    def _follow(self, request: Request, restarts: int) -> Loss:
        stream = self._transport.stream()
        with self._lock:
            # Whoever asked for a new stream since the request was made did not see this one.
            if self._stopped.is_set() or restarts != self._restarts:
                stream.abort()
            self._stream = stream
        try:
            return self._read(stream, request)
        finally:
            with self._lock:
                self._stream = None
            stream.close()

    def _read(self, stream: Stream, request: Request) -> Loss:
        head = stream.open(request)
        if head.status != 200:
            return Loss(f"HTTP {head.status}: {stream.text()}", head.status, head.headers.get("location"))
        if "chunked" not in head.headers.get("transfer-encoding", ""):
            raise TransportError("the answer to SUBSCRIBE is no event stream")
        return self._decode(stream, Session(request.url, _stream_id(head)))

    def _decode(self, stream: Stream, session: Session) -> Loss:
        decoder = Decoder()
        for chunk in stream.chunks():
            for record in decoder.feed(chunk):
                if self._stopped.is_set():
                    return Loss("stopped")
                self._peer._received(_event(record), session, stream)
        return Loss(
            "the event stream ended" if decoder.is_between_records else "the event stream ended inside a record"
        )


def _stream_id(head: Head) -> str:
    return head.headers.get("mesos-stream-id", "")


def _event(record: bytes) -> dict[str, Any]:
    try:
        # Mesos writes the texts of executors as they are, also those that are no UTF-8.
        event = json.loads(record.decode(errors="replace"))
    except ValueError:
        event = None
    if not isinstance(event, dict):
        # Its content is not shown: it may hold secrets.
        raise RecordError(f"a record of {len(record)} bytes is no JSON object")
    return event
