"""Why the scheduler cannot act, or why the job does not run as it should.

One list, derived from the state, for all views.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from tf_executor.contract.text import format_duration, list_names
from tf_scheduler.core.connection_problems import clock_time, drift_message, refusal_message
from tf_scheduler.core.elastic import cluster_size
from tf_scheduler.core.recovery.replacement import unstarted_since
from tf_scheduler.core.state import after_job
from tf_scheduler.model.ids import name_of
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import Cause, TaskRecord

from .base import MAX_NOTICES, Snapshot

#: Seconds after its grace period in which a task must end.
_STOP_SECONDS = 10.0
#: Seconds after the last launch, and CPUs of each task, from which all programs only wait.
_IDLE_SECONDS, _IDLE = 120.0, 0.05
#: Consecutive launches without a start after which the task is named.
_UNSTARTED_LAUNCHES = 3


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason.

    `health`: status of the health check if no other reason comes first; 200 if the job runs nevertheless.
    """

    #: Such as `store`, for metrics.
    kind: str
    text: str
    health: int = 200

    @property
    def stops_scheduler(self) -> bool:
        """Whether nothing can be launched or stopped."""
        return self.health > 300


def reasons(snapshot: Snapshot) -> tuple[Reason, ...]:
    """Return all reasons, those that stop the scheduler first."""
    state = snapshot.state
    found = [*_scheduler(snapshot)]
    has_job = state.stored.result is None and not (snapshot.uninstalling or state.process.finished)
    if has_job:
        found += _tasks(snapshot)
    # Also at the end of a job that has succeeded: its last checkpoint is not stored.
    found += islice(_storage(state, has_job=has_job), MAX_NOTICES)
    if drift := drift_message(state):
        found.append(Reason("clock", drift))
    if abandoned := after_job.abandoned_message(state):
        found.append(Reason("abandoned", abandoned))
    return tuple(found)


def texts(snapshot: Snapshot) -> list[str]:
    """Return the reasons as people read them."""
    return [reason.text for reason in reasons(snapshot)]


def _scheduler(snapshot: Snapshot) -> Iterator[Reason]:
    state = snapshot.state
    if state.process.has_rival:
        yield Reason("rival", state.process.refused, 317)
    if snapshot.store_error:
        # Healthy for Marathon, as the others: a restarted scheduler could not store anything either.
        yield Reason("store", f"state store unavailable, scheduling paused: {snapshot.store_error}", 319)
    if state.process.refused_calls is not None:
        yield Reason("calls", f"{refusal_message(state)}; running tasks continue", 317)
    why, at = f" ({snapshot.master_error})" if snapshot.master_error else "", state.process.disconnected_at
    since = "" if at is None else f" since {clock_time(at)}"
    if state.process.finished:
        return
    if (why or since) and state.stored.framework_id is None:
        yield Reason("master", f"not registered with Mesos yet: no connection{since}{why}", 318)
    elif why or since:
        text = f"not connected to a master{since}{why}: programs continue, nothing can be launched or stopped"
        yield Reason("master", f"{text}; tasks are shown as they were last known", 316)


def _tasks(snapshot: Snapshot) -> Iterator[Reason]:
    state = snapshot.state
    yield from _not_running(state)
    yield from _ignored_stops(snapshot)
    yield from _failing_launches(state)
    if waits := cluster_size.describe_wait(state):
        yield Reason("size", waits)
    yield from _idle(snapshot)
    if snapshot.silence and state.process.last_progress is not None:
        text = f"no progress for {format_duration(snapshot.silence)}, last from {state.process.last_progress[0]}"
        yield Reason("progress", text)


def _not_running(state: SchedulerState) -> Iterator[Reason]:
    """Yield launched tasks whose programs do not run, or do not answer."""
    is_waiting = state.is_any_starting() or state.has_silent_tasks() or state.derived.unhealthy_count
    if not is_waiting or state.unplaced():
        return
    starting: dict[str, list[TaskRecord]] = {}
    stopped = []
    for record in state.stored.tasks.values():
        status = state.status(record.name)
        if status is None or not state.has_run(record):
            if not state.storage_error(record.name):
                what = (status and status.message) or "their files are fetched"
                starting.setdefault(what, []).append(record)
        elif status.is_frozen or status.state.is_silent:
            what = "is frozen" if status.is_frozen else status.state.phrase
            stopped.append(Reason("unreachable", f"{record.name} {what}: {status.message or 'no answer'}", 205))
    for what, records in islice(starting.items(), MAX_NOTICES):
        since = clock_time(min(unstarted_since(state, record) for record in records))
        names = list_names([record.name for record in records])
        yield Reason("starting", f"{names} started at {since}, and do not run yet: {what}", 205)
    yield from stopped[:MAX_NOTICES]


def _idle(snapshot: Snapshot) -> Iterator[Reason]:
    """Yield that all programs only wait, as those that all call `server.join()`."""
    state = snapshot.state
    if state.process.last_progress is not None or not state.spec.strategy.traits.has_servers:
        return
    records = [record for record in state.stored.tasks.values() if record.job.in_cluster]
    used = dict(state.process.usage.values())
    cpus = [usage.cpus_used if (usage := used.get(record.id)) else None for record in records]
    since = max((record.launched_at for record in records), default=snapshot.now)
    if snapshot.now >= since + _IDLE_SECONDS and all(each is not None and each < _IDLE for each in cpus):
        text = f"no task trains: no program has used a CPU or reported a step since {clock_time(since)}"
        yield Reason("idle", f"{text}; one task must run the training, a chief or a worker without `server.join()`")


def _storage(state: SchedulerState, *, has_job: bool) -> Iterator[Reason]:
    """Yield storages that do not take checkpoints, or do not answer a restore."""
    for name in state.process.storage_errors:
        error, record = state.storage_error(name), state.stored.tasks.get(name)
        if not error or record is None:
            continue
        if state.has_run(record):
            yield Reason("storage", f"{name}: {error}")
        elif has_job:
            since = clock_time(unstarted_since(state, record))
            yield Reason("storage", f"{name} restores checkpoints since {since}: {error}", 205)


def _ignored_stops(snapshot: Snapshot) -> Iterator[Reason]:
    """Yield tasks that were asked to stop, and have not ended in their grace period."""
    state = snapshot.state
    late = []
    for launch, at in state.of_current_launches(state.session.kill_requested_at).items():
        record = state.stored.tasks[name_of(launch)]
        job = state.spec.job_of(record.job, record.index)
        grace = _STOP_SECONDS + (0.0 if job is None else job.settings.kill_grace)
        if state.is_live(record) and not state.is_silent(record) and snapshot.now > at + grace:
            late.append(f"{record.name} on {record.hostname} was asked to stop at {clock_time(at)}, and has not ended")
    yield from (Reason("stopping", text, 205) for text in late[:MAX_NOTICES])


def _failing_launches(state: SchedulerState) -> Iterator[Reason]:
    """Yield why tasks do not start, if several of their launches did not start."""
    items = [
        item
        for item in state.stored.recoveries.values()
        if item.consecutive_failures >= _UNSTARTED_LAUNCHES
        and (item.must_move or item.cause is Cause.NOT_STARTED)
        and (record := state.stored.tasks.get(item.task)) is not None
        and (record.id == item.launch or not state.is_live(record) or not state.has_run(record))
    ]
    for item in items[:MAX_NOTICES]:
        yield Reason("launches", f"{item.consecutive_failures} launches of {item.task} did not start: {item.why}")
    if len(items) > MAX_NOTICES:
        yield Reason("launches", f"{len(items) - MAX_NOTICES} other tasks do not start either")
