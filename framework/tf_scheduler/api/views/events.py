"""Pages of the journal."""

from __future__ import annotations

from collections.abc import Sequence

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


def page(found: Sequence[Entry], first: int, last: int, after: int | None, limit: int, task: str | None) -> Answer:
    """The next `limit` after a number, of one task or all; without a number the newest."""
    chosen = [entry for entry in found if task in (None, entry.task)]
    shown = chosen[-limit:] if after is None else chosen[:limit]
    complete = after is None or len(shown) == len(chosen)
    body: EventsBody = {
        "events": [event_body(entry) for entry in shown],
        "first": first,
        "last": last,
        "next": max(last, after or 0) if complete else shown[-1].number,
    }
    return View(body)
