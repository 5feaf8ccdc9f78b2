"""Change the number of workers: on request, if fewer fit, or if agents are idle.

In collective training, a cluster of another size is the same service with other options. A smaller cluster gets its
full size back at its next restart. If only the size changes, by options or by an operator, the change waits for the
next checkpoint, so that no step is repeated. A restart of the cluster before that applies the change, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tf_executor.contract.reports import Progress
from tf_executor.contract.text import format_duration
from tf_scheduler.core.offers.matcher import match_gangs
from tf_scheduler.core.plans.scheduling import Gang, PlanView
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.core.state.spec_index import (
    held_spec,
    index_of,
    scalable_job,
    trains_together,
    wanted_spec,
    with_workers,
    worker_job,
)
from tf_scheduler.model import plan
from tf_scheduler.model.effects import Decision, Outcome, PlanControlled
from tf_scheduler.model.ids import TaskName, task_name
from tf_scheduler.model.offer import Offer
from tf_scheduler.model.plan import SERVICE_ENDED, Answer, Reply
from tf_scheduler.model.spec import JobKind, JobSpec, ServiceSpec, StorageMode
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import Recovery, Resized

# --- Collective training


def restore_full_size(state: SchedulerState) -> Decision:
    """Restore the full size of a smaller cluster that restarts."""
    size = state.stored.resized
    if state.stored.result is not None or not any(item.since > size.at for item in _pending_relaunches(state)):
        return decide(state)
    return _resize(state, size.at, "the cluster restarts with {} if they can be placed")


def _resize(state: SchedulerState, at: float, message: str) -> Decision:
    """Restart with the wanted number of workers."""
    size = replace(state.stored.resized, count=None, at=at, until=None, saves=None)
    after = decide(state, size)
    outcome = Outcome("SizeRestored", message.format(_workers(after.state.spec)))
    return replace(after, outcomes=(outcome,))


def _workers(spec: ServiceSpec) -> str:
    count = sum(job.count for job in spec.jobs if job.kind is JobKind.WORKER)
    return f"{count} worker{'' if count == 1 else 's'}"


def reduce_size(state: SchedulerState, now: float, gangs: Sequence[Gang]) -> Decision:
    """Reduce the cluster to workers that fit, after `recovery.shrink_after` seconds."""
    job = scalable_job(state.spec)
    if job is None or not state.session.round.offers or state.stored.result is not None:
        return decide(state)
    if any(record.job is job.kind for record in state.live()):
        return decide(state)
    size = state.stored.resized
    # An update may have ended them.
    ends = (state.status(record.name) for record in state.stored.tasks.values() if record.job is job.kind)
    since = [item.ready_at for item in _pending_relaunches(state)] or [end.timestamp for end in ends if end is not None]
    if not since or now < max(since) + state.spec.recovery.shrink_after:
        return decide(state)
    count = _largest(job.min_count, job.count - 1, lambda count: _fits(state, count, now, gangs))
    if count is None:
        return decide(state)
    outcome = Outcome(
        "SizeReduced", f"the cluster restarts with {count} of {job.count} workers: more cannot be placed", warning=True
    )
    update = state.stored.controls.get(plan.UPDATE)
    changes = [] if update is None else [PlanControlled(plan.UPDATE, replace(update, completed=""))]
    size = replace(size, count=count, at=now, until=None, saves=None)
    if size.grown:  # the agents are no longer idle
        size = replace(size, count=None, wanted=count)
    return decide(state, size, *changes, outcomes=(outcome,))


def keep_size(state: SchedulerState, now: float) -> Decision:
    """Let collective training keep its workers until its next checkpoint.

    If the options change anything except the number of workers, the cluster restarts immediately.
    """
    size, job = state.stored.resized, worker_job(state.stored.full_spec or state.spec)
    if size.wanted is not None and (job is None or size.configured != job.count):
        forgotten = decide(state, replace(size, wanted=None, grown=False, configured=0))
        return forgotten.then(lambda after: keep_size(after, now))
    spec = wanted_spec(state.stored.full_spec or state.spec, size)
    if size.count is not None and size.until is None:
        return decide(state)
    count = sum(record.job is JobKind.WORKER for record in state.stored.tasks.values())
    if not _waits_for_checkpoint(spec) or not _runs(state, spec, count):
        return decide(state) if size.until is None else decide(state, replace(size, count=None, until=None, saves=None))
    if size.count == count:
        return decide(state)
    waiting_size = replace(size, count=count, at=now, until=now + spec.resize_wait, saves=_saves(state))
    decision = decide(state, waiting_size)
    return replace(decision, outcomes=(Outcome("SizeKept", describe_wait(decision.state)),))


def _waits_for_checkpoint(spec: ServiceSpec) -> bool:
    """Return whether a change of the size waits for a checkpoint, and loses no step."""
    # The executor sees only checkpoints that it carries, and those in folders.
    is_seen = spec.checkpoint_dir and not ("://" in spec.checkpoint_dir and spec.storage.mode is StorageMode.DIRECT)
    return bool(spec.resize_wait and is_seen and trains_together(spec.strategy, JobKind.WORKER))


def describe_wait(state: SchedulerState) -> str:
    """Return which change of the size waits for a checkpoint; empty if none does."""
    size = state.stored.resized
    if size.until is None:
        return ""
    next_spec = wanted_spec(state.stored.full_spec or state.spec, size)
    limit = format_duration(round(size.until - size.at))
    return (
        f"the cluster keeps {_workers(state.spec)} until its next checkpoint, at most {limit}; "
        f"then it restarts with {_workers(next_spec)}"
    )


def _runs(state: SchedulerState, options: ServiceSpec, count: int) -> bool:
    """Return whether the cluster runs with these options, but with `count` workers."""
    spec = held_spec(options, count)
    if not count or spec is options or state.stored.result is not None:
        return False
    index = index_of(spec)
    tasks = {name: record for name, record in state.stored.tasks.items() if record.job.in_cluster}
    deployed = {name for name in index.deployed if index.tasks[name].job.kind.in_cluster}
    return deployed <= tasks.keys() <= index.tasks.keys() and all(
        record.config == index.configs[name]
        and record.id not in state.stored.retired
        and not state.is_replaced(record)
        and name not in state.stored.paused
        for name, record in tasks.items()
    )


def resize_at_checkpoint(state: SchedulerState, now: float) -> Decision:
    """End the wait of `keep_size` at a checkpoint, or when it has lasted too long."""
    size, last = state.stored.resized, _leaders_progress(state)
    if size.until is None or state.stored.result is not None or not state.session.connected:
        return decide(state)
    if last is not None and _has_saved(state):
        step = "a checkpoint" if last.saved_step is None else f"step {last.saved_step}"
        return _resize(state, now, f"the cluster restarts with {{}}: it has saved {step}")
    if now < size.until:
        return decide(state)
    limit = format_duration(round(size.until - size.at))
    return _resize(state, now, f"the cluster restarts with {{}}: no checkpoint in {limit}")


def _saves(state: SchedulerState) -> int | None:
    """Return how many checkpoints the leader has written since its launch."""
    progress = _leaders_progress(state)
    return None if progress is None else progress.saves


def _has_saved(state: SchedulerState) -> bool:
    """Return whether all workers can restart from a new checkpoint.

    Reports are rarely stored, so a restarted scheduler may know of fewer checkpoints than before.
    """
    return (_saves(state) or 0) > (state.stored.resized.saves or 0) and not state.has_silent_tasks()


def _leaders_progress(state: SchedulerState) -> Progress | None:
    record = state.stored.tasks.get(state.spec.leader or TaskName(""))
    return None if record is None else state.process.progress.get(record.id)


def scale(state: SchedulerState, count: int, now: float) -> Decision:
    """Change the number of workers on request, or refuse it."""
    options = state.stored.full_spec or state.spec
    job, size = worker_job(options), state.stored.resized
    if refused := _refused(state, options, count):
        return replace(decide(state), answer=refused)
    target = None if job is None or count == job.count else count
    current = size.wanted if job is not None and size.configured == job.count else None
    if target == current:
        return replace(decide(state), answer=Answer(Reply.ALREADY, f"The number of workers already is {count}"))
    request = Outcome("TaskCommanded", f"operator command: scale worker {count}")
    size = Resized(None, now, target, configured=0 if job is None else job.count)
    decision = decide(state, size, outcomes=(request,))
    decision = decision.then(lambda after: keep_size(after, now))
    return replace(decision, answer=Answer(Reply.OK, f"Received cmd: scale worker {count}"))


def _refused(state: SchedulerState, options: ServiceSpec, count: int) -> Answer | None:
    low, high = max(1, options.min_workers), options.max_workers
    if state.stored.result is not None:
        return SERVICE_ENDED
    if worker_job(options) is None or not high:
        return Answer(Reply.CONFLICT, "the number of workers is fixed: set worker.elastic.max, and gpu_worker.count 0")
    if not low <= count <= high:
        return Answer(Reply.CONFLICT, f"worker must be from {low} to {high} (worker.elastic), not {count}")
    return None


def _pending_relaunches(state: SchedulerState) -> Iterator[Recovery]:
    """Yield the recoveries of the cluster: a side job neither restarts nor delays it."""
    for item in state.stored.recoveries.values():
        record = state.stored.tasks.get(item.task)
        if record is not None and record.id == item.launch and record.job.in_cluster:
            yield item


def _largest(low: int, high: int, fits: Callable[[int], bool]) -> int | None:
    """Return the largest number of workers from `low` to `high` that fit."""
    best = None
    while low <= high:
        count = (low + high) // 2
        if fits(count):
            best, low = count, count + 1
        else:
            high = count - 1
    return best


def _fits(state: SchedulerState, count: int, now: float, gangs: Sequence[Gang]) -> bool:
    spec = with_workers(state.spec, count)
    tasks = {task.name: task for task in spec.tasks()}
    candidate = replace(state, spec=spec)
    smaller = [
        replace(gang, tasks=tuple(tasks[task.name] for task in gang.tasks if task.name in tasks)) for gang in gangs
    ]
    smaller = [gang for gang in smaller if gang.tasks]
    placements = match_gangs(candidate, smaller, state.session.round.offers.values(), now).placements
    return bool(smaller) and len(placements) == sum(len(gang.tasks) for gang in smaller)


# --- Idle agents

#: Seconds between two changes of the size because of idle agents, or since the last launch.
GROW_PAUSE = 60.0
#: Seconds after another framework has wanted offers: it may have taken idle agents, too, and want them back.
DEMAND_PAUSE = 600.0


def growth(state: SchedulerState, now: float) -> frozenset[TaskName]:
    """Return the next worker if the job may take idle agents now; otherwise empty."""
    job = worker_job(state.spec)
    if job is None or not _may_grow(state, job) or now < _grow_at(state):
        return frozenset()
    return frozenset({task_name(job.kind.value, job.count)})


def _may_grow(state: SchedulerState, job: JobSpec) -> bool:
    if not state.spec.grows or state.stored.result is not None or state.stored.resized.count is not None:
        return False
    if not state.spec.live and not _waits_for_checkpoint(state.spec):
        return False  # the job would lose steps each time an agent becomes idle
    if state.process.waiting_frameworks != () or job.count >= state.spec.max_workers:
        return False
    return not (state.derived.launches_to_replace or state.stored.retired or state.stored.paused)


def _grow_at(state: SchedulerState) -> float:
    first = state.stored.tasks.get(state.spec.leader or TaskName(""))
    if first is None:
        return math.inf
    after_demand = state.process.demand_changed_at + DEMAND_PAUSE if state.process.demand_changed_at else 0.0
    return max(GROW_PAUSE + state.stored.resized.at, GROW_PAUSE + first.launched_at, after_demand)


def take_idle_agents(state: SchedulerState, offers: Sequence[Offer], now: float, view: PlanView) -> Decision:
    """Add as many workers as fit on the offers that no task needs."""
    job = worker_job(state.spec)
    if job is None or view.pending_tasks or not growth(state, now):
        return decide(state)
    count = _largest(job.count + 1, state.spec.max_workers, lambda count: _fits_beside(state, count, offers, now))
    if count is None:
        return decide(state)
    options = worker_job(state.stored.full_spec or state.spec) or job
    size = state.stored.resized
    grown = Resized(None, now, count, True, options.count, requested=size.requested if size.grown else size.wanted)
    outcome = Outcome(
        "SizeGrown", f"idle agents have room for {_workers(held_spec(state.spec, count))} instead of {job.count}"
    )
    return decide(state, grown, outcomes=(outcome,)).then(lambda after: keep_size(after, now))


def _fits_beside(state: SchedulerState, count: int, offers: Sequence[Offer], now: float) -> bool:
    candidate = replace(state, spec=held_spec(state.spec, count))
    tasks = tuple(task for name, task in index_of(candidate.spec).tasks.items() if name not in state.stored.tasks)
    return len(match_gangs(candidate, [Gang(plan.UPDATE, tasks)], offers, now).placements) == len(tasks)


def give_back(state: SchedulerState, names: tuple[str, ...], now: float) -> Decision:
    """Record which other frameworks want offers; give up the agents that were idle."""
    at = now if names or state.process.waiting_frameworks else 0.0  # not at the first report
    state, size = state.with_process(waiting_frameworks=names, demand_changed_at=at), state.stored.resized
    if not names or not size.grown or size.wanted is None or state.stored.result is not None:
        return decide(state)
    outcome = Outcome("SizeGrown", f"other frameworks want offers: {', '.join(names)}; their agents are given back")
    before = Resized(None, now, size.requested, configured=size.configured if size.requested else 0)
    returned = decide(state, before, outcomes=(outcome,))
    return returned.then(lambda after: keep_size(after, now))


def deadlines(state: SchedulerState) -> Iterator[float]:
    """Yield when to take idle agents, and when the wait for a checkpoint ends."""
    size, job = state.stored.resized, worker_job(state.spec) if state.spec.grows else None
    if job is not None and state.session.suppressed and _may_grow(state, job):
        yield _grow_at(state)
    if size.until is not None:
        yield size.at if _has_saved(state) else size.until
