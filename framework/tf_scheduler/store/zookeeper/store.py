"""ZooKeeperStore: the state store on a ZooKeeper. The package's docstring has the node tree and the idea."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from tf_scheduler.store.interface import (
    LeadershipLost,
    StoreConflict,
    StoreError,
    StoreUnavailable,
    Write,
    service_key,
)

from . import layout
from .commit import Commit, Outcome, Tree
from .leadership import Leadership
from .place import ZooKeeperPlace
from .reading import Seen, read
from .session import Deadline, Session
from .sweeping import remove, sweep

#: What an entry costs the next load beside its bytes, in bytes: a request of its own.
_ENTRY_COST = 1024
#: Entries may cost as much as the snapshot before they are merged into a new one, and always this much.
_LOG_LEAST = 256 * 1024


class ZooKeeperStore:
    """A StateStore in the ZooKeeper at `place`, with the leadership of the service.

    Raises InvalidKeyError for a bad service name, StoreUnavailable when no server answers within
    `place.request_timeout`, StoreError for TLS files that cannot be used. Nothing is created before the first change.
    """

    def __init__(self, place: ZooKeeperPlace, service: str) -> None:
        self._service = service_key(service)
        self._session: Session | None = Session(place)
        self._tree = Tree(self._session, self._service)
        self._leadership: Leadership | None = None
        self._seen: Seen | None = None
        self._values: dict[str, bytes] = {}
        self._log_cost = 0
        #: The version that a commit without an answer may still act on.
        self._unsettled: int | None = None
        self._removed = False

    def load(self) -> Mapping[str, bytes]:
        session, deadline = self._open()
        with session.explained():
            found = read(self._tree, session, deadline)
            if self._unsettled is not None and found.seen.version == self._unsettled:
                # What was sent and not answered must not act after we have told what is stored.
                self._tree.bar(found.seen, deadline)
                found = read(self._tree, session, deadline)
        self._seen, self._unsettled = found.seen, None
        self._values, self._log_cost = dict(found.values), sum(_ENTRY_COST + size for size in found.entry_sizes)
        return MappingProxyType(found.values)

    def apply(self, writes: Sequence[Write]) -> None:
        if not writes:
            self._check()
            return
        after = dict(self._values)
        layout.apply_writes(after, writes)
        entry = layout.encode_writes(writes)
        cost = self._log_cost + _ENTRY_COST + len(entry)
        if len(entry) > layout.NODE_LIMIT or self._wants_snapshot(cost):
            self._store_snapshot(after)
        else:
            self._store(lambda seen: Commit.of_entry(seen, entry))
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
                remove(self._tree, self._session, self._ours(), self._leadership.nodes if self._leadership else ())
            self._session.close()
        self._session = None

    def lead(self, *, timeout: float | None = None, waiting: Callable[[str], None] | None = None) -> Leadership:
        """Become the one live scheduler of the service; from then on every write needs the leadership.

        Waits as a standby while another one leads, at most `timeout` seconds (default: for ever), and tells `waiting`
        who it is. Raises StoreUnavailable when the time is over. Call `load` afterwards, not before.
        """
        session, deadline = self._open()
        leadership = Leadership(session, self._tree.path)
        with session.explained():
            self._tree.ensure(deadline)
            leadership.acquire(timeout, waiting)
        self._leadership = leadership
        self._tree.guard = leadership.node
        self._seen = None
        return leadership

    def _open(self) -> tuple[Session, Deadline]:
        if self._session is None:
            raise StoreError(f"the store of service {self._service} is closed")
        return self._session, Deadline(self._session.place.request_timeout)

    def _ours(self) -> Seen:
        """What was loaded here, or StoreConflict; whether it is still current the commit finds out."""
        self._open()
        if self._seen is None:
            raise StoreConflict(f"the state of service {self._service} must be loaded before it is changed")
        return self._seen

    def _check(self) -> None:
        seen = self._ours()
        session, deadline = self._open()
        with session.explained():
            self._judge(self._tree.check(seen, deadline))

    def _wants_snapshot(self, cost: int) -> bool:
        seen = self._ours()
        old = seen.schema is not None and seen.schema < layout.SCHEMA
        return old or cost > max(_LOG_LEAST, seen.snapshot_size)

    def _store_snapshot(self, values: Mapping[str, bytes]) -> None:
        parts = layout.split(layout.encode_writes(layout.puts(values))) if values else ()
        self._store(lambda seen: Commit.of_snapshot(seen, parts))
        self._log_cost = 0
        session, head = self._open()[0], self._ours().head
        if head is not None:
            sweep(self._tree, session, head)

    def _store(self, make: Callable[[Seen], Commit]) -> None:
        seen = self._ours()
        session, deadline = self._open()
        commit = make(seen)
        try:
            with session.explained():
                self._judge(self._tree.commit(commit, deadline))
        except StoreUnavailable as error:
            if not commit.sent:
                raise
            self._seen, self._unsettled = None, seen.version
            raise StoreConflict(f"{error}; whether the last change was stored the next load tells") from error
        self._seen = commit.after

    def _judge(self, outcome: Outcome) -> None:
        if outcome is Outcome.NO_LEADER:
            raise LeadershipLost(f"this scheduler does not lead service {self._service} any more")
        if outcome is Outcome.CONFLICT:
            raise StoreConflict(
                f"another process changed the state of service {self._service} in {self._tree.place}: "
                "is a second scheduler running for the same service? End one of them"
            )
