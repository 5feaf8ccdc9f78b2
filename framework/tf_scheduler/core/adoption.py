"""Continue a live framework that the state store does not know, with its tasks.

The records come from the labels of the tasks, so that no program restarts and the ClusterSpec stays. Commands of
operators, failure counts and avoided agents are not in Mesos: they are lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tf_scheduler.model import effects
from tf_scheduler.model.events import FoundTask, FrameworkAdopted
from tf_scheduler.model.ids import NewId, TaskName
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskState

from . import job_end
from .plans.scheduling import PlanView
from .recovery import status
from .state.reducer import decide
from .state.spec_index import scalable_job

#: Maximum number of task names in one message.
_NAMED = 5


def adopt(
    state: SchedulerState, event: FrameworkAdopted, now: float, new_id: NewId, view: PlanView
) -> effects.Decision:
    """Store the framework with its tasks; with `reset`, stop the job."""
    found = [replace(item, record=_dated(item.record, now)) for item in event.tasks]
    tasks = _current(found)
    changes = (
        effects.FrameworkRegistered(event.framework_id),
        *_resized(state, found, tasks, now),
        *(effects.TaskLaunched(item.record) for item in tasks),
    )
    decision = decide(state, *changes, outcomes=tuple(_outcomes(event, tasks)))
    for item in tasks:
        reported = replace(item.status, uuid="")
        decision = decision.followed_by(status.on_update(decision.state, reported, now, new_id, view))
    if not event.reset:
        return decision
    return decision.then(lambda after: job_end.request_stop(after, reset_reason(event.framework_id), now))


def reset_reason(framework_id: str) -> str:
    """Return why the job of a framework stops before another one replaces it."""
    return f"an operator requested the end of framework {framework_id}"


def _dated(record: TaskRecord, now: float) -> TaskRecord:
    """Return the record with launch times on which deadlines can depend."""
    return replace(
        record, launched_at=min(record.launched_at or now, now), job_started_at=min(record.job_started_at, now)
    )


def _current(tasks: Iterable[FoundTask]) -> list[FoundTask]:
    """Return the last launch of each task, unless it has ended without success.

    The task is then launched again. A launch that is not returned is unknown, and killed when Mesos reports it.
    """
    latest: dict[TaskName, FoundTask] = {}
    for item in tasks:
        before = latest.get(item.record.name)
        if before is None or _order(before) < _order(item):
            latest[item.record.name] = item
    kept = (item for item in latest.values() if not item.status.state.has_ended or _has_finished(item))
    return sorted(kept, key=_order)


def _order(item: FoundTask) -> tuple[int, float, bool]:
    return item.record.serial, item.record.launched_at, not item.status.state.has_ended


def _has_finished(item: FoundTask) -> bool:
    return item.status.state is TaskState.FINISHED


def _resized(
    state: SchedulerState, found: Iterable[FoundTask], tasks: Iterable[FoundTask], now: float
) -> tuple[effects.Change, ...]:
    """Return the size of a smaller elastic cluster, which has only its first workers.

    An ended worker belongs to the cluster, too, if it was launched with the others: collective training restarts whole.
    """
    job = scalable_job(state.spec)
    if job is None:
        return ()
    since = min((item.record.serial for item in tasks if item.record.job is job.kind), default=0)
    workers = {item.record.index for item in found if item.record.job is job.kind and item.record.serial >= since}
    is_smaller = job.min_count <= len(workers) < job.count and max(workers) == len(workers) - 1
    return (effects.Resized(len(workers), now),) if is_smaller else ()


def _outcomes(event: FrameworkAdopted, tasks: list[FoundTask]) -> Iterator[effects.Outcome]:
    if not event.tasks:
        yield effects.Outcome("FrameworkAdopted", f"continuing framework {event.framework_id}, which has no tasks")
        return
    count = f"{len(tasks)} task{'' if len(tasks) == 1 else 's'}"
    message = (
        f"adopted framework {event.framework_id} with {count}; not restored: interrupted plans, paused tasks, failure "
        f"counts, avoided agents and tokens for secrets"
    )
    yield effects.Outcome("FrameworkAdopted", message, warning=True)
    partial = sorted(item.record.name for item in tasks if not item.record.config and not _has_finished(item))
    if partial and not event.reset:
        names = ", ".join(partial[:_NAMED]) + (", ..." if len(partial) > _NAMED else "")
        message = f"restarting tasks without a readable label `record`: {names}"
        yield effects.Outcome("FrameworkAdopted", message, warning=True)
    if event.others:
        message = f"further live frameworks of this service, whose tasks run in addition: {', '.join(event.others)}"
        yield effects.Outcome("FrameworkAdopted", f"{message}; tear them down in Mesos", warning=True)
