"""A job of a queue service, and the table of its states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import NewType

from tf_executor.contract.states import Verdict
from tf_scheduler.model.ids import UnixTime
from tf_scheduler.model.resources import Needs

#: Name of a job in its queue service, chosen by its owner or by the service; never reused.
JobId = NewType("JobId", str)


class JobState(str, Enum):
    """State of a job."""

    #: It waits for its turn, for jobs that it comes after, or for a pause to end.
    QUEUED = "queued"
    #: It is its turn: its scheduler starts, and waits for the resources of its first gang.
    STARTING = "starting"
    #: Its first gang is launched.
    RUNNING = "running"
    #: It stops, because it got no place or another job needs its resources; then it is queued again.
    REQUEUING = "requeuing"
    #: It stops, because its owner or an operator has cancelled it.
    CANCELLING = "cancelling"
    #: Its scheduler raised an error; its tasks keep running until it is cancelled or the service restarts.
    QUARANTINED = "quarantined"
    FINISHED = "finished"
    CANCELLED = "cancelled"

    @property
    def has_scheduler(self) -> bool:
        """Whether it may have a framework, so that its needs count as used."""
        return self not in (JobState.QUEUED, JobState.FINISHED, JobState.CANCELLED)

    @property
    def has_ended(self) -> bool:
        return self in (JobState.FINISHED, JobState.CANCELLED)


class Happening(Enum):
    """What changes the state of a job."""

    ADMITTED = "it is its turn"
    LAUNCHED = "its first gang is launched"
    NO_PLACE = "its gang got no place in time"
    PREEMPTED = "another job needs its resources"
    CANCELLED = "its owner or an operator cancels it"
    #: With its framework removed, as STOPPED.
    ENDED = "its result is stored"
    STOPPED = "it has stopped as asked"
    RAISED = "its scheduler raised an error"
    ADOPTED = "a new process of the service continues it"


_S, _H = JobState, Happening
#: (state, happening) -> next state. All other pairs are defects of the service.
TRANSITIONS: Mapping[tuple[JobState, Happening], JobState] = {
    (_S.QUEUED, _H.ADMITTED): _S.STARTING,
    (_S.QUEUED, _H.CANCELLED): _S.CANCELLED,
    (_S.STARTING, _H.LAUNCHED): _S.RUNNING,
    (_S.STARTING, _H.NO_PLACE): _S.REQUEUING,
    (_S.RUNNING, _H.PREEMPTED): _S.REQUEUING,
    (_S.REQUEUING, _H.STOPPED): _S.QUEUED,
    (_S.CANCELLING, _H.STOPPED): _S.CANCELLED,
    # A job may end by itself before it is asked to stop.
    **{(state, _H.ENDED): _S.FINISHED for state in (_S.STARTING, _S.RUNNING, _S.REQUEUING, _S.CANCELLING)},
    **{(state, _H.CANCELLED): _S.CANCELLING for state in (_S.STARTING, _S.RUNNING, _S.REQUEUING, _S.QUARANTINED)},
    **{(state, _H.RAISED): _S.QUARANTINED for state in (_S.STARTING, _S.RUNNING, _S.REQUEUING, _S.CANCELLING)},
    (_S.QUARANTINED, _H.ADOPTED): _S.STARTING,
}


class IllegalJobTransitionError(RuntimeError):
    """This cannot happen to a job in this state; a defect of the service."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job of a queue service. Times are Unix times, durations seconds."""

    id: JobId
    queue: str
    owner: str
    submitted: UnixTime
    #: Sum of all tasks and their executors, by which shares and limits are computed.
    needs: Needs
    #: Needs of each task that must run at the same time, with its executor, largest first.
    tasks: tuple[Needs, ...] = ()
    #: SHA-256 digest of the job file as submitted.
    digest: str = ""
    #: Jobs of the same program have similar durations; empty: unknown.
    program: str = ""
    priority: int = 0
    #: Jobs that must have succeeded before it starts.
    after: tuple[JobId, ...] = ()
    #: Duration that its owner expects; 0: not given.
    expected_seconds: float = 0.0
    state: JobState = JobState.QUEUED
    #: Time of the last change of the state.
    since: UnixTime = 0.0
    #: Why it is in this state; for an ended job, its result.
    reason: str = ""
    verdict: Verdict | None = None
    #: Time of the last launch of its first gang; 0: never.
    started: UnixTime = 0.0
    #: Number of times that it was preempted; and that its gang got no place since it last ran.
    preemptions: int = 0
    misses: int = 0
    #: It is not admitted before this time, because it got no place.
    not_before: UnixTime = 0.0

    def after_event(self, happening: Happening, now: UnixTime, reason: str = "") -> Job:
        """Return the job in its next state. Raises IllegalJobTransitionError."""
        state = TRANSITIONS.get((self.state, happening))
        if state is None:
            raise IllegalJobTransitionError(f"job {self.id} is {self.state.value}: {happening.value}")
        started = now if state is JobState.RUNNING else self.started
        return replace(self, state=state, since=now, reason=reason, started=started)
