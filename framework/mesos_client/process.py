"""What both drivers share.

The surface of pymesos' Process over a Subscriber, and reports that cannot hurt the reader thread.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Callable, Mapping

from mesos_client.calls import CallSender, Session
from mesos_client.clock import Clock
from mesos_client.credentials import Credentials
from mesos_client.results import Aborted, CallError, DriverState, Failed, NotConnected, Rejected, SendResult, Sent
from mesos_client.subscriber import Peer, Subscriber
from mesos_client.transport import Transport, TransportError

logger = logging.getLogger(__name__)

OnEvent = Callable[[Mapping[str, Any]], None]
OnState = Callable[[DriverState], None]

UNAUTHORIZED = 401


class StreamProcess(Peer):
    """Stands before pymesos' drivers in the method resolution order, and replaces what their `Process` does.

    A driver starts once. Both callbacks run in its reader thread and should only enqueue; what they raise is logged
    and forgotten.
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
        self._calls = CallSender(transport, call_timeout)
        self._state_lock = threading.Lock()
        self._session: Session | None = None
        self._subscriptions = 0
        self._last_failure: str | None = None
        self._running = self._halted = False
        self._subscriber = Subscriber(self, transport, name, clock)

    # State

    @property
    def connected(self) -> bool:
        """Whether calls can be sent: from SUBSCRIBED until the stream is lost or the driver stopped."""
        return self._session is not None

    @property
    def aborted(self) -> bool:
        """Whether the driver does not run: not started yet, stopped, or given up."""
        return self._halted or not self._running

    @property
    def stream_id(self) -> str | None:
        """Mesos-Stream-Id of the present subscription."""
        session = self._session
        return session.stream_id if session else None

    @property
    def subscription(self) -> int:
        """How many subscriptions there have been: it grows with each SUBSCRIBED, before that event is handed over."""
        return self._subscriptions

    @property
    def last_failure(self) -> str | None:
        """Why there is no subscription, as far as known; None while there is one."""
        return self._last_failure

    # Life

    def start(self) -> None:
        """Subscribe in the background. Raise RuntimeError when called twice: a driver starts once."""
        with self._state_lock:
            if self._running or self._halted:
                raise RuntimeError("a driver starts once: make a new one")
            self._running = True
        self._subscriber.start()

    def stop(self, failover: bool = True) -> None:  # noqa: ARG002
        """Leave without a word to Mesos: tasks go on. Idempotent; returns when the threads have ended.

        `failover` is pymesos' flag and changes nothing: nothing is ever torn down here.
        """
        self._halt()
        if not self._subscriber.join(self._call_timeout + 1):
            logger.warning("the reader thread is still connecting; it ends by itself")

    def abort(self) -> None:
        """The same as `stop`."""
        self.stop()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the driver is stopped, by us or by itself."""
        self._subscriber.join(timeout)

    def run(self) -> None:
        """start, then join."""
        self.start()
        self.join()

    def restart_stream(self) -> None:
        """Give the present connection up and subscribe again at once."""
        self._subscriber.reconnect()

    reconnect = restart_stream

    def _halt(self) -> bool:
        """Return whether this call was the one that halted the driver."""
        with self._state_lock:
            first, self._halted, self._session = not self._halted, True, None
        self._subscriber.stop()
        self._transport.close()
        return first

    # For the subscriber's thread

    def _establish(self, session: Session) -> None:
        with self._state_lock:
            self._subscriptions += 1
            self._session = None if self._halted else session
        self._last_failure = None

    def _drop_session(self, reason: str, interrupt: bool = True) -> bool:
        """Return whether there was a session."""
        with self._state_lock:
            had, self._session = self._session is not None, None
        # A call that waits for the lost peer's answer would only wait for its timeout.
        if interrupt:
            self._transport.interrupt()
        if reason != self._last_failure:
            logger.warning("not subscribed: %s", reason)
        self._last_failure = reason
        return had

    def _give_up(self, reason: str) -> None:
        if self._halt():
            self._last_failure = reason
            logger.error("the driver stops: %s", reason)
            self._report(Aborted(reason))

    def process_event(self, event: dict[str, Any]) -> None:
        """Hand one event over."""
        self._contained(self._on_event, event)

    def _report(self, state: DriverState) -> None:
        self._contained(self._on_state, state)

    def _contained(self, callback: Callable[..., Any], *arguments: Any) -> None:
        try:
            callback(*arguments)
        except Exception:
            logger.exception("a callback failed; the driver goes on")

    # Calls

    def _post(self, body: Mapping[str, Any], subscription: int | None = None) -> SendResult:
        with self._state_lock:
            session = self._session if subscription in (None, self._subscriptions) else None
        if session is None:
            return NotConnected()
        try:
            header, result = self._try(session, body)
            if _is_unauthorized(result) and self._credentials.renew(header):
                # It was not processed: a token that has just expired costs no call.
                header, result = self._try(session, body)
        except TransportError as error:
            return Failed(str(error))
        return result

    def _try(self, session: Session, body: Mapping[str, Any]) -> tuple[str | None, SendResult]:
        header = self._credential()
        return header, self._calls.send(session, lambda: self._session, authorization(header), body)

    def _credential(self) -> str | None:
        """The Authorization header for the next request. Raise TransportError when there is none to be had."""
        try:
            return self._credentials.header()
        except Exception as error:  # it may ask a login service
            raise TransportError(f"no credentials: {type(error).__name__}: {error}") from error

    def _send(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """pymesos' way to send: the answer, or CallError. Its text does not quote `body`."""
        result = self._post(body)
        if isinstance(result, Sent):
            return result.answer
        raise CallError(result)


def authorization(header: str | None) -> dict[str, str]:
    """Headers that prove who we are."""
    return {"Authorization": header} if header else {}


def _is_unauthorized(result: SendResult) -> bool:
    return isinstance(result, Rejected) and result.status == UNAUTHORIZED
