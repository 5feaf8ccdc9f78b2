"""Plan, phase, step: ordered work with the DC/OS SDK's statuses; what operators ask of it, and the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from .ids import TaskName


class Status(str, Enum):
    """Of a plan, a phase or a step (dcos-commons, scheduler/plan/Status.java)."""

    #: Nothing is done yet.
    PENDING = "PENDING"
    #: A step: its task has been told to end, so that it can be launched again.
    PREPARED = "PREPARED"
    #: Launched, or told to end; not confirmed.
    STARTING = "STARTING"
    #: A step: its task runs and is not ready yet.
    STARTED = "STARTED"
    COMPLETE = "COMPLETE"
    #: An operator has to let it go on.
    WAITING = "WAITING"
    #: It is tried again later, after a back-off.
    DELAYED = "DELAYED"
    #: A plan or phase: some of it is done.
    IN_PROGRESS = "IN_PROGRESS"
    ERROR = "ERROR"


class Override(str, Enum):
    """Of a task that an operator has paused; shown instead of its status (dcos-commons, GoalStateOverride)."""

    #: Its program is told to end, or its place is sought.
    PAUSING = "PAUSING"
    #: Its place is kept, and no program runs there.
    PAUSED = "PAUSED"


class PlanStrategy(str, Enum):
    """In which order the phases of a plan, or the steps of a phase, are worked on."""

    #: One after the other, in the order that they are listed.
    SERIAL = "serial"
    #: All at once.
    PARALLEL = "parallel"
    #: Serial, but the first two each wait for an operator's `continue`; the second lets the rest go, too.
    CANARY = "canary"
    #: The same, and the rest goes all at once.
    PARALLEL_CANARY = "parallel-canary"
    #: Each after those that it names.
    DEPENDENCY = "dependency"

    @property
    def canary(self) -> bool:
        return self in (PlanStrategy.CANARY, PlanStrategy.PARALLEL_CANARY)


#: Name of a phase or step -> those that are complete before it begins.
Dependencies = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class PhaseSpec:
    """A phase as the options describe it: a step for each task of one section."""

    name: str
    #: Section of the options, as `JobSpec.group` has it.
    section: str
    strategy: PlanStrategy = PlanStrategy.PARALLEL
    #: Indexes of the tasks, in the order of the steps; empty: all.
    indexes: tuple[int, ...] = ()
    after: Dependencies = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """A plan as the options describe it."""

    name: str
    strategy: PlanStrategy = PlanStrategy.PARALLEL
    #: Empty (deploy and update only): one per section, in their order.
    phases: tuple[PhaseSpec, ...] = ()
    after: Dependencies = field(default_factory=dict)
    #: Whether the steps that may begin at one moment are launched all or none.
    gang: bool = True


#: The whole plan, a phase of it, or a step of a phase: (), (phase,) or (phase, step).
Node = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanControl:
    """All that operators did to one plan, and how far it once was. Stored."""

    #: Environment of the tasks that it launches.
    parameters: Mapping[str, str] = field(default_factory=dict)
    interrupted: frozenset[Node] = frozenset()
    #: Complete because an operator said so.
    forced: frozenset[Node] = frozenset()
    #: What a canary strategy holds back and an operator let go; a phase itself: all of it.
    released: frozenset[Node] = frozenset()
    #: Node -> launches up to this number are old: its tasks are to be launched again.
    restarted: Mapping[Node, int] = field(default_factory=dict)
    #: What `forced` and `released` are about: of a roll-out, the digest of the options.
    target: str = ""
    #: The target that it was complete for; empty: never, or it was started again since.
    completed: str = ""

    def restarted_at(self, node: Node) -> int:
        """Number of the last launch that is old for this node; 0: none is."""
        if not self.restarted:
            return 0
        return max(self.restarted.get(node[:depth], 0) for depth in range(len(node) + 1))

    def covers(self, nodes: frozenset[Node], node: Node) -> bool:
        """Whether `nodes` hold this node, or what it is part of."""
        return bool(nodes) and any(node[:depth] in nodes for depth in range(len(node) + 1))


# --- as it is shown


@dataclass(frozen=True, slots=True)
class Step:
    """The work for one task."""

    name: str
    status: Status
    #: Why it is pending, where it runs, how it failed.
    message: str = ""
    #: None: it is about no task.
    task: TaskName | None = None
    #: None: its task is not paused.
    override: Override | None = None

    @property
    def shown(self) -> Status | Override:
        """What people see; everything else goes by the status."""
        return self.override or self.status


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps that belong together."""

    name: str
    status: Status
    steps: tuple[Step, ...]
    strategy: PlanStrategy = PlanStrategy.PARALLEL


@dataclass(frozen=True, slots=True)
class Plan:
    """One plan, with all that is to be known of it."""

    name: str
    status: Status
    phases: tuple[Phase, ...]
    strategy: PlanStrategy = PlanStrategy.PARALLEL
    #: Errors of the plan itself.
    rejected: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[str, ...]:
        """Those of the plan, and a sentence per step in error."""
        steps = (step for phase in self.phases for step in phase.steps)
        return (*self.rejected, *(step.message or step.name for step in steps if step.status is Status.ERROR))


# --- what operators say, and hear


class Verb(str, Enum):
    """What an operator may want of a plan, a phase or a step (dcos-commons, PlansResource)."""

    #: Begin no further step; what is under way goes on.
    INTERRUPT = "interrupt"
    #: Go on after an interrupt, or let the next canary go.
    CONTINUE = "continue"
    #: Count as complete, whatever it is.
    FORCE_COMPLETE = "forceComplete"
    #: From the beginning: its tasks are launched again.
    RESTART = "restart"
    #: Go on, with parameters; from the beginning when it is complete.
    START = "start"
    #: Interrupt, and from the beginning when it is continued.
    STOP = "stop"


class Reply(str, Enum):
    """How a command went; the value is the HTTP status that the SDK gives it."""

    OK = "200"
    #: Nothing to do: it has been done before, or is complete.
    ALREADY = "208"
    BAD_REQUEST = "400"
    FORBIDDEN = "403"
    NOT_FOUND = "404"
    #: Not now, or not any more.
    CONFLICT = "409"
    #: Something that is needed is not known yet: ask again.
    LATER = "503"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the operator hears."""

    reply: Reply
    message: str

    @property
    def ok(self) -> bool:
        return self.reply is Reply.OK


#: To whoever commands what has ended.
ENDED = Answer(Reply.CONFLICT, "The service has ended, there is nothing to command any more")
