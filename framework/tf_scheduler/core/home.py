"""A lost task at its old address: same agent, same port. Nobody else has to start again then."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from tf_scheduler.model.ids import AgentId, TaskName
from tf_scheduler.model.reasons import AwaitsHome, Reason
from tf_scheduler.model.spec import TaskSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from .matching import Placement
from .placement.agents import Agent
from .placement.rules import down_in
from .resources import claim_ports, consume, ports_of, shortages


@dataclass(frozen=True, slots=True)
class Homecoming:
    """What became of the tasks that have an old address."""

    placements: tuple[Placement, ...]
    #: Tasks without an old address, or that have waited for it long enough.
    others: tuple[TaskSpec, ...]
    #: Tasks that still wait for it.
    waiting: Mapping[TaskName, tuple[Reason, ...]]
    #: What is left of the agents.
    agents: Mapping[AgentId, Agent]


def bring_home(
    state: SchedulerState,
    tasks: Iterable[TaskSpec],
    agents: Mapping[AgentId, Agent],
    now: float,
    avoided: Collection[AgentId] = (),
) -> Homecoming:
    """Give each task that is launched again its old address, if that is on offer, and its agent not avoided."""
    left = dict(agents)
    placements: list[Placement] = []
    others: list[TaskSpec] = []
    waiting: dict[TaskName, tuple[Reason, ...]] = {}
    for task in tasks:
        record, until = state.tasks.get(task.name), _waits_until(state, task.name, avoided)
        home = None if record is None else _open(state, left.get(record.agent_id), now)
        found = None if record is None or until is None else _at_home(state, task, record, home)
        if found is not None:
            left[found[1].id] = found[1]
            placements.append(found[0])
        elif record is not None and until is not None and now < until:
            waiting[task.name] = (AwaitsHome(record.hostname, record.address),)
        else:
            others.append(task)
    return Homecoming(tuple(placements), tuple(others), waiting, left)


def _waits_until(state: SchedulerState, name: TaskName, avoided: Collection[AgentId]) -> float | None:
    """How long a task waits for its old address; None: it has none.

    One that was lost waits for a while, one that is to go elsewhere does not. One that a plan launches again takes it
    if it is on offer: when the ClusterSpec stays as it is, nobody else has to start again.
    """
    record, item = state.tasks.get(name), state.recoveries.get(name)
    if record is None or record.agent_id in avoided or state.spec.network is not None:
        return None  # on a virtual network the name goes with the task
    if item is not None and record.address in item.shuns:
        return None
    if item is None or item.launch != record.id:
        return 0.0
    return None if item.leaves else item.home_until


def _open(state: SchedulerState, agent: Agent | None, now: float) -> Agent | None:
    """The agent, unless it is about to go into maintenance."""
    leaves = agent is not None and down_in(agent, state.spec.placement.draining_seconds, now) is not None
    return None if leaves else agent


def _at_home(
    state: SchedulerState, task: TaskSpec, record: TaskRecord, agent: Agent | None
) -> tuple[Placement, Agent] | None:
    """The placement and what it leaves of the agent; None when its port or anything else is taken."""
    needs, executor = task.job.needs, state.spec.executor.needs
    port = int(record.address.rpartition(":")[2])
    if agent is None or port not in ports_of(agent.resources):
        return None
    entries, rest = claim_ports(agent.resources, frozenset({port}))
    without_port = replace(needs, ports=needs.ports - 1)
    if shortages(rest, executor):
        return None
    for_executor, rest = consume(rest, executor)
    if shortages(rest, without_port):
        return None
    for_task, rest = consume(rest, without_port)
    used = replace(agent, resources=rest)
    return Placement(task, agent, (*entries, *for_task), for_executor, "its old address"), used
