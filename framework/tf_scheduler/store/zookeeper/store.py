"""ZooKeeperStore: the state store in ZooKeeper; the package describes its nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from operator import methodcaller
from types import MappingProxyType

from kazoo.exceptions import KazooException, NoAuthError, NoNodeError

from tf_scheduler.store import interface

from . import layout
from .address import ZooKeeperAddress
from .commit import Commit, CommitOutcome, HeadVersion, ServiceTree, read_state
from .layout import Head
from .leadership import ZooKeeperLeadership
from .session import Deadline, ZooKeeperSession

log = logging.getLogger(__name__)

_CLEANUP_TIMEOUT = 5.0  # seconds


def collect_garbage(tree: ServiceTree, session: ZooKeeperSession, head: Head) -> None:
    """Remove nodes that `head` does not need; after a failure, a later call retries."""
    try:
        for path in list(_garbage(tree, session, head, Deadline(_CLEANUP_TIMEOUT))):
            session.send(methodcaller("delete_async", path))
    except (KazooException, interface.StoreError):
        log.debug("removing unused nodes of %s failed", tree.describe(tree.path), exc_info=True)


def remove_nodes(tree: ServiceTree, session: ZooKeeperSession, seen: HeadVersion, leader_nodes: Sequence[str]) -> None:
    """Remove an erased service's nodes and `leader_nodes`, unless it is reinstalled.

    Nodes that this client may not remove stay, but are empty.
    """
    deadline = Deadline(_CLEANUP_TIMEOUT)
    try:
        if seen.head is not None:
            session.ask(lambda client: client.delete_async(tree.head, seen.version), deadline)
        for name in _children(session, tree.path, deadline):
            if name.startswith(layout.state_folder("")):
                _remove_folder(session, f"{tree.path}/{name}", deadline)
        for path in (*leader_nodes, tree.path):
            session.ask(methodcaller("delete_async", path), deadline)
    except (KazooException, interface.StoreError) as error:
        log.info("%s is empty but could not be removed: %r", tree.describe(tree.path), error)


def _remove_folder(session: ZooKeeperSession, path: str, deadline: Deadline) -> None:
    for name in _children(session, path, deadline):
        session.ask(methodcaller("delete_async", f"{path}/{name}"), deadline)
    session.ask(methodcaller("delete_async", path), deadline)


def _garbage(tree: ServiceTree, session: ZooKeeperSession, head: Head, deadline: Deadline) -> Iterator[str]:
    current = tree.folder(head)
    for name in _children(session, current, deadline):
        if layout.is_garbage(name, head):
            yield f"{current}/{name}"
    # Left by an incomplete first change, or from before someone removed the tree.
    for name in _children(session, tree.path, deadline):
        folder = f"{tree.path}/{name}"
        if name.startswith(layout.state_folder("")) and folder != current:
            yield from (f"{folder}/{child}" for child in _children(session, folder, deadline))
            yield folder


def _children(session: ZooKeeperSession, path: str, deadline: Deadline) -> list[str]:
    names: list[str] = session.ask(lambda client: client.get_children_async(path), deadline)
    return names


def is_world_accessible(address: ZooKeeperAddress, service: str, timeout: float) -> bool | None:
    """Whether every client can access the service's node; None: the node is missing.

    Connects without credentials. Raises as the constructor of ZooKeeperStore does.
    """
    anonymous = replace(address, credentials="", request_timeout=timeout, session_timeout=timeout)
    with closing(ZooKeeperSession(anonymous)) as session:
        path = ServiceTree(session, interface.service_key(service)).path
        with session.translate_errors():
            try:
                acls, _ = session.ask(lambda client: client.get_acls_async(path), Deadline(timeout))
            except NoNodeError:
                return None
            except NoAuthError:  # newer servers show the list to its owners only
                return False
    return any(acl.id.scheme == "world" for acl in acls)


#: Bytes that the request for an entry counts for, in addition to the entry's size.
_ENTRY_COST = 1024
#: Entries are merged into a new snapshot when they cost more bytes than this, and more than the last snapshot has.
_MIN_LOG_COST = 256 * 1024


class ZooKeeperStore:
    """SharedStateStore in the ZooKeeper at `address`, with leader election.

    The first change creates its nodes. Raises InvalidKeyError for an invalid service name, StoreUnavailableError if no
    server answers within `address.request_timeout`, StoreError for unusable TLS files.
    """

    def __init__(self, address: ZooKeeperAddress, service: str) -> None:
        self._service = interface.service_key(service)
        self._session: ZooKeeperSession | None = ZooKeeperSession(address)
        self._tree = ServiceTree(self._session, self._service)
        self._leadership: ZooKeeperLeadership | None = None
        self._seen: HeadVersion | None = None
        self._values: dict[str, bytes] = {}
        self._log_cost = 0
        #: Version on which a commit without an answer may still act.
        self._unconfirmed: int | None = None
        self._removed = False

    @property
    def place(self) -> str:
        return self._tree.describe(self._tree.path)

    def is_open(self) -> bool:
        session, deadline = self._open()
        try:
            acls, _ = session.ask(methodcaller("get_acls_async", self._tree.path), deadline)
        except (NoNodeError, NoAuthError):
            acls = session.acl
        return any(acl.id.scheme == "world" for acl in acls)

    def load(self) -> Mapping[str, bytes]:
        session, deadline = self._open()
        with session.translate_errors():
            state = read_state(self._tree, session, deadline)
            if self._unconfirmed is not None and state.seen.version == self._unconfirmed:
                # The lost commit must not act after its absence is reported.
                self._tree.invalidate(state.seen, deadline)
                state = read_state(self._tree, session, deadline)
        self._seen, self._unconfirmed = state.seen, None
        self._values, self._log_cost = dict(state.values), sum(_ENTRY_COST + size for size in state.entry_sizes)
        return MappingProxyType(state.values)

    def apply(self, writes: Sequence[interface.Write]) -> None:
        if not writes:
            seen, (session, deadline) = self._loaded(), self._open()
            with session.translate_errors():
                self._raise_unless_stored(self._tree.check(seen, deadline))
            return
        after = dict(self._values)
        layout.apply_writes(after, writes)
        entry = layout.encode_writes(writes)
        seen, cost = self._loaded(), self._log_cost + _ENTRY_COST + len(entry)
        if len(entry) > layout.NODE_LIMIT or cost > max(_MIN_LOG_COST, seen.snapshot_size):
            self._store_snapshot(after)
        else:
            self._store(Commit.of_entry(seen, entry))
            self._log_cost = cost
        self._values = after

    def erase(self) -> None:
        self._store_snapshot({})
        self._values = {}

    def remove(self) -> None:
        self.erase()
        self._removed = True

    def close(self) -> None:
        if self._leadership is not None:
            self._leadership.stop()
        if self._session is not None:
            if self._removed:
                remove_nodes(
                    self._tree, self._session, self._loaded(), self._leadership.nodes if self._leadership else ()
                )
            self._session.close()
        self._session = None

    def lead(
        self, *, timeout: float | None = None, waiting: Callable[[str], None] | None = None
    ) -> ZooKeeperLeadership:
        session, deadline = self._open()
        leadership = ZooKeeperLeadership(session, self._tree.path)
        with session.translate_errors():
            self._tree.ensure(deadline)
            leadership.acquire(timeout, waiting)
        self._leadership = leadership
        self._tree.guard = leadership.node
        self._seen = None
        return leadership

    def _open(self) -> tuple[ZooKeeperSession, Deadline]:
        if self._session is None:
            raise interface.StoreError(f"the store of service {self._service} is closed")
        return self._session, Deadline(self._session.address.request_timeout)

    def _loaded(self) -> HeadVersion:
        """Return the last loaded head. Raises StoreConflictError if nothing is loaded."""
        self._open()
        if self._seen is None:
            raise interface.conflict_error(self._service, self._tree.address, is_loaded=False)
        return self._seen

    def _store_snapshot(self, values: Mapping[str, bytes]) -> None:
        parts = layout.split(layout.encode_writes(map(interface.Put, values, values.values()))) if values else ()
        commit = Commit.of_snapshot(self._loaded(), parts)
        self._store(commit)
        self._log_cost = 0
        collect_garbage(self._tree, self._open()[0], commit.head)

    def _store(self, commit: Commit) -> None:
        session, deadline = self._open()
        try:
            with session.translate_errors():
                self._raise_unless_stored(self._tree.commit(commit, deadline))
        except interface.StoreUnavailableError as error:
            if not commit.sent:
                raise
            self._seen, self._unconfirmed = None, commit.seen.version
            raise interface.StoreConflictError(
                f"{error}; the last change may be stored or not; load the state again"
            ) from error
        self._seen = commit.after

    def _raise_unless_stored(self, outcome: CommitOutcome) -> None:
        if outcome is CommitOutcome.NO_LEADER:
            raise interface.LeadershipLostError(f"this scheduler no longer leads service {self._service}")
        if outcome is CommitOutcome.CONFLICT:
            raise interface.conflict_error(self._service, self._tree.address, is_loaded=True)
