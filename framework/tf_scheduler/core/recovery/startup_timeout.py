"""Relaunch tasks that do not start or join the TensorFlow cluster in time.

TensorFlow blocks forever, without error, on a missing peer. A task has joined when its executor reports that its server
answers. Programs may have no server. So a task is late only if it has reported no progress and a server is expected:
peers have a server, an earlier launch had one, or the executor opens it. If no server is expected and none answers, the
scheduler only warns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tf_executor.contract.states import TaskState
from tf_executor.contract.text import list_names
from tf_scheduler.core.state.backoff import jitter_from_id, restart_delay
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.model.effects import Decision, Outcome
from tf_scheduler.model.ids import NewId, TaskId, TaskName, name_of
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import Cause, TaskRecord, TaskStatus

from .failure_causes import record_failure
from .replacement import fail_job, replace_launch, restart_group, restart_policy, store_recoveries

#: Late launches of a task that the job survives, and seconds after the end of the timeout that they count.
MAX_LATE_LAUNCHES, LATE_LAUNCHES_COUNT = 2, 3600.0
#: Minimum seconds between checks of all tasks for one timeout.
CHECK_INTERVAL = 1.0
#: Maximum number of task names in one message.
_NAMED = 5
#: Seconds after a subscription without late tasks, because progress is unknown after a reconnect.
RECONNECT_GRACE = 60.0


def with_start_time(status: TaskStatus, previous: TaskStatus | None) -> TaskStatus:
    """Return a running task's status with its start time; joined tasks stay joined."""
    if previous is not None and previous.state is TaskState.RUNNING and previous.healthy is None:
        return replace(status, timestamp=previous.timestamp)
    if previous is not None and previous.healthy:
        return replace(status, healthy=True)
    return status


def deadlines(state: SchedulerState) -> Iterator[float]:
    """Yield the times at which tasks may be late, or may have taken too long to start."""
    timeout = _join_timeout(state)
    if timeout is not None:
        yield _due(state, state.derived.oldest_start, timeout)
    if (due := _no_server_warning_at(state)) is not None:
        yield due
    yield from _start_deadlines(state)


def relaunch_late(state: SchedulerState, now: float, new_id: NewId) -> Decision:
    """Relaunch late tasks and their groups; after too many attempts, fail the job."""
    decision, timeout = _warn_no_server(state, now), _join_timeout(state)
    if timeout is None or now < _due(state, state.derived.oldest_start, timeout):
        return decision
    watched = tuple(_watched(state))
    late = [record for record, since in watched if now >= _due(state, since, timeout)]
    oldest = min((since for _, since in watched if now < _due(state, since, timeout)), default=math.inf)
    oldest = max(oldest, now + CHECK_INTERVAL - timeout)
    decision = decision.then(lambda after: decide(after.with_derived(oldest_start=oldest)))
    for record in late:
        decision = decision.then(partial(_late, record=record, now=now, new_id=new_id))
    return decision


def joined_count(state: SchedulerState) -> int:
    """Return the number of tasks of the cluster whose TensorFlow server answers."""
    return state.derived.joined_count if state.spec.strategy.traits.has_servers else 0


def _join_timeout(state: SchedulerState) -> float | None:
    """Return `start_timeout` if a task may have to join; otherwise `None`."""
    return state.spec.recovery.start_timeout if _is_watching(state) else None


def _watched(state: SchedulerState) -> Iterator[tuple[TaskRecord, float]]:
    """Yield each task that must join, and the time at which it started to run."""
    others = joined_count(state) > 0
    for status in _starting(state):
        record = _expected(state, status.id)
        if record is not None and (others or _serves(state, record)):
            yield record, status.timestamp


def _starting(state: SchedulerState) -> Iterator[TaskStatus]:
    return (it for it in state.stored.statuses.values() if it.state is TaskState.RUNNING and it.healthy is None)


def _is_watching(state: SchedulerState) -> bool:
    """Return whether tasks are starting; without a connection their state is unknown."""
    return state.derived.starting_count > 0 and state.session.connected and state.stored.result is None


def _due(state: SchedulerState, since: float, timeout: float) -> float:
    return max(since + timeout, state.session.connected_at + min(RECONNECT_GRACE, timeout))


def _serves(state: SchedulerState, record: TaskRecord) -> bool:
    """Return whether a server is expected: a launch had one, or the executor opens it."""
    recovery = state.stored.recoveries.get(record.name)
    if recovery is not None and recovery.has_served:
        return True
    job = state.spec.job_of(record.job, record.index)
    return (
        state.spec.program is not None
        and job is not None
        and not job.command
        and state.spec.strategy.traits.has_servers
    )


def _no_server_warning_at(state: SchedulerState) -> float | None:
    """Return when to check that a server answers; `None` if one does or after a check."""
    timeout = state.spec.recovery.start_timeout
    if timeout is None or not _is_watching(state) or joined_count(state) > 0:
        return None
    if not state.spec.strategy.traits.has_servers:
        return None
    due = _due(state, state.derived.newest_start, timeout)
    return due if due > state.process.no_server_warned_at else None


def _warn_no_server(state: SchedulerState, now: float) -> Decision:
    """Warn that no server answers, once for the same launches."""
    due = _no_server_warning_at(state)
    if due is None or now < due:
        return decide(state)
    after = state.with_process(no_server_warned_at=due)
    starting = [status.id for status in _starting(state)]
    names = [record.name for launch in starting if (record := _expected(state, launch)) is not None]
    if not names or any(launch in state.process.progress for launch in starting):
        return decide(after)
    sentence = (
        f"no task has joined: {state.spec.recovery.start_timeout:g} s after the start, no TensorFlow server of "
        f"{list_names(names, _NAMED)} answers, and none of these tasks has reported progress. A program may have no "
        f"server, so the tasks keep running. If this program has a server, the output of {names[0]} may show what the "
        "program waits for"
    )
    return decide(after, outcomes=(Outcome("StartIsSlow", sentence, warning=True),))


def _expected(state: SchedulerState, launch: TaskId) -> TaskRecord | None:
    """Return the task if peers wait for it; `None` if it trains, is paused or stops."""
    record = state.stored.tasks.get(name_of(launch))
    if record is None or record.id != launch or launch in state.process.progress or launch in state.stored.retired:
        return None
    return record if record.job.in_cluster and not record.is_placeholder and not state.is_replaced(record) else None


def _late(state: SchedulerState, record: TaskRecord, now: float, new_id: NewId) -> Decision:
    if state.is_replaced(record) or state.stored.result is not None:
        return decide(state)
    count, ready = 1 + _late_launches(state, record.name, now), joined_count(state)
    others = {0: "no other server does", 1: "1 other server does"}.get(ready, f"{ready} other servers do")
    why = (
        f"{record.name} on {record.hostname} has not joined the others: {state.spec.recovery.start_timeout:g} s after "
        f"its start, its TensorFlow server does not answer, and {others}"
    )
    if count > MAX_LATE_LAUNCHES:
        return fail_job(state, f"{why}; this happened to {count} of its launches", record.name, now)
    ready_at = now + restart_delay(restart_policy(state.spec, record), count, jitter_from_id(new_id()))
    recovery = replace_launch(state, record, why, now, Cause.NOT_JOINED)
    recovery = replace(recovery, ready_at=ready_at, start_timeouts=count)
    # A peer that had joined keeps its count: tasks that are late in turn would never fail the job.
    group = restart_group(state, [record.name], now, moved=False)
    peers = (replace(it, start_timeouts=_late_launches(state, it.task, now)) for it in group)
    message = f"{why}. The task is stopped and relaunched; its last lines of output are then reported"
    outcome = Outcome("TaskRecovers", message, record.name, warning=True)
    return store_recoveries(state, (recovery, *peers), record_failure(state, record, now), outcome)


def _late_launches(state: SchedulerState, name: TaskName, now: float) -> int:
    recovery = state.stored.recoveries.get(name)
    timeout = state.spec.recovery.start_timeout or 0.0
    return recovery.start_timeouts if recovery and now - recovery.since < timeout + LATE_LAUNCHES_COUNT else 0


# --- Launches that do not start: without a status, or in TASK_STAGING
#
# Neither the agent nor the master reports a task that is accepted and not started. Later phases have other timeouts:
# `hook_timeout` for fetching and hooks, the above for running programs.


#: Minimum seconds for a launch, in which images and executors are fetched.
MIN_LAUNCH_SECONDS = 60.0


def _start_deadlines(state: SchedulerState) -> Iterator[float]:
    """Yield the time at which the oldest silent launch may have taken too long."""
    timeout = _start_timeout(state)
    if timeout is not None and state.unstarted_count() and state.session.connected:
        yield max(state.derived.oldest_unstarted_launch + timeout, state.session.connected_at + MIN_LAUNCH_SECONDS)


def unstarted_launches(state: SchedulerState, now: float) -> tuple[SchedulerState, tuple[TaskStatus, ...]]:
    """Return LOST statuses for launches that have not started in time.

    The returned state has the time of the next check of all tasks.
    """
    due, timeout = next(_start_deadlines(state), math.inf), _start_timeout(state)
    if timeout is None or now < due:
        return state, ()
    statuses = state.stored.statuses
    silent = [
        record
        for record in state.stored.tasks.values()
        if (status := statuses.get(record.id)) is None or status.state is TaskState.STAGING
    ]
    oldest = min((record.launched_at for record in silent if now < record.launched_at + timeout), default=math.inf)
    message = f"its agent has not started it {timeout:g} s after its launch"
    late = tuple(
        TaskStatus(record.id, TaskState.LOST, record.agent_id, message=message, timestamp=now)
        for record in silent
        if now >= record.launched_at + timeout
    )
    return state.with_derived(oldest_unstarted_launch=max(oldest, now + CHECK_INTERVAL - timeout)), late


def _start_timeout(state: SchedulerState) -> float | None:
    timeout = state.spec.recovery.start_timeout
    return None if timeout is None or state.stored.result is not None else max(timeout, MIN_LAUNCH_SECONDS)
