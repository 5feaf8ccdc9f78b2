"""The constraints of one demand: what an agent must be, and how many tasks each value has.

Meanings follow the DC/OS SDK (dcos-commons, offer/evaluate/placement): all rows hold together; tasks are counted
within their section. An agent without the attribute is refused by every operator but UNLIKE and IS_NOT, as Marathon
does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from tf_scheduler.model.placement import REGION, Constraint, GpuScheduling, Operator, Place
from tf_scheduler.model.reasons import AgentReason, Excluded, Full, GoingDown, KeptForGpus, OtherRegion, Uneven

from .agents import Agent
from .demand import GPUS, Circumstances, Demand
from .rooms import Room

_CAPS = (Operator.UNIQUE, Operator.MAX_PER)

#: Whether a value is allowed by an operator that looks at nothing else.
_ALLOWS: Mapping[Operator, Callable[[str, str], bool]] = {
    Operator.CLUSTER: lambda value, parameter: value == parameter,
    Operator.IS: lambda value, parameter: value == parameter,
    Operator.IS_NOT: lambda value, parameter: value != parameter,
    Operator.LIKE: lambda value, parameter: re.fullmatch(parameter, value) is not None,
    Operator.UNLIKE: lambda value, parameter: re.fullmatch(parameter, value) is None,
}
_CONTENT_WITHOUT = (Operator.IS_NOT, Operator.UNLIKE)


def allows(constraint: Constraint, value: str | None) -> bool:
    """Whether an agent with this value of the field may run any task at all."""
    if value is None:
        return constraint.operator in _CONTENT_WITHOUT
    allowed = _ALLOWS.get(constraint.operator)
    return allowed is None or allowed(value, constraint.parameter)


def down_in(agent: Agent, draining_seconds: float, now: float) -> float | None:
    """Seconds until the agent's maintenance, if that is near or has begun; else None."""
    window = agent.unavailability
    if window is None or (window.end is not None and window.end <= now):
        return None
    seconds = window.start - now
    return seconds if seconds <= draining_seconds else None


class Rules:
    """All that restricts one demand, and the tally of its section; the tally changes as tasks are placed."""

    def __init__(self, demand: Demand, circumstances: Circumstances, counted: Iterable[Place] = ()) -> None:
        self._demand, self._circumstances = demand, circumstances
        self._constraints = demand.job.constraints
        self.caps = tuple(rule for rule in self._constraints if rule.operator in _CAPS)
        self.evens = tuple(rule for rule in self._constraints if rule.operator is Operator.GROUP_BY)
        self._free_region = any(rule.field == REGION for rule in self._constraints)
        self._known: dict[tuple[Constraint, str | None], bool] = {}
        self._tallies: dict[str, dict[str, int]] = {rule.field: {} for rule in (*self.caps, *self.evens)}
        for place in counted:
            self.count(place)

    # -- what never changes while a gang is placed

    def admits(self, agent: Agent, gpus: int) -> bool:
        """Whether the agent is one for this demand, however much is left of it. `gpus`: all that it offers."""
        if agent.id in self._circumstances.avoided or self._down_in(agent) is not None:
            return False
        if self._kept_for_gpus(gpus) or self._elsewhere(agent.place):
            return False
        return all(self._allows(rule, agent.place) for rule in self._constraints)

    def objections(self, agent: Agent, gpus: int) -> tuple[AgentReason, ...]:
        """Every reason that `admits` has for a no."""
        down, avoided = self._down_in(agent), self._circumstances.avoided.get(agent.id)
        return (
            *([KeptForGpus(gpus)] if self._kept_for_gpus(gpus) else ()),
            *([OtherRegion(agent.place.region, self._home)] if self._elsewhere(agent.place) else ()),
            *([GoingDown(down)] if down is not None else ()),
            *([avoided] if avoided is not None else ()),
            *(
                Excluded(rule, agent.place.value(rule.field))
                for rule in self._constraints
                if not self._allows(rule, agent.place)
            ),
        )

    def _allows(self, rule: Constraint, place: Place) -> bool:
        """Agents share few values: each is looked at once."""
        key = (rule, place.value(rule.field))
        if key not in self._known:
            self._known[key] = allows(*key)
        return self._known[key]

    @property
    def _home(self) -> str:
        return self._circumstances.placement.region or self._circumstances.region

    def _elsewhere(self, place: Place) -> bool:
        return not self._free_region and place.region != self._home

    def _kept_for_gpus(self, gpus: int) -> bool:
        restricted = self._circumstances.placement.gpu_scheduling_behavior is GpuScheduling.RESTRICTED
        return gpus > 0 and restricted and not self._demand.needs.gpus

    def _down_in(self, agent: Agent) -> float | None:
        """Seconds until the agent's maintenance, if that is near or has begun."""
        return down_in(agent, self._circumstances.placement.draining_seconds, self._circumstances.now)

    # -- what changes with every task that is placed

    def count(self, place: Place) -> None:
        """A task of the section is, or goes, there."""
        for name, tally in self._tallies.items():
            value = place.value(name)
            if value is not None:
                tally[value] = tally.get(value, 0) + 1

    def room_for(self, place: Place) -> int:
        """How many more tasks UNIQUE and MAX_PER let on such an agent. It never grows within a search."""
        return min((rule.number - self._count(rule, place) for rule in self.caps), default=1 << 60)

    def is_turn_of(self, place: Place) -> bool:
        """Whether GROUP_BY lets the next task on such an agent."""
        return all(self._turn(rule, place) is None for rule in self.evens)

    def limits(self, place: Place) -> tuple[AgentReason, ...]:
        """Every reason that UNIQUE, MAX_PER and GROUP_BY have for a no."""
        full = [
            Full(rule, place.value(rule.field) or "", count)
            for rule in self.caps
            if (count := self._count(rule, place)) >= rule.number and place.value(rule.field) is not None
        ]
        uneven = [turn for rule in self.evens if (turn := self._turn(rule, place)) is not None]
        return (*full, *uneven)

    def level(self, place: Place) -> int:
        """How many tasks the values of the GROUP_BY fields have: the least comes first."""
        return sum(self._count(rule, place) for rule in self.evens)

    def is_untouched(self) -> bool:
        """Whether no task is counted yet."""
        return not any(self._tallies.values())

    def _count(self, rule: Constraint, place: Place) -> int:
        value = place.value(rule.field)
        return 0 if value is None else self._tallies[rule.field].get(value, 0)

    def _turn(self, rule: Constraint, place: Place) -> Uneven | None:
        """The SDK's round robin (dcos-commons, AbstractRoundRobinRule): None when a task may go there.

        Only values that have tasks are known. The parameter says how many there are; until all of them are known,
        none gets a second task.
        """
        value = place.value(rule.field)
        if value is None:
            return None
        tally = self._tallies[rule.field]
        count = tally.get(value, 0)
        least = min(tally.values(), default=0)
        if count > least and least != max(tally.values()):
            return Uneven(rule, value, count, least)
        if len(tally) < rule.number and count:
            return Uneven(rule, value, count, 0)
        return None


def gpus_of(room: Room) -> int:
    """All GPUs that the agent offers."""
    return room.whole[GPUS]
