"""What a state store promises. The memory, SQLite and ZooKeeper stores keep it; one test suite checks them all.

A store holds one service's state: a flat set of string keys with bytes, such as `framework` or `tasks/worker-0`.
It knows nothing of what the bytes mean; the version of their format is the business of whoever writes them.

    StoreError                 the state could not be read or written
      StoreUnavailable         for now: locked, disk full, no answer; the same call may succeed later
      StoreConflict            another writer changed this service: stop, or load again and decide anew
        LeadershipLost         another scheduler may lead this service: stop, and do nothing more
      StoreCorrupt             what is stored cannot be used; the message says what to do
        StoreVersionError      it was stored by a newer version of this program
      InvalidKeyError          a key that no store takes (also a ValueError)
      StoreAddressError        what says where the state is cannot be understood (also a ValueError)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class StoreError(Exception):
    """The state could not be read or written. Nothing of the failed call was stored."""


class StoreUnavailable(StoreError):  # noqa: N818 - it names the condition, as its siblings do
    """It cannot be done for now (locked, disk full, no answer): the same call may succeed later."""


class StoreConflict(StoreError):  # noqa: N818
    """Another writer changed this service's state since it was loaded here; every write fails until the next load."""


class LeadershipLost(StoreConflict):
    """Another scheduler may lead this service by now. Nothing may be done any more: end, and start as a standby."""


class StoreCorrupt(StoreError):  # noqa: N818
    """What is stored cannot be used. The message names the place and what to do."""


class StoreVersionError(StoreCorrupt):
    """A newer version of this program stored it; this one does not touch it."""


class InvalidKeyError(StoreError, ValueError):
    """The key or service name is not one that every store can keep."""


class StoreAddressError(StoreError, ValueError):
    """What says where the state is kept cannot be understood. The message shows it, without its password."""


#: Not allowed in a ZooKeeper node name (ZooKeeper programmer's guide, "The ZooKeeper Data Model"). The server looks at
#: UTF-16 units, so everything above U+FFFF is refused with the surrogates.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")


def check_key(key: str) -> str:
    """Return the key when every store can keep it, else raise InvalidKeyError: the only place with the rules.

    A key is one or more segments joined by `/`. No segment is empty, `.` or `..`, or has a character that ZooKeeper
    refuses in a node name (control, private-use and non-BMP characters).
    """
    if bad := _FORBIDDEN.search(key):
        raise InvalidKeyError(f"key {key!r}: the character {bad.group()!a} is not allowed")
    for segment in key.split("/"):
        if segment in ("", ".", ".."):
            raise InvalidKeyError(f"key {key!r}: the part {segment!r} between slashes is not allowed")
    return key


def service_key(service: str) -> str:
    """Return the service's name as a key. DC/OS also writes `/group/name`; that leading slash makes no difference."""
    return check_key(service.removeprefix("/"))


@dataclass(frozen=True, slots=True)
class Put:
    """Set the key to the value, whether it was there or not. Raises InvalidKeyError."""

    key: str
    value: bytes

    def __post_init__(self) -> None:
        check_key(self.key)


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the key; nothing happens when it is not there. Raises InvalidKeyError."""

    key: str

    def __post_init__(self) -> None:
        check_key(self.key)


Write = Put | Delete


class StateStore(Protocol):
    """One service's state, written by one scheduler at a time.

    Each service has a version that grows with every change and never goes back, not even by `erase`. `load` notes it,
    `apply` and `erase` compare it (compare-and-set) and advance it, so of two live schedulers only one can go on
    writing. Several keys may share a first part: `tasks` and `tasks/worker-0` are independent keys.

    Any thread may use a store, one at a time. Every call on a closed store raises StoreError.
    """

    def load(self) -> Mapping[str, bytes]:
        """Return all keys and values of the service as one consistent, read-only snapshot; empty for a new service.

        Raises StoreUnavailable, StoreCorrupt, StoreError.
        """

    def apply(self, writes: Sequence[Write]) -> None:
        """Store all writes, in their order, as one transaction: all or none, durable when this returns.

        No writes is allowed: it stores nothing and only finds a conflict. Raises StoreConflict when another writer
        changed the service since our `load` or last write, or nothing was loaded yet; any other StoreError when it
        could not be stored. Nothing was stored then. A store that cannot tell (the connection broke while it
        committed) finds out before it raises or raises StoreConflict: then the next `load` tells.
        """

    def erase(self) -> None:
        """Forget all of the service's keys (uninstall), as one transaction; raises as `apply` does."""

    def remove(self) -> None:
        """As `erase`, at the end of a service: nothing but `close` follows, after which nothing of it is left.

        A SQLite file keeps the version, against late writers of the service that was.
        """

    def close(self) -> None:
        """Free the store's resources; what was applied stays. May be called again."""


class Leadership(Protocol):
    """The right to act for a service: one live scheduler has it. It ends once, and does not come back."""

    def check(self) -> None:
        """Return if we lead for certain. Raises LeadershipLost if not, and from then on always."""

    def on_lost(self, callback: Callable[[str], None]) -> None:
        """Call it once, from any thread, with the reason, when the leadership is lost; at once if it is lost already.

        It must not block.
        """
