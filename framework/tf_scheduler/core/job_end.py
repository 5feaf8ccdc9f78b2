"""End the job on request or deadline: stop tasks, then tear the framework down."""

from __future__ import annotations

from collections.abc import Iterator

from tf_executor.contract.states import TaskState, Verdict
from tf_scheduler.model import plan
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
from tf_scheduler.model.state import Result, SchedulerState
from tf_scheduler.model.task import AbandonedLaunch, TaskRecord, TaskStatus

from .plans.plan_status import due_uninstall_steps, is_teardown_due
from .plans.scheduling import KILL_INTERVAL, STOP_TIMEOUT, kill_tasks
from .state import after_job
from .state.reducer import decide

#: Seconds in which a task must end if its agent does not answer.
UNREACHABLE_STOP_TIMEOUT = KILL_INTERVAL


def request_stop(state: SchedulerState, reason: str, now: float) -> Decision:
    """Stop the job; if it has ended, stop the tasks that it retains."""
    state = state.with_process(stop_requested=True)
    if state.stored.result is not None:
        return decide(state)
    result = Result(Verdict.STOPPED, reason, now)
    return decide(state, ResultDecided(result), outcomes=(Outcome("StopRequested", f"stopping: {reason}"),))


def advance(state: SchedulerState, now: float) -> Decision:
    """Advance the uninstall plan after the result is decided."""
    result = state.stored.result
    if state.stored.removed or (result is not None and state.stored.framework_id is None):
        return decide(state.with_process(finished=True))
    if result is None or not state.session.connected or _is_waiting(state, now):
        return decide(state)
    return _abandon(state, now).then(lambda after: _stop_tasks(after, result, now))


def _stop_tasks(state: SchedulerState, result: Result, now: float) -> Decision:
    steps = due_uninstall_steps(state)
    to_kill = [state.stored.tasks[step.task] for step in steps if step.work is plan.Work.KILL and step.task is not None]
    decision = kill_tasks(state, after_job.tasks_to_stop(state, to_kill, now), now)
    if to_kill or after_job.keeps_service(state) or not is_teardown_due(state):
        return decision
    return _tear_down(decision.state, result, now)


def _is_waiting(state: SchedulerState, now: float) -> bool:
    """Return whether nothing is due, without checking every task."""
    return state.live_count() > 0 and (now < state.session.next_kill_at or after_job.keeps_all(state, now))


def _abandon(state: SchedulerState, now: float) -> Decision:
    """Count launches that did not stop in time as lost; TEARDOWN stops them later.

    Late launches on agents that do not answer are stored as abandoned: TEARDOWN waits for these agents.
    """
    late = [
        record
        for record in state.live()
        if record.id in state.session.kill_requested_at and now >= _stop_deadline(state, record)
    ]
    if not late:
        return decide(state)
    requested_at = state.session.kill_requested_at
    abandoned = [AbandonedLaunch.of(record, now) for record in late if state.is_silent(record)]
    message = "{0.name} on {0.hostname} did not end within {1:.0f} s; Mesos ends it with the framework"
    texts = {
        record.name: message.format(record, now - requested_at[record.id])
        for record in late
        if not state.is_silent(record)
    }
    outcomes = tuple(Outcome("LeftBehind", f"left behind: {text}", name, warning=True) for name, text in texts.items())
    after = state.with_process(left_behind=(*state.process.left_behind, *texts.values()))
    reason = "the task did not end in time; Mesos ends it when its agent returns"
    lost = (TaskStatus(record.id, TaskState.LOST, record.agent_id, message=reason) for record in late)
    return decide(after, *map(StatusStored, lost), *abandoned, outcomes=outcomes)


def _stop_deadline(state: SchedulerState, record: TaskRecord) -> float:
    requested_at = state.session.kill_requested_at[record.id]
    if state.is_silent(record):
        return requested_at + UNREACHABLE_STOP_TIMEOUT
    return requested_at + STOP_TIMEOUT + max((job.settings.kill_grace for job in state.spec.jobs), default=0.0)


def _tear_down(state: SchedulerState, result: Result, now: float) -> Decision:
    if state.session.teardown_at is not None and now < state.session.teardown_at + KILL_INTERVAL:
        return decide(state)
    if state.session.teardown_at is None and now < after_job.agents_awaited_until(state):
        if state.process.waits_for_agents:
            return decide(state)
        waiting = state.with_process(waits_for_agents=True)
        outcome = Outcome("LaunchAbandoned", after_job.abandoned_message(waiting), warning=True)
        return decide(waiting, outcomes=(outcome,))
    shut: tuple[Call, ...] = tuple(
        ShutdownExecutor(executor_of(record.id), record.agent_id) for record in state.stored.tasks.values()
    )
    why = "an operator forced its step to complete; Mesos ends the task if the agent answers"
    forced = [f"{record.name} on {record.hostname}: {why}" for record in state.live()]
    forced = [text for text in forced if text not in state.process.left_behind]
    outcomes: list[Outcome] = []
    if state.session.teardown_at is None:  # reported once, although TEARDOWN is repeated
        texts = (*forced, *after_job.left_to_mesos(state))
        outcomes += [Outcome("LeftBehind", f"left behind: {text}", warning=True) for text in texts]
        outcomes.append(Outcome("JobEnded", f"{result.verdict.value}: {result.sentence}"))
    after = state.with_session(teardown_at=now, next_kill_at=0.0)
    after = after.with_process(left_behind=(*state.process.left_behind, *forced))
    return decide(after, calls=(*shut, Teardown()), outcomes=tuple(outcomes))


# --- Deadline of the job, since its first launch (Kubeflow's activeDeadlineSeconds)


def check_deadline(state: SchedulerState, now: float) -> Decision:
    """Fail the job after its deadline."""
    at = next(deadlines(state), None)
    if at is None or now < at:
        return decide(state)
    why = f"the job exceeded finish.deadline: {state.spec.finish.deadline:g} s since its first launch"
    failed = ResultDecided(Result(Verdict.FAILED, why, now))
    return decide(state, failed, outcomes=(Outcome("DeadlinePassed", why, warning=True),))


def deadlines(state: SchedulerState) -> Iterator[float]:
    """Yield the deadline while the job runs."""
    start = state.derived.first_launch_at
    if state.stored.result is None and state.spec.finish.deadline is not None and start is not None:
        yield start + state.spec.finish.deadline
