"""Which agents are near each other: neighbourhoods, best first.

A neighbourhood is a value of a `near` field (a zone, within it a rack). The best one already has tasks of the
service; then one that can take the whole gang wins, with the fewest agents and, between equals, the least to spare.
Where none can, the one that takes most comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .demand import Demand
from .rooms import Room


@dataclass(frozen=True, slots=True)
class Lead:
    """What neighbourhoods are judged by: the demand with the most tasks, and the whole gang."""

    tasks: int
    #: How many of its tasks each room takes, by the room's index; 0 where it must not go.
    takes: Sequence[int]
    #: Sum over the whole gang, by dimension.
    total: tuple[int, ...]


def lead_of(demands: Sequence[Demand]) -> Demand:
    """The demand with the most tasks, the first of several."""
    return max(demands, key=lambda demand: len(demand.tasks))


def rank(rooms: Sequence[Room], fields: Sequence[str], lead: Lead) -> int:
    """Give every room the number of its neighbourhood, 0 the best; return how many neighbourhoods there are."""
    order = _ordered(rooms, fields, lead)
    for number, group in enumerate(order):
        for room in group:
            room.rank = number
    return len(order)


def _ordered(rooms: Sequence[Room], fields: Sequence[str], lead: Lead) -> list[Sequence[Room]]:
    if not fields:
        return [rooms]
    groups: dict[str, list[Room]] = {}
    for room in rooms:
        groups.setdefault(room.agent.place.value(fields[0]) or "", []).append(room)
    if len(groups) == 1:
        return _ordered(rooms, fields[1:], lead)
    best = sorted(groups, key=lambda value: (*_quality(groups[value], lead), value))
    return [part for value in best for part in _ordered(groups[value], fields[1:], lead)]


def _quality(rooms: Sequence[Room], lead: Lead) -> tuple[int, bool, int, int]:
    """Less is better."""
    standing = sum(count for room in rooms for count in room.groups.values())
    takes = sorted((lead.takes[room.index] for room in rooms), reverse=True)
    capacity = sum(takes)
    if capacity < lead.tasks or not _holds_all(rooms, lead.total):
        return (-standing, True, 0, -capacity)
    return (-standing, False, _agents_needed(takes, lead.tasks), capacity)


def _holds_all(rooms: Sequence[Room], total: Sequence[int]) -> bool:
    return all(sum(room.free[place] for room in rooms) >= amount for place, amount in enumerate(total) if amount)


def _agents_needed(takes: Sequence[int], tasks: int) -> int:
    """`takes` in descending order."""
    for used, take in enumerate(takes):
        if tasks <= 0:
            return used
        tasks -= take
    return len(takes)
