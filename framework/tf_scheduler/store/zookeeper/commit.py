"""Read and change the state in ZooKeeper with one compare-and-set per decision."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from operator import methodcaller
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, RolledBackError, RuntimeInconsistency
from kazoo.security import OPEN_ACL_UNSAFE

from tf_scheduler.store.interface import StoreCorruptError

from . import layout
from .layout import Head
from .session import Deadline, ZooKeeperSession, ZooKeeperTimeoutError


@dataclass(frozen=True, slots=True)
class HeadVersion:
    """Content and version of `head` as last read; a writer's next change needs both."""

    #: None before the first change.
    head: Head | None
    #: Data version of `head`; -1 if it does not exist.
    version: int
    #: Bytes.
    snapshot_size: int = 0


@dataclass(frozen=True, slots=True)
class LoadedState:
    """A consistent state, as loaded from ZooKeeper."""

    seen: HeadVersion
    values: Mapping[str, bytes]
    #: Bytes of each entry.
    entry_sizes: Sequence[int]


def read_head(tree: ServiceTree, session: ZooKeeperSession, deadline: Deadline) -> HeadVersion:
    """Return the current head; `sync` makes a server that lags behind catch up first."""
    session.ask(lambda client: client.sync_async(tree.path), deadline)
    try:
        data, stat = session.ask(lambda client: client.get_async(tree.head), deadline)
    except NoNodeError:
        return HeadVersion(None, -1)
    return HeadVersion(layout.decode_head(data, tree.describe(tree.head)), stat.version)


def read_state(tree: ServiceTree, session: ZooKeeperSession, deadline: Deadline) -> LoadedState:
    """Return the current state; retry if a new snapshot removes nodes during the read."""
    while True:
        seen = read_head(tree, session, deadline)
        if seen.head is None:
            return LoadedState(seen, {}, ())
        try:
            return _assembled(tree, seen, seen.head, session, deadline)
        except NoNodeError:
            if read_head(tree, session, deadline).version == seen.version:
                raise StoreCorruptError(
                    f"nodes below {tree.describe(tree.folder(seen.head))} are missing; {layout.REMEDY}"
                ) from None


def _assembled(
    tree: ServiceTree, seen: HeadVersion, head: Head, session: ZooKeeperSession, deadline: Deadline
) -> LoadedState:
    parts, entries = head.names()
    folder = tree.folder(head)
    requests = [methodcaller("get_async", f"{folder}/{name}") for name in (*parts, *entries)]
    answers = session.ask_all(requests, deadline)
    contents = [data for data, _ in answers]
    snapshot, log = b"".join(contents[: len(parts)]), contents[len(parts) :]
    values: dict[str, bytes] = {}
    if snapshot:
        layout.apply_writes(values, layout.decode_writes(snapshot, tree.describe(f"{folder}/{parts[0]}")))
    for name, entry in zip(entries, log, strict=True):
        layout.apply_writes(values, layout.decode_writes(entry, tree.describe(f"{folder}/{name}")))
    return LoadedState(HeadVersion(head, seen.version, len(snapshot)), values, [len(entry) for entry in log])


class CommitOutcome(Enum):
    """Outcome of a change."""

    STORED = "stored"
    CONFLICT = "conflict"
    NO_LEADER = "no leader"


@dataclass(slots=True)
class Commit:
    """One change: the new head, and the entry or snapshot parts that it names."""

    seen: HeadVersion
    head: Head
    entry: bytes | None = None
    parts: Sequence[bytes] = ()
    #: Whether the change was sent and not answered: ZooKeeper may have made it, or may still make it.
    sent: bool = False

    @classmethod
    def of_entry(cls, seen: HeadVersion, entry: bytes) -> Commit:
        """Return a change that adds an entry."""
        return cls(seen, _next(seen), entry=entry)

    @classmethod
    def of_snapshot(cls, seen: HeadVersion, parts: Sequence[bytes]) -> Commit:
        """Return a change that replaces the state by a snapshot; no parts: an empty state."""
        head = _next(seen)
        return cls(seen, replace(head, snapshot=head.last, token=_unique(), parts=len(parts)), parts=parts)

    @property
    def after(self) -> HeadVersion:
        """The head after this change."""
        size = sum(map(len, self.parts)) if self.entry is None else self.seen.snapshot_size
        return HeadVersion(self.head, self.seen.version + 1, size)


def _next(seen: HeadVersion) -> Head:
    before = seen.head or Head(_unique()[:12])
    return replace(before, last=before.last + 1, change=_unique(), writer=f"{socket.gethostname()} {os.getpid()}")


def _unique() -> str:
    return uuid.uuid4().hex


class ServiceTree:
    """Nodes of a service. Each change requires `guard`, the leader's node, if set."""

    def __init__(self, session: ZooKeeperSession, service: str) -> None:
        self._session = session
        self.address = session.address
        self.path = f"{session.address.chroot}/{layout.service_folder(service)}"
        self.head = f"{self.path}/{layout.HEAD}"
        self.guard: str | None = None

    def folder(self, head: Head) -> str:
        """Return the parent of the entries and parts."""
        return f"{self.path}/{layout.state_folder(head.incarnation)}"

    def describe(self, path: str) -> str:
        """Return a text for messages that names a node and its ZooKeeper."""
        return f"{path} in {self.address}"

    def ensure(self, deadline: Deadline) -> None:
        """Create the service's node and its parents, if missing."""
        names = self.path.strip("/").split("/")
        for count in range(1, len(names) + 1):
            # Parent nodes are shared with other services.
            self._make(f"/{'/'.join(names[:count])}", deadline, own=count == len(names))

    def commit(self, commit: Commit, deadline: Deadline) -> CommitOutcome:
        """Make the change. Raises StoreUnavailableError.

        If `commit.sent` is then set, ZooKeeper may still make the change.
        """
        folder = self.folder(commit.head)
        if commit.seen.head is None or commit.seen.head.last == 0:
            self.ensure(deadline)
            self._make(folder, deadline)
        for index, part in enumerate(commit.parts):
            name = layout.part_name(commit.head.snapshot, commit.head.token, index)
            self._make(f"{folder}/{name}", deadline, part)
        while True:
            try:
                results = self._session.submit(lambda client: self._transaction(client, commit), deadline)
                return self._outcome(commit, results, deadline)
            except ZooKeeperTimeoutError:
                commit.sent = True
                self._session.pause(deadline)

    def check(self, seen: HeadVersion, deadline: Deadline) -> CommitOutcome:
        """Return the outcome that a change would have now, but do not change anything."""
        if seen.head is None and read_head(self, self._session, deadline).head is not None:
            return CommitOutcome.CONFLICT
        if seen.head is None and self.guard is None:
            return CommitOutcome.STORED

        def submit(client: Any) -> Any:
            transaction = self._guarded(client)
            if seen.head is not None:
                transaction.check(self.head, seen.version)
            return transaction.commit_async()

        results = self._session.ask(submit, deadline)
        return _outcome_of(results, guarded=self.guard is not None)

    def invalidate(self, seen: HeadVersion, deadline: Deadline) -> None:
        """Set `head` without a change of the state, so that every pending change fails."""
        head = replace(seen.head or Head(_unique()[:12]), change=_unique())
        if seen.head is None:
            self.ensure(deadline)
        results = self._session.ask(lambda client: self._set_head(client, seen, head).commit_async(), deadline)
        _outcome_of(results, guarded=self.guard is not None)

    def _make(self, path: str, deadline: Deadline, data: bytes = b"", *, own: bool = True) -> None:
        acl = self._session.acl if own else OPEN_ACL_UNSAFE
        # Check first: creating an existing node needs rights on its parent, which the user may lack.
        if self._session.ask(lambda client: client.exists_async(path), deadline) is not None:
            return
        try:
            self._session.ask(lambda client: client.create_async(path, data, acl=acl), deadline)
        except NodeExistsError:
            return

    def _transaction(self, client: Any, commit: Commit) -> Any:
        transaction = self._set_head(client, commit.seen, commit.head)
        folder = self.folder(commit.head)
        if commit.entry is not None:
            transaction.create(f"{folder}/{layout.entry_name(commit.head.last)}", commit.entry, acl=self._session.acl)
        else:
            # Only an operator can have removed the parts.
            for name in commit.head.names()[0]:
                transaction.check(f"{folder}/{name}", 0)
            transaction.check(folder, 0)
        return transaction.commit_async()

    def _set_head(self, client: Any, seen: HeadVersion, head: Head) -> Any:
        transaction = self._guarded(client)
        data = layout.encode_head(head)
        if seen.head is None:
            transaction.create(self.head, data, acl=self._session.acl)
        else:
            transaction.set_data(self.head, data, seen.version)
        return transaction

    def _guarded(self, client: Any) -> Any:
        transaction = client.transaction()
        if self.guard is not None:
            transaction.check(self.guard, 0)
        return transaction

    def _outcome(self, commit: Commit, results: Sequence[Any], deadline: Deadline) -> CommitOutcome:
        outcome = _outcome_of(results, guarded=self.guard is not None)
        if outcome is not CommitOutcome.STORED and commit.sent:
            now = read_head(self, self._session, deadline).head
            if now is not None and now.change == commit.head.change:
                return CommitOutcome.STORED
        return outcome


def _outcome_of(results: Sequence[Any], *, guarded: bool) -> CommitOutcome:
    """Return the outcome of a multi-operation; raise errors other than a conflict."""
    for index, result in enumerate(results):
        if isinstance(result, (RolledBackError, RuntimeInconsistency)) or not isinstance(result, Exception):
            continue
        if not isinstance(result, (BadVersionError, NoNodeError, NodeExistsError)):
            raise result
        return CommitOutcome.NO_LEADER if guarded and index == 0 else CommitOutcome.CONFLICT
    return CommitOutcome.STORED
