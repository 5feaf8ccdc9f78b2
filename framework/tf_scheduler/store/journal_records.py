"""The journal as stored values: `journal/<number of its first>`, each with the entries that one transaction brought.

`journal/id` says which journal it is. Not part of the state: `records` does not read them, and a value that cannot be
read costs its entries only. Earlier schedulers wrote twenty entries each to `journal/00` to `journal/50`.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from tf_scheduler.model.journal import Entry

from .interface import Delete, Put, Write

log = logging.getLogger(__name__)

#: Entries that are kept at least.
KEPT = 1000
JOURNAL = "journal"
SCHEMA = 1
JOURNAL_ID = f"{JOURNAL}/id"
#: Entries of one value at most, and characters of a message, as a reason may list many agents: ZooKeeper's nodes are
#: small.
_MOST, _LONGEST = 100, 2000
_NAMES = tuple(field.name for field in fields(Entry))


class Shelf:
    """Which entries lie where in the store. Not safe for several threads."""

    def __init__(self, values: Mapping[str, bytes], new_id: str) -> None:
        found = {key: _entries(key, data) for key, data in values.items() if key.startswith(f"{JOURNAL}/")}
        entries = (entry for several in found.values() for entry in several)
        #: In their order; at most KEPT.
        self.entries = tuple(sorted(entries, key=lambda entry: entry.number)[-KEPT:])
        #: Number of the last one -> where it is.
        self._keys = deque(sorted((several[-1].number, key) for key, several in found.items() if several))
        stored = _id(values)
        self.id, self._has_id = stored or new_id, bool(stored)

    def writes(self, entries: Sequence[Entry]) -> list[Write]:
        """What stores more of them, in their order, and forgets as many."""
        if not entries:
            return []
        first = [] if self._has_id else [_put(JOURNAL_ID, (), id=self.id)]
        gone = [Delete(key) for _, key in self._gone(entries[-1].number)]
        return [*first, *(_put(_key(some), some) for some in _parts(entries)), *gone]

    def stored(self, entries: Sequence[Entry]) -> None:
        """What `writes` gave for these is in the store now."""
        if entries:
            self._has_id = True
            for _ in self._gone(entries[-1].number):
                self._keys.popleft()
            self._keys.extend((some[-1].number, _key(some)) for some in _parts(entries))

    def _gone(self, newest: int) -> list[tuple[int, str]]:
        found = []
        for last, key in self._keys:
            if last > newest - KEPT:
                break
            found.append((last, key))
        return found


def _parts(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    return (entries[begin : begin + _MOST] for begin in range(0, len(entries), _MOST))


def _key(entries: Sequence[Entry]) -> str:
    return f"{JOURNAL}/{entries[0].number:016}"


def _put(key: str, entries: Sequence[Entry], **more: str) -> Put:
    document = {"schema": SCHEMA, "entries": [_fields(entry) for entry in entries], **more}
    return Put(key, json.dumps(document).encode())


def _fields(entry: Entry) -> dict[str, Any]:
    """Not by `asdict`, which is ten times slower: each decision pays for it."""
    return {**{name: getattr(entry, name) for name in _NAMES}, "message": entry.message[:_LONGEST]}


def _document(key: str, data: bytes) -> dict[str, Any]:
    """Empty, and told, if it cannot be read."""
    try:
        document: dict[str, Any] = json.loads(data)
        if document["schema"] != SCHEMA:
            raise ValueError(f"it has schema version {document['schema']}")
    except (ValueError, KeyError, TypeError) as error:
        log.warning("a part of the journal, %s, cannot be read: %s", key, error)
        return {}
    return document


def _id(values: Mapping[str, bytes]) -> str:
    return str(_document(JOURNAL_ID, values[JOURNAL_ID]).get("id", "")) if JOURNAL_ID in values else ""


def _entries(key: str, data: bytes) -> list[Entry]:
    try:
        return [Entry(**fields) for fields in _document(key, data).get("entries", ())]
    except TypeError as error:
        log.warning("a part of the journal, %s, cannot be read: %s", key, error)
        return []
