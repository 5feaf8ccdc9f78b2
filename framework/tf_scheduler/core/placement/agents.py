"""Merge offers into agents, count and split resources, group tasks into demands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any

from tf_scheduler.model.ids import AgentId, OfferId, UnixTime
from tf_scheduler.model.offer import NOT_ASKED, ExecutorLogin, Offer, Unavailability
from tf_scheduler.model.placement import AgentLocation, PlacementSpec
from tf_scheduler.model.reasons import AgentReason
from tf_scheduler.model.resources import Needs, Ranges, Resource, Shortage
from tf_scheduler.model.spec import JobKind, JobSpec, TaskSpec

#: Labels of dynamic reservations that the DC/OS SDK makes for one framework.
RESOURCE_ID, FRAMEWORK_ID = "resource_id", "framework_id"


@dataclass(frozen=True, slots=True)
class Agent:
    """All offers of one agent to one role, merged; Mesos rejects other combinations."""

    id: AgentId
    address: str
    location: AgentLocation
    offer_ids: tuple[OfferId, ...]
    #: Usable by tasks; reserved entries first, because no other role can use them.
    resources: tuple[Resource, ...]
    unavailability: Unavailability | None = None
    #: Thousandths of a MB on disks with a source, such as PATH and MOUNT.
    unused_disk: int = 0
    #: Of the newest offer.
    login: ExecutorLogin = NOT_ASKED

    @property
    def hostname(self) -> str:
        return self.location.hostname


def merge_offers(offers: Iterable[Offer]) -> tuple[Agent, ...]:
    """Merge offers by agent and role; sort the agents by host name."""
    together: dict[tuple[AgentId, str], list[Offer]] = {}
    for offer in offers:
        together.setdefault((offer.agent_id, offer.role), []).append(offer)
    return tuple(sorted(map(_agent, together.values()), key=lambda agent: (agent.hostname, agent.id)))


def _agent(offers: list[Offer]) -> Agent:
    first = offers[0]
    free: list[Resource] = []
    reserved: list[Resource] = []
    unused = 0
    for offer in offers:
        for entry in offer.resources:
            nature = entry_use(entry.shape)
            if nature.usable:
                (reserved if nature.reserved else free).append(entry)
            elif nature.has_source and isinstance(entry.value, int):
                unused += entry.value
    windows = [offer.unavailability for offer in offers if offer.unavailability is not None]
    return Agent(
        id=first.agent_id,
        address=first.address,
        location=first.location,
        offer_ids=tuple(offer.id for offer in offers),
        resources=(*reserved, *free),
        unavailability=min(windows, key=lambda window: window.start, default=None),
        unused_disk=unused,
        login=offers[-1].login,
    )


@dataclass(frozen=True, slots=True)
class EntryUse:
    """Permitted use of an offered resource entry, according to its shape."""

    #: Whether any task may use a part of the entry.
    usable: bool
    reserved: bool = False
    #: Whether it is a disk of its own: a task gets it whole, at a path that only a volume names.
    has_source: bool = False


@lru_cache(maxsize=16_384)
def entry_use(shape: str) -> EntryUse:
    """Return how an entry with this shape may be used.

    Tasks never use revocable resources (a task cannot mix them with others), volumes (they hold data), disks with a
    source, or resources with the labels of a framework (Mesos documentation: oversubscription, persistent-volume,
    multiple-disk, reservation).
    """
    fields: Mapping[str, Any] = json.loads(shape)
    stack = fields.get("reservations", ())
    labels = {label["key"] for entry in stack for label in entry.get("labels", {}).get("labels", ())}
    owned = RESOURCE_ID in labels or FRAMEWORK_ID in labels
    return EntryUse(
        usable=not ("revocable" in fields or "disk" in fields or owned),
        reserved=bool(stack),
        has_source="source" in fields.get("disk", {}),
    )


# --- Resources


PORTS = "ports"


def shortages(resources: Iterable[Resource], needs: Needs) -> tuple[Shortage, ...]:
    """Return all shortages of `resources` for `needs`; empty if they suffice."""
    return missing_amounts(amounts_in(resources), enumerate(amounts_of(needs)))


def missing_amounts(has: Sequence[int], requirements: Iterable[tuple[int, int]]) -> tuple[Shortage, ...]:
    """Return what the amounts `has` lack for the requirements (dimension, amount)."""
    return tuple(
        Shortage(DIMENSION_NAMES[place], need, has[place]) for place, need in requirements if has[place] < need
    )


def consume(resources: tuple[Resource, ...], needs: Needs) -> tuple[tuple[Resource, ...], tuple[Resource, ...]]:
    """Split resources into (taken, rest), in offer order and with unchanged shapes.

    Raises ValueError if `shortages` is not empty.
    """
    amounts = dict(needs.scalars())
    ports = needs.ports
    taken: list[Resource] = []
    rest: list[Resource] = []
    for entry in resources:
        if entry.name == PORTS:
            part, left = _split_ranges(_port_ranges(entry), ports)
            ports -= sum(end - begin + 1 for begin, end in part)
            taken += _as_entries(entry, part)
            rest += _as_entries(entry, left)
        elif isinstance(entry.value, int) and amounts.get(entry.name):
            amount = min(entry.value, amounts[entry.name])
            amounts[entry.name] -= amount
            taken.append(replace(entry, value=amount))
            rest += [replace(entry, value=entry.value - amount)] if entry.value > amount else []
        else:
            rest.append(entry)
    if ports or any(amounts.values()):
        raise ValueError(f"insufficient resources for {needs}; check shortages() first")
    return tuple(taken), tuple(rest)


def claim_ports(
    resources: tuple[Resource, ...], wanted: frozenset[int]
) -> tuple[tuple[Resource, ...], tuple[Resource, ...]]:
    """Split resources into (the wanted ports that are available, rest)."""
    taken: list[Resource] = []
    rest: list[Resource] = []
    for entry in resources:
        mine = [port for begin, end in _port_ranges(entry) for port in sorted(wanted) if begin <= port <= end]
        taken += _as_entries(entry, tuple((port, port) for port in mine))
        rest += _as_entries(entry, _without(_port_ranges(entry), mine)) if mine else [entry]
    return tuple(taken), tuple(rest)


def _without(ranges: Ranges, ports: list[int]) -> Ranges:
    for port in ports:
        ranges = tuple(
            part
            for begin, end in ranges
            for part in ([(begin, port - 1), (port + 1, end)] if begin <= port <= end else [(begin, end)])
            if part[0] <= part[1]
        )
    return ranges


def ports_of(resources: Iterable[Resource]) -> tuple[int, ...]:
    """Return every port, ascending within an entry."""
    return tuple(port for entry in resources for begin, end in _port_ranges(entry) for port in range(begin, end + 1))


def _port_ranges(entry: Resource) -> Ranges:
    return entry.value if entry.name == PORTS and isinstance(entry.value, tuple) else ()


def _as_entries(entry: Resource, ranges: Ranges) -> list[Resource]:
    return [replace(entry, value=ranges)] if ranges else []


def _split_ranges(ranges: Ranges, count: int) -> tuple[Ranges, Ranges]:
    """Split the ports into the first `count` ports (or all, if fewer) and the rest."""
    taken: list[tuple[int, int]] = []
    rest: list[tuple[int, int]] = []
    for begin, end in ranges:
        size = min(end - begin + 1, count)
        count -= size
        if size:
            taken.append((begin, begin + size - 1))
        if begin + size <= end:
            rest.append((begin + size, end))
    return tuple(taken), tuple(rest)


# --- Demands


#: Dimensions of resources as list indexes, for speed.
CPUS, MEM, DISK, GPUS, PORTS_INDEX = range(5)
DIMENSION_NAMES = ("cpus", "mem", "disk", "gpus", "ports")


@dataclass(frozen=True, slots=True)
class PlacedTask:
    """A running task: constraints count it, and other tasks prefer agents near it."""

    group: str
    agent_id: AgentId
    location: AgentLocation


@dataclass(frozen=True, slots=True)
class PlacementContext:
    """Inputs of placement other than tasks and agents."""

    #: Resources of each task's executor.
    executor: Needs
    placement: PlacementSpec = field(default_factory=PlacementSpec)
    #: Region of tasks without a constraint on @region.
    region: str = ""
    now: UnixTime = 0.0
    placed_tasks: tuple[PlacedTask, ...] = ()
    #: Unusable agents, with the reason.
    avoided: Mapping[AgentId, AgentReason] = field(default_factory=dict)
    #: Sections whose tasks need agents that authenticate executors.
    protected: frozenset[str] = frozenset()

    def is_unsafe(self, agent: Agent, group: str) -> bool:
        """Return whether another process on the agent could take secrets of the section."""
        return group in self.protected and not agent.login.is_required


@dataclass(frozen=True, slots=True)
class Demand:
    """Identical tasks of one section, placed together."""

    job: JobSpec
    tasks: tuple[TaskSpec, ...]
    #: Resources of one task and its executor.
    needs: Needs
    #: Non-zero needs as (dimension, amount).
    requirements: tuple[tuple[int, int], ...]

    @property
    def is_spread(self) -> bool:
        """Whether tasks prefer different agents, because each ps needs network bandwidth."""
        return self.job.kind is JobKind.PS


def demands_of(tasks: Iterable[TaskSpec], executor: Needs) -> tuple[Demand, ...]:
    """Return one demand per section, in the order of the tasks."""
    groups: dict[str, list[TaskSpec]] = {}
    for job, part in groupby(tasks, key=attrgetter("job")):
        groups.setdefault(job.group, []).extend(part)
    return tuple(demand_of(group[0].job, executor, group) for group in groups.values())


def demand_of(job: JobSpec, executor: Needs, tasks: Iterable[TaskSpec] = ()) -> Demand:
    """Return the demand of these tasks of a section."""
    needs = job.needs + executor
    amounts = amounts_of(needs)
    return Demand(job, tuple(tasks), needs, tuple((place, amount) for place, amount in enumerate(amounts) if amount))


def amounts_of(needs: Needs) -> tuple[int, int, int, int, int]:
    """Return amounts by dimension in thousandths; ports as a count."""
    return (needs.cpus, needs.mem, needs.disk, needs.gpus, needs.ports)


# --- Capacities


_DIMENSION = {"cpus": CPUS, "mem": MEM, "disk": DISK, "gpus": GPUS}


class AgentCapacity:
    """Free resources of one agent, and its tasks, during one search; mutable."""

    __slots__ = ("agent", "free", "groups", "in_use", "index", "rank", "total")

    def __init__(self, agent: Agent, index: int) -> None:
        self.agent = agent
        #: Position in the order of host names, the last tie-breaker.
        self.index = index
        self.total = amounts_in(agent.resources)
        self.free = list(self.total)
        #: Rank of its neighbourhood, 0 for the best.
        self.rank = 0
        #: Whether it has a task of the service.
        self.in_use = False
        #: Section -> number of tasks.
        self.groups: dict[str, int] = {}

    def fits(self, wants: Iterable[tuple[int, int]]) -> int:
        """Return how many times `wants` fit into the free resources."""
        free, most = self.free, 1 << 60
        for place, amount in wants:
            fits = free[place] // amount
            if fits < most:
                most = fits
        return most

    def allocate(self, demand: Demand) -> None:
        """Allocate the resources of one task of `demand`."""
        for place, amount in demand.requirements:
            self.free[place] -= amount
        self.in_use = True
        self.count(demand.job.group)

    def count(self, group: str) -> None:
        self.groups[group] = self.groups.get(group, 0) + 1


def amounts_in(resources: Iterable[Resource]) -> tuple[int, int, int, int, int]:
    """Return the sums over all entries by dimension."""
    sums = [0, 0, 0, 0, 0]
    for entry in resources:
        value = entry.value
        if isinstance(value, int):
            place = _DIMENSION.get(entry.name)
            if place is not None:
                sums[place] += value
        elif entry.name == PORTS and isinstance(value, tuple):
            for begin, end in value:
                sums[PORTS_INDEX] += end - begin + 1
    return (sums[CPUS], sums[MEM], sums[DISK], sums[GPUS], sums[PORTS_INDEX])
