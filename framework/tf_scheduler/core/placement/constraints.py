"""Check which agents a demand's constraints allow; count the tasks of each value.

Semantics follow the DC/OS SDK (dcos-commons, offer/evaluate/placement): all constraints must hold, and tasks are
counted per section. An agent without the attribute satisfies only UNLIKE (as in Marathon) and IS_NOT.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from tf_scheduler.model import reasons
from tf_scheduler.model.placement import REGION, AgentLocation, Constraint, GpuScheduling, Operator
from tf_scheduler.model.spec import ServiceSpec

from .agents import Agent, Demand, PlacementContext

_CAPS = (Operator.UNIQUE, Operator.MAX_PER)

#: Operator -> whether it allows a value, for operators that count no tasks.
_ALLOWS: Mapping[Operator, Callable[[str, str], bool]] = {
    Operator.CLUSTER: lambda value, parameter: value == parameter,
    Operator.IS: lambda value, parameter: value == parameter,
    Operator.IS_NOT: lambda value, parameter: value != parameter,
    Operator.LIKE: lambda value, parameter: re.fullmatch(parameter, value) is not None,
    Operator.UNLIKE: lambda value, parameter: re.fullmatch(parameter, value) is None,
}
_ALLOWS_MISSING = (Operator.IS_NOT, Operator.UNLIKE)


def allows(constraint: Constraint, value: str | None) -> bool:
    """Return whether the constraint allows any task on an agent with this value."""
    if value is None:
        return constraint.operator in _ALLOWS_MISSING
    allowed = _ALLOWS.get(constraint.operator)
    return allowed is None or allowed(value, constraint.parameter)


#: Seconds between the end of a task's grace period and a maintenance window, for the relaunch.
MOVE_AHEAD = 60.0


def move_ahead(spec: ServiceSpec) -> float:
    """Return how many seconds before maintenance tasks leave an agent."""
    return MOVE_AHEAD + max(job.settings.kill_grace for job in spec.jobs)


def draining_seconds(spec: ServiceSpec) -> float:
    """Return how many seconds before maintenance an agent gets no new tasks.

    The result is never less than `move_ahead`: otherwise a task could return to the agent and leave it, repeatedly.
    """
    return max(spec.placement.draining_seconds, move_ahead(spec))


def seconds_to_maintenance(agent: Agent, draining_seconds: float, now: float) -> float | None:
    """Return the seconds until the agent's maintenance; `None` unless near or active."""
    window = agent.unavailability
    if window is None or (window.end is not None and window.end <= now):
        return None
    seconds = window.start - now
    return seconds if seconds <= draining_seconds else None


class DemandRules:
    """Constraints of one demand, and the mutable task counts of its section."""

    def __init__(self, demand: Demand, circumstances: PlacementContext, counted: Iterable[AgentLocation] = ()) -> None:
        self._demand, self._circumstances = demand, circumstances
        self._constraints = demand.job.constraints
        self.limit_rules = tuple(rule for rule in self._constraints if rule.operator in _CAPS)
        self.group_rules = tuple(rule for rule in self._constraints if rule.operator is Operator.GROUP_BY)
        self._free_region = any(rule.field == REGION for rule in self._constraints)
        self._known: dict[tuple[Constraint, str | None], bool] = {}
        self._tallies: dict[str, dict[str, int]] = {rule.field: {} for rule in (*self.limit_rules, *self.group_rules)}
        for place in counted:
            self.count(place)

    # -- independent of placed tasks

    def admits(self, agent: Agent, gpus: int) -> bool:
        """Return whether the agent is allowed, ignoring its free resources.

        `gpus`: all GPUs that the agent offers, in thousandths.
        """
        if agent.id in self._circumstances.avoided or self._down_in(agent) is not None or self.is_unsafe(agent):
            return False
        return not self._kept_for_gpus(gpus) and self.allows(agent.location)

    def allows(self, place: AgentLocation) -> bool:
        """Return whether region and constraints allow the location, ignoring other tasks."""
        return not self._elsewhere(place) and all(self._allows(rule, place) for rule in self._constraints)

    def objections(self, agent: Agent, gpus: int) -> tuple[reasons.AgentReason, ...]:
        """Return every reason why `admits` is false."""
        down, avoided = self._down_in(agent), self._circumstances.avoided.get(agent.id)
        problem = agent.login.problem if agent.login.is_required is None else ""
        return (
            *([reasons.KeptForGpus(gpus)] if self._kept_for_gpus(gpus) else ()),
            *([reasons.OtherRegion(agent.location.region, self._home)] if self._elsewhere(agent.location) else ()),
            *([reasons.MaintenanceScheduled(down)] if down is not None else ()),
            *([avoided] if avoided is not None else ()),
            *([reasons.NoExecutorLogin(problem)] if self.is_unsafe(agent) else ()),
            *(
                reasons.Excluded(rule, agent.location.value(rule.field))
                for rule in self._constraints
                if not self._allows(rule, agent.location)
            ),
        )

    def _allows(self, rule: Constraint, place: AgentLocation) -> bool:
        """Check a constraint; results are cached because agents share few values."""
        key = (rule, place.value(rule.field))
        if key not in self._known:
            self._known[key] = allows(*key)
        return self._known[key]

    @property
    def _home(self) -> str:
        return self._circumstances.placement.region or self._circumstances.region

    def _elsewhere(self, place: AgentLocation) -> bool:
        # An agent without a region is in that of the master (Mesos, src/master/allocator, isRemoteSlave).
        return not self._free_region and (place.region or self._circumstances.region) != self._home

    def _kept_for_gpus(self, gpus: int) -> bool:
        restricted = self._circumstances.placement.gpu_scheduling_behavior is GpuScheduling.RESTRICTED
        return gpus > 0 and restricted and not self._demand.needs.gpus

    def _down_in(self, agent: Agent) -> float | None:
        """Return the seconds until the agent's maintenance if it is near or active."""
        return seconds_to_maintenance(agent, self._circumstances.placement.draining_seconds, self._circumstances.now)

    def is_unsafe(self, agent: Agent) -> bool:
        """Return whether another process on the agent could take the task's secrets."""
        return self._circumstances.is_unsafe(agent, self._demand.job.group)

    # -- dependent on placed tasks

    def count(self, place: AgentLocation) -> None:
        """Count a task of the section at the location."""
        for name, tally in self._tallies.items():
            value = place.value(name)
            if value is not None:
                tally[value] = tally.get(value, 0) + 1

    def remaining(self, place: AgentLocation) -> int:
        """Return how many more tasks UNIQUE and MAX_PER allow; a search never raises this."""
        return min((rule.number - self._count(rule, place) for rule in self.limit_rules), default=1 << 60)

    def maximum(self, place: AgentLocation) -> int:
        """Return the maximum number of tasks that region and constraints allow at a place."""
        return self.remaining(place) if self.allows(place) else 0

    def is_turn_of(self, place: AgentLocation) -> bool:
        """Return whether GROUP_BY allows the next task at the location."""
        return all(self._turn(rule, place) is None for rule in self.group_rules)

    def limits(self, place: AgentLocation) -> tuple[reasons.AgentReason, ...]:
        """Return every violation of UNIQUE, MAX_PER and GROUP_BY."""
        full = [
            reasons.ValueLimitReached(rule, value, count)
            for rule in self.limit_rules
            if (value := place.value(rule.field)) is not None and (count := self._count(rule, place)) >= rule.number
        ]
        uneven = [turn for rule in self.group_rules if (turn := self._turn(rule, place)) is not None]
        return (*full, *uneven)

    def level(self, place: AgentLocation) -> int:
        """Return the task count of the location's GROUP_BY values; the lowest comes first."""
        return sum(self._count(rule, place) for rule in self.group_rules)

    def is_empty(self) -> bool:
        """Return whether no task is counted yet."""
        return not any(self._tallies.values())

    def _count(self, rule: Constraint, place: AgentLocation) -> int:
        value = place.value(rule.field)
        return 0 if value is None else self._tallies[rule.field].get(value, 0)

    def _turn(self, rule: Constraint, place: AgentLocation) -> reasons.UnbalancedGroup | None:
        """Return why round robin forbids a task; `None` if it does not.

        The rule follows dcos-commons, AbstractRoundRobinRule. Only values with tasks are known. No value gets a
        second task until as many values have tasks as the parameter requires.
        """
        value = place.value(rule.field)
        if value is None:
            return None
        tally = self._tallies[rule.field]
        count = tally.get(value, 0)
        least = min(tally.values(), default=0)
        if count > least and least != max(tally.values()):
            return reasons.UnbalancedGroup(rule, value, count, least)
        if len(tally) < rule.number and count:
            return reasons.UnbalancedGroup(rule, value, count, 0)
        return None
