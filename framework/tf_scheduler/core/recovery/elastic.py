"""Collective training with fewer workers, rather than none: a restart that finds no place for all of them in time.

A smaller cluster is the same service with other options: plans, records and ClusterSpecs follow by themselves. It grows
back when it has to start again anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tf_scheduler.core.offers.matcher import match_gangs
from tf_scheduler.core.plans import scheduling as plans_gangs
from tf_scheduler.core.state.reducer import decide, scalable_job, with_workers
from tf_scheduler.model import plan
from tf_scheduler.model.effects import Decision, Outcome, PlanControlled, Resized
from tf_scheduler.model.spec import JobSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import Recovery, TaskRecord


def restore_full_size(state: SchedulerState) -> Decision:
    """A cluster that was made smaller, and starts again, wants all its workers."""
    if state.stored.result is not None:
        return decide(state)
    if not any(item.since > state.stored.resized_at for item in _restarting(state)):
        return decide(state)
    told = Outcome("the cluster starts again, with all its workers if they find a place")
    return decide(state, Resized(None, state.stored.resized_at), outcomes=(told,))


def reduce_size(state: SchedulerState, now: float, gangs: Sequence[plans_gangs.Gang]) -> Decision:
    """Launch as many workers as find a place, if all of them found none for long enough."""
    job = scalable_job(state.spec)
    if job is None or not state.session.offers or state.stored.result is not None or any(_workers(state, job)):
        return decide(state)
    since = max((item.ready_at for item in _restarting(state)), default=now)
    if now < since + state.spec.recovery.shrink_after:
        return decide(state)
    count = _most(state, job, now, gangs)
    if count is None:
        return decide(state)
    told = Outcome(f"the cluster starts again with {count} of {job.count} workers: more find no place", warning=True)
    update = state.stored.controls.get(plan.UPDATE)
    changes = [] if update is None else [PlanControlled(plan.UPDATE, replace(update, completed=""))]
    return decide(state, Resized(count, now), *changes, outcomes=(told,))


def _restarting(state: SchedulerState) -> Iterator[Recovery]:
    for item in state.stored.recoveries.values():
        record = state.stored.tasks.get(item.task)
        if record is not None and record.id == item.launch:
            yield item


def _workers(state: SchedulerState, job: JobSpec) -> Iterator[TaskRecord]:
    return (record for record in state.live() if record.job is job.kind)


def _most(state: SchedulerState, job: JobSpec, now: float, gangs: Sequence[plans_gangs.Gang]) -> int | None:
    """The most workers, fewer than all, that find a place; None: not even `min_count` do."""
    found, low, high = None, job.min_count, job.count - 1
    while low <= high:
        count = (low + high) // 2
        if _fits(state, count, now, gangs):
            found, low = count, count + 1
        else:
            high = count - 1
    return found


def _fits(state: SchedulerState, count: int, now: float, gangs: Sequence[plans_gangs.Gang]) -> bool:
    spec = with_workers(state.spec, count)
    tasks = {task.name: task for task in spec.tasks()}
    tried = replace(state, spec=spec)
    offers = [held.offer for held in state.session.offers.values()]
    kept = [replace(gang, tasks=tuple(tasks[task.name] for task in gang.tasks if task.name in tasks)) for gang in gangs]
    kept = [gang for gang in kept if gang.tasks]
    return bool(kept) and len(match_gangs(tried, kept, offers, now).placements) == sum(len(gang.tasks) for gang in kept)
