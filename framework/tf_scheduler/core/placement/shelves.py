"""The candidates of one demand, the best first. Two orders: packed and spread.

Both are lazy. Rooms fill up, and what UNIQUE and MAX_PER leave shrinks; an entry whose numbers are of the past is
looked at again when its turn comes, and put back or dropped. A room that is full for a demand stays full.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Protocol

from .demand import CPUS, DISK, GPUS, MEM, PORTS
from .rooms import Room

#: How many tasks of the demand a room takes now: resources and constraints together.
Limit = Callable[[Room], int]
#: Takes, GPUs, cpus, memory, index: what `pick` compares. The index is unique, so rooms are never compared.
PackedEntry = tuple[int, int, int, int, int, Room]
#: Shunned, unused, tasks of the section, neighbourhood, GPUs, minus takes, index.
SpreadEntry = tuple[bool, bool, int, int, int, int, int, Room]


class Shelf(Protocol):
    """Candidates of one demand."""

    def put(self, room: Room) -> None:
        """Add a room, or put it back after a task was placed there."""

    def pick(self, left: int) -> Room | None:
        """Take the best room off the shelf; `left`: how many tasks are still to be placed. None: there is none."""


class PackedShelf:
    """As few agents as possible.

    First agents that the gang uses already, then near ones. Among these the smallest that takes all tasks that are
    left; else the one that takes the most. Between equals the one with less to spare: fewer GPUs, cpus, memory.
    `rest`: what the whole gang still needs; an agent that holds even that is better than one that only holds the tasks
    of this demand.
    """

    def __init__(self, limit: Limit, shuns_gpus: bool, rest: Sequence[int]) -> None:
        self._limit, self._shuns_gpus, self._rest = limit, shuns_gpus, rest
        self._tiers: dict[tuple[bool, bool, int], list[PackedEntry]] = {}
        self._order: list[tuple[bool, bool, int]] = []
        self._looked_for_all = False

    def put(self, room: Room) -> None:
        takes = self._limit(room)
        if takes > 0:
            insort(self._entries(room), _packed_entry(room, takes))

    def fill(self, rooms: Sequence[tuple[Room, int]]) -> None:
        """Put many rooms with what each takes."""
        for room, takes in rooms:
            self._entries(room).append(_packed_entry(room, takes))
        for entries in self._tiers.values():
            entries.sort()

    def pick(self, left: int) -> Room | None:
        while self._order:
            entries = self._tiers[self._order[0]]
            while entries:
                entry = entries.pop(self._best(entries, left))
                takes, room = entry[0], entry[-1]
                now = self._limit(room)
                if now == takes:
                    return room
                if now > 0:
                    insort(entries, _packed_entry(room, now))
            del self._tiers[heappop(self._order)]
        return None

    def _best(self, entries: Sequence[PackedEntry], left: int) -> int:
        at = bisect_left(entries, (left,))
        if at == len(entries):
            return bisect_left(entries, (entries[-1][0],))
        if self._looked_for_all:
            return at
        self._looked_for_all = True
        holders = (n for n in range(at, len(entries)) if _holds(entries[n][-1], self._rest))
        return next(holders, at)

    def _entries(self, room: Room) -> list[PackedEntry]:
        tier = (self._shuns_gpus and room.whole[GPUS] > 0, not room.used, room.rank)
        if tier not in self._tiers:
            self._tiers[tier] = []
            heappush(self._order, tier)
        return self._tiers[tier]


def _packed_entry(room: Room, takes: int) -> PackedEntry:
    return (takes, room.free[GPUS], room.free[CPUS], room.free[MEM], room.index, room)


def _holds(room: Room, amounts: Sequence[int]) -> bool:
    return all(room.free[place] >= amounts[place] for place in (CPUS, MEM, DISK, GPUS, PORTS))


class SpreadShelf:
    """As many agents as possible: those with the fewest tasks of the section first.

    `stays`: only over the agents that the gang uses already, as long as these do, and near ones first. Between equals
    fewer GPUs, then the agent that takes the most.
    """

    def __init__(self, limit: Limit, shuns_gpus: bool, group: str, stays: bool) -> None:
        self._limit, self._shuns_gpus, self._group, self._stays = limit, shuns_gpus, group, stays
        self._heap: list[SpreadEntry] = []

    def put(self, room: Room) -> None:
        takes = self._limit(room)
        if takes > 0:
            heappush(self._heap, self._entry(room, takes))

    def fill(self, rooms: Sequence[tuple[Room, int]]) -> None:
        """Put many rooms with what each takes."""
        self._heap += [self._entry(room, takes) for room, takes in rooms]
        self._heap.sort()

    def pick(self, left: int) -> Room | None:  # noqa: ARG002 - the order does not depend on it
        while self._heap:
            entry = heappop(self._heap)
            room = entry[-1]
            now = self._limit(room)
            if now <= 0:
                continue
            fresh = self._entry(room, now)
            if fresh == entry:
                return room
            heappush(self._heap, fresh)
        return None

    def _entry(self, room: Room, takes: int) -> SpreadEntry:
        return (
            self._shuns_gpus and room.whole[GPUS] > 0,
            self._stays and not room.used,
            room.groups.get(self._group, 0),
            room.rank if self._stays else 0,
            room.free[GPUS],
            -takes,
            room.index,
            room,
        )
