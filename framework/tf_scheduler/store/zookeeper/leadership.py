"""Leader election in ZooKeeper: one live scheduler per service, with standbys.

The leader owns two ephemeral nodes, `lock` and `leader-<token>`, created in one step. ZooKeeper removes them when it
ends the session, one session timeout after the last contact. The leader may act until two thirds of that time after it
*sent* the last request that a majority confirmed (an isolated server answers reads, but not this request). Servers
synchronize sessions within half a tick. The remaining third is longer than that, because a session timeout is at least
two ticks. The clock also counts while the machine sleeps or the process is frozen.

A standby watches `lock` and takes over when it disappears: immediately after a clean exit, else at the session's end.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency

from tf_scheduler.store.interface import LeadershipLostError, StoreError, StoreUnavailableError

from . import layout
from .session import Deadline, ZooKeeperSession, ZooKeeperTimeoutError

log = logging.getLogger(__name__)

#: Fractions of the session timeout: validity of one confirmation, interval between two.
_LEASE, _RENEWAL = 2 / 3, 1 / 8
_RETRY_DELAY = 0.05  # seconds after an attempt without an answer
_UNLIMITED = 365 * 24 * 3600.0


def _now() -> float:
    """Return seconds of a clock that counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ZooKeeperLeadership:
    """Leadership of the service at node `path`, created by ZooKeeperStore.lead."""

    def __init__(self, session: ZooKeeperSession, path: str) -> None:
        self._session = session
        self._token = uuid.uuid4().hex
        self._lock = f"{path}/{layout.LOCK}"
        self.node = f"{path}/leader-{self._token}"  # exists while this leader leads
        self._lease_end = 0.0
        self._changed, self._ended = threading.Event(), threading.Event()
        self._state = threading.Lock()
        self._reason: str | None = None
        self._callbacks: list[Callable[[str], None]] = []
        self._thread = threading.Thread(target=self._run, name="leadership", daemon=True)

    def check(self) -> None:
        if self._reason is None and _now() >= self._lease_end:
            self._lose("ZooKeeper did not answer in time")
        if self._reason is not None:
            raise LeadershipLostError(f"this scheduler is no longer the leader: {self._reason}")

    def on_lost(self, callback: Callable[[str], None]) -> None:
        with self._state:
            if self._reason is None:
                self._callbacks.append(callback)
                return
            reason = self._reason
        callback(reason)

    def acquire(self, timeout: float | None, waiting: Callable[[str], None] | None) -> None:
        """Wait to lead. Raises StoreUnavailableError after `timeout` s (None: unlimited)."""
        deadline = Deadline(_UNLIMITED if timeout is None else timeout)
        reported = ""
        while (holder := self._try(deadline)) is not None:
            if waiting is not None and holder != reported:
                waiting(holder)
                reported = holder
            # A watch may get lost with a session: poll as well.
            if not self._changed.wait(min(deadline.left, self._session.address.session_timeout)) and deadline.left == 0:
                raise StoreUnavailableError(f"another scheduler leads this service: {holder}")
        self._session.on_expired(lambda: self._lose("the ZooKeeper session has expired"))
        self._thread.start()

    @property
    def nodes(self) -> tuple[str, str]:
        """The leader's ephemeral nodes."""
        return self._lock, self.node

    def stop(self) -> None:
        """Resign. The caller then closes the session, which removes the nodes. Idempotent."""
        with self._state:
            self._reason = self._reason or "it has resigned"
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _try(self, deadline: Deadline) -> str | None:
        """Try to lead; return None, or the present leader, whose loss sets `_changed`."""
        while True:
            try:
                is_owner = self._created(deadline) or self._owned(deadline)
                if is_owner and self._confirmed(deadline):
                    return None
            except ZooKeeperTimeoutError:
                self._session.pause(deadline)
                continue
            self._changed.clear()
            # The same method each time: kazoo keeps the watchers of a node as a set.
            lock = self._session.ask(lambda client: client.exists_async(self._lock, watch=self._on_change), deadline)
            holder = None if lock is None else self._holder(deadline)
            if holder is not None:
                return holder

    def _created(self, deadline: Deadline) -> bool:
        failures = [result for result in self._session.submit(self._create, deadline) if isinstance(result, Exception)]
        for failure in failures:
            if not isinstance(failure, (NodeExistsError, RolledBackError, RuntimeInconsistency)):
                raise failure
        return not failures

    def _owned(self, deadline: Deadline) -> bool:
        """Whether this session owns the leader node; an unanswered attempt can create it."""
        stat = self._session.ask(lambda client: client.exists_async(self.node), deadline)
        return stat is not None and stat.ephemeralOwner == self._session.number

    def _on_change(self, _: object) -> None:
        self._changed.set()

    def _create(self, client: Any) -> Any:
        leader = {"host": socket.gethostname(), "process": os.getpid(), "since": round(time.time())}
        transaction = client.transaction()
        for node in (self._lock, self.node):
            transaction.create(node, json.dumps(leader).encode(), acl=self._session.acl, ephemeral=True)
        return transaction.commit_async()

    def _holder(self, deadline: Deadline) -> str | None:
        try:
            data, _ = self._session.ask(lambda client: client.get_async(self._lock), deadline)
        except NoNodeError:
            return None
        try:
            leader = json.loads(data)
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(leader["since"]))
            return f"process {leader['process']} on {leader['host']}, since {since}"
        except (ValueError, KeyError, TypeError):
            return f"unknown: {data!r}"

    def _run(self) -> None:
        interval = self._session.timeout * _RENEWAL
        while self._reason is None and not self._ended.wait(interval):
            self._renew()

    def _renew(self) -> None:
        try:
            if not self._confirmed(Deadline(self._lease_end - _now())):
                self._lose("the leader node in ZooKeeper was removed")
        except ZooKeeperTimeoutError:
            self._ended.wait(_RETRY_DELAY)
        except (StoreError, KazooException) as error:
            self._lose(str(error))
        if _now() >= self._lease_end:
            self._lose("ZooKeeper did not answer in time")

    def _confirmed(self, deadline: Deadline) -> bool:
        """Extend the lease if a majority has the leader node. Raises as `submit` does."""
        sent = _now()
        results = self._session.submit(self._confirm, deadline)
        if any(isinstance(result, Exception) for result in results):
            return False
        self._lease_end = sent + self._session.timeout * _LEASE
        return True

    def _confirm(self, client: Any) -> Any:
        transaction = client.transaction()
        transaction.check(self.node, 0)
        return transaction.commit_async()

    def _lose(self, reason: str) -> None:
        with self._state:
            if self._reason is not None:
                return
            self._reason = reason
        log.error("leadership lost: %s", reason)
        for callback in self._callbacks:
            callback(reason)
