"""Durations as Mesos writes them in an executor's environment, such as `5secs` or `1.5hrs`."""

from __future__ import annotations

import re

_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "secs": 1.0,
    "mins": 60.0,
    "hrs": 3600.0,
    "days": 86400.0,
    "weeks": 604800.0,
}
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")


def parse_duration(text: str) -> float:
    """Return seconds. Raise ValueError, naming the units that are allowed."""
    match = _DURATION.fullmatch(text)
    if match is None or match.group(2) not in _SECONDS:
        raise ValueError(
            f"{text!r} is no duration: a number and one of {', '.join(_SECONDS)} is expected, such as 5secs"
        )
    return float(match.group(1)) * _SECONDS[match.group(2)]
