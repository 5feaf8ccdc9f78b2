"""The end of the job: stop what still runs, shut the executors down, then tear the framework down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tf_scheduler.model import plan
from tf_scheduler.model.effects import Call, Decision, Outcome, ResultDecided, ShutdownExecutor, StatusStored, Teardown
from tf_scheduler.model.ids import executor_of
from tf_scheduler.model.state import Result, SchedulerState, Verdict
from tf_scheduler.model.task import TaskRecord, TaskState, TaskStatus

from .offers.reservations import UNRESERVE_SETTLE_SECONDS
from .plans import execute
from .plans.execute import KILL_INTERVAL
from .plans.view import due_uninstall_steps, is_teardown_due
from .state import after_job
from .state.reducer import decide

#: Seconds beyond its kill_grace that a task has to end in, where its agent answers. More than Mesos takes to notice
#: that an agent does not: 75 (agent_ping_timeout times max_agent_ping_timeouts).
STOP_TIMEOUT = 80.0
#: Seconds that a task has whose agent does not answer.
UNREACHABLE_STOP_TIMEOUT = KILL_INTERVAL


def request_stop(state: SchedulerState, reason: str, now: float) -> Decision:
    """Ask for the end. If the job has ended already, what was kept after it ends, too."""
    state = replace(state, process=replace(state.process, stop_requested=True))
    if state.stored.result is not None:
        return decide(state)
    result = Result(Verdict.STOPPED, reason, now)
    return decide(state, ResultDecided(result), outcomes=(Outcome(f"stopping: {reason}"),))


def advance(state: SchedulerState, now: float) -> Decision:
    """One step of the uninstall plan; nothing as long as no result is decided."""
    result = state.stored.result
    if state.stored.removed and not state.process.finished:
        return decide(replace(state, process=replace(state.process, finished=True)))
    if result is None or state.process.finished:
        return decide(state)
    if state.stored.framework_id is None:
        return decide(replace(state, process=replace(state.process, finished=True)))
    if not state.session.connected or _waits(state, now):
        return decide(state)
    return _given_up(state, now).then(lambda after: _go_on(after, result, now))


def _go_on(state: SchedulerState, result: Result, now: float) -> Decision:
    steps = due_uninstall_steps(state)
    left = [state.stored.tasks[step.task] for step in steps if step.work is plan.Work.KILL and step.task is not None]
    ended = execute.kill_tasks(state, after_job.tasks_to_stop(state, left, now), now)
    if left or after_job.keeps_service(state):
        return ended
    return _tear_down(ended.state, result, now) if is_teardown_due(state) else ended


def _waits(state: SchedulerState, now: float) -> bool:
    """Whether it is clear without a look at every task that nothing is to be done now."""
    return state.live_count() > 0 and now < state.session.next_kill_at


def _given_up(state: SchedulerState, now: float) -> Decision:
    """Launches that did not end in time count as lost: TEARDOWN ends them, at once or when their agent is back."""
    late = [
        record
        for record in state.live()
        if record.id in state.session.kill_requested_at and now >= _patience_until(state, record)
    ]
    if not late:
        return decide(state)
    asked = state.session.kill_requested_at
    told = [
        f"{record.name} on {record.hostname}, not ended within {now - asked[record.id]:.0f} s: Mesos ends it, "
        "when that agent is back"
        for record in late
    ]
    lost = (StatusStored(_lost(record)) for record in late)
    outcomes = tuple(
        Outcome(f"left behind: {text}", record.name, warning=True) for record, text in zip(late, told, strict=True)
    )
    return decide(
        replace(state, process=replace(state.process, left_behind=(*state.process.left_behind, *told))),
        *lost,
        outcomes=outcomes,
    )


def _patience_until(state: SchedulerState, record: TaskRecord) -> float:
    status = state.stored.statuses.get(record.id)
    if status is not None and status.state is TaskState.UNREACHABLE:
        return state.session.kill_requested_at[record.id] + UNREACHABLE_STOP_TIMEOUT
    return (
        state.session.kill_requested_at[record.id]
        + STOP_TIMEOUT
        + max((job.kill_grace for job in state.spec.jobs), default=0.0)
    )


def _lost(record: TaskRecord) -> TaskStatus:
    message = "it did not end in time, and is left to Mesos"
    return TaskStatus(record.id, TaskState.LOST, record.agent_id, message=message)


def _tear_down(state: SchedulerState, result: Result, now: float) -> Decision:
    if now < state.process.unreserved_at + UNRESERVE_SETTLE_SECONDS or (
        state.session.teardown_at is not None and now < state.session.teardown_at + KILL_INTERVAL
    ):
        return decide(state)
    shut: tuple[Call, ...] = tuple(
        ShutdownExecutor(executor_of(record.id), record.agent_id) for record in state.stored.tasks.values()
    )
    forced = tuple(text for text in _forced(state) if text not in state.process.left_behind)
    told = (*(Outcome(f"left behind: {text}", warning=True) for text in forced), _said(result))
    after = replace(
        state,
        session=replace(state.session, teardown_at=now, next_kill_at=0.0),
        process=replace(state.process, left_behind=(*state.process.left_behind, *forced)),
    )
    return decide(after, calls=(*shut, Teardown()), outcomes=told)


def _said(result: Result) -> Outcome:
    return Outcome(f"{result.verdict.value}: {result.sentence}")


def _forced(state: SchedulerState) -> Iterator[str]:
    """What is there though it is the turn of TEARDOWN: an operator said that it counts as ended, or given back."""
    why = "an operator did not want its end to be waited for; Mesos ends it, if its agent answers"
    yield from (f"{record.name} on {record.hostname}: {why}" for record in state.live())
    for item in state.stored.reservations.values():
        yield f"what was reserved for {item.task} on {item.location.hostname}: an operator did not want to wait for it"


# --- overdue
# The deadline of the whole job (Kubeflow's activeDeadlineSeconds): from its first launch, whatever ran since.


def check_deadline(state: SchedulerState, now: float) -> Decision:
    """The job fails when its deadline has passed."""
    at = next(deadlines(state), None)
    if at is None or now < at:
        return decide(state)
    why = f"it took longer than finish.deadline allows: {state.spec.finish.deadline:g} s after its first launch"
    return decide(state, ResultDecided(Result(Verdict.FAILED, why, now)), outcomes=(Outcome(why, warning=True),))


def deadlines(state: SchedulerState) -> Iterator[float]:
    """The one, as long as the job runs."""
    start = state.derived.first_launch_at
    if state.stored.result is None and state.spec.finish.deadline is not None and start is not None:
        yield start + state.spec.finish.deadline
