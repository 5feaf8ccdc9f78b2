"""State store interface, errors and key rules; one test suite covers all stores.

A store contains one service's state: a flat set of string keys with bytes, such as `framework` or `tasks/worker-0`.
The writer of a value versions its format.
"""

from __future__ import annotations

import json
import logging
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from tf_scheduler import __version__
from tf_scheduler.errors import SchedulerError
from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import Event

log = logging.getLogger(__name__)


class StoreError(SchedulerError):
    """The state could not be read or written. Nothing of the failed call was stored.

    Exit code 1: a person has to repair the store. Exit code 3, in subclasses: a restart may succeed.
    """

    kind = "store_failed"


class StoreUnavailableError(StoreError):
    """The store is unavailable (locked, disk full, no answer); a retry may succeed."""

    kind = "store_unavailable"
    exit_code = 3
    http_status = 503


class StoreConflictError(StoreError):
    """Another writer changed the service's state; writes fail until the next load."""

    kind = "store_conflict"
    exit_code = 3


class LeadershipLostError(StoreConflictError):
    """Another scheduler may lead this service: exit and restart as a standby."""

    kind = "leadership_lost"


class StoreCorruptError(StoreError):
    """The stored state is unusable. The message names the place and a remedy."""

    kind = "store_corrupt"


class StoreVersionError(StoreCorruptError):
    """A newer version of this program wrote the state, which stays unchanged."""

    kind = "store_too_new"

    def __init__(self, item: str, schema: int, supported: int, writer: str = "", *, replaceable: bool = False) -> None:
        """`writer`: version that wrote the item. `replaceable`: import can replace it."""
        version = f"version {writer}" if writer else "a newer version of this program"
        place = " --replace`" if replaceable else "` at another address"
        super().__init__(
            f"{item} was written by {version} with schema {schema}; this is version {__version__}, which reads schemas "
            f"up to {supported}: run the newer version, or restore a backup of this or an older version with "
            f"`dcos-tensorflow state import{place}"
        )


#: What to do about a damaged state without a backup.
WITHOUT_BACKUP = "without one, delete the state: the next scheduler names the framework that `--adopt` continues"
#: Name of the checksum in a JSON value.
CHECKSUM = "crc32"


def checksum(key: str, content: Mapping[str, Any]) -> int:
    """Return the CRC-32 of a key and its value, without the checksum itself."""
    return zlib.crc32(f"{key} {json.dumps(content, sort_keys=True)}".encode())


def conflict_error(service: str, place: object, *, is_loaded: bool) -> StoreConflictError:
    """Return the error of a writer that has not loaded the service's current state."""
    if not is_loaded:
        return StoreConflictError(f"the state of service {service} in {place} must be loaded before it is changed")
    return StoreConflictError(
        f"another process changed the state of service {service} in {place}; "
        "if two schedulers run for this service, stop one of them"
    )


class InvalidKeyError(StoreError, ValueError):
    """The key or service name is not valid in every store."""


class StoreAddressError(StoreError, ValueError):
    """The address of the state is invalid; the message hides its password."""


#: Not allowed in a ZooKeeper node name (ZooKeeper programmer's guide, "The ZooKeeper Data Model"). The server checks
#: UTF-16 units, so it rejects everything above U+FFFF along with the surrogates.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")


def check_key(key: str) -> str:
    """Return a key that is valid in every store; raise InvalidKeyError otherwise.

    A key is one or more segments joined by `/`. No segment is empty, `.` or `..`, or contains a character that
    ZooKeeper rejects in a node name (control, private-use and non-BMP characters).
    """
    if bad := _FORBIDDEN.search(key):
        raise InvalidKeyError(f"key {key!r}: the character {bad.group()!a} is not allowed")
    for segment in key.split("/"):
        if segment in ("", ".", ".."):
            raise InvalidKeyError(f"key {key!r}: the part {segment!r} between slashes is not allowed")
    return key


def service_key(service: str) -> str:
    """Return the service's name as a key, without the leading slash of `/group/name`."""
    return check_key(service.removeprefix("/"))


@dataclass(frozen=True, slots=True)
class Put:
    """Set a key. Raises InvalidKeyError."""

    key: str
    value: bytes

    def __post_init__(self) -> None:
        check_key(self.key)


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a key, if present. Raises InvalidKeyError."""

    key: str

    def __post_init__(self) -> None:
        check_key(self.key)


Write = Put | Delete


class StateStore(Protocol):
    """One service's state, written by one scheduler at a time. `place`: for messages.

    Each service has a version that grows with every change, also with `erase`. `load` remembers the version. `apply`
    and `erase` compare and advance it (compare-and-set), so that only one of two live schedulers can continue to write.
    `tasks` and `tasks/worker-0` are independent keys.

    Any thread may use a store, one at a time. Every call on a closed store raises StoreError.
    """

    @property
    def place(self) -> str: ...

    def load(self) -> Mapping[str, bytes]:
        """Return all keys and values of the service as a consistent, read-only snapshot.

        Empty for a new service. Raises StoreUnavailableError, StoreCorruptError, StoreError.
        """

    def apply(self, writes: Sequence[Write]) -> None:
        """Store all writes in order, as one durable transaction: all or none.

        An empty list only checks for a conflict. Raises StoreConflictError if nothing is loaded, or if another writer
        changed the service since the last `load` or write. Raises another StoreError if storing failed. After an error
        nothing is stored, with one exception: if the connection breaks during the commit and the store cannot find out
        the outcome, it raises StoreConflictError, and the next `load` shows the outcome.
        """

    def erase(self) -> None:
        """Delete all keys of the service in one transaction; raises as `apply` does."""

    def remove(self) -> None:
        """Erase the service permanently; only `close` may follow.

        `close` removes the last nodes. A SQLite file keeps the version, to reject late writers of the removed service.
        """

    def close(self) -> None:
        """Release the store's resources. May be called again."""


class Leadership(Protocol):
    """The right of one live scheduler to act for a service; once lost, never regained."""

    def check(self) -> None:
        """Raise LeadershipLostError unless certainly leading; always raise after a loss."""

    def on_lost(self, callback: Callable[[str], None]) -> None:
        """Call `callback` once, with the reason: at the loss, or now after a loss.

        The call may come from any thread and must not block.
        """


@runtime_checkable
class SharedStateStore(StateStore, Protocol):
    """A store that several schedulers can open: one leads, the others are standbys."""

    def lead(self, *, timeout: float | None = None, waiting: Callable[[str], None] | None = None) -> Leadership:
        """Become the service's one live scheduler; all writes require the leadership.

        Waits as a standby, up to `timeout` seconds (None: unlimited), and calls `waiting` with a description of the
        leader. Raises StoreUnavailableError after the timeout. Call `load` afterwards, not before.
        """

    def is_open(self) -> bool:
        """Whether every client of the store may access the present or future state."""


#: Stores the changes of decisions and further records of them in one transaction; raises as `apply` does.
CommitHook = Callable[[StateStore, Sequence[Write], Sequence[tuple[Event, Decision]]], None]


_T = TypeVar("_T")


def read_extra(item: str, data: bytes, schema: int, read: Callable[[dict[str, Any]], _T], default: _T) -> _T:
    """Decode a value that is not part of the state; if corrupt, warn, use `default`."""
    try:
        document: dict[str, Any] = json.loads(data)
        if document["schema"] != schema:
            raise ValueError(f"unknown schema {document['schema']}")
        return read(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("%s ignored: %s", item, error)
        return default


def commit_plain(store: StateStore, changed: Sequence[Write], _decided: Sequence[tuple[Event, Decision]]) -> None:
    """Store the writes without additional records."""
    if changed:
        store.apply(changed)
