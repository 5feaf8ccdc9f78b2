"""Carry out operators' scale, restart, replace, pause, resume and exec commands.

A paused task is relaunched as a placeholder (core/state/spec_index.py), a resumed task with its program. Relaunches are
stored as recoveries, so they survive a restart of the scheduler. They do not count as failures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tf_executor.contract.payload import ExecRequest
from tf_executor.contract.states import TaskState
from tf_scheduler.core.elastic import cluster_size
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.core.state.spec_index import index_of, is_sleeping, override_of, pause_reason, sleeping_tasks
from tf_scheduler.model.effects import (
    Change,
    Decision,
    EntryForgotten,
    MessageExecutor,
    Outcome,
    RecoveryDecided,
    TaskPaused,
)
from tf_scheduler.model.events import ExecRequested, PodCommand, ScaleRequested
from tf_scheduler.model.ids import TaskName, executor_of
from tf_scheduler.model.plan import SERVICE_ENDED, Answer, Reply
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import RESTARTS_WITH, Cause, PodVerb, Recovery, TaskRecord

from .replacement import replace_launch, restart_group


def handle(state: SchedulerState, command: PodCommand | ExecRequested | ScaleRequested, now: float) -> Decision:
    """Carry out an operator's command, or refuse it."""
    if isinstance(command, ScaleRequested):
        return cluster_size.scale(state, command.workers, now)
    if isinstance(command, ExecRequested):
        return _run_command(state, command)
    refused = _refused(state, command)
    if refused is not None:
        return replace(decide(state), answer=refused)
    record = state.stored.tasks[command.task]
    changes = _changes(state, command.verb, record, now)
    again = [item.recovery.task for item in changes if isinstance(item, RecoveryDecided)]
    others = [name for name in again if name != command.task]
    together = f", together with {', '.join(others)}" if others else ""
    message = f"operator command: {command.verb.value} {command.task}{together}"
    outcome = Outcome("TaskCommanded", message, command.task)
    answer = Answer(Reply.OK, f"Received cmd: {command.verb.value} {command.task}{together}")
    return replace(decide(state, *changes, outcomes=(outcome,)), answer=answer)


def _refused(state: SchedulerState, command: PodCommand) -> Answer | None:
    """Return why the command is refused; `None` if it is valid."""
    record = state.stored.tasks.get(command.task)
    if record is None:
        if command.task in index_of(state.spec).tasks:
            return Answer(Reply.CONFLICT, f"Task {command.task} was never launched: see the deploy plan")
        return Answer(Reply.NOT_FOUND, f"Task {command.task} not found")
    if state.stored.result is not None:
        return SERVICE_ENDED
    paused = command.task in state.stored.paused
    if not paused and command.verb is not PodVerb.PAUSE and override_of(state, command.task):
        return Answer(Reply.CONFLICT, f"Task {command.task} does not run: {pause_reason(state, command.task)}")
    if paused is (command.verb is PodVerb.PAUSE) and command.verb in (PodVerb.PAUSE, PodVerb.RESUME):
        return Answer(Reply.ALREADY, f"Task {command.task} is {'' if paused else 'not '}paused")
    if state.is_finished(record):
        return Answer(Reply.CONFLICT, f"Task {command.task} has finished: it is never launched again")
    if paused and command.verb is not PodVerb.RESUME:
        return Answer(Reply.CONFLICT, f"Task {command.task} is paused: resume it first")
    return None


def _run_command(state: SchedulerState, event: ExecRequested) -> Decision:
    """Send a user's command to the executor of a running task, or refuse it."""
    refused = _exec_refusal(state, event.task)
    if refused is not None:
        return Decision(state, answer=refused)
    record = state.stored.tasks[event.task]
    message = ExecRequest(event.id, record.id, event.command, event.timeout).encode(record.exec_key)
    # Without the command, which may contain a password.
    outcome = Outcome("TaskCommanded", f"operator command: exec in {event.task} (id {event.id})", event.task)
    return Decision(
        state,
        calls=(MessageExecutor(executor_of(record.id), record.agent_id, message),),
        outcomes=(outcome,),
        answer=Answer(Reply.OK, f"Received cmd: exec in {event.task}"),
    )


def _exec_refusal(state: SchedulerState, name: TaskName) -> Answer | None:
    """Return why no command can run in the task; `None` if one can."""
    record = state.stored.tasks.get(name)
    if record is None:
        if name in index_of(state.spec).tasks:
            return Answer(Reply.CONFLICT, f"Task {name} was never launched: see the deploy plan")
        return Answer(Reply.NOT_FOUND, f"Task {name} not found")
    if not state.spec.executor.allows_exec:
        return Answer(Reply.FORBIDDEN, "commands in tasks are forbidden (option executor.exec)")
    status = state.stored.statuses.get(record.id)
    if status is None or status.state is not TaskState.RUNNING:
        phrase = "is starting" if status is None else status.state.phrase
        return Answer(Reply.CONFLICT, f"Task {name} {phrase}: a command needs a running task")
    if not record.exec_key:
        why = "it was launched by an older release, before a loss of the state, or while executor.exec was false"
        return Answer(Reply.CONFLICT, f"Task {name} accepts no commands until its next launch: {why}")
    if not state.session.connected:
        return Answer(Reply.RETRY, "the scheduler is not connected to Mesos; try again later")
    return None


def resume_dependents(state: SchedulerState, now: float) -> Decision:
    """Resume tasks that were paused with a task that the options no longer contain."""
    if state.stored.result is not None:
        return decide(state)
    tasks, paused = index_of(state.spec).tasks, state.stored.paused
    idle = (name for name in state.derived.idle_tasks if name in tasks)
    names = sorted(name for name in idle if not is_sleeping(state.spec, paused, name))
    records = [state.stored.tasks[name] for name in names]
    records = [item for item in records if item.id not in state.stored.retired and not state.is_replaced(item)]
    why = "it was paused together with a task that the options no longer contain"
    changes = [RecoveryDecided(replace_launch(state, record, why, now, Cause.ORDERED)) for record in records]
    outcomes = tuple(Outcome("TaskResumed", f"{record.name} resumes: {why}", record.name) for record in records)
    return decide(state, *changes, outcomes=outcomes)


#: What an operator has done to the task.
_DONE = {PodVerb.RESTART: "restarted", PodVerb.REPLACE: "replaced", PodVerb.PAUSE: "paused", PodVerb.RESUME: "resumed"}


def _changes(state: SchedulerState, verb: PodVerb, record: TaskRecord, now: float) -> list[Change]:
    """Return the changes of a command, first that of the commanded task."""
    why = f"{_DONE[verb]} by an operator"
    if verb is PodVerb.RESTART:
        return _launch_again(state, record, _ordered(state, record, why, now))
    if verb is PodVerb.REPLACE:
        recovery = _ordered(state, record, why, now)
        return _launch_again(state, record, replace(recovery, previous_address_until=now, must_move=True))
    paused = {name: since for name, since in state.stored.paused.items() if name != record.name}
    if verb is PodVerb.RESUME:
        return [*_switched(state, record, paused, why, now), EntryForgotten("paused", record.name)]
    return [*_switched(state, record, {**paused, record.name: now}, why, now), TaskPaused(record.name, now)]


def _switched(
    state: SchedulerState, record: TaskRecord, paused: Mapping[TaskName, float], why: str, now: float
) -> Iterator[Change]:
    """Relaunch tasks that must stop, or may run again, given the new `paused` tasks."""
    sleepers = sleeping_tasks(state.spec, paused)
    if state.is_replaced(record) or record.is_placeholder is not (record.name in sleepers):
        yield RecoveryDecided(_ordered(state, record, why, now))
    for name, other in sorted(state.stored.tasks.items()):
        if name == record.name or other.is_placeholder is (name in sleepers):
            continue
        if not state.is_finished(other) and not state.is_replaced(other):
            yield RecoveryDecided(replace_launch(state, other, f"{RESTARTS_WITH}{record.name}", now, Cause.ORDERED))


def _ordered(state: SchedulerState, record: TaskRecord, why: str, now: float) -> Recovery:
    """Return the recovery for an operator's command, which ends the task's back-off."""
    recovery = replace_launch(state, record, why, now, Cause.ORDERED)
    return replace(recovery, consecutive_failures=0) if state.is_replaced(record) else recovery


def _launch_again(state: SchedulerState, record: TaskRecord, recovery: Recovery) -> list[Change]:
    """Relaunch a task and its restart group; only the task if a relaunch is pending."""
    if state.is_replaced(record):
        return [RecoveryDecided(recovery)]
    others = restart_group(state, [record.name], recovery.since, recovery.cause, moved=recovery.must_move)
    return [*map(RecoveryDecided, (recovery, *others))]
