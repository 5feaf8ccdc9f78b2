"""What is missing -> every reason, bounded: the agents that come closest one by one, the others by number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.reasons import (
    AgentReason,
    BestOfAnyAgent,
    Excluded,
    Full,
    KeptForGpus,
    Left,
    MoreAgents,
    NoOffers,
    OtherRegion,
    Reason,
    Refusal,
    TooSmall,
    Uneven,
    Unreliable,
    WaitsFor,
)
from tf_scheduler.model.resources import Shortage

from .agents import Agent
from .demand import NAMES, Demand
from .rooms import Room
from .rules import Rules, gpus_of
from .search import Found, names_of

#: So many agents are told one by one.
TOLD_AGENTS = 20


def reasons(found: Found, passed: Iterable[Agent] = ()) -> Mapping[TaskName, tuple[Reason, ...]]:
    """Per task that was not placed: what each agent lacks. Tasks of one section are alike, so are their reasons.

    `passed`: agents whose offers were declined before.
    """
    rooms = [*found.rooms, *(Room(agent, number) for number, agent in enumerate(passed, len(found.rooms)))]
    said: dict[TaskName, tuple[Reason, ...]] = {}
    for demand in found.missing:
        why = _of_demand(demand, rooms, found.rules[demand.job.group])
        said.update(dict.fromkeys(names_of([demand], found.chosen), why))
    return said


def waits(found: Found) -> Mapping[TaskName, tuple[Reason, ...]]:
    """Per task that has a place: whom of its gang it waits for."""
    missing = names_of(found.missing, found.chosen)
    if not missing:
        return {}
    return {item.task.name: (WaitsFor(item.agent.hostname, missing[0], len(missing)),) for item in found.chosen}


def _of_demand(demand: Demand, rooms: Sequence[Room], rules: Rules) -> tuple[Reason, ...]:
    if not rooms:
        return (NoOffers(demand.needs, demand.job.constraints),)
    refusals = sorted((_refusal(demand, room, rules) for room in rooms), key=lambda item: len(item.reasons))
    refusals = [item for item in refusals if item.reasons]
    told: list[Reason] = [*refusals[:TOLD_AGENTS]]
    if len(refusals) > TOLD_AGENTS:
        rest = refusals[TOLD_AGENTS:]
        tallies = Counter(kind for item in rest for kind in {_kind_of(reason) for reason in item.reasons})
        told.append(MoreAgents(tuple(sorted(tallies.items(), key=lambda pair: (-pair[1], pair[0]))), len(rest)))
    return (*told, _best(demand, rooms))


def _refusal(demand: Demand, room: Room, rules: Rules) -> Refusal:
    alone, beside = _shortages(demand, room.whole), _shortages(demand, room.free)
    lacks: list[AgentReason] = [TooSmall(alone or beside, beside_gang=not alone)] if beside else []
    objections = rules.objections(room.agent, gpus_of(room))
    return Refusal(room.agent.hostname, (*lacks, *objections, *rules.limits(room.agent.place)))


def _shortages(demand: Demand, has: Sequence[int]) -> tuple[Shortage, ...]:
    return tuple(Shortage(NAMES[place], amount, has[place]) for place, amount in demand.wants if has[place] < amount)


def _best(demand: Demand, rooms: Sequence[Room]) -> BestOfAnyAgent:
    """The largest amount of each needed resource on any single agent, and where it is."""
    best = []
    for place, _ in demand.wants:
        room = max(rooms, key=lambda room: room.whole[place])
        best.append((NAMES[place], room.whole[place], room.agent.hostname))
    return BestOfAnyAgent(demand.needs, tuple(best))


def _kind_of(reason: AgentReason) -> str:
    """What to count many agents by."""
    if isinstance(reason, TooSmall):
        return f"have too little {', '.join(item.name for item in reason.shortages)}"
    if isinstance(reason, Excluded | Full | Uneven):
        return f"are not allowed by {reason.constraint}"
    if isinstance(reason, OtherRegion):
        return "are in another region"
    if isinstance(reason, Unreliable | Left):
        return "are avoided"
    return "are kept for GPUs" if isinstance(reason, KeptForGpus) else "go into maintenance"
