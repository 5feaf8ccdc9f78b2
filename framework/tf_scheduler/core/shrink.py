"""Collective training with fewer workers, rather than none: a restart that finds no place for all of them in time.

A smaller cluster is the same service with other options: plans, records and ClusterSpecs follow by themselves. It grows
back when it has to start again anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tf_scheduler.model.effects import Decision, Outcome, PlanControlled, Resized
from tf_scheduler.model.recovery import Recovery
from tf_scheduler.model.spec import JobSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

from . import plans
from .attempt import attempt
from .reduce import decide
from .sizes import elastic, smaller


def grow(state: SchedulerState) -> Decision:
    """A cluster that was made smaller, and starts again, wants all its workers."""
    if state.full is None or state.result is not None:
        return decide(state)
    if not any(item.since > state.resized_at for item in _restarting(state)):
        return decide(state)
    told = Outcome("the cluster starts again, with all its workers if they find a place")
    return decide(state, Resized(None, state.resized_at), outcomes=(told,))


def shrink(state: SchedulerState, now: float) -> Decision:
    """Launch as many workers as find a place, if all of them found none for long enough."""
    job = elastic(state.spec)
    if job is None or not state.offers or state.result is not None or any(_workers(state, job)):
        return decide(state)
    since = max((item.ready_at for item in _restarting(state)), default=now)
    if now < since + state.spec.recovery.shrink_after:
        return decide(state)
    count = _most(state, job, now)
    if count is None:
        return decide(state)
    told = Outcome(f"the cluster starts again with {count} of {job.count} workers: more find no place", warning=True)
    update = state.controls.get(plans.UPDATE)
    changes = [] if update is None else [PlanControlled(plans.UPDATE, replace(update, completed=""))]
    return decide(state, Resized(count, now), *changes, outcomes=(told,))


def _restarting(state: SchedulerState) -> Iterator[Recovery]:
    for item in state.recoveries.values():
        record = state.tasks.get(item.task)
        if record is not None and record.id == item.launch:
            yield item


def _workers(state: SchedulerState, job: JobSpec) -> Iterator[TaskRecord]:
    return (record for record in state.live() if record.job is job.kind)


def _most(state: SchedulerState, job: JobSpec, now: float) -> int | None:
    """The most workers, fewer than all, that find a place; None: not even `min_count` do."""
    found, low, high = None, job.min_count, job.count - 1
    while low <= high:
        count = (low + high) // 2
        if _fits(state, count, now):
            found, low = count, count + 1
        else:
            high = count - 1
    return found


def _fits(state: SchedulerState, count: int, now: float) -> bool:
    spec = smaller(state.spec, count)
    tasks = {task.name: task for task in spec.tasks()}
    tried = replace(state, spec=spec)
    offers = [held.offer for held in state.offers.values()]
    gangs = plans.wanted(state)
    kept = [replace(gang, tasks=tuple(tasks[task.name] for task in gang.tasks if task.name in tasks)) for gang in gangs]
    kept = [gang for gang in kept if gang.tasks]
    return bool(kept) and len(attempt(tried, kept, offers, now).placements) == sum(len(gang.tasks) for gang in kept)
