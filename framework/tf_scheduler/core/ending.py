"""The end of the job: stop what still runs, shut the executors down, then tear the framework down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tf_scheduler.model.effects import (
    Call,
    Decision,
    Outcome,
    ResultDecided,
    ShutdownExecutor,
    StatusStored,
    Teardown,
)
from tf_scheduler.model.ids import executor_of
from tf_scheduler.model.state import Result, SchedulerState, Verdict
from tf_scheduler.model.task import TaskRecord, TaskState, TaskStatus

from . import keeping, plans
from .plans.act import KILL_AGAIN
from .reduce import decide, then
from .reserve import SETTLE

#: Seconds beyond its kill_grace that a task has to end in, where its agent answers. More than Mesos takes to notice
#: that an agent does not: 75 (agent_ping_timeout times max_agent_ping_timeouts).
ENDS_WITHIN = 80.0
#: Seconds that a task has whose agent does not answer.
UNREACHABLE_ENDS_WITHIN = KILL_AGAIN


def stop(state: SchedulerState, reason: str, now: float) -> Decision:
    """Ask for the end. If the job has ended already, what was kept after it ends, too."""
    state = replace(state, leaving=True)
    if state.result is not None:
        return decide(state)
    result = Result(Verdict.STOPPED, reason, now)
    return decide(state, ResultDecided(result), outcomes=(Outcome(f"stopping: {reason}"),))


def finish(state: SchedulerState, now: float) -> Decision:
    """One step of the uninstall plan; nothing as long as no result is decided."""
    result = state.result
    if state.removed and not state.over:
        return decide(replace(state, over=True))
    if result is None or state.over:
        return decide(state)
    if state.framework_id is None:
        return decide(replace(state, over=True))
    if not state.connected or _waits(state, now):
        return decide(state)
    return then(_given_up(state, now), lambda after: _go_on(after, result, now))


def _go_on(state: SchedulerState, result: Result, now: float) -> Decision:
    steps = plans.last_steps(state)
    left = [state.tasks[step.task] for step in steps if step.work is plans.Work.KILL and step.task is not None]
    ended = plans.end(state, keeping.doomed(state, left, now), now)
    if left or keeping.stays(state):
        return ended
    return _tear_down(ended.state, result, now) if plans.leaves(state) else ended


def _waits(state: SchedulerState, now: float) -> bool:
    """Whether it is clear without a look at every task that nothing is to be done now."""
    return state.live_count() > 0 and now < state.kill_at


def _given_up(state: SchedulerState, now: float) -> Decision:
    """Launches that did not end in time count as lost: TEARDOWN ends them, at once or when their agent is back."""
    late = [record for record in state.live() if record.id in state.asked and now >= _patience_until(state, record)]
    if not late:
        return decide(state)
    told = [
        f"{record.name} on {record.hostname}, not ended within {now - state.asked[record.id]:.0f} s: Mesos ends it, "
        "when that agent is back"
        for record in late
    ]
    lost = (StatusStored(_lost(record)) for record in late)
    outcomes = tuple(
        Outcome(f"left behind: {text}", record.name, warning=True) for record, text in zip(late, told, strict=True)
    )
    return decide(replace(state, left=(*state.left, *told)), *lost, outcomes=outcomes)


def _patience_until(state: SchedulerState, record: TaskRecord) -> float:
    status = state.statuses.get(record.id)
    if status is not None and status.state is TaskState.UNREACHABLE:
        return state.asked[record.id] + UNREACHABLE_ENDS_WITHIN
    return state.asked[record.id] + ENDS_WITHIN + max((job.kill_grace for job in state.spec.jobs), default=0.0)


def _lost(record: TaskRecord) -> TaskStatus:
    message = "it did not end in time, and is left to Mesos"
    return TaskStatus(record.id, TaskState.LOST, record.agent_id, message=message)


def _tear_down(state: SchedulerState, result: Result, now: float) -> Decision:
    if now < state.given_back_at + SETTLE or (state.teardown_at is not None and now < state.teardown_at + KILL_AGAIN):
        return decide(state)
    shut: tuple[Call, ...] = tuple(
        ShutdownExecutor(executor_of(record.id), record.agent_id) for record in state.tasks.values()
    )
    forced = tuple(text for text in _forced(state) if text not in state.left)
    told = (*(Outcome(f"left behind: {text}", warning=True) for text in forced), _said(result))
    after = replace(state, teardown_at=now, kill_at=0.0, left=(*state.left, *forced))
    return decide(after, calls=(*shut, Teardown()), outcomes=told)


def _said(result: Result) -> Outcome:
    return Outcome(f"{result.verdict.value}: {result.sentence}")


def _forced(state: SchedulerState) -> Iterator[str]:
    """What is there though it is the turn of TEARDOWN: an operator said that it counts as ended, or given back."""
    why = "an operator did not want its end to be waited for; Mesos ends it, if its agent answers"
    yield from (f"{record.name} on {record.hostname}: {why}" for record in state.live())
    for item in state.reservations.values():
        yield f"what was reserved for {item.task} on {item.place.hostname}: an operator did not want to wait for it"
