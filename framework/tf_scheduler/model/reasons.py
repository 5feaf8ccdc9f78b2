"""Reasons why tasks are pending, with a message (`str`) and an API name (`kind`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tf_executor.contract.text import format_duration

from .ids import Kinded, TaskName
from .placement import Constraint
from .resources import Needs, Shortage, format_thousandths

# --- Reasons of one agent


@dataclass(frozen=True, slots=True)
class TooSmall(Kinded):
    """The agent's resources are insufficient."""

    shortages: tuple[Shortage, ...]
    #: Whether the agent would suffice without the other tasks of the gang.
    shared_with_gang: bool = False

    def __str__(self) -> str:
        lacks = ", ".join(map(str, self.shortages))
        return f"{lacks} left next to the other tasks of its gang" if self.shared_with_gang else lacks


@dataclass(frozen=True, slots=True)
class Excluded(Kinded):
    """A constraint excludes the agent, regardless of other tasks."""

    constraint: Constraint
    #: `None` if the agent has no such attribute.
    value: str | None

    def __str__(self) -> str:
        name = self.constraint.field
        if self.value is None:
            return f"has no {'attribute ' if not name.startswith('@') else ''}{name}, required by {self.constraint}"
        return f"{name} is {self.value}, excluded by {self.constraint}"


@dataclass(frozen=True, slots=True)
class ValueLimitReached(Kinded):
    """The agent's value has the maximum number of tasks (UNIQUE or MAX_PER)."""

    kind: ClassVar[str] = "Full"
    constraint: Constraint
    value: str
    count: int

    def __str__(self) -> str:
        return (
            f"{self.constraint.field} {self.value} already has {self.count} of {self.constraint.number} allowed tasks"
        )


@dataclass(frozen=True, slots=True)
class UnbalancedGroup(Kinded):
    """Agents with other values must get tasks first (GROUP_BY)."""

    kind: ClassVar[str] = "Uneven"
    constraint: Constraint
    value: str
    count: int
    #: Smallest count of any value with tasks; 0 while not all values have tasks.
    minimum: int

    def __str__(self) -> str:
        name, number = self.constraint.field, self.constraint.number
        if self.minimum == 0:
            return f"{name} {self.value} has tasks ({self.count}); {number} values must each get a task first"
        return f"{name} {self.value} has {self.count} tasks, another {name} only {self.minimum} ({self.constraint})"


@dataclass(frozen=True, slots=True)
class OtherRegion(Kinded):
    """The agent is outside the cluster's region, and no constraint concerns @region."""

    region: str
    wanted: str

    def __str__(self) -> str:
        return f"is in region {self.region or '(none)'}, required: {self.wanted or '(none)'}"


@dataclass(frozen=True, slots=True)
class KeptForGpus(Kinded):
    """The agent has GPUs, and is reserved for tasks that need GPUs."""

    gpus: int

    def __str__(self) -> str:
        return (
            f"has {format_thousandths(self.gpus)} GPUs, reserved for tasks with GPUs "
            "(placement.gpu_scheduling_behavior is restricted)"
        )


@dataclass(frozen=True, slots=True)
class MaintenanceScheduled(Kinded):
    """A maintenance window of the agent is near or active."""

    kind: ClassVar[str] = "GoingDown"
    #: Seconds until its start; negative if it is active.
    seconds: float

    def __str__(self) -> str:
        wait = format_duration(round(self.seconds))
        return "is in maintenance" if self.seconds <= 0 else f"goes into maintenance in {wait}"


@dataclass(frozen=True, slots=True)
class Unreliable(Kinded):
    """Several launches on the agent were lost or could not start."""

    failures: int
    #: Seconds for which the agent is still avoided.
    seconds: float

    def __str__(self) -> str:
        wait = format_duration(round(self.seconds))
        return f"{self.failures} launches failed; avoided for another {wait} (recovery.avoid_after)"


@dataclass(frozen=True, slots=True)
class OperatorMovesTask(Kinded):
    """A task of the gang is to leave the agent."""

    kind: ClassVar[str] = "Left"
    task: TaskName

    def __str__(self) -> str:
        return f"{self.task} is to run on another agent"


@dataclass(frozen=True, slots=True)
class NoExecutorLogin(Kinded):
    """Any process on the agent could pose as the executor and take the task's secrets."""

    #: Why the agent's flag is unknown; empty if it is not set.
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            return f"may lack the flag --authenticate_http_executors, which tasks with secrets need: {self.problem}"
        return (
            "lacks the flag --authenticate_http_executors, so any process there could take the task's secrets; set "
            "the flag, or accept agents without it (option secret_delivery.executor_authentication)"
        )


AgentReason = (
    TooSmall
    | Excluded
    | ValueLimitReached
    | UnbalancedGroup
    | OtherRegion
    | KeptForGpus
    | MaintenanceScheduled
    | Unreliable
    | OperatorMovesTask
    | NoExecutorLogin
)


# --- Reasons of one pending task


@dataclass(frozen=True, slots=True)
class AgentRejected(Kinded):
    """All reasons why one agent cannot run the task."""

    kind: ClassVar[str] = "Refusal"
    hostname: str
    reasons: tuple[AgentReason, ...]

    def __str__(self) -> str:
        return f"agent {self.hostname}: {'; '.join(map(str, self.reasons))}"


@dataclass(frozen=True, slots=True)
class MoreAgents(Kinded):
    """Summary of the agents that are not listed one by one."""

    #: (reason, number of agents); an agent counts once per reason.
    tallies: tuple[tuple[str, int], ...]
    count: int

    def __str__(self) -> str:
        parts = ", ".join(f"{count} {what}" for what, count in self.tallies)
        return f"{self.count} more agents: {parts}"


@dataclass(frozen=True, slots=True)
class BestOfAnyAgent(Kinded):
    """Needs of a task, and the largest amount of each resource on any single agent."""

    needs: Needs
    #: (resource, amount, host name); amounts in thousandths, ports as a count.
    best: tuple[tuple[str, int, str], ...]

    def __str__(self) -> str:
        parts = (
            f"{name} {amount if name == 'ports' else format_thousandths(amount)} ({host})"
            for name, amount, host in self.best
        )
        return f"needs {self.needs} (with its executor) on one agent; most on any agent: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class NoOffers(Kinded):
    """No agent was offered."""

    needs: Needs
    #: Constraints on the agents.
    constraints: tuple[Constraint, ...] = ()

    def __str__(self) -> str:
        such = f" with {', '.join(map(str, self.constraints))}" if self.constraints else ""
        return f"needs {self.needs}; no offers from any agent{such}"


@dataclass(frozen=True, slots=True)
class AwaitsPreviousAddress(Kinded):
    """A relaunched task waits for its previous address."""

    kind: ClassVar[str] = "AwaitsHome"
    hostname: str
    address: str

    def __str__(self) -> str:
        return (
            f"waits for its previous address {self.address} on agent {self.hostname}, to avoid restarting other tasks"
        )


@dataclass(frozen=True, slots=True)
class WaitsFor(Kinded):
    """The task has a matching agent, but other tasks of its gang do not."""

    hostname: str
    #: First task of the gang without a match, and the number of these tasks.
    task: TaskName
    count: int

    def __str__(self) -> str:
        others = "" if self.count == 1 else f" and {self.count - 1} more tasks"
        return f"fits on {self.hostname}, waits for {self.task}{others} of its gang"


Reason = AgentRejected | MoreAgents | BestOfAnyAgent | NoOffers | WaitsFor | AwaitsPreviousAddress
