"""Changes the state: one compare-and-set of `head` per decision, sent until its outcome is known."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.security import OPEN_ACL_UNSAFE

from . import layout
from .layout import Head
from .reading import Seen, read_head
from .session import Deadline, Session, Unanswered


class Outcome(Enum):
    """What became of a change."""

    STORED = "stored"
    CONFLICT = "conflict"
    NO_LEADER = "no leader"


@dataclass(slots=True)
class Commit:
    """One change: the head that it sets, and what that head names in addition."""

    seen: Seen
    head: Head
    entry: bytes | None = None
    parts: Sequence[bytes] = ()
    #: Whether it was sent and not answered: then it may have acted, or may yet.
    sent: bool = False

    @classmethod
    def of_entry(cls, seen: Seen, entry: bytes) -> Commit:
        """One more entry."""
        return cls(seen, _next(seen), entry=entry)

    @classmethod
    def of_snapshot(cls, seen: Seen, parts: Sequence[bytes]) -> Commit:
        """A new snapshot in the place of all that there was; no parts: nothing."""
        head = _next(seen)
        return cls(seen, replace(head, snapshot=head.last, token=_unique(), parts=len(parts)), parts=parts)

    @property
    def after(self) -> Seen:
        """What the next change builds on, when this one is stored."""
        size = sum(map(len, self.parts)) if self.entry is None else self.seen.snapshot_size
        return Seen(self.head, self.seen.version + 1, layout.SCHEMA, size)


def _next(seen: Seen) -> Head:
    before = seen.head or Head(_unique()[:12])
    return replace(before, last=before.last + 1, change=_unique(), writer=f"{socket.gethostname()} {os.getpid()}")


def _unique() -> str:
    return uuid.uuid4().hex


class Tree:
    """The nodes of one service. `guard`: a node that must exist for every change, when there is a leadership."""

    def __init__(self, session: Session, service: str) -> None:
        self._session = session
        self.place = session.place
        self.path = f"{session.place.chroot}/{layout.service_folder(service)}"
        self.head = f"{self.path}/{layout.HEAD}"
        self.guard: str | None = None

    def folder(self, head: Head) -> str:
        """Path of the entries and parts."""
        return f"{self.path}/{layout.state_folder(head.incarnation)}"

    def describe(self, path: str) -> str:
        """A node for messages."""
        return f"{path} in {self.place}"

    def ensure(self, deadline: Deadline) -> None:
        """Make the service's own node, and those above it, where they are missing."""
        names = self.path.strip("/").split("/")
        for count in range(1, len(names) + 1):
            # What lies above the service is not ours alone.
            self._make(f"/{'/'.join(names[:count])}", deadline, own=count == len(names))

    def commit(self, commit: Commit, deadline: Deadline) -> Outcome:
        """Make the change. Raises StoreUnavailable when the time is over: see then whether it was sent."""
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
            except Unanswered:
                commit.sent = True
                self._session.pause(deadline)

    def check(self, seen: Seen, deadline: Deadline) -> Outcome:
        """Whether a change could be made, without making one."""
        if seen.head is None and read_head(self, self._session, deadline).head is not None:
            return Outcome.CONFLICT
        if seen.head is None and self.guard is None:
            return Outcome.STORED
        results = self._session.ask(lambda client: self._checks(client, seen).commit_async(), deadline)
        return _judged(results, guarded=self.guard is not None)

    def bar(self, seen: Seen, deadline: Deadline) -> None:
        """Set `head` without changing the state, so that no change on what was seen can act any more."""
        head = replace(seen.head or Head(_unique()[:12]), change=_unique())
        if seen.head is None:
            self.ensure(deadline)
        results = self._session.ask(lambda client: self._set_head(client, seen, head).commit_async(), deadline)
        _judged(results, guarded=self.guard is not None)

    def _make(self, path: str, deadline: Deadline, data: bytes = b"", *, own: bool = True) -> None:
        acl = self._session.acl if own else OPEN_ACL_UNSAFE
        # Asked for first: to create what exists takes rights above it that we need not have.
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
            # Nobody removes them but an operator; then there is nothing that `head` could name.
            for name in commit.head.names()[0]:
                transaction.check(f"{folder}/{name}", 0)
            transaction.check(folder, 0)
        return transaction.commit_async()

    def _set_head(self, client: Any, seen: Seen, head: Head) -> Any:
        transaction = self._guarded(client)
        data = layout.encode_head(head)
        if seen.head is None:
            transaction.create(self.head, data, acl=self._session.acl)
        else:
            transaction.set_data(self.head, data, seen.version)
        return transaction

    def _checks(self, client: Any, seen: Seen) -> Any:
        transaction = self._guarded(client)
        if seen.head is not None:
            transaction.check(self.head, seen.version)
        return transaction

    def _guarded(self, client: Any) -> Any:
        transaction = client.transaction()
        if self.guard is not None:
            transaction.check(self.guard, 0)
        return transaction

    def _outcome(self, commit: Commit, results: Sequence[Any], deadline: Deadline) -> Outcome:
        outcome = _judged(results, guarded=self.guard is not None)
        if outcome is not Outcome.STORED and commit.sent:
            now = read_head(self, self._session, deadline).head
            if now is not None and now.change == commit.head.change:
                return Outcome.STORED
        return outcome


def _judged(results: Sequence[Any], *, guarded: bool) -> Outcome:
    """The outcome of a multi-operation; raises what is neither a success nor somebody else's change."""
    for index, result in enumerate(results):
        if isinstance(result, (RolledBackError, RuntimeInconsistency)) or not isinstance(result, Exception):
            continue
        if not isinstance(result, (BadVersionError, NoNodeError, NodeExistsError)):
            raise result
        return Outcome.NO_LEADER if guarded and index == 0 else Outcome.CONFLICT
    return Outcome.STORED
