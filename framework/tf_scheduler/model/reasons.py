"""Why a task has no place: one class per reason; `str` gives the words for people."""

from __future__ import annotations

from dataclasses import dataclass

from .ids import TaskName
from .placement import Constraint
from .resources import Needs, Shortage, spoken

# --- what one agent lacks for one task


@dataclass(frozen=True, slots=True)
class TooSmall:
    """Resources are missing."""

    shortages: tuple[Shortage, ...]
    #: Whether others of the gang have taken from this agent: it may be large enough for this task alone.
    beside_gang: bool = False

    def __str__(self) -> str:
        lacks = ", ".join(map(str, self.shortages))
        return f"{lacks} left beside the rest of the gang" if self.beside_gang else lacks


@dataclass(frozen=True, slots=True)
class Excluded:
    """A constraint does not allow this agent, whoever is on it."""

    constraint: Constraint
    #: None: the agent has no such attribute.
    value: str | None

    def __str__(self) -> str:
        name = self.constraint.field
        if self.value is None:
            return f"has no {'attribute ' if not name.startswith('@') else ''}{name}, which {self.constraint} asks for"
        return f"{name} is {self.value}, {self.constraint} does not allow that"


@dataclass(frozen=True, slots=True)
class Full:
    """UNIQUE or MAX_PER: enough tasks of the section have this value."""

    constraint: Constraint
    value: str
    count: int

    def __str__(self) -> str:
        return f"{self.constraint.field} {self.value} already has {self.count} of at most {self.constraint.number}"


@dataclass(frozen=True, slots=True)
class Uneven:
    """GROUP_BY: other values come first."""

    constraint: Constraint
    value: str
    count: int
    #: The least that a value with tasks has, or 0 when values are still to be found.
    least: int

    def __str__(self) -> str:
        name = self.constraint.field
        if self.least == 0:
            return f"{name} {self.value} already has {self.count}, and not all {self.constraint.number} values have any"
        return f"{name} {self.value} already has {self.count}, another {name} only {self.least} ({self.constraint})"


@dataclass(frozen=True, slots=True)
class OtherRegion:
    """One region per cluster, unless a constraint on @region says otherwise."""

    region: str
    wanted: str

    def __str__(self) -> str:
        return f"is in region {self.region or 'of no name'}, the service in {self.wanted or 'the one of no name'}"


@dataclass(frozen=True, slots=True)
class KeptForGpus:
    """GPUs are scarce."""

    gpus: int

    def __str__(self) -> str:
        return (
            f"has {spoken(self.gpus)} GPUs, which tasks without GPUs leave alone "
            "(placement.gpu_scheduling_behavior is restricted)"
        )


@dataclass(frozen=True, slots=True)
class GoingDown:
    """A maintenance window is near."""

    #: Seconds from now; negative: it has begun.
    seconds: float

    def __str__(self) -> str:
        return "is in maintenance" if self.seconds <= 0 else f"goes into maintenance in {self.seconds:.0f} s"


@dataclass(frozen=True, slots=True)
class Unreliable:
    """Tasks were lost there, or could not start, again and again."""

    failures: int
    #: Seconds from now.
    seconds: float

    def __str__(self) -> str:
        return f"{self.failures} launches have failed there; avoided for {self.seconds:.0f} s (recovery.avoid_after)"


@dataclass(frozen=True, slots=True)
class Left:
    """An operator wants a task of the gang to go elsewhere."""

    task: TaskName

    def __str__(self) -> str:
        return f"an operator wants {self.task} to leave it"


AgentReason = TooSmall | Excluded | Full | Uneven | OtherRegion | KeptForGpus | GoingDown | Unreliable | Left


# --- what is said of one pending task


@dataclass(frozen=True, slots=True)
class Refusal:
    """Everything that one agent's offers lack for one task."""

    hostname: str
    reasons: tuple[AgentReason, ...]

    def __str__(self) -> str:
        return f"agent {self.hostname}: {'; '.join(map(str, self.reasons))}"


@dataclass(frozen=True, slots=True)
class MoreAgents:
    """Agents beyond those that are told one by one."""

    #: What they lack, and how many of them lack it; an agent counts once per reason.
    tallies: tuple[tuple[str, int], ...]
    count: int

    def __str__(self) -> str:
        parts = ", ".join(f"{count} {what}" for what, count in self.tallies)
        return f"{self.count} more agents: {parts}"


@dataclass(frozen=True, slots=True)
class BestOfAnyAgent:
    """The whole need of a task, and the most that any single agent has of each resource."""

    needs: Needs
    #: (resource, amount, hostname); amounts in thousandths, ports as a count.
    best: tuple[tuple[str, int, str], ...]

    def __str__(self) -> str:
        parts = (f"{name} {amount if name == 'ports' else spoken(amount)} ({host})" for name, amount, host in self.best)
        return f"needs {self.needs} (with its executor) on one agent; best of any agent: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class NoOffers:
    """Silence from Mesos."""

    needs: Needs
    #: What the agents that may be offered must fulfil.
    constraints: tuple[Constraint, ...] = ()

    def __str__(self) -> str:
        such = f" with {', '.join(map(str, self.constraints))}" if self.constraints else ""
        return f"needs {self.needs}; there is no offer from any agent{such}"


@dataclass(frozen=True, slots=True)
class AwaitsHome:
    """A task that is launched again seeks its old address first."""

    hostname: str
    address: str

    def __str__(self) -> str:
        return (
            f"waits for its old address {self.address} on agent {self.hostname}, so that no other task has to restart"
        )


@dataclass(frozen=True, slots=True)
class WaitsFor:
    """It has a place; others of its gang have none."""

    hostname: str
    #: The first of those that have none, and how many there are.
    task: TaskName
    count: int

    def __str__(self) -> str:
        others = "" if self.count == 1 else f" and {self.count - 1} more"
        return f"has a place on {self.hostname}, waits for {self.task}{others} of its gang"


@dataclass(frozen=True, slots=True)
class Reserved:
    """Its place is kept for it; the rest of its gang is not complete, or the offer is on its way."""

    hostname: str

    def __str__(self) -> str:
        return f"has its place reserved on {self.hostname}, waits for the rest of its gang"


@dataclass(frozen=True, slots=True)
class NotReserved:
    """A place was found for it, which Mesos does not let us reserve."""

    hostname: str
    #: In Mesos' words.
    why: str

    def __str__(self) -> str:
        return f"its place on {self.hostname} could not be reserved: {self.why}"


Reason = Refusal | MoreAgents | BestOfAnyAgent | NoOffers | WaitsFor | Reserved | NotReserved | AwaitsHome
