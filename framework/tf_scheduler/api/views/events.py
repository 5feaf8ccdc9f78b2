"""Pages of the event journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tf_scheduler.model.state import JournalEntry

from .base import ApiAnswer, View
from .types import EventBody, EventsBody


def event_body(entry: JournalEntry) -> EventBody:
    return {
        "number": entry.number,
        "time": entry.at,
        "kind": entry.kind,
        "task": entry.task,
        "message": entry.message,
        "warning": entry.warning,
    }


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """Last entry that a client has received. `journal`: its journal's id, or empty."""

    number: int
    journal: str = ""

    def resolve(self, journal: str, last: int) -> int:
        """Return the last number shared with `journal`, which ends at `last`; 0 if none."""
        return 0 if self.number > last or (self.journal and self.journal != journal) else self.number

    @classmethod
    def parse(cls, text: str) -> JournalPosition | None:
        """Parse `NUMBER` or `NUMBER-JOURNAL`; None if invalid."""
        number, _, journal = text.partition("-")
        return cls(int(number), journal) if number.isascii() and number.isdecimal() and len(number) < 17 else None

    @property
    def mark(self) -> str:
        """Id of an event in a stream."""
        return f"{self.number}-{self.journal}"


def events_page(
    entries: Sequence[JournalEntry], numbers: tuple[str, int, int], after: int | None, limit: int, task: str | None
) -> ApiAnswer:
    """Return the next `limit` entries after a number; without a number, the newest.

    `numbers`: id of the journal, and its first and last number.
    """
    journal, first, last = numbers
    chosen = [entry for entry in entries if task in (None, entry.task)]
    selected = chosen[-limit:] if after is None else chosen[:limit]
    complete = after is None or len(selected) == len(chosen)
    body: EventsBody = {
        "events": [event_body(entry) for entry in selected],
        "first": first,
        "last": last,
        "next": last if complete else selected[-1].number,
        "journal": journal,
    }
    return View(body)
