"""Find launches that take too long; relaunch tasks that do not join the cluster.

TensorFlow blocks forever, without error, on a missing peer. A task has joined when its executor reports that its server
answers. Programs may have no server. So a task is late only if it has reported no progress and a server is expected:
peers have a server, an earlier launch had one, or the executor opens it. If no server is expected and none answers, the
scheduler only warns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from operator import attrgetter

from tf_executor.contract.states import TaskState
from tf_executor.contract.text import list_names
from tf_scheduler.core.state.backoff import jitter_from_id, restart_delay
from tf_scheduler.core.state.reducer import LAUNCH_TIMEOUT, MIN_LAUNCH_SECONDS, awaits_server, decide, due_at
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


class Wait(Enum):
    """What a launch has not done yet."""

    ANSWER = "have a status"
    START = "start"
    JOIN = "join the cluster"
    RETURN = "be reachable again"


#: Seconds until an overdue launch is checked again; others have then another state.
_AGAIN = {Wait.ANSWER: LAUNCH_TIMEOUT, Wait.RETURN: CHECK_INTERVAL}


def overdue_launches(state: SchedulerState, now: float) -> tuple[SchedulerState, Mapping[Wait, Sequence[TaskRecord]]]:
    """Return the state with the time of the next check, and the overdue launches."""
    overdue: dict[Wait, list[TaskRecord]] = {wait: [] for wait in Wait}
    later = _no_server_warning_at(state) or math.inf
    for record in state.stored.tasks.values():
        for wait, due in _waits(state, record):
            later = min(later, due if now < due else now + _AGAIN.get(wait, math.inf))
            if now >= due:
                overdue[wait].append(record)
    return state.with_derived(next_check_at=max(later, now + CHECK_INTERVAL)), overdue


def _waits(state: SchedulerState, record: TaskRecord) -> Iterator[tuple[Wait, float]]:
    """Yield what the launch has not done yet, and until when it may take."""
    status, timeout = state.stored.statuses.get(record.id), state.spec.recovery.start_timeout
    connected_at, due = state.session.connected_at, due_at(state.spec, record, status, state.stored.recoveries)
    if status is None:
        asked_at = max(record.launched_at, state.process.launch_queries.get(record.id, 0.0))
        yield Wait.ANSWER, asked_at + LAUNCH_TIMEOUT
    if state.stored.result is not None or due == math.inf:
        return
    if status is None or status.state is TaskState.STAGING:
        if timeout is not None:
            seconds = max(timeout, MIN_LAUNCH_SECONDS)
            yield Wait.START, max(record.launched_at + seconds, connected_at + MIN_LAUNCH_SECONDS)
    elif status.state.is_silent:
        # Only after Mesos has reported its status on this connection.
        yield from () if state.session.reconciliation.awaits(record.id) else ((Wait.RETURN, due),)
    elif timeout is not None and _expected(state, record.id) and (joined_count(state) > 0 or _serves(state, record)):
        yield Wait.JOIN, _due(state, status.timestamp, timeout)


def relaunch_late(state: SchedulerState, late: Iterable[TaskRecord], now: float, new_id: NewId) -> Decision:
    """Relaunch late tasks and their groups; after too many attempts, fail the job."""
    decision = decide(state)
    for record in late:
        decision = decision.then(partial(_late, record=record, now=now, new_id=new_id))
    return decision


def joined_count(state: SchedulerState) -> int:
    """Return the number of tasks of the cluster whose TensorFlow server answers."""
    return state.derived.joined_count if state.spec.strategy.traits.has_servers else 0


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
    if timeout is None or not state.derived.starting_count or joined_count(state) > 0:
        return None
    if state.stored.result is not None or not state.spec.strategy.traits.has_servers:
        return None
    due = _due(state, max(map(attrgetter("timestamp"), filter(awaits_server, state.stored.statuses.values()))), timeout)
    return due if due > state.process.no_server_warned_at else None


def warn_no_server(state: SchedulerState, now: float) -> Decision:
    """Warn that no server answers, once for the same launches."""
    due = _no_server_warning_at(state)
    if due is None or now < due:
        return decide(state)
    after = state.with_process(no_server_warned_at=due)
    starting = [status.id for status in filter(awaits_server, state.stored.statuses.values())]
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


def unstarted_status(state: SchedulerState, record: TaskRecord, now: float) -> TaskStatus:
    """Return the status LOST of a launch that has not started in time."""
    timeout = max(state.spec.recovery.start_timeout or 0.0, MIN_LAUNCH_SECONDS)
    message = f"its agent has not started it {timeout:g} s after its launch"
    return TaskStatus(record.id, TaskState.LOST, record.agent_id, message=message, timestamp=now)
