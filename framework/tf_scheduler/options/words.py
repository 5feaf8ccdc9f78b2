"""Names in one text."""

from __future__ import annotations


def words(names: str) -> tuple[str, ...]:
    """Names with commas between; white space around them does not count."""
    return tuple(name.strip() for name in names.split(",") if name.strip())
