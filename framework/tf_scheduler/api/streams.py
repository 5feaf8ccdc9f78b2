"""Server-sent events (WHATWG HTML, 9.2): for as long as the client listens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.responses import Response, StreamingResponse

from .backend import Journal
from .seats import Seats
from .views.base import Problem
from .views.events import Place, event_body

#: Seconds between two signs of life when nothing happens: proxies cut what is silent (DC/OS' after 300 s).
SIGN_OF_LIFE = 15.0
#: Streams at one time; each holds a connection. One client alone, or all behind one proxy, may have half of them.
SEATS = 400
_PAGE = 100


def message(kind: str, body: Any, mark: int | str | None = None) -> str:
    """One event on the wire. JSON has no line breaks in it."""
    head = "" if mark is None else f"id: {mark}\n"
    return f"{head}event: {kind}\ndata: {json.dumps(body, allow_nan=False)}\n\n"


class Streams:
    """Counts those that are open."""

    def __init__(self, seats: int = SEATS) -> None:
        self._seats = Seats(seats, "streams")

    def open(self, events: AsyncIterator[str], client: str) -> Response | Problem:
        """The answer that sends them."""
        if problem := self._seats.take(client):
            return problem
        headers = {"x-accel-buffering": "no", "cache-control": "no-store"}
        return StreamingResponse(self._seated(events, client), media_type="text/event-stream", headers=headers)

    async def _seated(self, events: AsyncIterator[str], client: str) -> AsyncIterator[str]:
        try:
            async for event in events:
                yield event
        finally:
            self._seats.leave(client)


def start_of(headers: Mapping[str, str], given: int | None) -> int | None:
    """Where to go on: after what the client has had already (Last-Event-ID), else where it says."""
    last = headers.get("last-event-id", "")
    return int(last) if last.isascii() and last.isdecimal() and len(last) < 17 else given


async def entries(journal: Journal, number: int, task: str | None) -> AsyncIterator[str]:
    """Every entry after `number`, as it comes. One that is too slow misses what is forgotten meanwhile."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()

    def tell() -> None:
        loop.call_soon_threadsafe(news.set)

    end = journal.listen(tell)
    yield ": listening\n\n"
    try:
        while True:
            news.clear()
            for entry in journal.after(number)[:_PAGE]:
                number = entry.number
                if task in (None, entry.task):
                    yield message("event", event_body(entry), Place(number, journal.id).mark)
            if number >= journal.last:
                try:
                    await asyncio.wait_for(news.wait(), SIGN_OF_LIFE)
                except asyncio.TimeoutError:
                    yield ": nothing new\n\n"
    finally:
        end()
