"""Pages of the journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tf_scheduler.api.shapes import EventBody, EventsBody
from tf_scheduler.model.journal import Entry

from .base import Answer, View


def event_body(entry: Entry) -> EventBody:
    """One entry."""
    return {
        "number": entry.number,
        "time": entry.at,
        "kind": entry.kind,
        "task": entry.task,
        "message": entry.message,
        "warning": entry.warning,
    }


@dataclass(frozen=True, slots=True)
class Place:
    """What a reader has seen last. `journal`: whose numbers those are; empty: it does not say."""

    number: int
    journal: str = ""

    def within(self, journal: str, last: int) -> int:
        """The same in a journal that ends with `last`: of another one, nothing of this is known."""
        return 0 if self.number > last or (self.journal and self.journal != journal) else self.number

    @classmethod
    def read(cls, text: str) -> Place | None:
        """`NUMBER` or `NUMBER-JOURNAL`, as `mark` writes it."""
        number, _, journal = text.partition("-")
        return cls(int(number), journal) if number.isascii() and number.isdecimal() and len(number) < 17 else None

    @property
    def mark(self) -> str:
        """Id of an event of a stream."""
        return f"{self.number}-{self.journal}"


@dataclass(frozen=True, slots=True)
class Known:
    """What there is."""

    journal: str = ""
    first: int = 1
    last: int = 0


def page(found: Sequence[Entry], known: Known, after: int | None, limit: int, task: str | None) -> Answer:
    """The next `limit` after a number, of one task or all; without a number the newest."""
    chosen = [entry for entry in found if task in (None, entry.task)]
    shown = chosen[-limit:] if after is None else chosen[:limit]
    complete = after is None or len(shown) == len(chosen)
    body: EventsBody = {
        "events": [event_body(entry) for entry in shown],
        "first": known.first,
        "last": known.last,
        "next": known.last if complete else shown[-1].number,
        "journal": known.journal,
    }
    return View(body)
