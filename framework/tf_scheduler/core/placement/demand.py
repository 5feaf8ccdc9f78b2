"""Tasks -> demands: tasks of one section are alike, so they are looked at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tf_scheduler.model.ids import AgentId
from tf_scheduler.model.placement import Place, PlacementSpec
from tf_scheduler.model.reasons import AgentReason
from tf_scheduler.model.resources import Needs
from tf_scheduler.model.spec import JobKind, JobSpec, TaskSpec

#: Dimensions of what an agent has left, as positions in a list: the search adds and compares, no more.
CPUS, MEM, DISK, GPUS, PORTS = range(5)
NAMES = ("cpus", "mem", "disk", "gpus", "ports")


@dataclass(frozen=True, slots=True)
class Standing:
    """A task of the service that has its place already: constraints count it, others had better be near it."""

    group: str
    agent_id: AgentId
    place: Place


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What placing depends on besides tasks and agents."""

    #: What each task's executor takes.
    executor: Needs
    placement: PlacementSpec = field(default_factory=PlacementSpec)
    #: The region that tasks without a constraint on @region run in.
    region: str = ""
    #: Seconds since the epoch.
    now: float = 0.0
    standing: tuple[Standing, ...] = ()
    #: Agents that are not used, and why.
    avoided: Mapping[AgentId, AgentReason] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Demand:
    """Tasks of one section, each with its executor."""

    job: JobSpec
    tasks: tuple[TaskSpec, ...]
    #: Of one task and its executor.
    needs: Needs
    #: The same as (dimension, amount) of what is not zero.
    wants: tuple[tuple[int, int], ...]

    @property
    def spreads(self) -> bool:
        """Parameter servers serve everybody: each had better have a network of its own."""
        return self.job.kind is JobKind.PS


def demands_of(tasks: Iterable[TaskSpec], executor: Needs) -> tuple[Demand, ...]:
    """One demand per section, in the order of the tasks."""
    groups: dict[str, list[TaskSpec]] = {}
    for task in tasks:
        groups.setdefault(task.job.group, []).append(task)
    return tuple(_demand(group, executor) for group in groups.values())


def _demand(tasks: list[TaskSpec], executor: Needs) -> Demand:
    job = tasks[0].job
    needs = job.needs + executor
    amounts = amounts_of(needs)
    return Demand(job, tuple(tasks), needs, tuple((place, amount) for place, amount in enumerate(amounts) if amount))


def amounts_of(needs: Needs) -> tuple[int, int, int, int, int]:
    """Thousandths by dimension, ports as a count."""
    return (needs.cpus, needs.mem, needs.disk, needs.gpus, needs.ports)
