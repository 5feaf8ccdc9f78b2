"""Choose an agent for each task of a gang, by greedy search with restarts.

Demands with the most GPUs come first; of those with equally many the largest, and parameter servers last. If a demand
lacks agents, it moves to the front and the search restarts, because another demand may have taken agents that only this
demand could use.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from operator import ge

from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.placement import PlacementStrategy
from tf_scheduler.model.spec import TaskSpec

from .agents import CPUS, GPUS, MEM, Agent, AgentCapacity, Demand, PlacementContext, amounts_of
from .constraints import DemandRules

# --- Candidates of one demand, best first
#
# Both queues are lazy: an entry is checked again when popped, and pushed back or dropped if its numbers changed. An
# agent that is full for a demand stays full.


#: Returns how many tasks of the demand an agent can take, by resources and constraints.
CapacityOf = Callable[[AgentCapacity], int]
#: Sort key: tasks it can take, free GPUs, cpus, memory, unique index.
PackedEntry = tuple[int, int, int, int, int, AgentCapacity]
#: Sort key: GPU agent to avoid, unused, tasks of the section, neighbourhood, GPUs, negative capacity, unique index.
SpreadEntry = tuple[bool, bool, int, int, int, int, int, AgentCapacity]


class PackedQueue:
    """Candidate agents of a demand, in an order that uses few agents.

    Agents in use come first, then near agents, then the smallest agent that takes all remaining tasks, or else the
    agent that takes the most. Ties go to the agent with fewer free GPUs, cpus and memory. The first agent is one that
    can hold `rest`, the needs of the whole remaining gang, if there is one.
    """

    def __init__(self, limit: CapacityOf, avoids_gpus: bool, rest: Sequence[int]) -> None:
        self._limit, self._avoids_gpus, self._rest = limit, avoids_gpus, rest
        self._tiers: dict[tuple[bool, bool, int], list[PackedEntry]] = {}
        self._order: list[tuple[bool, bool, int]] = []
        self._searched_for_all = False

    def push(self, candidate: AgentCapacity) -> None:
        """Add a candidate, or put it back after a task was placed on it."""
        task_count = self._limit(candidate)
        if task_count > 0:
            insort(self._entries(candidate), _packed_entry(candidate, task_count))

    def fill(self, candidates: Sequence[tuple[AgentCapacity, int]]) -> None:
        """Add many candidates with their capacities."""
        for candidate, task_count in candidates:
            self._entries(candidate).append(_packed_entry(candidate, task_count))
        for entries in self._tiers.values():
            entries.sort()

    def pop(self, left: int) -> AgentCapacity | None:
        """Remove and return the best candidate for `left` more tasks; `None` if empty."""
        while self._order:
            entries = self._tiers[self._order[0]]
            while entries:
                entry = entries.pop(self._best(entries, left))
                task_count, candidate = entry[0], entry[-1]
                now = self._limit(candidate)
                if now == task_count:
                    return candidate
                if now > 0:
                    insort(entries, _packed_entry(candidate, now))
            del self._tiers[heappop(self._order)]
        return None

    def _best(self, entries: Sequence[PackedEntry], left: int) -> int:
        at = bisect_left(entries, (left,))
        if at == len(entries):
            return bisect_left(entries, (entries[-1][0],))
        if self._searched_for_all:
            return at
        self._searched_for_all = True
        holders = (n for n in range(at, len(entries)) if all(map(ge, entries[n][-1].free, self._rest)))
        return next(holders, at)

    def _entries(self, candidate: AgentCapacity) -> list[PackedEntry]:
        tier = (self._avoids_gpus and candidate.total[GPUS] > 0, not candidate.in_use, candidate.rank)
        if tier not in self._tiers:
            self._tiers[tier] = []
            heappush(self._order, tier)
        return self._tiers[tier]


def _packed_entry(candidate: AgentCapacity, task_count: int) -> PackedEntry:
    return (task_count, candidate.free[GPUS], candidate.free[CPUS], candidate.free[MEM], candidate.index, candidate)


class SpreadQueue:
    """Candidate agents of a demand, in an order that uses many agents.

    Agents with the fewest tasks of the section come first. `stays`: agents in use come before them, and near agents are
    preferred. Ties go to the agent with fewer GPUs, then to the largest agent.
    """

    def __init__(self, limit: CapacityOf, avoids_gpus: bool, group: str, stays: bool) -> None:
        self._limit, self._avoids_gpus, self._group, self._stays = limit, avoids_gpus, group, stays
        self._heap: list[SpreadEntry] = []

    def push(self, candidate: AgentCapacity) -> None:
        heappush(self._heap, self._entry(candidate, self._limit(candidate)))

    def fill(self, candidates: Sequence[tuple[AgentCapacity, int]]) -> None:
        """Add many candidates with their capacities."""
        self._heap += [self._entry(candidate, task_count) for candidate, task_count in candidates]
        self._heap.sort()

    def pop(self, left: int) -> AgentCapacity | None:  # noqa: ARG002 - the order does not depend on it
        while self._heap:
            entry = heappop(self._heap)
            candidate = entry[-1]
            now = self._limit(candidate)
            if now <= 0:
                continue
            fresh = self._entry(candidate, now)
            if fresh == entry:
                return candidate
            heappush(self._heap, fresh)
        return None

    def _entry(self, candidate: AgentCapacity, task_count: int) -> SpreadEntry:
        return (
            self._avoids_gpus and candidate.total[GPUS] > 0,
            self._stays and not candidate.in_use,
            candidate.groups.get(self._group, 0),
            candidate.rank if self._stays else 0,
            candidate.free[GPUS],
            -task_count,
            candidate.index,
            candidate,
        )


# --- Neighbourhoods, best first
#
# A neighbourhood is a value of a `near` field, such as a zone or a rack. Neighbourhoods with tasks of the service come
# first, then those that have room for the gang and need the fewest agents for its largest demand, with the least left
# over, then the largest.


@dataclass(frozen=True, slots=True)
class GangProfile:
    """Properties of a gang that score neighbourhoods."""

    #: Number of tasks of its largest demand.
    lead_tasks: int
    #: How many of these each agent can take, by the agent's index; 0 if the agent is excluded.
    lead_counts: Sequence[int]
    #: Needs of the whole gang by dimension.
    total: tuple[int, ...]


def rank_neighbourhoods(candidates: Sequence[AgentCapacity], fields: Sequence[str], gang: GangProfile) -> int:
    """Set every agent's neighbourhood rank; return the number of neighbourhoods."""
    order = _ordered(candidates, fields, gang)
    for number, group in enumerate(order):
        for candidate in group:
            candidate.rank = number
    return len(order)


def _ordered(
    candidates: Sequence[AgentCapacity], fields: Sequence[str], gang: GangProfile
) -> list[Sequence[AgentCapacity]]:
    if not fields:
        return [candidates]
    groups: dict[str, list[AgentCapacity]] = {}
    for candidate in candidates:
        groups.setdefault(candidate.agent.location.value(fields[0]) or "", []).append(candidate)
    if len(groups) == 1:
        return _ordered(candidates, fields[1:], gang)
    best = sorted(groups, key=lambda value: (*_score(groups[value], gang), value))
    return [part for value in best for part in _ordered(groups[value], fields[1:], gang)]


def _score(candidates: Sequence[AgentCapacity], gang: GangProfile) -> tuple[int, bool, int, int]:
    """Return the score of a neighbourhood; lower is better."""
    standing = sum(count for candidate in candidates for count in candidate.groups.values())
    task_counts = sorted((gang.lead_counts[candidate.index] for candidate in candidates), reverse=True)
    capacity = sum(task_counts)
    free = (sum(candidate.free[place] for candidate in candidates) for place in range(len(gang.total)))
    if capacity < gang.lead_tasks or not all(map(ge, free, gang.total)):
        return (-standing, True, 0, -capacity)
    return (-standing, False, _agents_needed(task_counts, gang.lead_tasks), capacity)


def _agents_needed(task_counts: Sequence[int], tasks: int) -> int:
    """Return the number of agents for the tasks; `task_counts` is in descending order."""
    for used, task_count in enumerate(task_counts):
        if tasks <= 0:
            return used
        tasks -= task_count
    return len(task_counts)


def even_values(capacities: Sequence[int], tasks: int) -> int:
    """Return the maximum number of values over which the tasks can spread evenly.

    `capacities` has the capacity of each value, in descending order. If no even spread exists, all values count.
    """
    for values in range(min(len(capacities), tasks), 0, -1):
        share, more = divmod(tasks, values)
        if capacities[values - 1] >= share and (not more or capacities[more - 1] > share):
            return values
    return len(capacities)


# --- Search


@dataclass(frozen=True, slots=True)
class ChosenAgent:
    """The agent of one task, with the explanation."""

    task: TaskSpec
    agent: Agent
    why: str


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of one search: placed tasks in order, and demands with unplaced tasks."""

    chosen: tuple[ChosenAgent, ...]
    missing: tuple[Demand, ...]
    #: State after the search, for explanations.
    capacities: Sequence[AgentCapacity]
    rules: dict[str, DemandRules]
    #: Whether a demand cannot be placed even alone.
    hopeless: bool


def search(demands: Sequence[Demand], agents: Sequence[Agent], circumstances: PlacementContext) -> SearchResult:
    """Place all tasks; if impossible, return the first pass: its reasons are simplest."""
    order = sorted(demands, key=_priority)
    first = result = _SearchPass(order, agents, circumstances).run()
    tried_orders = [_order_of(order)]
    while result.missing and not result.hopeless:
        missing = {demand.job.group for demand in result.missing}
        order.sort(key=lambda demand: demand.job.group not in missing)
        if _order_of(order) in tried_orders:
            return first
        tried_orders.append(_order_of(order))
        result = _SearchPass(order, agents, circumstances).run()
    return first if result.missing else result


def _order_of(order: Sequence[Demand]) -> list[str]:
    return [demand.job.group for demand in order]


def _priority(demand: Demand) -> tuple[int, bool, int, int, int]:
    needs = demand.needs
    return (-needs.gpus, demand.is_spread, -needs.cpus, -needs.mem, -needs.disk)


class _SearchPass:
    """One pass over the demands in a given order."""

    def __init__(self, order: Sequence[Demand], agents: Sequence[Agent], circumstances: PlacementContext) -> None:
        self._order, self._circumstances = order, circumstances
        self._packs = circumstances.placement.strategy is PlacementStrategy.BINPACK
        self._capacities = [AgentCapacity(agent, index) for index, agent in enumerate(agents)]
        self._rules = {demand.job.group: self._rules_of(demand) for demand in order}
        at = {candidate.agent.id: candidate for candidate in self._capacities}
        for item in self._circumstances.placed_tasks:
            if candidate := at.get(item.agent_id):
                candidate.in_use = True
                candidate.count(item.group)
        self._admitted = {
            group: [candidate for candidate in self._capacities if rules.admits(candidate.agent, candidate.total[GPUS])]
            for group, rules in self._rules.items()
        }
        self._chosen: list[ChosenAgent] = []
        self._neighbourhoods = self._rank()

    def run(self) -> SearchResult:
        alone = [sum(most for _, most in self._candidates(demand)) for demand in self._order]
        hopeless = any(most < len(demand.tasks) for most, demand in zip(alone, self._order, strict=True))
        missing = []
        for position, demand in enumerate(self._order):
            placed = self._place(demand, self._needed(self._order[position:]))
            if placed < len(demand.tasks):
                missing.append(demand)
        return SearchResult(tuple(self._chosen), tuple(missing), self._capacities, self._rules, hopeless)

    def _rules_of(self, demand: Demand) -> DemandRules:
        group, standing = demand.job.group, self._circumstances.placed_tasks
        return DemandRules(demand, self._circumstances, [item.location for item in standing if item.group == group])

    def _rank(self) -> int:
        if not self._packs:
            return 1
        lead = max(self._order, key=lambda demand: len(demand.tasks))
        task_counts = [0] * len(self._capacities)
        for candidate, most in self._candidates(lead):
            task_counts[candidate.index] = most
        total = self._needed(self._order)
        return rank_neighbourhoods(
            self._capacities, self._circumstances.placement.near, GangProfile(len(lead.tasks), task_counts, total)
        )

    def _candidates(self, demand: Demand) -> list[tuple[AgentCapacity, int]]:
        """Return the agents that can take a task of the demand, with the number of tasks."""
        limit = self._limit(demand)
        return [(candidate, most) for candidate in self._admitted[demand.job.group] if (most := limit(candidate)) > 0]

    def _limit(self, demand: Demand) -> Callable[[AgentCapacity], int]:
        rules, wants = self._rules[demand.job.group], demand.requirements
        if not rules.limit_rules:
            return lambda candidate: candidate.fits(wants)
        return lambda candidate: min(candidate.fits(wants), rules.remaining(candidate.agent.location))

    def _needed(self, demands: Iterable[Demand]) -> tuple[int, ...]:
        """Return the needs of all tasks of the demands by dimension."""
        amounts = [[amount * len(demand.tasks) for amount in amounts_of(demand.needs)] for demand in demands]
        return tuple(map(sum, zip(*amounts, strict=True)))

    def _place(self, demand: Demand, rest: Sequence[int]) -> int:
        """Place tasks of the demand; return how many. `rest`: needs of the remaining gang."""
        rules = self._rules[demand.job.group]
        pool = CandidatePool(demand, rules, lambda: self._queue_of(demand, rest))
        pool.fill(self._candidates(demand))
        for placed, task in enumerate(demand.tasks):
            candidate = pool.pop(len(demand.tasks) - placed)
            if candidate is None:
                return placed
            self._chosen.append(ChosenAgent(task, candidate.agent, self._why(demand, candidate)))
            candidate.allocate(demand)
            rules.count(candidate.agent.location)
            pool.push(candidate)
        return len(demand.tasks)

    def _queue_of(self, demand: Demand, rest: Sequence[int]) -> PackedQueue | SpreadQueue:
        avoids_gpus = not demand.needs.gpus
        if self._packs and not demand.is_spread:
            return PackedQueue(self._limit(demand), avoids_gpus, rest)
        return SpreadQueue(self._limit(demand), avoids_gpus, demand.job.group, stays=self._packs)

    def _why(self, demand: Demand, candidate: AgentCapacity) -> str:
        alike = candidate.groups.get(demand.job.group, 0)
        if not self._packs or demand.is_spread:
            return f"the agent has the fewest tasks of {demand.job.group} ({alike})"
        if candidate.in_use:
            return f"the agent already has tasks of the service: {sum(candidate.groups.values())}"
        best = " in the best neighbourhood" if self._neighbourhoods > 1 and candidate.rank == 0 else ""
        return f"best fit{best}: the agent can hold the largest part of the gang, with the least resources left over"


class CandidatePool:
    """Candidates of a demand by GROUP_BY value, the value with the fewest tasks first."""

    def __init__(self, demand: Demand, rules: DemandRules, queue: Callable[[], PackedQueue | SpreadQueue]) -> None:
        self._demand, self._rules, self._make = demand, rules, queue
        self._queues: dict[tuple[str | None, ...], PackedQueue | SpreadQueue] = {}
        self._samples: dict[tuple[str | None, ...], AgentCapacity] = {}
        self._order: list[tuple[int, int]] = []

    def fill(self, candidates: Iterable[tuple[AgentCapacity, int]]) -> None:
        """Add all candidates with the number of tasks each can take."""
        parts: dict[tuple[str | None, ...], list[tuple[AgentCapacity, int]]] = {}
        for candidate, task_count in candidates:
            parts.setdefault(self._key(candidate), []).append((candidate, task_count))
        for key in self._balanced(parts):
            queue = self._make()
            queue.fill(parts[key])
            self._queues[key], self._samples[key] = queue, parts[key][0][0]
        self._order = [(self._level(key), number) for number, key in enumerate(self._queues)]
        self._keys = list(self._queues)
        heapify(self._order)

    def pop(self, left: int) -> AgentCapacity | None:
        """Return the best candidate that GROUP_BY allows next."""
        skipped: list[tuple[int, int]] = []
        candidate = None
        while self._order and candidate is None:
            level, number = heappop(self._order)
            key = self._keys[number]
            now = self._level(key)
            if now != level:
                heappush(self._order, (now, number))
            elif not self._rules.is_turn_of(self._samples[key].agent.location):
                skipped.append((level, number))
            else:
                candidate = self._queues[key].pop(left)
                skipped += [] if candidate is None else [(level, number)]
        for entry in skipped:
            heappush(self._order, entry)
        return candidate

    def push(self, candidate: AgentCapacity) -> None:
        """Put a candidate back after a task was placed on it."""
        self._queues[self._key(candidate)].push(candidate)

    def _key(self, candidate: AgentCapacity) -> tuple[str | None, ...]:
        return tuple(candidate.agent.location.value(rule.field) for rule in self._rules.group_rules)

    def _level(self, key: tuple[str | None, ...]) -> int:
        return self._rules.level(self._samples[key].agent.location)

    def _balanced(
        self, parts: dict[tuple[str | None, ...], list[tuple[AgentCapacity, int]]]
    ) -> list[tuple[str | None, ...]]:
        """Return the GROUP_BY values to use; values with the largest capacity come first.

        If the only GROUP_BY has no number, a value that cannot hold its share would block all others. Therefore as few
        values as possible are excluded from the start.
        """
        tasks = len(self._demand.tasks)
        capacity = {key: min(sum(task_count for _, task_count in part), tasks) for key, part in parts.items()}
        keys = sorted(parts, key=lambda key: (-capacity[key], tuple(value or "" for value in key)))
        if len(self._rules.group_rules) != 1 or self._rules.group_rules[0].number or not self._rules.is_empty():
            return keys
        return keys[: even_values([capacity[key] for key in keys], tasks)]


def unplaced_names(demands: Iterable[Demand], chosen: Iterable[ChosenAgent]) -> list[TaskName]:
    """Return the names of unplaced tasks of the demands, in order."""
    placed = {item.task.name for item in chosen}
    return [task.name for demand in demands for task in demand.tasks if task.name not in placed]
