"""Agents that are to be avoided: those on which launches fail, and those that an operator wants a task to leave; and
ports that may be somebody else's.

Never so that a job cannot run: after a round of offers without success the least bad of them are used, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from tf_scheduler.model.ids import AgentId
from tf_scheduler.model.reasons import AgentReason, Left, Unreliable
from tf_scheduler.model.spec import TaskSpec
from tf_scheduler.model.state import SchedulerState

from .placement.agents import Agent
from .resources import claim_ports


def attempts(state: SchedulerState, tasks: Iterable[TaskSpec], now: float) -> Iterator[Mapping[AgentId, AgentReason]]:
    """What to avoid, as long as no place is found: first everything; after a round without success less and less."""
    avoided = {**_left(state, tasks), **_unreliable(state, now)}
    yield avoided
    if not state.gathering.failures:
        return
    while avoided:
        del avoided[min(avoided, key=lambda agent: _badness(avoided[agent]))]
        yield avoided


def without_shunned(state: SchedulerState, agents: Iterable[Agent]) -> Iterator[Agent]:
    """The agents without the ports at which a task of ours has failed at once, twice in a row: none of us gets them."""
    shunned = () if state.gathering.failures else {each for item in state.recoveries.values() for each in item.shuns}
    parts = [address.rpartition(":") for address in shunned]
    for agent in agents:
        ports = frozenset(int(port) for host, _, port in parts if host == agent.address)
        yield replace(agent, resources=claim_ports(agent.resources, ports)[1]) if ports else agent


def _unreliable(state: SchedulerState, now: float) -> dict[AgentId, AgentReason]:
    return {
        item.agent_id: Unreliable(len(item.failures), item.avoided_until - now)
        for item in state.suspects.values()
        if item.avoided_until > now
    }


def _left(state: SchedulerState, tasks: Iterable[TaskSpec]) -> dict[AgentId, AgentReason]:
    found: dict[AgentId, AgentReason] = {}
    for task in tasks:
        item, record = state.recoveries.get(task.name), state.tasks.get(task.name)
        if item is not None and record is not None and item.leaves and item.launch == record.id:
            found[record.agent_id] = Left(task.name)
    return found


def _badness(reason: AgentReason) -> tuple[int, float]:
    return (reason.failures, reason.seconds) if isinstance(reason, Unreliable) else (0, 0.0)
