"""The shapes in which programs show a value: as it is, quoted by Python or JSON, in URLs, in base64, in hex. Pure."""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from typing import Iterator

#: Characters of a part of base64 at least: shorter ones are in other words, too.
_LEAST = 8
#: Columns of base64 in mail (RFC 2045) and in PEM (RFC 7468).
_COLUMNS = (76, 64)
_PERCENT = re.compile("%[0-9A-F]{2}")


def forms(value: bytes) -> Iterator[str]:
    """Without empty ones; some may come more than once. What surrounds the value in base64 may be anything."""
    text = value.decode("utf-8", "replace")
    for shown in dict.fromkeys((text, text.strip())):
        if shown:
            yield shown
            yield from _quoted(shown)
            yield from _in_urls(shown)
    for data in dict.fromkeys((value, value.strip())):
        if data:
            yield from _encoded(data)


def _quoted(text: str) -> Iterator[str]:
    yield repr(text)[1:-1]
    yield repr(text.encode("utf-8", "replace"))[2:-1]
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]


def _in_urls(text: str) -> Iterator[str]:
    for quoted in (urllib.parse.quote(text), urllib.parse.quote(text, safe=""), urllib.parse.quote_plus(text)):
        yield quoted
        yield _PERCENT.sub(lambda found: found[0].lower(), quoted)


def _encoded(data: bytes) -> Iterator[str]:
    yield data.hex()
    yield data.hex().upper()
    whole = base64.b64encode(data).decode().rstrip("=")
    for size in _COLUMNS:
        if len(whole) > size:
            yield "\n".join(whole[at : at + size] for at in range(0, len(whole), size))
    yield whole
    yield whole.translate(_FOR_URLS)
    for before in range(3):
        # The first and the last four characters may hold bits of what is around it.
        start = -(-before // 3) * 4
        part = base64.b64encode(b"\0" * before + data).decode()[start : (before + len(data)) // 3 * 4]
        if len(part) >= _LEAST:
            yield part
            yield part.translate(_FOR_URLS)


_FOR_URLS = str.maketrans("+/", "-_")
