"""The start-up watchdog: TensorFlow waits for a peer that does not come silently and for ever, and looks well.

A task has joined when its TensorFlow server answers; its executor tells that. Whether there will be a server nobody
says beforehand: a program may have none. So a task is only late when it has told no progress, which somebody who waits
for others cannot make, and when it is known to open a server: others of its cluster have, it has before, or its program
gets its server from us. When none of that is so, and nobody's server answers, that is told, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from tf_scheduler.core.state.backoff import jitter_from_id, restart_delay
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.model.effects import AgentFailureRecorded, Change, Decision, Outcome, RecoveryDecided, ResultDecided
from tf_scheduler.model.ids import TaskId, name_of
from tf_scheduler.model.state import Result, SchedulerState, Verdict
from tf_scheduler.model.task import Cause, TaskRecord, TaskState, TaskStatus

from .failure_causes import failure_message, record_failure
from .replacement import replace_launch, restart_group, restart_policy

#: Launches of a task in a row that may be late; with one more the job fails.
MAX_LATE_LAUNCHES = 2
#: So many names of tasks in one sentence.
_NAMED = 5
#: Seconds after a subscription in which nobody is late: what is known of progress is void with the connection.
RECONNECT_GRACE = 60.0


def with_start_time(status: TaskStatus, stored: TaskStatus | None, now: float) -> TaskStatus:
    """Return the status of a running task with the time since when it runs; a task that has joined stays joined."""
    if stored is not None and stored.state is TaskState.RUNNING and stored.healthy is None:
        return replace(status, timestamp=stored.timestamp)
    if stored is not None and stored.healthy:
        return replace(status, healthy=True)
    return replace(status, timestamp=now)


def deadlines(state: SchedulerState) -> Iterator[float]:
    """When the next task is late."""
    yield from (due for _, due in _watched(state))
    if (due := _no_server_warning_at(state)) is not None:
        yield due


def expire(state: SchedulerState, now: float, unique: Callable[[], str]) -> Decision:
    """Whoever is late is ended and launched again, with whoever must start with it; in the end the job fails."""
    decision = _warn_no_server(state, now)
    for record in [record for record, due in _watched(state) if now >= due]:
        decision = decision.then(partial(_late, record=record, now=now, unique=unique))
    return decision


def ready_count(state: SchedulerState) -> int:
    """How many tasks that run have joined."""
    return (
        state.derived.state_counts.get(TaskState.RUNNING, 0)
        - state.derived.unhealthy_count
        - len(state.derived.starting_launches)
    )


def _watched(state: SchedulerState) -> Iterator[tuple[TaskRecord, float]]:
    """Tasks that are still to join, with when each is late."""
    if state.spec.recovery.start_timeout is None or not _looks(state):
        return
    others = ready_count(state) > 0
    if not others and not state.stored.recoveries and state.spec.program is None:
        return
    for launch, since in state.derived.starting_launches.items():
        record = _expected(state, launch)
        if record is not None and (others or _serves(state, record)):
            yield record, _due(state, since, state.spec.recovery.start_timeout)


def _looks(state: SchedulerState) -> bool:
    """Whether there is anything to look at. Without a connection nothing new would be known of it."""
    return bool(state.derived.starting_launches) and state.session.connected and state.stored.result is None


def _due(state: SchedulerState, since: float, patience: float) -> float:
    return max(since + patience, state.session.connected_at + min(RECONNECT_GRACE, patience))


def _serves(state: SchedulerState, record: TaskRecord) -> bool:
    """Whether its program is known to open a server: it did before, or we open it ourselves."""
    known = state.stored.recoveries.get(record.name)
    if known is not None and known.has_served:
        return True
    job = state.spec.job_of(record.job, record.index)
    ours = state.spec.program is not None and job is not None and not job.command
    return ours and state.spec.strategy.has_servers


def _no_server_warning_at(state: SchedulerState) -> float | None:
    """When it is to be told that nobody's server answers; None: somebody's does, or it is told. Cheap: asked often."""
    patience = state.spec.recovery.start_timeout
    if patience is None or not _looks(state) or ready_count(state) > 0:
        return None
    if not state.spec.strategy.has_servers or any(
        launch in state.derived.starting_launches for launch in state.process.progress
    ):
        return None
    due = _due(state, max(state.derived.starting_launches.values()), patience)
    return due if due > state.process.no_server_warned_at else None


def _warn_no_server(state: SchedulerState, now: float) -> Decision:
    """Once for the same launches."""
    due = _no_server_warning_at(state)
    if due is None or now < due:
        return decide(state)
    told = replace(state, process=replace(state.process, no_server_warned_at=due))
    names = [
        record.name for launch in state.derived.starting_launches if (record := _expected(state, launch)) is not None
    ]
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
    record = state.stored.tasks.get(name_of(launch))
    if record is None or record.id != launch or launch in state.process.progress or launch in state.stored.retired:
        return None
    return record if record.job.in_cluster and not record.is_placeholder and not state.is_replaced(record) else None


def _late(state: SchedulerState, record: TaskRecord, now: float, unique: Callable[[], str]) -> Decision:
    if state.is_replaced(record) or state.stored.result is not None:
        return decide(state)
    before = state.stored.recoveries.get(record.name)
    count, well = 1 + (before.start_timeouts if before else 0), ready_count(state)
    why = (
        f"{record.name} on {record.hostname} has not joined the others: its TensorFlow server does not answer "
        f"{state.spec.recovery.start_timeout:g} s after its start, {well if well > 0 else 'no'} others do"
    )
    if count > MAX_LATE_LAUNCHES:
        sentence = f"{why}; that was launch {count} in a row"
        failed = ResultDecided(Result(Verdict.FAILED, sentence, now))
        return decide(state, failed, outcomes=(Outcome(sentence, record.name, warning=True),))
    ready_at = now + restart_delay(restart_policy(state.spec, record), count, jitter_from_id(unique()))
    found = replace(replace_launch(state, record, why, now, Cause.NOT_JOINED), ready_at=ready_at, start_timeouts=count)
    others = restart_group(state, [record.name], moved=False)
    together = (replace_launch(state, item, f"starts again with {record.name}", now) for item in others)
    suspect = record_failure(state, record, now)
    changes: list[Change] = [
        *map(RecoveryDecided, (found, *together)),
        *([AgentFailureRecorded(suspect)] if suspect else []),
    ]
    told = f"{why}. It is ended, which tells its last output (all is in its working directory), and launched again"
    return decide(state, *changes, outcomes=(Outcome(told, record.name, warning=True), *failure_message(suspect, now)))


# --- starting
# Launches that do not begin: nothing was heard of them, or no more than TASK_STAGING.
#
# An agent that takes a task and does not start it says nothing, and neither does its master; the others wait for it.
# Later stages have times of their own: fetching and hooks `hook_timeout`, a program that runs `joining`.


#: Seconds that every launch has, however short `recovery.start_timeout` is: images and executors are fetched in them.
MIN_LAUNCH_SECONDS = 60.0


def start_deadlines(state: SchedulerState) -> Iterator[float]:
    """When the next launch has taken too long to begin."""
    patience = _patience(state)
    if patience is not None and state.derived.silent_launches and state.session.connected:
        yield max(
            min(state.derived.silent_launches.values()) + patience, state.session.connected_at + MIN_LAUNCH_SECONDS
        )


def unstarted_launches(state: SchedulerState, now: float) -> tuple[TaskStatus, ...]:
    """What to believe of launches that have not begun in time. Mesos is to end them: an agent may start one later."""
    due, patience = next(start_deadlines(state), None), _patience(state)
    if due is None or patience is None or now < due:
        return ()
    late = [launch for launch, since in state.derived.silent_launches.items() if now >= since + patience]
    found = (state.stored.tasks.get(name_of(launch)) for launch in late)
    message = f"it has not joined the others: its agent has not started it {patience:g} s after its launch"
    return tuple(
        TaskStatus(record.id, TaskState.LOST, record.agent_id, message=message, timestamp=now)
        for record in found
        if record is not None
    )


def _patience(state: SchedulerState) -> float | None:
    wanted = state.spec.recovery.start_timeout
    return None if wanted is None or state.stored.result is not None else max(wanted, MIN_LAUNCH_SECONDS)
