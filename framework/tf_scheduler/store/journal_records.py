"""The journal as stored values: `journal/00` to `journal/50`, each with some entries, the oldest overwritten.

Not part of the state: `records` does not read them, and a value that cannot be read costs its entries only.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tf_scheduler.model.journal import Entry

from .interface import Put, Write

log = logging.getLogger(__name__)

#: Entries that are kept at least.
KEPT = 1000
_CHUNK = 20
_SLOTS = KEPT // _CHUNK + 1
JOURNAL = "journal"
SCHEMA = 1
#: Characters of a message at most: a reason may list many agents.
_LONGEST = 2000


def writes_for(entries: Sequence[Entry], stored: int) -> list[Write]:
    """What stores the entries after number `stored`; `entries` are in their order."""
    chunks: dict[int, list[Entry]] = {}
    for entry in entries:
        chunks.setdefault((entry.number - 1) // _CHUNK, []).append(entry)
    return [_put(chunk, found) for chunk, found in chunks.items() if found[-1].number > stored]


def entries_of(values: Mapping[str, bytes]) -> tuple[Entry, ...]:
    """The entries that are stored, in their order; at most KEPT."""
    found = [entry for key, data in values.items() if key.startswith(f"{JOURNAL}/") for entry in _entries(key, data)]
    return tuple(sorted(found, key=lambda entry: entry.number)[-KEPT:])


def _put(chunk: int, entries: Sequence[Entry]) -> Put:
    fields = [{**asdict(entry), "message": entry.message[:_LONGEST]} for entry in entries]
    return Put(f"{JOURNAL}/{chunk % _SLOTS:02}", json.dumps({"schema": SCHEMA, "entries": fields}).encode())


def _entries(key: str, data: bytes) -> list[Entry]:
    try:
        document: dict[str, Any] = json.loads(data)
        if document["schema"] != SCHEMA:
            raise ValueError(f"it has schema version {document['schema']}")
        return [Entry(**fields) for fields in document["entries"]]
    except (ValueError, KeyError, TypeError) as error:
        log.warning("a part of the journal, %s, cannot be read: %s", key, error)
        return []
