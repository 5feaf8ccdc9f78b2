"""Reads the state that `head` names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import NoNodeError

from tf_scheduler.store.interface import StoreCorrupt

from . import layout
from .layout import Head
from .session import Deadline, Session

if TYPE_CHECKING:
    from .commit import Tree


@dataclass(frozen=True, slots=True)
class Seen:
    """What a writer's next change builds on."""

    #: None: nothing was ever stored.
    head: Head | None
    #: Data version of `head`; -1 where there is none.
    version: int
    #: That `head` was stored in; None where there is none.
    schema: int | None = None
    #: Bytes.
    snapshot_size: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """One consistent state."""

    seen: Seen
    values: Mapping[str, bytes]
    #: Bytes of each entry.
    entry_sizes: Sequence[int]


def read_head(tree: Tree, session: Session, deadline: Deadline) -> Seen:
    """The head as it is now, not as a server that lags behind knows it."""
    session.ask(lambda client: client.sync_async(tree.path), deadline)
    try:
        data, stat = session.ask(lambda client: client.get_async(tree.head), deadline)
    except NoNodeError:
        return Seen(None, -1)
    head, schema = layout.decode_head(data, tree.describe(tree.head))
    return Seen(head, stat.version, schema)


def read(tree: Tree, session: Session, deadline: Deadline) -> Found:
    """The current state. What it consists of never changes, but may be swept away by a newer one: then look again."""
    while True:
        seen = read_head(tree, session, deadline)
        if seen.head is None:
            return Found(seen, {}, ())
        try:
            return _assembled(tree, seen, seen.head, session, deadline)
        except NoNodeError:
            if read_head(tree, session, deadline).version == seen.version:
                raise StoreCorrupt(
                    f"nodes below {tree.describe(tree.folder(seen.head))} are missing; restore a backup with "
                    "`state import --replace`"
                ) from None


def _assembled(tree: Tree, seen: Seen, head: Head, session: Session, deadline: Deadline) -> Found:
    parts, entries = head.names()
    folder = tree.folder(head)
    paths = [f"{folder}/{name}" for name in (*parts, *entries)]
    answers = session.ask_all([_get(path) for path in paths], deadline)
    contents = [data for data, _ in answers]
    snapshot, log = b"".join(contents[: len(parts)]), contents[len(parts) :]
    values: dict[str, bytes] = {}
    if snapshot:
        layout.apply_writes(values, layout.decode_writes(snapshot, tree.describe(f"{folder}/{parts[0]}")))
    for name, entry in zip(entries, log, strict=True):
        layout.apply_writes(values, layout.decode_writes(entry, tree.describe(f"{folder}/{name}")))
    return Found(Seen(head, seen.version, seen.schema, len(snapshot)), values, [len(entry) for entry in log])


def _get(path: str) -> Any:
    return lambda client: client.get_async(path)
