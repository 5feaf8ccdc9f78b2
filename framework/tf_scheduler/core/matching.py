"""Offers x pending tasks -> a place for every task of the gang, or for none and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tf_scheduler.model.ids import AgentId, TaskName
from tf_scheduler.model.offer import Offer
from tf_scheduler.model.operation import Operation
from tf_scheduler.model.reasons import Reason
from tf_scheduler.model.resources import Needs, Resource
from tf_scheduler.model.spec import JobSpec, TaskSpec

from .placement.agents import Agent, merge
from .placement.demand import Circumstances, demands_of
from .placement.explain import reasons, waits
from .placement.search import Chosen, search
from .resources import claim_ports, consume, ports_of


@dataclass(frozen=True, slots=True)
class Placement:
    """One task on one agent, with the resources that it and its executor take."""

    task: TaskSpec
    agent: Agent
    task_resources: tuple[Resource, ...]
    executor_resources: tuple[Resource, ...]
    #: Why this agent, in words.
    why: str = ""
    #: What is reserved for it, to be given back in the same call, and that reservation's id.
    unreserve: tuple[Operation, ...] = ()
    reservation: str = ""


@dataclass(frozen=True, slots=True)
class Match:
    """Every task has its place."""

    placements: tuple[Placement, ...]
    #: What is left of the agents that were used.
    left: Mapping[AgentId, Agent] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoMatch:
    """At least one task has none: nothing is launched."""

    #: Per task that found no place: what every agent lacks.
    reasons: Mapping[TaskName, tuple[Reason, ...]]
    #: Per task that has a place: whom it waits for.
    waiting: Mapping[TaskName, tuple[Reason, ...]] = field(default_factory=dict)
    #: The places that were found; only reservations make use of them.
    part: tuple[Chosen, ...] = ()


def match_gang(tasks: Sequence[TaskSpec], offers: Iterable[Offer], circumstances: Circumstances) -> Match | NoMatch:
    """Place all of `tasks` on `offers`, or none. The answer depends on the arguments only."""
    return match_agents(tasks, merge(offers), circumstances)


def match_agents(
    tasks: Sequence[TaskSpec], agents: Sequence[Agent], circumstances: Circumstances, passed: Iterable[Agent] = ()
) -> Match | NoMatch:
    """The same over agents that are merged already, in the order of host names. Placements are in that of `tasks`.

    `passed`: agents that are not on offer any more, only to be told of in the reasons.
    """
    if not tasks:
        return NoMatch({})
    found = search(demands_of(tasks, circumstances.executor), agents, circumstances)
    if found.missing:
        return NoMatch(reasons(found, passed), waits(found), found.chosen)
    return placed(tasks, found.chosen, circumstances.executor)


def placed(tasks: Sequence[TaskSpec], chosen: Iterable[Chosen], executor: Needs) -> Match:
    """Take the resources of every task from its agent's."""
    left: dict[AgentId, Agent] = {}
    placements: dict[TaskName, Placement] = {}
    for item in chosen:
        agent = left.get(item.agent.id, item.agent)
        for_executor, rest = consume(agent.resources, executor)
        for_task, rest = _take(rest, item.task.job)
        left[agent.id] = replace(agent, resources=rest)
        placements[item.task.name] = Placement(item.task, item.agent, for_task, for_executor, item.why)
    return Match(tuple(placements[task.name] for task in tasks if task.name in placements), left)


def _take(resources: tuple[Resource, ...], job: JobSpec) -> tuple[tuple[Resource, ...], tuple[Resource, ...]]:
    """(taken, rest), with the port that the job wishes, if that is there."""
    if not job.port or job.port not in ports_of(resources):
        return consume(resources, job.needs)
    entries, rest = claim_ports(resources, frozenset({job.port}))
    taken, rest = consume(rest, replace(job.needs, ports=job.needs.ports - 1))
    return (*entries, *taken), rest
