"""Send server-sent events: wire format, limit of open streams, journal follower."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response

from tf_scheduler.api.http.backend import JournalReader
from tf_scheduler.api.http.server import MAX_STREAMS, LimitedStream, Quota
from tf_scheduler.api.views.base import ApiProblem
from tf_scheduler.api.views.service import JournalPosition, event_body

#: Seconds between keep-alive comments: proxies close silent connections (DC/OS after 300 s).
KEEP_ALIVE = 15.0
_PAGE = 100


def format_event(kind: str, body: Any, mark: int | str | None = None) -> str:
    """Return one event in wire format (WHATWG HTML, 9.2); JSON has no line breaks."""
    head = "" if mark is None else f"id: {mark}\n"
    return f"{head}event: {kind}\ndata: {json.dumps(body, allow_nan=False)}\n\n"


class EventStreams:
    """Factory of event streams with a limit on open streams."""

    def __init__(self, limit: int = MAX_STREAMS) -> None:
        self._quota = Quota(limit, "streams")

    def open(self, events: AsyncIterator[str]) -> Response | ApiProblem:
        """Return the response that sends the events, or a problem at the limit."""
        if problem := self._quota.acquire():
            return problem
        headers = {"x-accel-buffering": "no", "cache-control": "no-store"}
        return LimitedStream(events, self._quota.release, media_type="text/event-stream", headers=headers)


async def follow_journal(journal: JournalReader, number: int, task: str | None) -> AsyncIterator[str]:
    """Yield entries after `number` as they are added; slow clients may miss entries."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()
    unsubscribe = journal.listen(lambda: loop.call_soon_threadsafe(news.set))
    yield ": listening\n\n"
    try:
        while True:
            news.clear()
            for entry in journal.after(number)[:_PAGE]:
                number = entry.number
                if task in (None, entry.task):
                    yield format_event("event", event_body(entry), JournalPosition(number, journal.id).mark)
            if number >= journal.last:
                try:
                    await asyncio.wait_for(news.wait(), KEEP_ALIVE)
                except asyncio.TimeoutError:
                    yield ": nothing new\n\n"
    finally:
        unsubscribe()
