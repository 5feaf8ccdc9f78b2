"""One live scheduler per service: who leads, for how long it may be sure of it, and who waits.

The leader has two ephemeral nodes, `lock` and `leader-<token>`, made in one step. They go when its session ends, and
ZooKeeper ends a session one session timeout after it last heard from it. So the leader may act until two thirds of
that time after it *sent* the last request that a majority answered (a server that is cut off from the others answers
reads, but not this request); the third that is left is more than what servers take to tell each other of sessions (half
a tick; a session timeout is two ticks or more). The clock counts while the machine sleeps or the process is frozen.

A standby watches `lock` and takes over when it goes: at once when the leader ends well, else when its session ends.
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

from tf_scheduler.store.interface import LeadershipLost, StoreError, StoreUnavailable

from . import layout
from .session import Deadline, Session, Unanswered

log = logging.getLogger(__name__)

#: Of the session timeout: how long a leader may act on one answer, and how often it asks.
_SURE, _OFTEN = 2 / 3, 1 / 8
_AGAIN = 0.05  # seconds between two attempts after one without an answer
_FOR_EVER = 365 * 24 * 3600.0


def _now() -> float:
    """Seconds; goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leadership:
    """The Leadership of the service whose node is `path`. Made by ZooKeeperStore.lead."""

    def __init__(self, session: Session, path: str) -> None:
        self._session = session
        self._token = uuid.uuid4().hex
        self._lock = f"{path}/{layout.LOCK}"
        self.node = f"{path}/{layout.leader_name(self._token)}"
        self._until = 0.0
        self._changed, self._ended = threading.Event(), threading.Event()
        self._state = threading.Lock()
        self._reason: str | None = None
        self._callbacks: list[Callable[[str], None]] = []
        self._keeper = threading.Thread(target=self._keep, name="leadership", daemon=True)

    def check(self) -> None:
        if self._reason is None and _now() >= self._until:
            self._lose("ZooKeeper was not heard from in time")
        if self._reason is not None:
            raise LeadershipLost(f"this scheduler leads no more: {self._reason}")

    def on_lost(self, callback: Callable[[str], None]) -> None:
        with self._state:
            if self._reason is None:
                self._callbacks.append(callback)
                return
            reason = self._reason
        callback(reason)

    def acquire(self, timeout: float | None, waiting: Callable[[str], None] | None) -> None:
        """Lead, as soon as nobody else does. Raises StoreUnavailable after `timeout` seconds (None: for ever)."""
        deadline = Deadline(_FOR_EVER if timeout is None else timeout)
        told = ""
        while (holder := self._try(deadline)) is not None:
            if waiting is not None and holder != told:
                waiting(holder)
                told = holder
            # A watch may get lost with a session: look again once in a while.
            if not self._changed.wait(min(deadline.left, self._session.place.session_timeout)) and deadline.left == 0:
                raise StoreUnavailable(f"another scheduler leads this service: {holder}")
        self._session.on_expired(lambda: self._lose("its session with ZooKeeper has ended"))
        self._keeper.start()

    @property
    def nodes(self) -> tuple[str, str]:
        """Those that exist as long as it lasts."""
        return self._lock, self.node

    def stop(self) -> None:
        """Give it up; the nodes go with the session, which the caller closes next. May be called again."""
        with self._state:
            self._reason = self._reason or "it was given up"
        self._ended.set()
        if self._keeper.is_alive():
            self._keeper.join()

    def _try(self, deadline: Deadline) -> str | None:
        """None if we lead now; else who does, and `_changed` is set when that may be another."""
        while True:
            try:
                ours = self._created(deadline) or self._owned(deadline)
                if ours and self._confirmed(deadline):
                    return None
            except Unanswered:
                self._session.pause(deadline)
                continue
            self._changed.clear()
            # The same method each time: kazoo keeps a set of them.
            lock = self._session.ask(lambda client: client.exists_async(self._lock, watch=self._on_change), deadline)
            holder = None if lock is None else self._holder(deadline)
            if holder is not None:
                return holder

    def _created(self, deadline: Deadline) -> bool:
        results = self._session.submit(self._create, deadline)
        for result in results:
            _raise_unexpected(result)
        return not any(isinstance(result, Exception) for result in results)

    def _owned(self, deadline: Deadline) -> bool:
        """Whether our node is there and belongs to this session: an earlier attempt got no answer, but acted."""
        stat = self._session.ask(lambda client: client.exists_async(self.node), deadline)
        return stat is not None and stat.ephemeralOwner == self._session.number

    def _on_change(self, _: object) -> None:
        self._changed.set()

    def _create(self, client: Any) -> Any:
        who = {"host": socket.gethostname(), "process": os.getpid(), "since": round(time.time())}
        transaction = client.transaction()
        for node in (self._lock, self.node):
            transaction.create(node, json.dumps(who).encode(), acl=self._session.acl, ephemeral=True)
        return transaction.commit_async()

    def _holder(self, deadline: Deadline) -> str | None:
        try:
            data, _ = self._session.ask(lambda client: client.get_async(self._lock), deadline)
        except NoNodeError:
            return None
        try:
            who = json.loads(data)
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(who["since"]))
            return f"process {who['process']} on {who['host']}, since {since}"
        except (ValueError, KeyError, TypeError):
            return f"unknown: {data!r}"

    def _keep(self) -> None:
        """The keeper's thread: asks again and again whether we lead."""
        interval = self._session.timeout * _OFTEN
        while self._reason is None and not self._ended.wait(interval):
            self._renew()

    def _renew(self) -> None:
        try:
            if not self._confirmed(Deadline(self._until - _now())):
                self._lose("its node in ZooKeeper was removed")
        except Unanswered:
            self._ended.wait(_AGAIN)
        except (StoreError, KazooException) as error:
            self._lose(str(error))
        if _now() >= self._until:
            self._lose("ZooKeeper was not heard from in time")

    def _confirmed(self, deadline: Deadline) -> bool:
        """Ask a majority whether our node is there; if so we lead for some time from now. Raises as submit does."""
        sent = _now()
        results = self._session.submit(self._confirm, deadline)
        if any(isinstance(result, Exception) for result in results):
            return False
        self._until = sent + self._session.timeout * _SURE
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
        log.error("the leadership is lost: %s", reason)
        for callback in self._callbacks:
            callback(reason)


def _raise_unexpected(result: Any) -> None:
    expected = (NodeExistsError, RolledBackError, RuntimeInconsistency)
    if isinstance(result, Exception) and not isinstance(result, expected):
        raise result
