"""After the job: which tasks keep running, how long; TEARDOWN's wait for agents.

The end time of these tasks is derived from the stored result, so it survives a restart of the scheduler.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from tf_executor.contract.states import Verdict
from tf_scheduler.model.effects import Decision, Outcome
from tf_scheduler.model.plan import DEREGISTER, UNINSTALL
from tf_scheduler.model.spec import AfterFinish, CleanupPolicy, JobKind
from tf_scheduler.model.state import Result, SchedulerState
from tf_scheduler.model.task import TaskRecord

from .reducer import decide
from .spec_index import TRAINERS, index_of


def keeps_service(state: SchedulerState) -> bool:
    """Return whether the service stays registered after its last task has ended."""
    return _retaining_result(state) is not None and state.spec.finish.after_finish is AfterFinish.IDLE


def keeps_all(state: SchedulerState, now: float) -> bool:
    """Return whether every job keeps its tasks now, and no task is stopping."""
    times = _end_times(state)
    return not state.session.kills and bool(times) and all(times.get(job.kind, 0.0) > now for job in state.spec.jobs)


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
    times, tasks, kills = _end_times(state), state.stored.tasks, state.session.kills
    for kind, end in times.items():
        # One task is enough: all tasks of a job stop at the same time.
        records = (tasks[name] for name in index_of(state.spec).by_kind[kind] if name in tasks)
        if end < math.inf and any(item.id not in kills and state.is_live(item) for item in records):
            yield max(end, state.session.next_kill_at)


def _end_times(state: SchedulerState) -> Mapping[JobKind, float]:
    """Return job -> Unix time at which its tasks stop, if that is after the result."""
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
    if verdict is not Verdict.SUCCEEDED:
        return 0.0
    if state.spec.strategy.traits.is_mirrored and kind in TRAINERS:
        # The leader's peers do the same steps, and may still save the model.
        return max(job.settings.kill_grace for job in state.spec.jobs if job.kind is kind)
    return finish.evaluator_seconds if kind is JobKind.EVALUATOR else 0.0


def _retaining_result(state: SchedulerState) -> Result | None:
    """Return the result if tasks may outlast it; `None` if an operator ends them."""
    result = state.stored.result
    if result is None or state.process.stop_requested or result.verdict is Verdict.STOPPED:
        return None
    return None if _is_removal_forced(state) else result


def _is_removal_forced(state: SchedulerState) -> bool:
    """Return whether an operator forced the removal of the framework."""
    control = state.stored.controls.get(UNINSTALL)
    return control is not None and control.covers(control.forced, (DEREGISTER, DEREGISTER))


# --- Abandoned launches


#: Seconds that TEARDOWN waits for the agent of a launch that was given up. A Mesos 1.11 master aborts when an executor
#: of a removed framework ends on an agent that has returned (docs/evidence/mesos-conformance.md).
AGENT_WAIT = 600.0
#: Maximum number of launches in one message.
_NAMED = 5


def agents_awaited_until(state: SchedulerState) -> float:
    """Return the Unix time until which TEARDOWN waits for agents; 0 if it does not."""
    if _is_removal_forced(state):
        return 0.0
    return max((item.since + AGENT_WAIT for item in state.stored.abandoned.values()), default=0.0)


def awaits_agents(state: SchedulerState) -> bool:
    """Return whether TEARDOWN is waiting for the agents of abandoned launches."""
    return state.process.waits_for_agents and bool(state.stored.abandoned) and not state.process.finished


def abandoned_message(state: SchedulerState) -> str:
    """Return which launches may still run, and what waits for them; empty if none may."""
    launches = [str(item) for item in state.stored.abandoned.values()]
    if not launches:
        return ""
    names = "; ".join(launches[:_NAMED]) + (f"; and {len(launches) - _NAMED} more" if len(launches) > _NAMED else "")
    waits = f"the removal of the framework waits up to {AGENT_WAIT:g} s for agents that do not answer: "
    return f"{waits if awaits_agents(state) else ''}{names}"


def left_to_mesos(state: SchedulerState) -> Iterator[str]:
    """Yield a message per launch that may still run after TEARDOWN."""
    why = "Mesos ends it when the agent returns; the master may abort then: mark the agent as gone before"
    yield from (f"{item}; {why} (docs/how-to/troubleshooting.md)" for item in state.stored.abandoned.values())
