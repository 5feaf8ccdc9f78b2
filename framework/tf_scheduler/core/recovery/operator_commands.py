"""What operators want of single tasks: restart, replace, pause, resume. The same machinery as after a loss.

Whoever is paused is launched again with a program that sleeps (`pausing`), and whoever is resumed with its own.
What is ordered is stored, as a loss is: it survives the scheduler. Nothing of it counts as a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tf_scheduler.core.state import pause
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.core.state.spec_index import index_of
from tf_scheduler.model.effects import Change, Decision, Outcome, RecoveryDecided, TaskPaused, TaskResumed
from tf_scheduler.model.events import PodCommand
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import SERVICE_ENDED, Answer, Reply
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import Cause, PodVerb, Recovery, TaskRecord

from .replacement import replace_launch, restart_group


def handle(state: SchedulerState, wish: PodCommand, now: float) -> Decision:
    """Do what the operator wants, or say why not."""
    refused = _refused(state, wish)
    if refused is not None:
        return replace(decide(state), answer=refused)
    record = state.stored.tasks[wish.task]
    changes = _VERBS[wish.verb](state, record, now)
    again = [item.recovery.task for item in changes if isinstance(item, RecoveryDecided)]
    others = [name for name in again if name != wish.task]
    together = f", together with {', '.join(others)}" if others else ""
    told = Outcome(f"an operator wants {wish.verb.value} of {wish.task}{together}", wish.task)
    answer = Answer(Reply.OK, f"Received cmd: {wish.verb.value} {wish.task}{together}")
    return replace(decide(state, *changes, outcomes=(told,)), answer=answer)


def _refused(state: SchedulerState, wish: PodCommand) -> Answer | None:
    """Why the command makes no sense; None: it does."""
    record = state.stored.tasks.get(wish.task)
    if record is None:
        known = any(task.name == wish.task for task in state.spec.tasks())
        if known:
            return Answer(Reply.BAD_REQUEST, f"Task {wish.task} was never launched: see the deploy plan")
        return Answer(Reply.NOT_FOUND, f"Task {wish.task} not found")
    if state.stored.result is not None:
        return SERVICE_ENDED
    paused = wish.task in state.stored.paused
    if not paused and wish.verb is not PodVerb.PAUSE and pause.override_of(state, wish.task):
        return Answer(Reply.BAD_REQUEST, f"Task {wish.task} does not run: {pause.pause_reason(state, wish.task)}")
    if paused is (wish.verb is PodVerb.PAUSE) and wish.verb in (PodVerb.PAUSE, PodVerb.RESUME):
        return Answer(Reply.ALREADY, f"Task {wish.task} is {'' if paused else 'not '}paused")
    if state.is_finished(record):
        return Answer(Reply.BAD_REQUEST, f"Task {wish.task} has finished: it is never launched again")
    if paused and wish.verb is not PodVerb.RESUME:
        return Answer(Reply.BAD_REQUEST, f"Task {wish.task} is paused: resume it first")
    return None


def resume_dependents(state: SchedulerState, now: float) -> Decision:
    """Relaunch the programs of tasks that were paused with a task that the options no longer have."""
    if state.stored.result is not None:
        return decide(state)
    tasks, paused = index_of(state.spec).tasks, state.stored.paused
    idle = (name for name in state.derived.idle_tasks if name in tasks)
    names = sorted(name for name in idle if not pause.is_sleeping(state.spec, paused, name))
    records = [
        record
        for record in (state.stored.tasks[name] for name in names)
        if record.id not in state.stored.retired and not state.is_replaced(record)
    ]
    why = "the paused task that it starts again with is no more"
    changes = [RecoveryDecided(replace_launch(state, record, why, now, Cause.ORDERED)) for record in records]
    outcomes = tuple(Outcome(f"{record.name} goes on: {why}", record.name) for record in records)
    return decide(state, *changes, outcomes=outcomes)


# --- the verbs: the changes that they make, that of the task itself first


def _restart(state: SchedulerState, record: TaskRecord, now: float) -> list[Change]:
    return _launch_again(state, record, _ordered(state, record, "restarted by an operator", now))


def _replace(state: SchedulerState, record: TaskRecord, now: float) -> list[Change]:
    found = _ordered(state, record, "replaced by an operator", now)
    return _launch_again(state, record, replace(found, previous_address_until=now, must_move=True))


def _pause(state: SchedulerState, record: TaskRecord, now: float) -> list[Change]:
    paused = {**state.stored.paused, record.name: now}
    return [*_switched(state, record, paused, "paused by an operator", now), TaskPaused(record.name, now)]


def _resume(state: SchedulerState, record: TaskRecord, now: float) -> list[Change]:
    paused = {name: since for name, since in state.stored.paused.items() if name != record.name}
    return [*_switched(state, record, paused, "resumed by an operator", now), TaskResumed(record.name)]


def _switched(
    state: SchedulerState, record: TaskRecord, paused: Mapping[TaskName, float], why: str, now: float
) -> Iterator[Change]:
    """Launch again whoever runs its program and is to sleep once these tasks are paused, or the other way round."""
    sleepers = pause.sleeping_tasks(state.spec, paused)
    if state.is_replaced(record) or record.is_placeholder is not (record.name in sleepers):
        yield RecoveryDecided(_ordered(state, record, why, now))
    for name, other in sorted(state.stored.tasks.items()):
        if name == record.name or other.is_placeholder is (name in sleepers):
            continue
        if not state.is_finished(other) and not state.is_replaced(other):
            yield RecoveryDecided(replace_launch(state, other, f"starts again with {record.name}", now, Cause.ORDERED))


_VERBS: Mapping[PodVerb, Callable[[SchedulerState, TaskRecord, float], list[Change]]] = {
    PodVerb.RESTART: _restart,
    PodVerb.REPLACE: _replace,
    PodVerb.PAUSE: _pause,
    PodVerb.RESUME: _resume,
}


def _ordered(state: SchedulerState, record: TaskRecord, why: str, now: float) -> Recovery:
    """A task that is to be launched again already waits no longer."""
    found = replace_launch(state, record, why, now, Cause.ORDERED)
    return replace(found, consecutive_failures=0) if state.is_replaced(record) else found


def _launch_again(state: SchedulerState, record: TaskRecord, found: Recovery) -> list[Change]:
    """With whoever must start again with it, unless it waits for its launch already."""
    others = restart_group(state, [record.name], moved=found.must_move) if not state.is_replaced(record) else ()
    why = f"starts again with {record.name}"
    recoveries = (replace_launch(state, item, why, found.since, found.cause) for item in others)
    return [RecoveryDecided(found), *map(RecoveryDecided, recoveries)]
