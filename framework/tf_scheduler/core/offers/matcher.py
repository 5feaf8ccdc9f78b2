"""Match pending gangs with offers: previous addresses first, then other offers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tf_scheduler.core.launch.secret_tokens import protected_sections
from tf_scheduler.core.placement.agents import (
    GPUS,
    Agent,
    AgentCapacity,
    PlacedTask,
    PlacementContext,
    claim_ports,
    consume,
    demand_of,
    merge_offers,
    ports_of,
    shortages,
)
from tf_scheduler.core.placement.constraints import DemandRules, draining_seconds, seconds_to_maintenance
from tf_scheduler.core.placement.matching import Match, NoMatch, Placement, match_agents
from tf_scheduler.core.plans.scheduling import Gang
from tf_scheduler.model.ids import AgentId, TaskName
from tf_scheduler.model.offer import Evaluation, Offer
from tf_scheduler.model.reasons import (
    AgentReason,
    AwaitsPreviousAddress,
    OperatorMovesTask,
    Reason,
    Unreliable,
)
from tf_scheduler.model.resources import Resource
from tf_scheduler.model.spec import JobSpec, TaskSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

# --- Agents and ports to avoid
#
# Avoidance never blocks a job: after a failed round the least bad agents are used, too.


def relaxations(
    state: SchedulerState, tasks: Iterable[TaskSpec], now: float
) -> Iterator[Mapping[AgentId, AgentReason]]:
    """Yield sets of agents to avoid: first all; after a failed round, only the worst."""
    avoided = {**_agents_to_leave(state, tasks), **_unreliable_agents(state, now)}
    yield avoided
    levels = sorted(set(map(_failures, avoided.values()))) if state.session.round.failures else ()
    for level in levels:
        yield {agent: reason for agent, reason in avoided.items() if _failures(reason) > level}


def exclude_bad_ports(state: SchedulerState, agents: Iterable[Agent]) -> Iterator[Agent]:
    """Yield each agent, but without ports at which another process listened."""
    recoveries = () if state.session.round.failures else state.stored.recoveries.values()
    parts = {address.rpartition(":") for item in recoveries for address in item.bad_addresses}
    for agent in agents:
        ports = frozenset(int(port) for host, _, port in parts if host == agent.address)
        yield replace(agent, resources=claim_ports(agent.resources, ports)[1]) if ports else agent


def _unreliable_agents(state: SchedulerState, now: float) -> dict[AgentId, AgentReason]:
    return {
        item.agent_id: Unreliable(len(item.failures), item.avoided_until - now)
        for item in state.stored.agent_failures.values()
        if item.avoided_until > now
    }


def _agents_to_leave(state: SchedulerState, tasks: Iterable[TaskSpec]) -> dict[AgentId, AgentReason]:
    reasons: dict[AgentId, AgentReason] = {}
    for task in tasks:
        item, record = state.stored.recoveries.get(task.name), state.stored.tasks.get(task.name)
        if item is not None and record is not None and item.must_move and item.launch == record.id:
            reasons[record.agent_id] = OperatorMovesTask(task.name)
    return reasons


def _failures(reason: AgentReason) -> int:
    return reason.failures if isinstance(reason, Unreliable) else -1


# --- Previous addresses: same agent and port, so that peers keep running


@dataclass(frozen=True, slots=True)
class PreviousAddressMatch:
    """Placement of tasks at their previous addresses."""

    placements: tuple[Placement, ...]
    #: Tasks without a previous address, or that waited for it long enough.
    remaining: tuple[TaskSpec, ...]
    #: Tasks that still wait for their previous address.
    waiting: Mapping[TaskName, tuple[Reason, ...]]
    #: Remaining resources of the agents.
    agents: Mapping[AgentId, Agent]


def place_at_previous_address(
    state: SchedulerState,
    tasks: Iterable[TaskSpec],
    agents: Mapping[AgentId, Agent],
    about: PlacementContext,
    avoided: Collection[AgentId] = (),
) -> PreviousAddressMatch:
    """Place relaunched tasks at previous addresses that are offered and not avoided."""
    now = about.now
    free = dict(agents)
    placements: list[Placement] = []
    others: list[TaskSpec] = []
    waiting: dict[TaskName, tuple[Reason, ...]] = {}
    for task in tasks:
        record, until = state.stored.tasks.get(task.name), _previous_address_deadline(state, task.name, avoided)
        home = None if record is None else _unless_barred(task, free.get(record.agent_id), about)
        match = None if record is None or until is None else _at_previous_address(state, task, record, home)
        if match is not None:
            free[match[1].id] = match[1]
            placements.append(match[0])
        elif record is not None and until is not None and now < until:
            waiting[task.name] = (AwaitsPreviousAddress(record.hostname, record.address),)
        else:
            others.append(task)
    return PreviousAddressMatch(tuple(placements), tuple(others), waiting, free)


def _previous_address_deadline(state: SchedulerState, name: TaskName, avoided: Collection[AgentId]) -> float | None:
    """Return until when a task waits for its previous address; `None` if unusable.

    Lost tasks wait for this address. Tasks that must move do not use it. Tasks that a plan relaunches use it if it is
    offered, so that the ClusterSpec stays the same and no peer restarts.
    """
    record, item = state.stored.tasks.get(name), state.stored.recoveries.get(name)
    if record is None or record.agent_id in avoided or state.spec.network is not None:
        return None  # on a virtual network the name goes with the task
    if item is not None and record.address in item.bad_addresses:
        return None
    if item is None or item.launch != record.id:
        return 0.0
    return None if item.must_move else item.previous_address_until


def _unless_barred(task: TaskSpec, agent: Agent | None, about: PlacementContext) -> Agent | None:
    """Return the agent; `None` before maintenance, or if secrets are unsafe there."""
    if agent is None or about.is_unsafe(agent, task.job.group):
        return None
    leaves = seconds_to_maintenance(agent, about.placement.draining_seconds, about.now) is not None
    return None if leaves else agent


def _at_previous_address(
    state: SchedulerState, task: TaskSpec, record: TaskRecord, agent: Agent | None
) -> tuple[Placement, Agent] | None:
    """Return placement and remaining agent; `None` if its port or resources are taken."""
    needs, executor = task.job.needs, state.spec.executor.needs
    port = int(record.address.rpartition(":")[2])
    entries, rest = claim_ports(() if agent is None else agent.resources, frozenset({port}))
    if agent is None or not entries:
        return None
    more, rest = claim_ports(rest, frozenset(record.more_ports[: needs.ports - 1]))
    others = replace(needs, ports=needs.ports - 1 - len(ports_of(more)))
    if shortages(rest, executor + others):
        return None
    for_executor, rest = consume(rest, executor)
    for_task, rest = consume(rest, others)
    used = replace(agent, resources=rest)
    return Placement(task, agent, (*entries, *more, *for_task), for_executor, "its previous address is free"), used


#: Agent and resources by lost task.
_Held = Mapping[TaskName, tuple[AgentId, tuple[Resource, ...]]]


def _hold_previous_addresses(state: SchedulerState, agents: dict[AgentId, Agent], about: PlacementContext) -> _Held:
    """Remove from `agents` the resources that lost tasks wait for, and return them.

    Each lost task waits for its previous address. If a joining worker took the port there, a live chief would restart.
    """
    holdings: dict[TaskName, tuple[AgentId, tuple[Resource, ...]]] = {}
    avoided = _unreliable_agents(state, about.now)
    for name in state.derived.launches_to_replace if state.spec.live else ():
        record, until = state.stored.tasks[name], _previous_address_deadline(state, name, avoided)
        agent, job = agents.get(record.agent_id), state.spec.job_of(record.job, record.index)
        if agent is None or job is None or until is None or about.now >= until:
            continue
        task = TaskSpec(name, record.index, job)
        match = _at_previous_address(state, task, record, _unless_barred(task, agent, about))
        if match is not None:
            placement, agents[agent.id] = match
            holdings[name] = (agent.id, (*placement.task_resources, *placement.executor_resources))
    return holdings


def _release(agents: Mapping[AgentId, Agent], holdings: _Held, gang: Gang) -> Mapping[AgentId, Agent]:
    """Return the agents, including the resources that are held for this gang's tasks."""
    own = [holdings[task.name] for task in gang.tasks if task.name in holdings]
    if not own:
        return agents
    released = dict(agents)
    for key, resources in own:
        released[key] = replace(released[key], resources=(*released[key].resources, *resources))
    return released


@dataclass(frozen=True, slots=True)
class MatchResult:
    """Result of matching all gangs with the offers."""

    #: Placements of complete gangs.
    placements: tuple[Placement, ...]
    #: Reasons of the tasks of other gangs.
    reasons: Mapping[TaskName, tuple[Reason, ...]]
    agents: int

    def evaluation(self, now: float, offers: int) -> Evaluation:
        """Return the evaluation for display."""
        placed = {item.task.name: f"{item.agent.hostname}: {item.why}" for item in self.placements}
        return Evaluation(now, offers, self.agents, placed, self.reasons)


def match_gangs(state: SchedulerState, gangs: Sequence[Gang], offers: Iterable[Offer], now: float) -> MatchResult:
    """Match the gangs in order, each on the resources that the previous gangs left."""
    agents = {agent.id: agent for agent in exclude_bad_ports(state, merge_offers(offers))}
    count = len(agents)
    rejected = merge_offers(offer for key, offer in state.session.round.unusable.items() if key not in agents)
    placements: list[Placement] = []
    reasons: dict[TaskName, tuple[Reason, ...]] = {}
    standing = _placed_tasks(state, gangs)
    holdings = _hold_previous_addresses(state, agents, placement_context(state, standing, now))
    for gang in gangs:
        about = placement_context(state, standing, now)
        previous, match = _match_gang(state, gang, _release(agents, holdings, gang), about, rejected)
        if previous.waiting:
            first = next(iter(previous.waiting.values()))
            others = {task.name: first for task in gang.tasks if task.name not in previous.waiting}
            reasons |= {**others, **previous.waiting}
        elif isinstance(match, NoMatch):
            reasons |= {**match.blocked_by_gang, **match.reasons}
        else:
            agents.update({**previous.agents, **match.leftover})
            placements += [*previous.placements, *match.placements]
            standing += tuple(
                PlacedTask(item.task.job.group, item.agent.id, item.agent.location)
                for item in (*previous.placements, *match.placements)
            )
    return MatchResult(tuple(placements), reasons, count)


def _match_gang(
    state: SchedulerState,
    gang: Gang,
    agents: Mapping[AgentId, Agent],
    about: PlacementContext,
    rejected: Sequence[Agent],
) -> tuple[PreviousAddressMatch, Match | NoMatch]:
    """Match one gang; after a failed round, also on avoided agents, least bad first."""
    first: tuple[PreviousAddressMatch, Match | NoMatch] | None = None
    for avoided in relaxations(state, gang.tasks, about.now):
        previous = place_at_previous_address(state, gang.tasks, agents, about, avoided)
        agents_left, context = tuple(previous.agents.values()), replace(about, avoided=avoided)
        match = match_agents(previous.remaining, agents_left, context, rejected) if previous.remaining else Match(())
        if previous.waiting or isinstance(match, Match):
            return previous, match
        first = first or (previous, match)
    assert first is not None
    return first


def placement_context(state: SchedulerState, standing: tuple[PlacedTask, ...], now: float) -> PlacementContext:
    """Return what placement depends on, in addition to tasks and agents."""
    placement = replace(state.spec.placement, draining_seconds=draining_seconds(state.spec))
    protected = protected_sections(state.spec)
    return PlacementContext(
        state.spec.executor.needs, placement, state.session.region, now, standing, protected=protected
    )


def usable_agents(state: SchedulerState, jobs: Iterable[JobSpec], offers: Iterable[Offer], now: float) -> set[AgentId]:
    """Return the agents that can run at least one task; other offers are not held."""
    about = placement_context(state, (), now)
    demands = (demand_of(job, about.executor) for job in jobs)
    rules = [(demand, DemandRules(demand, about)) for demand in demands]
    capacities = (AgentCapacity(agent, 0) for agent in merge_offers(offers))
    return {
        capacity.agent.id
        for capacity in capacities
        if any(
            capacity.fits(demand.requirements) and rule.admits(capacity.agent, capacity.total[GPUS])
            for demand, rule in rules
        )
    }


def _placed_tasks(state: SchedulerState, gangs: Sequence[Gang]) -> tuple[PlacedTask, ...]:
    """Return the running tasks that are not part of these gangs."""
    placing = {task.name for gang in gangs for task in gang.tasks}
    return tuple(
        PlacedTask(record.group, record.agent_id, record.location)
        for record in state.live()
        if record.name not in placing
    )
