"""Demands x rooms -> a place for every task, or for some of them and what is missing.

Greedy, with a second look: demands with GPUs choose first, then the largest, parameter servers last. A demand that
is left without places has been robbed, perhaps, by one that had a choice: it goes to the front and all is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.placement import PlacementStrategy
from tf_scheduler.model.spec import TaskSpec

from .agents import Agent
from .demand import Circumstances, Demand, amounts_of
from .even import most_values
from .near import Lead, lead_of, rank
from .rooms import Room
from .rules import Rules, gpus_of
from .shelves import PackedShelf, Shelf, SpreadShelf


@dataclass(frozen=True, slots=True)
class Chosen:
    """One task's agent, and why that one."""

    task: TaskSpec
    agent: Agent
    why: str


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of one search: what was placed, in that order, and which demands lack places."""

    chosen: tuple[Chosen, ...]
    missing: tuple[Demand, ...]
    #: As the search left them, for explanations.
    rooms: Sequence[Room]
    rules: dict[str, Rules]
    #: Whether a demand would lack places even if it were alone.
    hopeless: bool = False


def search(demands: Sequence[Demand], agents: Sequence[Agent], circumstances: Circumstances) -> Found:
    """Place all tasks if that can be found; else the first attempt, whose reasons are the plain ones."""
    order = sorted(demands, key=_natural)
    first = found = _Attempt(order, agents, circumstances).run()
    tried = [_names(order)]
    while found.missing and not found.hopeless:
        missing = {demand.job.group for demand in found.missing}
        order.sort(key=lambda demand: demand.job.group not in missing)
        if _names(order) in tried:
            return first
        tried.append(_names(order))
        found = _Attempt(order, agents, circumstances).run()
    return first if found.missing else found


def _names(order: Sequence[Demand]) -> list[str]:
    return [demand.job.group for demand in order]


def _natural(demand: Demand) -> tuple[int, bool, int, int, int]:
    needs = demand.needs
    return (-needs.gpus, demand.spreads, -needs.cpus, -needs.mem, -needs.disk)


class _Attempt:
    """One pass over the demands in a given order."""

    def __init__(self, order: Sequence[Demand], agents: Sequence[Agent], circumstances: Circumstances) -> None:
        self._order, self._circumstances = order, circumstances
        self._packs = circumstances.placement.strategy is PlacementStrategy.BINPACK
        self._rooms = [Room(agent, index) for index, agent in enumerate(agents)]
        self._rules = {demand.job.group: self._rules_of(demand) for demand in order}
        self._count_standing()
        self._admitted = {demand.job.group: self._admissible(demand) for demand in order}
        self._chosen: list[Chosen] = []
        self._neighbourhoods = self._rank()

    def run(self) -> Found:
        alone = [sum(most for _, most in self._takes(demand)) for demand in self._order]
        hopeless = any(most < len(demand.tasks) for most, demand in zip(alone, self._order, strict=True))
        missing = []
        for position, demand in enumerate(self._order):
            placed = self._place(demand, self._needed(self._order[position:]))
            if placed < len(demand.tasks):
                missing.append(demand)
        return Found(tuple(self._chosen), tuple(missing), self._rooms, self._rules, hopeless)

    def _rules_of(self, demand: Demand) -> Rules:
        group, standing = demand.job.group, self._circumstances.standing
        return Rules(demand, self._circumstances, [item.place for item in standing if item.group == group])

    def _count_standing(self) -> None:
        at = {room.agent.id: room for room in self._rooms}
        for item in self._circumstances.standing:
            if room := at.get(item.agent_id):
                room.used = True
                room.count(item.group)

    def _rank(self) -> int:
        if not self._packs or not self._rooms:
            return 1
        lead = lead_of(self._order)
        takes = [0] * len(self._rooms)
        for room, most in self._takes(lead):
            takes[room.index] = most
        total = self._needed(self._order)
        return rank(self._rooms, self._circumstances.placement.near, Lead(len(lead.tasks), takes, total))

    def _admissible(self, demand: Demand) -> list[Room]:
        rules = self._rules[demand.job.group]
        return [room for room in self._rooms if rules.admits(room.agent, gpus_of(room))]

    def _takes(self, demand: Demand) -> list[tuple[Room, int]]:
        """The rooms that take any of its tasks, with how many."""
        limit = self._limit(demand)
        return [(room, most) for room in self._admitted[demand.job.group] if (most := limit(room)) > 0]

    def _limit(self, demand: Demand) -> Callable[[Room], int]:
        rules, wants = self._rules[demand.job.group], demand.wants
        if not rules.caps:
            return lambda room: room.holds(wants)
        return lambda room: min(room.holds(wants), rules.room_for(room.agent.place))

    def _needed(self, demands: Iterable[Demand]) -> tuple[int, ...]:
        """What all tasks of the demands need together, by dimension."""
        amounts = [[amount * len(demand.tasks) for amount in amounts_of(demand.needs)] for demand in demands]
        return tuple(map(sum, zip(*amounts, strict=True)))

    def _place(self, demand: Demand, rest: Sequence[int]) -> int:
        """How many of its tasks found a place."""
        rules = self._rules[demand.job.group]
        pool = Pool(demand, rules, lambda: self._shelf(demand, rest))
        pool.fill(self._takes(demand))
        for placed, task in enumerate(demand.tasks):
            room = pool.take(len(demand.tasks) - placed)
            if room is None:
                return placed
            self._chosen.append(Chosen(task, room.agent, self._why(demand, room)))
            room.take(demand)
            rules.count(room.agent.place)
            pool.put_back(room)
        return len(demand.tasks)

    def _shelf(self, demand: Demand, rest: Sequence[int]) -> PackedShelf | SpreadShelf:
        shuns = not demand.needs.gpus
        if self._packs and not demand.spreads:
            return PackedShelf(self._limit(demand), shuns, rest)
        return SpreadShelf(self._limit(demand), shuns, demand.job.group, stays=self._packs)

    def _why(self, demand: Demand, room: Room) -> str:
        alike = room.groups.get(demand.job.group, 0)
        if not self._packs or demand.spreads:
            return f"no agent has fewer of {demand.job.group} (it has {alike})"
        if room.used:
            return f"beside {sum(room.groups.values())} of its gang"
        best = "the best neighbourhood, " if self._neighbourhoods > 1 and room.rank == 0 else ""
        return f"{best}the agent that takes the most of the gang with the least to spare"


class Pool:
    """Candidates of one demand, by the values of its GROUP_BY fields: the value with the fewest tasks comes first."""

    def __init__(self, demand: Demand, rules: Rules, shelf: Callable[[], PackedShelf | SpreadShelf]) -> None:
        self._demand, self._rules, self._make = demand, rules, shelf
        self._shelves: dict[tuple[str | None, ...], Shelf] = {}
        self._samples: dict[tuple[str | None, ...], Room] = {}
        self._order: list[tuple[int, int]] = []

    def fill(self, rooms: Iterable[tuple[Room, int]]) -> None:
        """All rooms that the demand may use, with how many tasks each takes."""
        parts: dict[tuple[str | None, ...], list[tuple[Room, int]]] = {}
        for room, takes in rooms:
            parts.setdefault(self._key(room), []).append((room, takes))
        for key in self._balanced(parts):
            shelf = self._make()
            shelf.fill(parts[key])
            self._shelves[key], self._samples[key] = shelf, parts[key][0][0]
        self._order = [(self._level(key), number) for number, key in enumerate(self._shelves)]
        self._keys = list(self._shelves)
        heapify(self._order)

    def take(self, left: int) -> Room | None:
        """The best room whose turn it is."""
        passed: list[tuple[int, int]] = []
        found = None
        while self._order and found is None:
            level, number = heappop(self._order)
            key = self._keys[number]
            now = self._level(key)
            if now != level:
                heappush(self._order, (now, number))
            elif not self._rules.is_turn_of(self._samples[key].agent.place):
                passed.append((level, number))
            else:
                found = self._shelves[key].pick(left)
                passed += [] if found is None else [(level, number)]
        for entry in passed:
            heappush(self._order, entry)
        return found

    def put_back(self, room: Room) -> None:
        """After a task was placed there."""
        self._shelves[self._key(room)].put(room)

    def _key(self, room: Room) -> tuple[str | None, ...]:
        return tuple(room.agent.place.value(rule.field) for rule in self._rules.evens)

    def _level(self, key: tuple[str | None, ...]) -> int:
        return self._rules.level(self._samples[key].agent.place)

    def _balanced(self, parts: dict[tuple[str | None, ...], list[tuple[Room, int]]]) -> list[tuple[str | None, ...]]:
        """The values to use, those with most room first.

        With one GROUP_BY of no number, a value that cannot have its even share would stop all others: such values are
        left out from the start, as few as possible.
        """
        tasks = len(self._demand.tasks)
        room = {key: min(sum(takes for _, takes in part), tasks) for key, part in parts.items()}
        keys = sorted(parts, key=lambda key: (-room[key], tuple(value or "" for value in key)))
        if len(self._rules.evens) != 1 or self._rules.evens[0].number or not self._rules.is_untouched():
            return keys
        return keys[: most_values([room[key] for key in keys], tasks)]


def names_of(demands: Iterable[Demand], chosen: Iterable[Chosen]) -> list[TaskName]:
    """The tasks of the demands that were not chosen a place for, in their order."""
    placed = {item.task.name for item in chosen}
    return [task.name for demand in demands for task in demand.tasks if task.name not in placed]
