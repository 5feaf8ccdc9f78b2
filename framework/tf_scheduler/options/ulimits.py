"""`ulimits`: name=soft:hard,... or name=both,..., as `docker run --ulimit` has it."""

from __future__ import annotations

import re
from typing import Any

from marshmallow import ValidationError

from .fields import Text, shown

#: Of setrlimit(2) on Linux.
NAMES = (
    "as",
    "core",
    "cpu",
    "data",
    "fsize",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "rttime",
    "sigpending",
    "stack",
)
UNLIMITED = -1

_ENTRY = re.compile(r"\s*(?P<name>[a-z]+)=(?P<soft>unlimited|-1|\d{1,18})(?::(?P<hard>unlimited|-1|\d{1,18}))?\s*")


def parse_ulimits(text: str) -> dict[str, tuple[int, int]]:
    """Name -> (soft, hard). Raise ValueError with a sentence."""
    found = {}
    for entry in text.split(",") if text.strip() else ():
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise ValueError(f"must be name=soft:hard, with commas between, not {shown(entry)}")
        if match["name"] not in NAMES:
            raise ValueError(f"there is no limit {match['name']}; there are {', '.join(NAMES)}")
        soft = _number(match["soft"])
        hard = _number(match["hard"] or match["soft"])
        if hard != UNLIMITED and (soft == UNLIMITED or soft > hard):
            raise ValueError(f"{match['name']}: the soft limit is above the hard one in {shown(entry)}")
        found[match["name"]] = (soft, hard)
    return found


class Ulimits(Text):
    """Text that `parse_ulimits` reads; it stays text."""

    def _deserialize(self, value: object, *_args: Any, **_options: Any) -> str:
        text = super()._deserialize(value)
        try:
            parse_ulimits(text)
        except ValueError as error:
            raise ValidationError(str(error)) from error
        return text


def _number(text: str) -> int:
    return UNLIMITED if text == "unlimited" else int(text)
