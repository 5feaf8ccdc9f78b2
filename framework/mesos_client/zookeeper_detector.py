"""Finds the leading master in ZooKeeper. The only module here that imports kazoo."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KazooState

from mesos_client.connecting import connect
from mesos_client.detector import Detector, Leader, OnLeader, ZooKeeperUrl, first_candidate, read_leader
from mesos_client.transport import SocketHandle

logger = logging.getLogger(__name__)

#: Seconds. As Mesos' own; the server may shorten it.
SESSION_TIMEOUT = 10.0
#: Seconds after which we look again though no watch has fired, and until we ask again after an error.
LOOK_AGAIN, TRY_AGAIN = 60.0, 1.0
#: Seconds without a connection that are nothing to talk of.
PATIENCE = 3.0
#: Seconds that a server gets to answer when we leave.
_FAREWELL = 1.0
#: Kazoo repeats itself at each attempt, and shows passwords at level DEBUG: we tell of trouble ourselves, once.
_quiet = logging.getLogger(f"{__name__}.kazoo")
_quiet.setLevel(logging.CRITICAL)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Its connections can be given up at any moment."""

    def __init__(self, handle: SocketHandle) -> None:
        super().__init__()
        self._handle = handle

    def create_connection(self, address: tuple[str, int], timeout: float, **_: Any) -> Any:
        return connect(address[0], address[1], timeout, self._handle)


class ZooKeeperDetector(Detector):
    """Waits for ZooKeeper and for the masters' path as long as it takes, and for each change.

    While ZooKeeper is away the last known leader stays: it may well be leading still. Credentials of the URL are sent
    to each server. An access denied is told and tried again.
    """

    def __init__(self, url: ZooKeeperUrl) -> None:
        self._url = url
        self._handle = SocketHandle()
        self._wake = threading.Event()
        self._stopping = False
        self._leader: Leader | None = None
        self._reason: str | None = None
        self._away_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="mesos-master-detector", daemon=True)

    def start(self, on_leader: OnLeader) -> None:
        self._on_leader = on_leader
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        if self._thread.ident is None or self._thread is threading.current_thread():
            return
        self._thread.join(_FAREWELL)
        self._handle.abort()
        self._thread.join(2 * _FAREWELL)
        if self._thread.is_alive():
            logger.warning("the thread that looks for the master waits for a name server; it ends by itself")

    # For the detector's thread

    def _run(self) -> None:
        client = self._client()
        client.add_listener(self._state_changed)
        client.start_async()
        try:
            while not self._stopping:
                self._wake.wait(self._look(client))
                self._wake.clear()
        finally:
            self._leave(client)

    def _client(self) -> KazooClient:
        credentials = self._url.credentials
        return KazooClient(
            self._url.servers,
            timeout=SESSION_TIMEOUT,
            handler=_Handler(self._handle),
            auth_data=[("digest", credentials)] if credentials else None,
            connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": TRY_AGAIN},
            logger=_quiet,
        )

    def _leave(self, client: KazooClient) -> None:
        """End the session; a server that does not answer to that is not waited for."""
        impatience = threading.Timer(_FAREWELL, self._handle.abort)
        impatience.start()
        if not client.connected:
            self._handle.abort()
        try:
            client.stop()
            client.close()
        finally:
            impatience.cancel()
            impatience.join()

    def _state_changed(self, _state: str) -> None:
        self._wake.set()

    def _fired(self, _event: Any) -> None:
        self._wake.set()

    def _look(self, client: KazooClient) -> float:
        """Ask once; return the seconds until it is to be asked again, if nothing is heard before."""
        if client.state != KazooState.CONNECTED:
            return self._disconnected()
        self._away_since = None
        try:
            self._tell(*self._read(client))
        except NoAuthError:
            self._trouble(f"ZooKeeper denies access to {self._url.path}: other credentials are needed")
        except (KazooException, KazooTimeoutError, ValueError) as error:
            self._trouble(f"{self._url}: {type(error).__name__}: {error}")
        else:
            return LOOK_AGAIN
        return TRY_AGAIN

    def _disconnected(self) -> float:
        now = time.monotonic()
        self._away_since = now if self._away_since is None else self._away_since
        left = self._away_since + PATIENCE - now
        if left > 0:
            return left
        self._trouble(f"ZooKeeper {self._url.servers} does not answer")
        return LOOK_AGAIN

    def _read(self, client: KazooClient) -> tuple[Leader | None, str]:
        path = self._url.path
        try:
            children = _answer(client.get_children_async(path, watch=self._fired))
        except NoNodeError:
            if _answer(client.exists_async(path, watch=self._fired)) is not None:
                self._wake.set()  # it has just come
            return None, f"{self._url}: there is no such node; no master has ever been there"
        node = first_candidate(children)
        if node is None:
            return None, f"{self._url}: no master leads"
        # A node that goes meanwhile raises, and we look again.
        data, _ = _answer(client.get_async(f"{path}/{node}"))
        return read_leader(data), ""

    def _tell(self, leader: Leader | None, reason: str) -> None:
        if leader != self._leader or (leader is None and reason != self._reason):
            logger.info("%s", f"{self._url}: {leader.url('http')} leads" if leader else reason)
            self._on_leader(leader, reason)
        self._leader, self._reason = leader, reason

    def _trouble(self, reason: str) -> None:
        """Keep the leader, if one is known."""
        if reason != self._reason and not self._stopping:
            logger.warning("%s", reason)
            if self._leader is None:
                self._on_leader(None, reason)
        self._reason = reason


def _answer(result: Any) -> Any:
    return result.get(timeout=SESSION_TIMEOUT)
