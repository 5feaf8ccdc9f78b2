"""Exact resource sums, independent of the product's arithmetic that they check."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tf_scheduler.model.resources import Resource

Key = tuple[str, str]


@dataclass(frozen=True)
class Pool:
    """Scalars in thousandths; every item of ranges and sets. Amounts of 0 are removed."""

    scalars: Mapping[Key, int] = field(default_factory=dict)
    items: Mapping[Key, frozenset[object]] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[Resource]) -> Pool:
        return sum((_single(entry) for entry in entries), cls())

    def __bool__(self) -> bool:
        return bool(self.scalars or self.items)

    def __add__(self, other: Pool) -> Pool:
        keys = {**self.scalars, **other.scalars}
        scalars = {key: self.scalars.get(key, 0) + other.scalars.get(key, 0) for key in keys}
        sets = {**self.items, **other.items}
        items = {key: self.items.get(key, frozenset()) | other.items.get(key, frozenset()) for key in sets}
        return _filled(scalars, items)

    def __sub__(self, other: Pool) -> Pool:
        scalars = {key: amount - other.scalars.get(key, 0) for key, amount in self.scalars.items()}
        items = {key: have - other.items.get(key, frozenset()) for key, have in self.items.items()}
        return _filled(scalars, items)

    def holds(self, other: Pool) -> bool:
        """Return whether `other` is a part of this."""
        return all(self.scalars.get(key, 0) >= amount for key, amount in other.scalars.items()) and all(
            self.items.get(key, frozenset()) >= wanted_items for key, wanted_items in other.items.items()
        )

    def ports(self) -> frozenset[object]:
        return frozenset(item for (name, _), items in self.items.items() if name == "ports" for item in items)

    def entries(self) -> tuple[Resource, ...]:
        """Return the entries in the form of an offer."""
        scalars = [Resource(name, amount, shape) for (name, shape), amount in self.scalars.items()]
        return (*scalars, *(Resource(name, _value(items), shape) for (name, shape), items in self.items.items()))


def _single(entry: Resource) -> Pool:
    key = (entry.name, entry.shape)
    if isinstance(entry.value, int):
        return _filled({key: entry.value}, {})
    if isinstance(entry.value, frozenset):
        return _filled({}, {key: entry.value})
    return _filled({}, {key: frozenset(item for begin, end in entry.value for item in range(begin, end + 1))})


def _filled(scalars: Mapping[Key, int], items: Mapping[Key, frozenset[object]]) -> Pool:
    return Pool({key: amount for key, amount in scalars.items() if amount}, {k: v for k, v in items.items() if v})


def _value(items: frozenset[object]) -> tuple[tuple[int, int], ...] | frozenset[str]:
    numbers = sorted(item for item in items if isinstance(item, int))
    if not numbers:
        return frozenset(str(item) for item in items)
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return tuple(ranges)
