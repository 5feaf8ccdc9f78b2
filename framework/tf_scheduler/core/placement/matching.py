"""Place one gang, all tasks or none: allocate resources, or explain refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tf_scheduler.model import reasons
from tf_scheduler.model.ids import AgentId, TaskName
from tf_scheduler.model.offer import Offer
from tf_scheduler.model.resources import Needs, Resource
from tf_scheduler.model.spec import JobSpec, ServiceSpec, TaskSpec

from .agents import (
    DIMENSION_NAMES,
    GPUS,
    Agent,
    AgentCapacity,
    Demand,
    PlacementContext,
    claim_ports,
    consume,
    demands_of,
    merge_offers,
    missing_amounts,
    ports_of,
)
from .constraints import DemandRules
from .search import ChosenAgent, SearchResult, search, unplaced_names

# --- Explanations


#: Maximum number of agents in the reasons of one task.
MAX_LISTED_AGENTS = 20

Reasons = tuple[reasons.Reason, ...]


def explain_missing(result: SearchResult, rejected: Iterable[Agent] = ()) -> Mapping[TaskName, Reasons]:
    """Return the reasons of every unplaced task, the same for all tasks of a section.

    `rejected`: agents whose offers were declined before.
    """
    capacities = [
        *result.capacities,
        *(AgentCapacity(agent, number) for number, agent in enumerate(rejected, len(result.capacities))),
    ]
    by_task: dict[TaskName, Reasons] = {}
    for demand in result.missing:
        why = _explain_demand(demand, capacities, result.rules[demand.job.group])
        by_task.update(dict.fromkeys(unplaced_names([demand], result.chosen), why))
    return by_task


def explain_waiting(result: SearchResult) -> Mapping[TaskName, Reasons]:
    """Return for every placed task which task of its gang it waits for."""
    missing = unplaced_names(result.missing, result.chosen)
    if not missing:
        return {}
    return {
        item.task.name: (reasons.WaitsFor(item.agent.hostname, missing[0], len(missing)),) for item in result.chosen
    }


def _explain_demand(demand: Demand, capacities: Sequence[AgentCapacity], rules: DemandRules) -> Reasons:
    if not capacities:
        return (reasons.NoOffers(demand.needs, demand.job.constraints),)
    refusals = sorted(
        (_rejection(demand, capacity, rules) for capacity in capacities), key=lambda item: len(item.reasons)
    )
    refusals = [item for item in refusals if item.reasons]
    explained: list[reasons.Reason] = [*refusals[:MAX_LISTED_AGENTS]]
    if len(refusals) > MAX_LISTED_AGENTS:
        rest = refusals[MAX_LISTED_AGENTS:]
        tallies = Counter(kind for item in rest for kind in {_category(reason) for reason in item.reasons})
        explained.append(
            reasons.MoreAgents(tuple(sorted(tallies.items(), key=lambda pair: (-pair[1], pair[0]))), len(rest))
        )
    return (*explained, _best(demand, capacities))


def _rejection(demand: Demand, capacity: AgentCapacity, rules: DemandRules) -> reasons.AgentRejected:
    alone, beside = (missing_amounts(amounts, demand.requirements) for amounts in (capacity.total, capacity.free))
    problems: list[reasons.AgentReason] = []
    if beside:
        unused = {"disk": capacity.agent.unused_disk}
        missing = tuple(replace(item, unused=unused.get(item.name, 0)) for item in alone or beside)
        problems = [reasons.TooSmall(missing, shared_with_gang=not alone)]
    objections = rules.objections(capacity.agent, capacity.total[GPUS])
    return reasons.AgentRejected(
        capacity.agent.hostname, (*problems, *objections, *rules.limits(capacity.agent.location))
    )


def _best(demand: Demand, capacities: Sequence[AgentCapacity]) -> reasons.BestOfAnyAgent:
    """Return the largest amount of each needed resource on any single agent."""
    best = []
    for place, _ in demand.requirements:
        capacity = max(capacities, key=lambda capacity: capacity.total[place])
        best.append((DIMENSION_NAMES[place], capacity.total[place], capacity.agent.hostname))
    return reasons.BestOfAnyAgent(demand.needs, tuple(best))


def _category(reason: reasons.AgentReason) -> str:
    """Return the words under which a summary counts agents with this reason."""
    if isinstance(reason, reasons.TooSmall):
        return f"have too little {', '.join(item.name for item in reason.shortages)}"
    if isinstance(reason, reasons.Excluded | reasons.ValueLimitReached | reasons.UnbalancedGroup):
        return f"are not allowed by {reason.constraint}"
    if isinstance(reason, reasons.OtherRegion):
        return "are in another region"
    if isinstance(reason, reasons.Unreliable | reasons.OperatorMovesTask):
        return "are avoided"
    if isinstance(reason, reasons.NoExecutorLogin):
        return "may not authenticate executors"
    return "are kept for GPUs" if isinstance(reason, reasons.KeptForGpus) else "go into maintenance"


# --- Matching


@dataclass(frozen=True, slots=True)
class Placement:
    """One task on one agent, with the resources for it and its executor."""

    task: TaskSpec
    agent: Agent
    task_resources: tuple[Resource, ...]
    executor_resources: tuple[Resource, ...]
    #: Explanation of the choice.
    why: str = ""


@dataclass(frozen=True, slots=True)
class Match:
    """Result of a successful match: all tasks are placed."""

    placements: tuple[Placement, ...]
    #: Remaining resources of the used agents.
    leftover: Mapping[AgentId, Agent] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoMatch:
    """Result of a failed match: a task cannot be placed, so no task is launched."""

    #: Unplaced task -> reasons.
    reasons: Mapping[TaskName, Reasons]
    #: Placed task -> the task that it waits for.
    blocked_by_gang: Mapping[TaskName, Reasons] = field(default_factory=dict)
    #: The tasks that were placed.
    partial: tuple[ChosenAgent, ...] = ()


def first_gangs(spec: ServiceSpec) -> Iterator[tuple[TaskSpec, ...]]:
    """Yield tasks that must fit at the same time.

    If tasks are peers, yield all tasks. Otherwise, yield one task of each job with the tasks that serve it, such as the
    data service.
    """
    tasks = tuple(spec.tasks())
    if spec.strategy.traits.has_peers:
        yield tasks
        return
    helpers = [task for task in tasks if not task.job.kind.in_cluster]
    firsts = {task.job.group: task for task in reversed(tasks) if task.job.kind.in_cluster}
    yield from ((task, *helpers) for task in firsts.values())


def match_gang(tasks: Sequence[TaskSpec], offers: Iterable[Offer], circumstances: PlacementContext) -> Match | NoMatch:
    """Place all of `tasks` on `offers`, or none."""
    return match_agents(tasks, merge_offers(offers), circumstances)


def match_agents(
    tasks: Sequence[TaskSpec], agents: Sequence[Agent], circumstances: PlacementContext, rejected: Iterable[Agent] = ()
) -> Match | NoMatch:
    """Place all tasks on merged agents (sorted by host name), or place none.

    `rejected`: agents with declined offers, used only in reasons.
    """
    if not tasks:
        return NoMatch({})
    result = search(demands_of(tasks, circumstances.executor), agents, circumstances)
    if result.missing:
        return NoMatch(explain_missing(result, rejected), explain_waiting(result), result.chosen)
    return allocate(tasks, result.chosen, circumstances.executor)


def allocate(tasks: Sequence[TaskSpec], chosen: Iterable[ChosenAgent], executor: Needs) -> Match:
    """Allocate the resources of every chosen task."""
    remaining: dict[AgentId, Agent] = {}
    placements: dict[TaskName, Placement] = {}
    for item in chosen:
        agent = remaining.get(item.agent.id, item.agent)
        for_executor, rest = consume(agent.resources, executor)
        for_task, rest = _allocate_task(rest, item.task.job)
        remaining[agent.id] = replace(agent, resources=rest)
        placements[item.task.name] = Placement(item.task, item.agent, for_task, for_executor, item.why)
    return Match(tuple(placements[task.name] for task in tasks), remaining)


def _allocate_task(resources: tuple[Resource, ...], job: JobSpec) -> tuple[tuple[Resource, ...], tuple[Resource, ...]]:
    """Split resources into (taken, rest), with the job's preferred port if available."""
    if not job.port or job.port not in ports_of(resources):
        return consume(resources, job.needs)
    entries, rest = claim_ports(resources, frozenset({job.port}))
    taken, rest = consume(rest, replace(job.needs, ports=job.needs.ports - 1))
    return (*entries, *taken), rest
