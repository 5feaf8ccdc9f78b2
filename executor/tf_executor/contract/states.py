"""States of tasks, jobs and plans, with their texts and tones (colours)."""

from __future__ import annotations

from enum import Enum
from typing import NoReturn, TypeVar

_Member = TypeVar("_Member", bound="_State")


class Tone(str, Enum):
    """Meaning of a state for people, each with a colour in terminals and on the page."""

    GOOD = "good"
    #: It runs.
    GOING = "going"
    #: It starts.
    BUSY = "busy"
    #: It waits, or was stopped.
    WAIT = "wait"
    BAD = "bad"
    #: Neither good nor bad.
    NEUTRAL = "asked"


#: Before the warning in the reason of a result.
WARNING = "; warning: "


def warning_of(reason: str) -> str:
    """Return the warning in the reason of a result; empty if it has none."""
    return reason.partition(WARNING)[2]


class Verdict(str, Enum):
    """Outcome of the job."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


class _State(str, Enum):
    """Base class of states. The tuple of a member begins with its value and its tone."""

    _value_: str
    tone: Tone

    def __new__(cls, value: str, tone: Tone, *_others: object) -> _State:
        """Create a member from its row."""
        member = str.__new__(cls, value)
        member._value_, member.tone = value, tone
        return member

    @classmethod
    def of(cls: type[_Member], value: str) -> _Member:
        """Return the state with this value. Raises ValueError."""
        return cls(value)  # type: ignore[call-arg]


class Status(_State):
    """Status of a plan, a phase or a step (dcos-commons, scheduler/plan/Status.java)."""

    #: Not started.
    PENDING = "PENDING", Tone.WAIT
    #: The step's task is being stopped, to be launched again.
    PREPARED = "PREPARED", Tone.BUSY
    #: Launched or being stopped, without confirmation yet.
    STARTING = "STARTING", Tone.BUSY
    #: The step's task runs and is not ready yet.
    STARTED = "STARTED", Tone.BUSY
    COMPLETE = "COMPLETE", Tone.GOOD
    #: Waits for an operator's `continue`.
    WAITING = "WAITING", Tone.WAIT
    #: Retried after a back-off.
    DELAYED = "DELAYED", Tone.WAIT
    #: A plan or phase that is partly complete.
    IN_PROGRESS = "IN_PROGRESS", Tone.BUSY
    ERROR = "ERROR", Tone.BAD


class TaskState(_State):
    """Mesos task states (mesos.proto TaskState) for a PARTITION_AWARE framework.

    A row has the tone, the predicate for messages, whether a task in this state has ended, and the status of a step
    whose wanted launch has this state. The step of a silent task is STARTED, because the task may return. The step of a
    running task is STARTED, too, while the task's processes are frozen.
    """

    phrase: str
    has_ended: bool
    step: Status

    STAGING = "TASK_STAGING", Tone.BUSY, "is staging", False, Status.STARTING
    STARTING = "TASK_STARTING", Tone.BUSY, "is starting", False, Status.STARTING
    RUNNING = "TASK_RUNNING", Tone.GOING, "is running", False, Status.COMPLETE
    KILLING = "TASK_KILLING", Tone.WAIT, "is being stopped", False, Status.STARTED
    FINISHED = "TASK_FINISHED", Tone.GOOD, "has finished", True, Status.COMPLETE
    FAILED = "TASK_FAILED", Tone.BAD, "has failed", True, Status.ERROR
    KILLED = "TASK_KILLED", Tone.NEUTRAL, "was stopped", True, Status.ERROR
    ERROR = "TASK_ERROR", Tone.BAD, "was rejected", True, Status.ERROR
    LOST = "TASK_LOST", Tone.BAD, "is lost", True, Status.ERROR
    DROPPED = "TASK_DROPPED", Tone.BAD, "was dropped", True, Status.ERROR
    UNREACHABLE = "TASK_UNREACHABLE", Tone.WAIT, "is unreachable", False, Status.STARTED
    GONE = "TASK_GONE", Tone.BAD, "is gone", True, Status.ERROR
    GONE_BY_OPERATOR = "TASK_GONE_BY_OPERATOR", Tone.BAD, "is gone, as reported by an operator", True, Status.ERROR
    UNKNOWN = "TASK_UNKNOWN", Tone.NEUTRAL, "is unknown", False, Status.STARTED

    def __init__(self, _value: str, _tone: Tone, phrase: str, has_ended: bool, step: Status) -> None:
        """Set the other values of the member's row."""
        self.phrase, self.has_ended, self.step = phrase, has_ended, step

    @property
    def is_silent(self) -> bool:
        """Whether the agent does not answer, or the master does not know the task."""
        return self in SILENT_STATES

    @property
    def has_program(self) -> bool:
        """Whether the program was started, as far as known."""
        return self not in (TaskState.STAGING, TaskState.STARTING)

    @property
    def word(self) -> str:
        """Name without its prefix, such as `FAILED` for TASK_FAILED."""
        return self._value_[len("TASK_") :]

    @property
    def label(self) -> str:
        """Name for messages, such as `failed` for TASK_FAILED."""
        return self.word.lower().replace("_", " ")


#: The program may still run (mesos.proto, TaskState).
SILENT_STATES = frozenset({TaskState.UNREACHABLE, TaskState.UNKNOWN})


class Activity(_State):
    """What a task or a job does, in the order in which a job passes through these."""

    #: It waits for resources.
    QUEUED = "queued", Tone.WAIT
    #: The agent or the executor fetches its files.
    FETCHING = "fetching", Tone.BUSY
    #: Its TensorFlow server does not answer yet: mostly, the program imports TensorFlow.
    IMPORTING = "importing", Tone.BUSY
    #: Its TensorFlow server waits for those of other tasks.
    CONNECTING = "connecting", Tone.BUSY
    #: Its program runs and has reported no step.
    RUNNING = "running", Tone.GOING
    TRAINING = "training", Tone.GOING
    #: It has reported steps, but none for minutes.
    STALLED = "stalled", Tone.WAIT
    #: Its processes are stopped or blocked.
    FROZEN = "frozen", Tone.BAD
    #: It was lost or has failed, and is launched again.
    RESTARTING = "restarting", Tone.WAIT
    #: Mesos does not reach it.
    UNREACHABLE = "unreachable", Tone.WAIT
    PAUSED = "paused", Tone.WAIT
    #: It is asked to stop, and may save.
    STOPPING = "stopping", Tone.WAIT
    SUCCEEDED = "succeeded", Tone.GOOD
    FAILED = "failed", Tone.BAD
    STOPPED = "stopped", Tone.WAIT


class Override(str, Enum):
    """Status of a paused task, shown for its step (dcos-commons, GoalStateOverride)."""

    #: The program is being stopped, or a placeholder is being launched.
    PAUSING = "PAUSING"
    #: A placeholder keeps the task's resources.
    PAUSED = "PAUSED"


#: Upper-case word of each state -> tone. `REFUSED`: Mesos refuses the framework.
TONES = {
    **{state.word: state.tone for state in TaskState},
    **{state.value.upper(): state.tone for state in Activity},
    **{state.value: state.tone for state in Status},
    **{state.value: Tone.WAIT for state in Override},
    "REFUSED": Tone.BAD,
    "UNHEALTHY": Tone.BAD,
}
#: Activities that need attention, the most urgent first.
URGENT = (
    *(Activity.FAILED, Activity.FROZEN, Activity.UNREACHABLE, Activity.RESTARTING, Activity.STALLED),
    *(Activity.QUEUED, Activity.PAUSED, Activity.FETCHING, Activity.IMPORTING, Activity.CONNECTING, Activity.STOPPING),
)


def tone_of(word: str) -> Tone:
    """Return the tone of a state's word or label; neutral if unknown."""
    return TONES.get(word.upper().replace(" ", "_"), Tone.NEUTRAL)


def assert_never(value: NoReturn) -> NoReturn:
    """Let mypy prove exhaustive handling; typing.assert_never needs Python 3.11."""
    raise TypeError(value)
