"""What goes on for a while after the job: the evaluator, TensorBoard, or all that still runs. Until when is derived
from the stored result, so it survives the scheduler."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from tf_scheduler.model.effects import Decision, Outcome
from tf_scheduler.model.plan import DEREGISTER, UNINSTALL
from tf_scheduler.model.spec import AfterFinish, CleanupPolicy, JobKind
from tf_scheduler.model.state import Result, SchedulerState, Verdict
from tf_scheduler.model.task import TaskRecord

from .reducer import decide


def keeps_service(state: SchedulerState) -> bool:
    """Whether the service stays with Mesos though nothing is left of the job."""
    return _may_stay(state) is not None and state.spec.finish.after_finish is AfterFinish.IDLE


def tasks_to_stop(state: SchedulerState, records: Iterable[TaskRecord], now: float) -> list[TaskRecord]:
    """Those of the records that are to end now."""
    times = _times(state)
    return [record for record in records if times.get(record.job, 0.0) <= now]


def retained_tasks(state: SchedulerState) -> tuple[TaskRecord, ...]:
    """Tasks that are left to run after the job, for a while."""
    times = _times(state)
    return tuple(record for record in state.live() if record.job in times and record.id not in state.session.kills)


def announce(state: SchedulerState) -> Decision:
    """A line for each; for when the job has just ended."""
    times = _times(state)
    return decide(state, outcomes=tuple(_outcome(state, record, times[record.job]) for record in retained_tasks(state)))


def _outcome(state: SchedulerState, record: TaskRecord, end: float) -> Outcome:
    since = 0.0 if state.stored.result is None else state.stored.result.decided_at
    how_long = "until the service is ended" if end == math.inf else f"for at most {end - since:g} s"
    return Outcome(f"{record.name} at {record.address} is left to run, {how_long}", record.name)


def deadlines(state: SchedulerState) -> Iterator[float]:
    """When the time of each of them is over."""
    times = _times(state)
    ends = (times[record.job] for record in retained_tasks(state)) if times else ()
    yield from (max(end, state.session.next_kill_at) for end in ends if end < math.inf)


def _times(state: SchedulerState) -> Mapping[JobKind, float]:
    """Job -> until when its tasks are left to run, where that is after the end."""
    result = _may_stay(state)
    if result is None:
        return {}
    times = {job.kind: result.decided_at + _seconds(state, job.kind, result.verdict) for job in state.spec.jobs}
    return {kind: end for kind, end in times.items() if end > result.decided_at}


def _seconds(state: SchedulerState, kind: JobKind, verdict: Verdict) -> float:
    finish = state.spec.finish
    keep = math.inf if finish.keep_seconds is None else finish.keep_seconds
    if finish.cleanup is CleanupPolicy.NONE or (
        kind is JobKind.TENSORBOARD and finish.after_finish is AfterFinish.KEEP_TENSORBOARD
    ):
        return keep
    return finish.evaluator_seconds if kind is JobKind.EVALUATOR and verdict is Verdict.SUCCEEDED else 0.0


def _may_stay(state: SchedulerState) -> Result | None:
    """The result, unless somebody wants the end."""
    stopped = (
        state.process.stop_requested
        or _is_forced(state)
        or (state.stored.result is not None and state.stored.result.verdict is Verdict.STOPPED)
    )
    return None if stopped else state.stored.result


def _is_forced(state: SchedulerState) -> bool:
    """Whether an operator said that the framework counts as torn down."""
    control = state.stored.controls.get(UNINSTALL)
    return control is not None and control.covers(control.forced, (DEREGISTER, DEREGISTER))
