"""Encodings of a secret to redact: plain, quoted, in URLs, base64 and hex. Pure."""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from typing import Iterator

#: Minimum characters of a base64 part: shorter ones occur in other words.
_MIN_PART = 8
#: Line lengths of base64 in mail (RFC 2045) and PEM (RFC 7468).
_COLUMNS = (76, 64)
_PERCENT = re.compile("%[0-9A-F]{2}")


def encodings_of(value: bytes) -> Iterator[str]:
    """Yield non-empty encodings, some repeatedly; base64 also inside other data."""
    text = value.decode("utf-8", "replace")
    for variant in dict.fromkeys((text, text.strip())):
        if variant:
            yield variant
            yield from _quoted(variant)
            yield from _in_urls(variant)
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
        yield _PERCENT.sub(lambda match: match[0].lower(), quoted)


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
        # The first and last four characters may hold bits of the surrounding data.
        start = -(-before // 3) * 4
        part = base64.b64encode(b"\0" * before + data).decode()[start : (before + len(data)) // 3 * 4]
        if len(part) >= _MIN_PART:
            yield part
            yield part.translate(_FOR_URLS)


_FOR_URLS = str.maketrans("+/", "-_")
