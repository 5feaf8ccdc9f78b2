"""The start-up watchdog: TensorFlow waits for a peer that does not come silently and for ever, and looks well.

A task has joined when its TensorFlow server answers; its executor tells that. Whether there will be a server nobody
says beforehand: a program may have none. So a task is only late when it has told no progress, which somebody who waits
for others cannot make, and when it is known to open a server: others of its cluster have, it has before, or its program
gets its server from us. When none of that is so, and nobody's server answers, that is told, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tf_scheduler.core.back_off import chance
from tf_scheduler.core.reduce import decide, then
from tf_scheduler.model.effects import AgentSuspected, Change, Decision, Outcome, RecoveryDecided, ResultDecided
from tf_scheduler.model.failure import Cause
from tf_scheduler.model.ids import TaskId, name_of
from tf_scheduler.model.state import Result, SchedulerState, Verdict
from tf_scheduler.model.task import TaskRecord, TaskState, TaskStatus

from .anew import anew, is_replaced, mates
from .policies import restart_policy
from .suspects import held_against, told_of
from .waiting import delay

#: Launches of a task in a row that may be late; with one more the job fails.
FORGIVEN = 2
#: So many names of tasks in one sentence.
_NAMED = 5
#: Seconds after a subscription in which nobody is late: what is known of progress is void with the connection.
GRACE = 60.0


def dated(status: TaskStatus, stored: TaskStatus | None, now: float) -> TaskStatus:
    """Since when it runs, by our clock; one that has joined has joined, whatever is said later."""
    if status.state is not TaskState.RUNNING or status.healthy is not None:
        return status
    if stored is not None and stored.state is TaskState.RUNNING and stored.healthy is None:
        return replace(status, timestamp=stored.timestamp)
    if stored is not None and stored.healthy:
        return replace(status, healthy=True)
    return replace(status, timestamp=now)


def deadlines(state: SchedulerState) -> Iterator[float]:
    """When the next task is late."""
    yield from (due for _, due in _watched(state))
    if (due := _mute_due(state)) is not None:
        yield due


def late(state: SchedulerState, now: float, unique: Callable[[], str]) -> Decision:
    """Whoever is late is ended and launched again, with whoever must start with it; in the end the job fails."""
    decision = _tell_mute(state, now)
    for record in [record for record, due in _watched(state) if now >= due]:
        decision = then(decision, lambda after, record=record: _late(after, record, now, unique))  # type: ignore[misc]
    return decision


def joined(state: SchedulerState) -> int:
    """How many tasks that run have joined."""
    return state.tally.get(TaskState.RUNNING, 0) - state.unready - len(state.joining)


def _watched(state: SchedulerState) -> Iterator[tuple[TaskRecord, float]]:
    """Tasks that are still to join, with when each is late."""
    if state.spec.recovery.start_timeout is None or not _looks(state):
        return
    others = joined(state) > 0
    if not others and not state.recoveries and state.spec.program is None:
        return
    for launch, since in state.joining.items():
        record = _expected(state, launch)
        if record is not None and (others or _serves(state, record)):
            yield record, _due(state, since, state.spec.recovery.start_timeout)


def _looks(state: SchedulerState) -> bool:
    """Whether there is anything to look at. Without a connection nothing new would be known of it."""
    return bool(state.joining) and state.connected and state.result is None


def _due(state: SchedulerState, since: float, patience: float) -> float:
    return max(since + patience, state.connected_at + min(GRACE, patience))


def _serves(state: SchedulerState, record: TaskRecord) -> bool:
    """Whether its program is known to open a server: it did before, or we open it ourselves."""
    known = state.recoveries.get(record.name)
    if known is not None and known.served:
        return True
    job = state.spec.job_of(record.job, record.index)
    ours = state.spec.program is not None and job is not None and not job.command
    return ours and state.spec.strategy.has_servers


def _mute_due(state: SchedulerState) -> float | None:
    """When it is to be told that nobody's server answers; None: somebody's does, or it is told. Cheap: asked often."""
    patience = state.spec.recovery.start_timeout
    if patience is None or not _looks(state) or joined(state) > 0:
        return None
    if not state.spec.strategy.has_servers or any(launch in state.joining for launch in state.progress):
        return None
    due = _due(state, max(state.joining.values()), patience)
    return due if due > state.told_mute else None


def _tell_mute(state: SchedulerState, now: float) -> Decision:
    """Once for the same launches."""
    due = _mute_due(state)
    if due is None or now < due:
        return decide(state)
    told = replace(state, told_mute=due)
    names = [record.name for launch in state.joining if (record := _expected(state, launch)) is not None]
    if not names:
        return decide(told)
    few = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} others" if len(names) > _NAMED else "")
    sentence = (
        f"nobody has joined: no TensorFlow server of {few} answers {state.spec.recovery.start_timeout:g} s after the "
        f"start, and none of them has told progress. A program may have no server, so they are left alone; if this one "
        f"has, look at the output of {names[0]} for what it waits for"
    )
    return decide(told, outcomes=(Outcome(sentence, warning=True),))


def _expected(state: SchedulerState, launch: TaskId) -> TaskRecord | None:
    """The task, if the others wait for it: not if it makes progress, is paused, or is told to end already."""
    record = state.tasks.get(name_of(launch))
    if record is None or record.id != launch or launch in state.progress or launch in state.retired:
        return None
    return record if record.job.in_cluster and not record.idle and not is_replaced(state, record) else None


def _late(state: SchedulerState, record: TaskRecord, now: float, unique: Callable[[], str]) -> Decision:
    if is_replaced(state, record) or state.result is not None:
        return decide(state)
    before = state.recoveries.get(record.name)
    count, well = 1 + (before.unjoined if before else 0), joined(state)
    why = (
        f"{record.name} on {record.hostname} has not joined the others: its TensorFlow server does not answer "
        f"{state.spec.recovery.start_timeout:g} s after its start, {well if well > 0 else 'no'} others do"
    )
    if count > FORGIVEN:
        sentence = f"{why}; that was launch {count} in a row"
        failed = ResultDecided(Result(Verdict.FAILED, sentence, now))
        return decide(state, failed, outcomes=(Outcome(sentence, record.name, warning=True),))
    ready_at = now + delay(restart_policy(state.spec, record), count, chance(unique()))
    found = replace(anew(state, record, why, now, Cause.NOT_JOINED), ready_at=ready_at, unjoined=count)
    others = mates(state, [record.name], moved=False)
    together = (anew(state, item, f"starts again with {record.name}", now) for item in others)
    suspect = held_against(state, record, now)
    changes: list[Change] = [*map(RecoveryDecided, (found, *together)), *([AgentSuspected(suspect)] if suspect else [])]
    told = f"{why}. It is ended, which tells its last output (all is in its working directory), and launched again"
    return decide(state, *changes, outcomes=(Outcome(told, record.name, warning=True), *told_of(suspect, now)))
