"""Handle status updates: store, acknowledge, kill unknown launches, end the job.

The table `REACTIONS` decides what a status means. The cause of a launch's end is judged only after that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial

from tf_executor.contract.states import WARNING, TaskState, Verdict, assert_never
from tf_scheduler.core.launch.secret_tokens import detect_exposure
from tf_scheduler.core.plans.scheduling import KILL_INTERVAL, PlanView
from tf_scheduler.core.recovery import reconcile, recover, replacement, startup_timeout
from tf_scheduler.core.recovery.replacement import renew_address_wait
from tf_scheduler.core.state.reducer import COLLATERAL_SECONDS, decide
from tf_scheduler.core.state.spec_index import TRAINERS, index_of, trains_together
from tf_scheduler.model import effects
from tf_scheduler.model.ids import AgentId, NewId, TaskId, name_of
from tf_scheduler.model.plan import DECOMMISSION
from tf_scheduler.model.resources import UNIT
from tf_scheduler.model.spec import JobKind, JobSpec
from tf_scheduler.model.state import Result, SchedulerState
from tf_scheduler.model.task import AbandonedLaunch, TaskRecord, TaskStatus

# --- Reactions, by the believed and the reported state of a launch; the documentation shows the table


class Reaction(str, Enum):
    """What the scheduler does with a status."""

    #: Store it; nothing is launched.
    ADOPT = "adopt"
    #: Store it, and wait for the agent up to `recovery.unreachable_timeout`.
    WAIT = "wait"
    #: Store it: the task has succeeded, and a pending relaunch is cancelled.
    FINISH = "finish"
    #: Store it, and decide by its cause.
    END = "end"
    #: Stop a launch that is no longer wanted.
    KILL = "kill"
    #: Ignore it, but remember that the launch may still run.
    REMEMBER = "remember"
    IGNORE = "ignore"


class Belief(Enum):
    """What the scheduler believes of a launch: groups of its last stored state."""

    RUNNING = "no status, STAGING, STARTING or RUNNING"
    STOPPING = "KILLING"
    SILENT = "UNREACHABLE or UNKNOWN"
    GIVEN_UP = "LOST, GONE, GONE_BY_OPERATOR or DROPPED"
    ENDED = "FAILED, KILLED or ERROR"
    FINISHED = "FINISHED"
    REPLACED = "any state of a replaced or foreign launch"


class Report(Enum):
    """What Mesos reports of a launch: groups of the reported state."""

    RUNS = "STAGING, STARTING, RUNNING or KILLING"
    UNREACHABLE = "UNREACHABLE"
    UNKNOWN = "UNKNOWN"
    FINISHED = "FINISHED"
    ENDED = "FAILED, KILLED, ERROR or DROPPED"
    LOST = "LOST, GONE or GONE_BY_OPERATOR"


#: States of a running program in the order in which Mesos reports them.
_STAGES = (TaskState.STAGING, TaskState.STARTING, TaskState.RUNNING, TaskState.KILLING)


def belief_of(state: TaskState) -> Belief:  # noqa: RET503 - assert_never does not return
    """Return what the scheduler believes after it has stored a state."""
    match state:
        case TaskState.STAGING | TaskState.STARTING | TaskState.RUNNING:
            return Belief.RUNNING
        case TaskState.KILLING:
            return Belief.STOPPING
        case TaskState.UNREACHABLE | TaskState.UNKNOWN:
            return Belief.SILENT
        case TaskState.LOST | TaskState.GONE | TaskState.GONE_BY_OPERATOR | TaskState.DROPPED:
            return Belief.GIVEN_UP
        case TaskState.FAILED | TaskState.KILLED | TaskState.ERROR:
            return Belief.ENDED
        case TaskState.FINISHED:
            return Belief.FINISHED
        case _:
            assert_never(state)


def report_of(state: TaskState) -> Report:  # noqa: RET503 - assert_never does not return
    """Return the group of a reported state."""
    match state:
        case TaskState.STAGING | TaskState.STARTING | TaskState.RUNNING | TaskState.KILLING:
            return Report.RUNS
        case TaskState.UNREACHABLE:
            return Report.UNREACHABLE
        case TaskState.UNKNOWN:
            return Report.UNKNOWN
        case TaskState.FINISHED:
            return Report.FINISHED
        case TaskState.FAILED | TaskState.KILLED | TaskState.ERROR | TaskState.DROPPED:
            return Report.ENDED
        case TaskState.LOST | TaskState.GONE | TaskState.GONE_BY_OPERATOR:
            return Report.LOST
        case _:
            assert_never(state)


_LIVE = {
    Report.RUNS: Reaction.ADOPT,
    Report.UNREACHABLE: Reaction.WAIT,
    Report.UNKNOWN: Reaction.WAIT,
    Report.FINISHED: Reaction.FINISH,
    Report.ENDED: Reaction.END,
    Report.LOST: Reaction.END,
}
_NEVER = dict.fromkeys(Report, Reaction.IGNORE)
_GONE = {**_NEVER, Report.RUNS: Reaction.KILL, Report.UNREACHABLE: Reaction.REMEMBER}
REACTIONS: Mapping[Belief, Mapping[Report, Reaction]] = {
    Belief.RUNNING: _LIVE,
    Belief.STOPPING: {**_LIVE, Report.RUNS: Reaction.IGNORE},
    Belief.SILENT: _LIVE,
    # Until it is replaced, a success counts; a program that still runs would run beside its replacement.
    Belief.GIVEN_UP: {**_GONE, Report.FINISHED: Reaction.FINISH},
    Belief.ENDED: _NEVER,
    Belief.FINISHED: _NEVER,
    Belief.REPLACED: _GONE,
}


def reaction_to(status: TaskStatus, previous: TaskStatus | None, *, is_current: bool) -> Reaction:
    """Return the reaction to a status; `previous` is the launch's last status, if any."""
    if not is_current:
        return REACTIONS[Belief.REPLACED][report_of(status.state)]
    if previous is None:
        return REACTIONS[Belief.RUNNING][report_of(status.state)]
    if previous.state in _STAGES and status.state in _STAGES[: _STAGES.index(previous.state)]:
        return Reaction.IGNORE  # delayed: a later stage is known
    return REACTIONS[belief_of(previous.state)][report_of(status.state)]


# --- Status updates


#: Expected ends, reported without a warning; KILLED is what the scheduler has stopped.
_AS_WISHED = (TaskState.FINISHED, TaskState.KILLED)


def on_update(state: SchedulerState, status: TaskStatus, now: float, new_id: NewId, view: PlanView) -> effects.Decision:
    """Handle a status update according to `REACTIONS`.

    An update that is already stored is only acknowledged again. An answer that repeats the stored state is ignored.
    """
    decision = _on_update(state, status, now, new_id, view)
    abandoned = state.stored.abandoned.get(status.id)
    if abandoned is None or not status.state.has_ended:
        return decision
    message = f"{status.id} on {abandoned.hostname}, which had been given up, {status.state.phrase}"
    outcome = effects.Outcome("TaskStatus", message, name_of(status.id))
    return decision.then(
        lambda after: decide(after, effects.EntryForgotten("abandoned", status.id), outcomes=(outcome,))
    )


def _on_update(
    state: SchedulerState, status: TaskStatus, now: float, new_id: NewId, view: PlanView
) -> effects.Decision:
    if state.session.reconciliation.awaits(status.id):
        state = reconcile.mark_answered(state, status.id)
    record = state.stored.tasks.get(name_of(status.id))
    if record is not None and record.id != status.id:
        record = None
    if record is not None and record.is_placeholder and status.state is TaskState.FINISHED:
        status = replace(status, state=TaskState.FAILED, message="the placeholder process of the paused task exited")
    previous = None if record is None else state.stored.statuses.get(status.id)
    if previous is not None and (status.uuid and previous.uuid == status.uuid):
        return decide(state, calls=_acknowledge(status))
    reaction = reaction_to(status, previous, is_current=record is not None)
    if reaction is Reaction.KILL:
        return decide(state, calls=_acknowledge(status)).then(partial(kill_unwanted, status=status, now=now))
    if reaction is Reaction.REMEMBER:
        return _remember(state, status, now)
    if record is None or reaction is Reaction.IGNORE:
        if status.state.has_ended and status.id in state.session.kills:
            state = recover.release(state, name_of(status.id), now)
        return decide(state, calls=_acknowledge(status), outcomes=_late_success(status, previous))
    if previous is not None and previous.state is status.state and not status.uuid:
        return decide(state)
    status = _completed(state, status, previous, record, now)
    status = _with_image_problem(status, previous, state.spec.job_of(record.job, record.index))
    changes: list[effects.Change] = [effects.StatusStored(status)]
    if (
        reaction is Reaction.FINISH
        and state.is_replaced(record)
        and not trains_together(state.spec.strategy, record.job)
    ):
        cancelled = replace(state.stored.recoveries[record.name], launch=TaskId(""))
        changes.append(effects.RecoveryDecided(cancelled))
    decision = decide(state, *changes, calls=_acknowledge(status))
    change = recover.StatusChange(record, status, previous, now, new_id)
    decision = decision.then(lambda after: _react(after, change, view))
    if status.state.has_ended and status.id in state.stored.redeemed_tokens:
        decision = decision.then(lambda after: detect_exposure(after, record, previous, now))
    return decision


def _completed(
    state: SchedulerState, status: TaskStatus, previous: TaskStatus | None, record: TaskRecord, now: float
) -> TaskStatus:
    """Return the status to store, completed from the previous status and the record."""
    # By the scheduler's clock: those of agents differ, and the master sends a new time with each answer.
    is_still_silent = previous is not None and status.state.is_silent and previous.state.is_silent
    status = replace(status, timestamp=previous.timestamp if previous is not None and is_still_silent else now)
    if status.end.out_of_memory and status.state is TaskState.FAILED:
        allowed = _allowed_memory(state, record) if status.reason == "REASON_CONTAINER_LIMITATION_MEMORY" else ""
        status = replace(status, message=f"{status.message or 'out of memory'}{allowed}; raise {record.group}.mem")
    if previous is not None and not status.addresses:
        status = replace(status, addresses=previous.addresses)
    if status.state is TaskState.RUNNING and status.healthy is None:
        status = startup_timeout.with_start_time(status, previous)
    return status


def _allowed_memory(state: SchedulerState, record: TaskRecord) -> str:
    """Return the limit of a container in terms of the options."""
    total = sum(item.value for item in record.resources if item.name == "mem" and isinstance(item.value, int)) // UNIT
    executor = state.spec.executor.needs.mem // UNIT
    return f"; allowed {total} MB = {record.group}.mem {total - executor} + executor.mem {executor}"


def _with_image_problem(status: TaskStatus, previous: TaskStatus | None, job: JobSpec | None) -> TaskStatus:
    """Mark the task as unable to start if its executor in an image never reported.

    Without an image, the executor may start on another agent, so the status is unchanged.
    """
    has_started = previous is not None and previous.state is not TaskState.STAGING
    if has_started or status.reason != "REASON_EXECUTOR_TERMINATED" or job is None or not job.image:
        return status
    problem = f"the executor did not start in the image `{job.image}`"
    needs = "stderr of the task names the cause; the image needs `sh`, `sha256sum` and Python 3.8 (executor.python)"
    end = replace(status.end, error=problem, cannot_start=True)
    return replace(status, message=f"{problem}; hint: {needs}", end=end)


def expire_unreachable(
    state: SchedulerState, records: Sequence[TaskRecord], now: float, new_id: NewId, view: PlanView
) -> effects.Decision:
    """Mark tasks as lost that stay silent too long, even after another request.

    Lost tasks may still run, so their launches are stored as abandoned.
    """
    silent = {record.id: state.stored.statuses[record.id] for record in records}
    unasked = [status for status in silent.values() if not reconcile.was_asked_again(state, status)]
    lost = [record for record in records if reconcile.was_asked_again(state, silent[record.id])]
    abandoned = [AbandonedLaunch.of(record, now) for record in lost]
    lost_statuses = [recover.lost(state, silent[record.id]) for record in lost]
    decision = reconcile.ask_again(state, unasked, now) if unasked else decide(state)
    decision = decision.then(lambda after: _conclude(after, lost_statuses, now, new_id, view))
    return decision.then(lambda after: decide(after, *abandoned))


def expire_unstarted(
    state: SchedulerState, records: Sequence[TaskRecord], now: float, new_id: NewId, view: PlanView
) -> effects.Decision:
    """Mark launches that did not start in time as lost; kill them in case they start."""
    unstarted = [startup_timeout.unstarted_status(state, record, now) for record in records]
    kills = tuple(effects.Kill(record.id, record.agent_id) for record in records)
    return _conclude(state, unstarted, now, new_id, view).then(lambda after: decide(after, calls=kills))


def _conclude(
    state: SchedulerState, statuses: Iterable[TaskStatus], now: float, new_id: NewId, view: PlanView
) -> effects.Decision:
    """Handle statuses that the scheduler made itself, like statuses from Mesos."""
    decision = decide(state)
    for status in statuses:
        decision = decision.then(partial(on_update, status=status, now=now, new_id=new_id, view=view))
    return decision


def _acknowledge(status: TaskStatus) -> tuple[effects.Call, ...]:
    """Acknowledge only updates with a uuid (Mesos documentation, scheduler HTTP API)."""
    if not status.uuid or status.agent_id is None:
        return ()
    return (effects.Acknowledge(status.id, status.agent_id, status.uuid),)


def on_sign_of_life(state: SchedulerState, launch: TaskId, agent_id: AgentId | None, now: float) -> effects.Decision:
    """Kill a launch that shows a sign of life, if the scheduler does not want it."""
    record = state.stored.tasks.get(name_of(launch))
    is_current = record is not None and record.id == launch
    previous = state.stored.statuses.get(launch) if is_current else None
    status = TaskStatus(launch, TaskState.RUNNING, agent_id)
    is_wanted = reaction_to(status, previous, is_current=is_current) is not Reaction.KILL
    return decide(state) if is_wanted else kill_unwanted(state, status, now)


def kill_unwanted(state: SchedulerState, status: TaskStatus, now: float) -> effects.Decision:
    """Kill a launch that is not wanted, at most once per KILL_INTERVAL.

    Its task is not launched before it has ended: two programs could write the same checkpoints.
    """
    if status.agent_id is None or now < state.session.kills.get(status.id, -math.inf) + KILL_INTERVAL:
        return decide(state)
    message = f"killing {status.id}: it runs, but is not a current launch of this service"
    task, record = index_of(state.spec).tasks.get(name_of(status.id)), state.stored.tasks.get(name_of(status.id))
    if task is not None and (record is None or not state.is_live(record)):
        state = recover.hold_back(state, task.name, now + task.job.settings.kill_grace + KILL_INTERVAL)
    return decide(
        state.with_session(kills={**state.session.kills, status.id: now}),
        calls=(effects.Kill(status.id, status.agent_id),),
        outcomes=(effects.Outcome("ForeignTaskKilled", message, warning=True),),
    )


def _remember(state: SchedulerState, status: TaskStatus, now: float) -> effects.Decision:
    """Remember that a launch that was given up, or replaced, may still run."""
    calls = _acknowledge(status)
    if status.agent_id is None or status.id in state.stored.abandoned:
        return decide(state, calls=calls)
    record, agent = state.stored.tasks.get(name_of(status.id)), state.session.agent_snapshots.get(status.agent_id)
    hostname = status.agent_id if agent is None else agent.hostname
    if record is not None and record.id == status.id:
        hostname = record.hostname
    launch = AbandonedLaunch(status.id, status.agent_id, hostname, now)
    outcome = effects.Outcome("LaunchAbandoned", f"{launch}, which does not answer", name_of(status.id), warning=True)
    return decide(state, launch, calls=calls, outcomes=(outcome,))


def _late_success(status: TaskStatus, previous: TaskStatus | None) -> tuple[effects.Outcome, ...]:
    """Report a success that is ignored, because the launch had failed or was replaced."""
    if status.state is not TaskState.FINISHED or (previous is not None and previous.state is TaskState.FINISHED):
        return ()
    why = "it was replaced" if previous is None else f"it {previous.state.phrase} before"
    return (effects.Outcome("LateSuccess", f"{status.id} has finished, which is ignored: {why}", warning=True),)


def _react(state: SchedulerState, change: recover.StatusChange, view: PlanView) -> effects.Decision:
    record, status, now = change.record, change.status, change.now
    sentence = describe(record, status)
    warns = status.is_frozen or (status.state.has_ended and status.state not in _AS_WISHED)
    outcome = effects.Outcome("TaskStatus", sentence, record.name, warning=warns)
    if state.stored.result is not None:
        return decide(state, *_aftermath(state, state.stored.result, change), outcomes=(outcome,))
    if not status.state.has_ended:
        return decide(state, outcomes=(outcome,))
    if status.state is not TaskState.FINISHED:
        view = view.after(state)
        if (view.needs(record) or view.keeps_options(record)) and not state.is_replaced(record):
            return recover.on_task_end(state, change)
        plan = "" if record.name in index_of(state.spec).tasks else DECOMMISSION  # it may be wanted again
        if record.id not in state.stored.retired and record.name in view.open_tasks:
            plan = view.records.rollout.name
        recovery = renew_address_wait(state, record, status, now)
        changes: list[effects.Change] = [effects.LaunchRetired(record.id, plan)] if plan else []
        changes += [effects.RecoveryDecided(recovery)] if recovery else []
        return decide(state, *changes, outcomes=(outcome,))
    return decide(state, outcomes=(outcome,))


def conclude(state: SchedulerState, now: float) -> effects.Decision:
    """Decide that the job has succeeded, when what must finish has finished."""
    record = replacement.success(state)
    if record is None:
        return decide(state)
    sentence = describe(record, state.stored.statuses[record.id]) + replacement.lone_warning(state)
    for other in state.stored.tasks.values():
        status = state.status(other.name)
        if other.job in (JobKind.EVALUATOR, *TRAINERS) and status is not None and status.state is TaskState.FAILED:
            sentence += f"{WARNING}{describe(other, status)}"
    return decide(state, effects.ResultDecided(Result(Verdict.SUCCEEDED, sentence, now)))


def _aftermath(state: SchedulerState, result: Result, change: recover.StatusChange) -> tuple[effects.Change, ...]:
    """Add a task that fails soon after the job, or has trained alone, to the result."""
    after = result
    soon = change.now - result.decided_at < COLLATERAL_SECONDS
    if result.verdict is Verdict.FAILED and change.status.state is TaskState.FAILED and soon:
        after = result.with_collateral(change.record.name)
    if warning := replacement.lone_warning(state):
        after = replace(after, reason=after.reason + warning)
    return () if after is result else (effects.ResultDecided(after),)


def describe(record: TaskRecord, status: TaskStatus) -> str:
    """Return a message such as `worker-1 on agent-2 has failed: exit code 3`."""
    why = status.message or status.reason
    if record.job is JobKind.TENSORBOARD and status.state is TaskState.RUNNING:
        why = f"http://{record.address}/"
    if record.is_placeholder and status.state is TaskState.RUNNING:
        return f"{record.name} on {record.hostname} is paused: a placeholder keeps its resources"
    phrase = "is frozen" if status.is_frozen else status.state.phrase
    return f"{record.name} on {record.hostname} {phrase}{f': {why}' if why else ''}"
