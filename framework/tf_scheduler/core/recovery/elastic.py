"""Elastic collective training: run fewer workers if not all can be placed in time.

A smaller cluster is the same service with other options. It gets its full size back at its next restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tf_scheduler.core.offers.matcher import match_gangs
from tf_scheduler.core.plans.scheduling import Gang
from tf_scheduler.core.state.reducer import decide, scalable_job, with_workers
from tf_scheduler.model import plan
from tf_scheduler.model.effects import Decision, Outcome, PlanControlled, Resized
from tf_scheduler.model.spec import JobSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import Recovery


def restore_full_size(state: SchedulerState) -> Decision:
    """Restore the full size of a smaller cluster that restarts."""
    if state.stored.result is not None:
        return decide(state)
    if not any(item.since > state.stored.resized_at for item in _restarting(state)):
        return decide(state)
    outcome = Outcome("SizeRestored", "the cluster restarts with all its workers if they can be placed")
    return decide(state, Resized(None, state.stored.resized_at), outcomes=(outcome,))


def reduce_size(state: SchedulerState, now: float, gangs: Sequence[Gang]) -> Decision:
    """Reduce the cluster to workers that fit, after `recovery.shrink_after` seconds."""
    job = scalable_job(state.spec)
    if job is None or not state.session.offers or state.stored.result is not None:
        return decide(state)
    if any(record.job is job.kind for record in state.live()):
        return decide(state)
    since = max((item.ready_at for item in _restarting(state)), default=now)
    if now < since + state.spec.recovery.shrink_after:
        return decide(state)
    count = _maximum(state, job, now, gangs)
    if count is None:
        return decide(state)
    outcome = Outcome(
        "SizeReduced", f"the cluster restarts with {count} of {job.count} workers: more cannot be placed", warning=True
    )
    update = state.stored.controls.get(plan.UPDATE)
    changes = [] if update is None else [PlanControlled(plan.UPDATE, replace(update, completed=""))]
    return decide(state, Resized(count, now), *changes, outcomes=(outcome,))


def _restarting(state: SchedulerState) -> Iterator[Recovery]:
    for item in state.stored.recoveries.values():
        record = state.stored.tasks.get(item.task)
        if record is not None and record.id == item.launch:
            yield item


def _maximum(state: SchedulerState, job: JobSpec, now: float, gangs: Sequence[Gang]) -> int | None:
    """Return how many workers, fewer than all, fit; `None` if fewer than `min_count`."""
    best, low, high = None, job.min_count, job.count - 1
    while low <= high:
        count = (low + high) // 2
        if _fits(state, count, now, gangs):
            best, low = count, count + 1
        else:
            high = count - 1
    return best


def _fits(state: SchedulerState, count: int, now: float, gangs: Sequence[Gang]) -> bool:
    spec = with_workers(state.spec, count)
    tasks = {task.name: task for task in spec.tasks()}
    tried = replace(state, spec=spec)
    kept = [replace(gang, tasks=tuple(tasks[task.name] for task in gang.tasks if task.name in tasks)) for gang in gangs]
    kept = [gang for gang in kept if gang.tasks]
    placements = match_gangs(tried, kept, state.session.offers.values(), now).placements
    return bool(kept) and len(placements) == sum(len(gang.tasks) for gang in kept)
