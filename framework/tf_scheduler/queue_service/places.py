"""Whether a job finds its places now, by the matcher of its scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tf_scheduler.core.placement.agents import Agent, PlacementContext, merge_offers
from tf_scheduler.core.placement.matching import NoMatch, first_gangs, match_agents
from tf_scheduler.mesos.capacity import Capacity
from tf_scheduler.model.ids import AgentId
from tf_scheduler.model.resources import Needs, Resource, format_thousandths
from tf_scheduler.model.spec import ServiceSpec, TaskSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.queue.job import JobId

#: Agents that a reason names.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Places:
    """Free resources by agent. `quota`: what the role may still use; None: no limit."""

    agents: Sequence[Agent] = ()
    quota: Mapping[str, int] | None = None
    #: What is free on all agents.
    free: Needs = field(default_factory=Needs)

    @classmethod
    def of(cls, agents: Sequence[Agent], quota: Mapping[str, int] | None) -> Places:
        return cls(agents, quota, Needs.of(entry for agent in agents for entry in agent.resources))

    @classmethod
    def after(cls, capacity: Capacity, pending: Iterable[tuple[ServiceSpec, Sequence[TaskSpec]]]) -> Places:
        """Return what is free once the tasks that running jobs wait for are placed."""
        agents = merge_offers(capacity.free)
        for spec, tasks in pending:
            for task in tasks:  # one by one: a job waits for the rest with the places that it finds
                match = match_agents((task,), agents, _context(spec))
                if not isinstance(match, NoMatch):
                    agents = tuple(match.leftover.get(agent.id, agent) for agent in agents)
        return cls.of(agents, capacity.quota)

    def shortage(self, needs: Needs) -> str:
        """Return which resource is too scarce on all agents together; empty: none."""
        for name, amount in needs.scalars():
            if amount > getattr(self.free, name):
                return f"needs {name} {format_thousandths(amount)}, free are {self._where(name)}"
            if self.quota is not None and amount > self.quota.get(name, amount):
                left = format_thousandths(self.quota[name])
                return f"needs {name} {format_thousandths(amount)}, the quota of the role leaves {left}"
        return ""

    def mismatch(self, spec: ServiceSpec) -> str:
        """Return why the tasks of a job do not find their places; empty: they find them."""
        for tasks in first_gangs(spec):
            match = match_agents(tasks, self.agents, _context(spec))
            if isinstance(match, NoMatch):
                name, reasons = next(iter(match.reasons.items()))
                return f"{name} finds no place: {'; '.join(map(str, reasons[:_NAMED]))}"
        return ""

    def without(self, states: Iterable[SchedulerState]) -> Places:
        """Return what is free once these jobs have stopped."""
        given: dict[AgentId, tuple[Resource, ...]] = {}
        for state in states:
            for record in state.stored.tasks.values():
                given[record.agent_id] = (*given.get(record.agent_id, ()), *record.resources)
        agents = [replace(each, resources=(*each.resources, *given.get(each.id, ()))) for each in self.agents]
        freed = dict(Needs.of(entry for resources in given.values() for entry in resources).scalars())
        quota = self.quota and {name: left + freed.get(name, 0) for name, left in self.quota.items()}
        return Places.of(agents, quota)

    def room(self) -> Mapping[AgentId, Needs]:
        """Return the free amounts by agent."""
        return {agent.id: Needs.of(agent.resources) for agent in self.agents}

    def _where(self, name: str) -> str:
        """Return the free amount of a resource, and the agents that have most of it."""
        amounts = sorted(
            ((getattr(Needs.of(agent.resources), name), agent.hostname) for agent in self.agents), reverse=True
        )
        named = ", ".join(f"{host} {format_thousandths(amount)}" for amount, host in amounts[:_NAMED])
        more = f" and {len(amounts) - _NAMED} more agents" if len(amounts) > _NAMED else ""
        return f"{format_thousandths(getattr(self.free, name))} ({named}{more})"


def held(states: Mapping[JobId, SchedulerState]) -> Mapping[JobId, Mapping[AgentId, Needs]]:
    """Return what the launched tasks of each job hold, by agent."""
    result: dict[JobId, dict[AgentId, Needs]] = {}
    for name, state in states.items():
        own = result.setdefault(name, {})
        for record in state.stored.tasks.values():
            status = state.stored.statuses.get(record.id)
            if status is None or not status.state.has_ended:
                own[record.agent_id] = own.get(record.agent_id, Needs()) + Needs.of(record.resources)
    return result


def _context(spec: ServiceSpec) -> PlacementContext:
    return PlacementContext(spec.executor.needs, spec.placement)
