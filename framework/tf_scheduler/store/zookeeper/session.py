"""A ZooKeeper session that answers, or says within its time that it cannot."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionLoss,
    KazooException,
    NoAuthError,
    OperationTimeoutError,
    RequestTimeoutError,
    SessionExpiredError,
    SessionMovedError,
    ThrottledOpError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from tf_scheduler.store.interface import StoreError, StoreUnavailable

from .connection import Sockets, observed
from .place import ZooKeeperPlace

log = logging.getLogger(__name__)

#: A request: starts it on the client and returns kazoo's pending result.
Request = Callable[[Any], Any]

_AGAIN = 0.05  # seconds between two attempts
_IN_FLIGHT = 200  # requests at once
#: Nobody knows whether the request acted.
_NO_ANSWER = (
    *(ConnectionLoss, SessionExpiredError, SessionMovedError),
    *(OperationTimeoutError, RequestTimeoutError, ThrottledOpError),
)


class Unanswered(Exception):  # noqa: N818 - it names the condition; never leaves this package
    """The request was sent, or may have been, and nobody knows whether it acted."""


class Deadline:
    """Some seconds from now."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds, 0 when it has passed."""
        return max(0.0, self._at - time.monotonic())


class Session:
    """One client of one ZooKeeper. Raises StoreUnavailable when none answers in time, StoreError for bad TLS files.

    A lost connection comes back by itself, on another server if there is one; an expired session is replaced by a new
    one, without the old one's ephemeral nodes. Any thread may use it, several at once.
    """

    def __init__(self, place: ZooKeeperPlace) -> None:
        self.place = place
        # A second server gets its turn before a leader has to step down.
        self._sockets = Sockets(place.tls, place.session_timeout / 4)
        self._connected = threading.Event()
        self._closed = threading.Event()
        self._client = _client(place, self._sockets)
        self._connection = observed(self._client, place.session_timeout / 4)
        self._client.add_listener(self._on_state)
        self.acl = CREATOR_ALL_ACL if place.credentials or (place.tls and place.tls.key) else OPEN_ACL_UNSAFE
        self._start()

    @property
    def timeout(self) -> float:
        """Seconds without contact after which the server ends the session: what it granted, known once it answered."""
        return self._connection.session_timeout

    @property
    def number(self) -> int | None:
        """The session's id; None while there is none."""
        client_id = self._client.client_id
        return int(client_id[0]) if client_id and client_id[0] else None

    def on_expired(self, callback: Callable[[], None]) -> None:
        """Call it, in another thread, when the session has ended: its ephemeral nodes are gone."""
        self._client.add_listener(lambda state: callback() if state == KazooState.LOST else None)

    def submit(self, request: Request, deadline: Deadline) -> Any:
        """One attempt. Raises StoreUnavailable if nothing was sent, Unanswered if there is no answer, and what kazoo
        raises for the server's answer.

        A connection that is silent for a quarter of the session timeout is given up: kazoo by itself would notice too
        late for a leader to stay one.
        """
        self._wait_connected(deadline)
        pending = request(self._client)
        try:
            return pending.get(timeout=min(self._patience, deadline.left))
        except KazooTimeoutError:
            self._sockets.drop()
        except _NO_ANSWER as error:
            raise Unanswered(repr(error)) from error
        try:
            return pending.get(timeout=self._patience)
        except (KazooTimeoutError, *_NO_ANSWER) as error:
            raise Unanswered(repr(error)) from error

    def ask(self, request: Request, deadline: Deadline) -> Any:
        """As submit, but again until there is an answer: for requests that may act twice. Raises StoreUnavailable."""
        while True:
            try:
                return self.submit(request, deadline)
            except Unanswered:
                self.pause(deadline)

    def ask_all(self, requests: Sequence[Request], deadline: Deadline) -> list[Any]:
        """The answers to many, several of them in flight at once; raises as ask for the first that fails."""
        answers: list[Any] = []
        for start in range(0, len(requests), _IN_FLIGHT):
            some = requests[start : start + _IN_FLIGHT]
            answers += self.ask(partial(_All, some), deadline)
        return answers

    def send(self, request: Request) -> None:
        """Send it without waiting for an answer, or hearing of its failure."""
        request(self._client)

    def pause(self, deadline: Deadline) -> None:
        """Wait a moment before another attempt. Raises StoreUnavailable when the deadline has passed."""
        if deadline.left == 0:
            raise self.unavailable()
        self._closed.wait(min(_AGAIN, deadline.left))

    def unavailable(self) -> StoreUnavailable:
        """The error that says that ZooKeeper does not answer."""
        because = f" ({self._sockets.problem})" if self._sockets.problem else ""
        return StoreUnavailable(f"ZooKeeper at {self.place} does not answer{because}")

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn kazoo's errors into ours."""
        try:
            yield
        except NoAuthError as error:
            raise StoreError(
                f"ZooKeeper at {self.place} does not let us use this service's nodes: another user or certificate made "
                "them; give the same credentials"
            ) from error
        except KazooException as error:
            raise StoreError(f"ZooKeeper at {self.place}: {error!r}") from error

    def close(self) -> None:
        """End the session; its ephemeral nodes go. May be called again."""
        self._closed.set()
        # kazoo waits for the server to say goodbye, which a frozen one never does.
        farewell = threading.Timer(self._patience, self._sockets.drop)
        farewell.daemon = True
        farewell.start()
        try:
            self._client.stop()
            self._client.close()
        except KazooException:
            log.warning("the session with ZooKeeper at %s did not end well", self.place, exc_info=True)
        finally:
            farewell.cancel()
            farewell.join()

    @property
    def _patience(self) -> float:
        return (self.timeout or self.place.session_timeout) / 4

    def _start(self) -> None:
        try:
            self._client.start(timeout=self.place.request_timeout)
        except KazooTimeoutError as error:
            raise self.unavailable() from error

    def _on_state(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._connected.set()
        else:
            self._connected.clear()

    def _wait_connected(self, deadline: Deadline) -> None:
        if not self._connected.wait(deadline.left) or deadline.left == 0:
            raise self.unavailable()


class _All:
    """Several requests as one."""

    def __init__(self, requests: Sequence[Request], client: Any) -> None:
        self._pending = [request(client) for request in requests]

    def get(self, timeout: float) -> list[Any]:
        """The answers in order; `timeout` is for each, as they come one after the other."""
        return [one.get(timeout=timeout) for one in self._pending]


def _client(place: ZooKeeperPlace, sockets: Sockets) -> KazooClient:
    servers = random.sample(place.servers, len(place.servers))
    # kazoo writes passwords to its log below this level.
    logger = log.getChild("client")
    logger.setLevel(logging.WARNING)
    return KazooClient(
        hosts=",".join(servers),
        timeout=place.session_timeout,
        handler=sockets,
        auth_data=[("digest", place.credentials)] if place.credentials else None,
        # In a fixed order it never tries the server again that it has just given up.
        randomize_hosts=False,
        connection_retry=KazooRetry(max_tries=-1, delay=_AGAIN, max_delay=0.5, sleep_func=sockets.sleep_func),
        logger=logger,
    )
