"""Size of an elastic cluster: reduced without offers, restored at a restart."""

from dataclasses import replace

import pytest

from builders import a_job, a_running_state, a_spec, a_status, an_offer, with_fields
from tf_scheduler.core.plans.scheduling import view_of
from tf_scheduler.core.recovery.elastic import reduce_size, restore_full_size
from tf_scheduler.core.recovery.recover import mark_ready
from tf_scheduler.core.recovery.replacement import replace_launch
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import RecoveryDecided, Resized, ResultDecided, StatusStored
from tf_scheduler.model.spec import JobKind, RecoveryPolicy, Strategy
from tf_scheduler.model.state import Result, Verdict
from tf_scheduler.model.task import TaskState

SPEC = a_spec(
    strategy=Strategy.MULTI_WORKER_MIRRORED,
    jobs=(a_job(JobKind.WORKER, 4, min_count=2),),
    recovery=RecoveryPolicy(shrink_after=60.0),
)
NOW = 100.0


def lost(cpus, spec=SPEC):
    """All workers are lost at 20; an agent fits some of them, at 0.6 cpus each."""
    state = a_running_state(spec)
    records = state.stored.tasks.values()
    recoveries = (replace(replace_launch(state, item, "x", 20.0), must_move=True) for item in records)
    state = apply(state, *(RecoveryDecided(item) for item in recoveries))
    state = apply(state, *(StatusStored(a_status(item.id, TaskState.LOST)) for item in records))
    offer = an_offer(cpus=cpus)
    return mark_ready(with_fields(state, offers={offer.id: offer}), NOW)


def reduced(state, now=NOW):
    return reduce_size(state, now, view_of(state).gangs).changes


@pytest.mark.parametrize(("cpus", "expected"), [(1.2, 2), (1.8, 3)])
def test_cluster_restarts_with_workers_that_fit(cpus: float, expected: int) -> None:
    assert (Resized(expected, NOW),) == reduced(lost(cpus))


@pytest.mark.parametrize("count", range(1, 8))
def test_cluster_gets_the_most_workers_that_fit(count: int) -> None:
    spec = replace(SPEC, jobs=(a_job(JobKind.WORKER, 8, min_count=1),))

    assert (Resized(count, NOW),) == reduced(lost(0.6 * count, spec))


def test_cluster_is_not_smaller_than_minimum() -> None:
    assert () == reduced(lost(cpus=0.6))


def test_cluster_waits_for_all_workers_before_it_shrinks() -> None:
    assert () == reduced(lost(cpus=1.2), now=79.0)
    assert (Resized(2, 80.0),) == reduced(lost(cpus=1.2), now=80.0)


@pytest.mark.parametrize(
    "state",
    [
        with_fields(lost(1.2), offers={}),
        apply(lost(1.2), StatusStored(a_status("worker-0__1"))),
        apply(lost(1.2), ResultDecided(Result(Verdict.FAILED, "x", 9.0))),
        lost(1.2, a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=(a_job(JobKind.WORKER, 4),))),
    ],
    ids=["no offers", "a worker runs", "ended", "not elastic"],
)
def test_cluster_keeps_its_size(state) -> None:
    assert () == reduced(state)


def test_restart_restores_full_size() -> None:
    small = apply(lost(1.2), Resized(2, 10.0))
    later = apply(lost(1.2), Resized(2, 30.0))

    assert (Resized(None, 10.0),) == restore_full_size(small).changes
    assert SPEC == restore_full_size(small).state.spec
    assert () == restore_full_size(later).changes


def test_gang_without_workers_of_smaller_cluster_is_ignored() -> None:
    """With two workers nothing of the second gang is left to match."""
    (gang,) = view_of(lost(1.2)).gangs
    first, second = replace(gang, tasks=gang.tasks[:2]), replace(gang, tasks=gang.tasks[2:])

    assert (Resized(2, NOW),) == reduce_size(lost(1.2), NOW, (first, second)).changes


def test_cluster_without_gangs_keeps_its_size() -> None:
    assert () == reduce_size(lost(1.2), NOW, ()).changes


def test_live_task_of_another_job_does_not_keep_the_size() -> None:
    """An evaluator runs beside the training."""
    spec = replace(SPEC, jobs=(*SPEC.jobs, a_job(JobKind.EVALUATOR)))
    state = apply(lost(1.2, spec), StatusStored(a_status("evaluator-0__1")))

    assert (Resized(2, NOW),) == reduced(state)
