"""Fewer of many, for pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def thin(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many of them, evenly, with the first and the last; of one only the last."""
    if len(items) <= most:
        return list(items)
    if most < 2:
        return list(items[len(items) - most :])
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]
