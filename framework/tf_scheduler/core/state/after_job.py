"""Decide which tasks outlive the job (evaluator, TensorBoard, all), and how long.

Their end time is derived from the stored result, so it survives a restart of the scheduler.
"""

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
    """Return whether the service stays registered after its last task has ended."""
    return _retaining_result(state) is not None and state.spec.finish.after_finish is AfterFinish.IDLE


def tasks_to_stop(state: SchedulerState, records: Iterable[TaskRecord], now: float) -> list[TaskRecord]:
    """Return the launches that must stop now."""
    times = _end_times(state)
    return [record for record in records if times.get(record.job, 0.0) <= now]


def retained_tasks(state: SchedulerState) -> tuple[TaskRecord, ...]:
    """Return the tasks that keep running for a while after the job."""
    times = _end_times(state)
    return tuple(record for record in state.live() if record.job in times and record.id not in state.session.kills)


def announce(state: SchedulerState) -> Decision:
    """Report every retained task when the job has just ended."""
    times = _end_times(state)
    return decide(state, outcomes=tuple(_outcome(state, record, times[record.job]) for record in retained_tasks(state)))


def _outcome(state: SchedulerState, record: TaskRecord, end: float) -> Outcome:
    since = 0.0 if state.stored.result is None else state.stored.result.decided_at
    duration = "until the service is stopped" if end == math.inf else f"for up to {end - since:g} s"
    return Outcome("TaskRetained", f"{record.name} at {record.address} keeps running {duration}", record.name)


def deadlines(state: SchedulerState) -> Iterator[float]:
    """Yield the end times of retained tasks."""
    times = _end_times(state)
    ends = (times[record.job] for record in retained_tasks(state)) if times else ()
    yield from (max(end, state.session.next_kill_at) for end in ends if end < math.inf)


def _end_times(state: SchedulerState) -> Mapping[JobKind, float]:
    """Return job -> Unix time when its tasks stop, for jobs that outlast the result."""
    result = _retaining_result(state)
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


def _retaining_result(state: SchedulerState) -> Result | None:
    """Return the result; `None` if there is none, or if an operator ends the service."""
    result, control = state.stored.result, state.stored.controls.get(UNINSTALL)
    if result is None or state.process.stop_requested or result.verdict is Verdict.STOPPED:
        return None
    is_forced = control is not None and control.covers(control.forced, (DEREGISTER, DEREGISTER))
    return None if is_forced else result
