"""Server-sent events (WHATWG HTML, 9.2): the lines of a stream become events. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Iterator


@dataclass(frozen=True)
class Event:
    """`data` of several lines is one text. `id`: the last one seen; with it a stream is taken up again."""

    data: str
    name: str = "message"
    id: str = ""


def events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Each event that is complete; comments and what is cut off at the end are left out."""
    data: list[str] = []
    name, last = "", ""
    for raw in lines:
        line = raw.decode("utf-8", errors="replace").rstrip("\r\n")
        if not line:
            if data:
                yield Event("\n".join(data), name or "message", last)
            data, name = [], ""
            continue
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id":
            last = value
