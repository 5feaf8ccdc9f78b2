"""Types of plans, phases and steps: options, definitions, progress and commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from tf_executor.contract.states import Override, Status

from .ids import TaskName


class PlanStrategy(str, Enum):
    """Order of the phases of a plan, or of the steps of a phase."""

    #: In the listed order, one at a time.
    SERIAL = "serial"
    #: All together.
    PARALLEL = "parallel"
    #: Serial; the first two steps each wait for `continue`, and the second `continue` releases the rest.
    CANARY = "canary"
    #: Like `canary`, but the rest runs in parallel.
    PARALLEL_CANARY = "parallel-canary"
    #: Each after its named dependencies.
    DEPENDENCY = "dependency"

    @property
    def is_canary(self) -> bool:
        return self in (PlanStrategy.CANARY, PlanStrategy.PARALLEL_CANARY)


#: Phase or step -> phases or steps that must complete before it.
Dependencies = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class PhaseSpec:
    """A phase in the options: a step for each task of one section."""

    name: str
    #: Section of the options (`JobSpec.group`).
    section: str
    strategy: PlanStrategy = PlanStrategy.PARALLEL
    #: Task indexes in the order of the steps; empty for all.
    indexes: tuple[int, ...] = ()
    after: Dependencies = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """A plan in the options."""

    name: str
    strategy: PlanStrategy = PlanStrategy.PARALLEL
    #: Empty (deploy and update only) for one phase per section.
    phases: tuple[PhaseSpec, ...] = ()
    after: Dependencies = field(default_factory=dict)
    #: Whether the steps that can run at the same time are launched all or none.
    gang: bool = True


#: The plan, a phase of it, or a step of a phase: (), (phase,) or (phase, step).
Node = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanControl:
    """Stored effects of operators' commands on one plan, and its completion."""

    #: Environment variables of the tasks that the plan launches.
    parameters: Mapping[str, str] = field(default_factory=dict)
    interrupted: frozenset[Node] = frozenset()
    #: Nodes that an operator forced to complete.
    forced: frozenset[Node] = frozenset()
    #: Canary nodes that an operator released; a phase releases all its steps.
    released: frozenset[Node] = frozenset()
    #: Node -> serial number of launches up to which its tasks are launched again.
    restarted: Mapping[Node, int] = field(default_factory=dict)
    #: Digest of the options that `forced` and `released` refer to (roll-out plans only).
    target: str = ""
    #: Target for which the plan was complete; empty if never, or if restarted since.
    completed: str = ""

    def restarted_at(self, node: Node) -> int:
        """Return the serial number up to which the node's launches are outdated, or 0."""
        if not self.restarted:
            return 0
        return max(self.restarted.get(node[:depth], 0) for depth in range(len(node) + 1))

    def covers(self, nodes: frozenset[Node], node: Node) -> bool:
        """Return whether `nodes` contain this node or an ancestor of it."""
        return bool(nodes) and any(node[:depth] in nodes for depth in range(len(node) + 1))


# --- Definitions


class PlanKind(Enum):
    """Kind of a plan; the value is shown in docs/reference/plans.md."""

    ROLL_OUT = "every task runs with the current options"
    RECOVERY = "lost tasks are relaunched; paused tasks are relaunched when they are resumed"
    DECOMMISSION = "tasks that were removed from the options are stopped"
    CUSTOM = "started by an operator, with parameters"
    UNINSTALL = "all tasks are stopped, and the framework is torn down"


class Work(Enum):
    """Action of a step."""

    LAUNCH = "launch"
    KILL = "kill"
    ERASE = "erase"
    DEREGISTER = "deregister"


@dataclass(frozen=True, slots=True)
class StepDef:
    name: str
    work: Work
    task: TaskName | None = None


@dataclass(frozen=True)
class PhaseDef:
    name: str
    strategy: PlanStrategy
    steps: tuple[StepDef, ...]
    after: Dependencies = field(default_factory=dict)

    @cached_property
    def by_name(self) -> Mapping[str, StepDef]:
        return {step.name: step for step in self.steps}


@dataclass(frozen=True)
class PlanDef:
    """A plan with unique phase and step names; a task has at most one step."""

    name: str
    kind: PlanKind
    strategy: PlanStrategy
    phases: tuple[PhaseDef, ...]
    after: Dependencies = field(default_factory=dict)
    #: Whether the steps that can run at the same time are launched all or none.
    gang: bool = True

    def steps(self) -> Iterator[tuple[Node, StepDef]]:
        """Return every step with its node."""
        for phase in self.phases:
            for step in phase.steps:
                yield (phase.name, step.name), step

    @cached_property
    def by_task(self) -> Mapping[TaskName, tuple[Node, StepDef]]:
        """Task -> node and step that launch it."""
        launches = ((node, step) for node, step in self.steps() if step.work is Work.LAUNCH)
        return {step.task: (node, step) for node, step in launches if step.task is not None}


# --- Progress


@dataclass(frozen=True, slots=True)
class Step:
    """Progress of one step."""

    name: str
    status: Status
    #: Why the task is pending, where it runs, or how it failed.
    message: str = ""
    #: `None` if the step has no task.
    task: TaskName | None = None
    #: `None` if the task is not paused.
    override: Override | None = None
    #: Last step of uninstall: descriptions of tasks and frameworks that remain in Mesos.
    left_behind: tuple[str, ...] = ()
    #: Last step of uninstall: launches whose agents the removal of the framework waits for.
    waits_for: tuple[str, ...] = ()

    @property
    def display_status(self) -> Status | Override:
        """Status for display, with the override of a paused task."""
        return self.override or self.status


@dataclass(frozen=True, slots=True)
class Phase:
    """Progress of a phase."""

    name: str
    status: Status
    steps: tuple[Step, ...]
    strategy: PlanStrategy = PlanStrategy.PARALLEL


@dataclass(frozen=True, slots=True)
class Plan:
    """Progress of a plan."""

    name: str
    status: Status
    phases: tuple[Phase, ...]
    strategy: PlanStrategy = PlanStrategy.PARALLEL
    #: Errors of the plan's definition.
    rejected: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[str, ...]:
        """Errors of the plan, and one message per failed step."""
        steps = (step for phase in self.phases for step in phase.steps)
        return (*self.rejected, *(step.message or step.name for step in steps if step.status is Status.ERROR))


# --- Commands


class Verb(str, Enum):
    """Commands for a plan, a phase or a step (dcos-commons, PlansResource)."""

    #: Stop starting new steps; running steps continue.
    INTERRUPT = "interrupt"
    #: Continue after an interrupt, or release the next canary step.
    CONTINUE = "continue"
    #: Mark as complete regardless of its state.
    FORCE_COMPLETE = "forceComplete"
    #: Restart from the first step; launch the tasks again.
    RESTART = "restart"
    #: Continue with parameters; restart if the plan is complete.
    START = "start"
    #: Interrupt; the next `continue` restarts from the first step.
    STOP = "stop"


class Reply(str, Enum):
    """Result of a command; the value is the HTTP status that the SDK returns."""

    OK = "200"
    #: Nothing to do: already done or complete.
    ALREADY = "208"
    BAD_REQUEST = "400"
    FORBIDDEN = "403"
    NOT_FOUND = "404"
    #: Not possible in the current state.
    CONFLICT = "409"
    #: Required information is not available yet; retry.
    RETRY = "503"


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a command."""

    reply: Reply
    message: str


SERVICE_ENDED = Answer(Reply.CONFLICT, "the service has finished and accepts no commands")


# --- Names of the plans of every service


DEPLOY, UPDATE, RECOVERY, DECOMMISSION, UNINSTALL = "deploy", "update", "recovery", "decommission", "uninstall"
#: The last phase of uninstall, and its step.
DEREGISTER = "deregister-service"
#: Names that user plans cannot have.
RESERVED_PLAN_NAMES = (DEPLOY, UPDATE, RECOVERY, DECOMMISSION, UNINSTALL)
