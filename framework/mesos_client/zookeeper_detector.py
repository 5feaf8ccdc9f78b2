"""Detect the leading Mesos master through ZooKeeper; needs kazoo."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KazooState

from tf_executor.contract.http import SocketHandle

from .masters import (
    Detector,
    Leader,
    OnLeader,
    ZooKeeperUrl,
    candidates,
    decode_leader,
    leading_candidate,
    parse_masters,
    resolve_hosts,
)
from .transport import connect

logger = logging.getLogger(__name__)

#: Seconds, as in Mesos; the server may shorten it.
SESSION_TIMEOUT = 10.0
#: Seconds between polls in addition to watches, and between retries after an error.
POLL_SECONDS, RETRY_SECONDS = 60.0, 1.0
#: Seconds without a connection until a warning.
OUTAGE_GRACE = 3.0
#: Maximum seconds for the server to close the session.
_CLOSE_TIMEOUT = 1.0
#: kazoo repeats errors at each attempt and logs passwords at level DEBUG; the detector logs each error once.
_quiet = logging.getLogger(f"{__name__}.kazoo")
_quiet.setLevel(logging.CRITICAL)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's connection factory; `handle` can abort its connections."""

    def __init__(self, handle: SocketHandle) -> None:
        super().__init__()
        self._handle = handle

    def create_connection(self, address: tuple[str, int], timeout: float, **_: Any) -> Any:
        return connect(address[0], address[1], timeout, self._handle)


def _client(url: ZooKeeperUrl, handle: SocketHandle) -> KazooClient:
    return KazooClient(
        url.servers,
        timeout=SESSION_TIMEOUT,
        handler=_Handler(handle),
        auth_data=[("digest", url.credentials)] if url.credentials else None,
        connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": RETRY_SECONDS},
        logger=_quiet,
    )


class ZooKeeperDetector(Detector):
    """Watch the masters' path in ZooKeeper; wait for ZooKeeper and a leader forever.

    While ZooKeeper does not answer, the last leader counts, because it probably still leads. Each server receives the
    URL's credentials. A denied access is logged and retried.
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
        self._thread.join(_CLOSE_TIMEOUT)
        self._handle.abort()
        self._thread.join(2 * _CLOSE_TIMEOUT)
        if self._thread.is_alive():
            logger.warning("the master detector still waits for a name server; it exits later")

    def _run(self) -> None:
        client = _client(self._url, self._handle)
        client.add_listener(self._changed)
        client.start_async()
        try:
            while not self._stopping:
                self._wake.wait(self._poll(client))
                self._wake.clear()
        finally:
            self._leave(client)

    def _leave(self, client: KazooClient) -> None:
        """End the session, without waiting for a silent server."""
        timer = threading.Timer(_CLOSE_TIMEOUT, self._handle.abort)
        timer.start()
        if not client.connected:
            self._handle.abort()
        try:
            client.stop()
            client.close()
        finally:
            timer.cancel()
            timer.join()

    def _changed(self, _: Any) -> None:
        self._wake.set()

    def _poll(self, client: KazooClient) -> float:
        """Read the leader once; return the seconds until the next poll."""
        if client.state != KazooState.CONNECTED:
            return self._disconnected()
        self._away_since = None
        try:
            self._report(*self._read(client))
        except NoAuthError:
            self._report_error(f"ZooKeeper denies access to {self._url.path}: use other credentials")
        except (KazooException, KazooTimeoutError, ValueError) as error:
            self._report_error(f"{self._url}: {type(error).__name__}: {error}")
        else:
            return POLL_SECONDS
        return RETRY_SECONDS

    def _disconnected(self) -> float:
        now = time.monotonic()
        self._away_since = now if self._away_since is None else self._away_since
        left = self._away_since + OUTAGE_GRACE - now
        if left > 0:
            return left
        self._report_error(f"ZooKeeper {self._url.servers} does not answer")
        return POLL_SECONDS

    def _read(self, client: KazooClient) -> tuple[Leader | None, str]:
        path = self._url.path
        try:
            children = _answer(client.get_children_async(path, watch=self._changed))
        except NoNodeError:
            if _answer(client.exists_async(path, watch=self._changed)) is not None:
                self._wake.set()  # created meanwhile
            return None, f"{self._url}: node does not exist; no master has registered there"
        node = leading_candidate(children)
        if node is None:
            return None, f"{self._url}: no master leads"
        # If the node disappears meanwhile, this raises, and the next poll follows.
        data, _ = _answer(client.get_async(f"{path}/{node}"))
        return decode_leader(data), ""

    def _report(self, leader: Leader | None, reason: str) -> None:
        if leader != self._leader or (leader is None and reason != self._reason):
            logger.info("%s", f"{self._url}: {leader.url('http')} leads" if leader else reason)
            self._on_leader(leader, reason)
        self._leader, self._reason = leader, reason

    def _report_error(self, reason: str) -> None:
        """Log an error once; the last leader still counts."""
        if reason != self._reason and not self._stopping:
            logger.warning("%s", reason)
            if self._leader is None:
                self._on_leader(None, reason)
        self._reason = reason


def _answer(result: Any) -> Any:
    return result.get(timeout=SESSION_TIMEOUT)


def master_addresses(master: str) -> frozenset[str]:
    """Return the IP addresses of all masters, also standbys, of a `--master` value.

    Blocks for up to some seconds. Raises OSError if ZooKeeper or DNS fails, ValueError for an invalid value.
    """
    if ZooKeeperUrl.is_zookeeper(master):
        registered = _registered(ZooKeeperUrl.parse(master))
        return resolve_hosts(each.ip or each.hostname for each in registered)
    return resolve_hosts(urlsplit(url).hostname or "" for url in parse_masters(master))


def _registered(url: ZooKeeperUrl) -> list[Leader]:
    """Return the leader and the standbys. Raises OSError."""
    client, registered = _client(url, SocketHandle()), []
    try:
        client.start(timeout=SESSION_TIMEOUT / 2)
        for name in candidates(client.get_children(url.path)).values():
            with suppress(NoNodeError, ValueError):  # gone meanwhile, or another program's
                registered.append(decode_leader(client.get(f"{url.path}/{name}")[0]))
    except (KazooException, KazooTimeoutError) as error:
        raise OSError(f"{url}: {type(error).__name__}: {error}") from error
    finally:
        client.stop()
        client.close()
    return registered
