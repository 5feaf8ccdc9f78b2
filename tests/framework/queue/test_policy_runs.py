"""What many jobs of several queues get in whole runs, in simulated time."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.cluster_model import ClusterModel, covers, make_job, measure, sixty_jobs, times
from tf_scheduler.model.resources import UNIT, Needs
from tf_scheduler.queue.admission import MAX_COMPARED, Admission
from tf_scheduler.queue.job import JobId, JobState
from tf_scheduler.queue.shares import Order, QueueSpec, QueueUsage

QUEUES = {name: QueueSpec(name) for name in "abc"}
WEIGHTED = {**QUEUES, "b": QueueSpec("b", weight=2.0)}
#: More runs show more; `-s` prints their numbers.
SEEDS = range(int(os.environ.get("QUEUE_RUNS", "2")))
LONGEST = 200.0

GANGS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(1, 12),
        st.integers(0, 60),
        st.integers(1, int(LONGEST)),
        st.integers(0, 2),
        st.booleans(),
    ),
    min_size=1,
    max_size=25,
)


def submit(model: ClusterModel, gangs: list[tuple[str, int, int, int, int, bool]]) -> None:
    """Submit jobs; the expected duration of some is unknown."""
    for number, (queue, slots, at, seconds, priority, is_known) in enumerate(gangs):
        expected = float(seconds) * is_known
        job = make_job(f"job-{number}", queue, slots, float(at), priority=priority, expected_seconds=expected)
        model.submit(job, float(seconds))


@pytest.mark.parametrize("queues", [QUEUES, WEIGHTED], ids=["equal", "1:2:1"])
def test_sixty_jobs_share_the_cluster(queues: dict[str, QueueSpec]) -> None:
    """Each run keeps the shares; use and first estimates are medians of the runs."""
    runs = [measure(queues, seed, sixty_jobs(queues, seed)) for seed in SEEDS]
    print(*runs, sep="\n")

    assert max(run.deviation for run in runs) <= 1
    assert max(run.at_end for run in runs) <= 0.05
    assert median(run.used for run in runs) >= 0.95
    assert median(run.estimate_error for run in runs) < 0.20


@pytest.mark.parametrize("seed", SEEDS)
def test_estimates_are_close_if_nothing_is_submitted_later(seed: int) -> None:
    jobs = [(replace(job, submitted=0.0), seconds) for job, seconds in sixty_jobs(QUEUES, seed)]

    assert measure(QUEUES, seed, jobs).estimate_error <= 0.12


@settings(max_examples=15, deadline=None)
@given(gangs=GANGS, order=st.sampled_from(Order), max_jobs=st.integers(0, 2), cpus=st.sampled_from([0, 12]))
def test_each_job_starts_once_within_all_limits(
    gangs: list[tuple[str, int, int, int, int, bool]], order: Order, max_jobs: int, cpus: int
) -> None:
    queues = {**QUEUES, "a": QueueSpec("a", max_jobs=max_jobs), "b": QueueSpec("b", limits=Needs(cpus=cpus * UNIT))}
    model = ClusterModel(queues, order=order)
    admitted = Counter[JobId]()

    def watch(model: ClusterModel, admission: Admission) -> None:
        usage = QueueUsage.of(model.jobs.values(), model.capacity)
        queued = [job for job in model.facts().order if job is not admission.job]
        assert not max_jobs or usage.jobs.get("a", 0) <= max_jobs
        assert not cpus or usage.used.get("b", Needs()).cpus <= cpus * UNIT
        assert all(covers(free, Needs()) for free in model.free.values())
        if admission.job is not None:
            admitted[admission.job.id] += 1
        else:
            assert {job.id for job in queued[:MAX_COMPARED]} <= set(admission.waits)
            assert all(admission.waits.values())

    model.watch = watch
    submit(model, gangs)
    model.run()

    assert admitted == Counter(model.jobs.keys())
    assert model.now < 60 + sum(seconds + 15 for _, _, _, seconds, _, _ in gangs), "never idle while a job fits"


@settings(max_examples=15, deadline=None)
@given(gangs=GANGS)
def test_first_job_without_room_starts_in_time(gangs: list[tuple[str, int, int, int, int, bool]]) -> None:
    """No job starves: it starts when the jobs end that run when it becomes the first."""
    model, latest = ClusterModel(QUEUES, order=Order.FIFO), dict[JobId, float]()

    def watch(model: ClusterModel, admission: Admission) -> None:
        if admission.lack_room:
            ends = [model.end_of(job) for job in model.of(JobState.RUNNING)]
            latest.setdefault(admission.lack_room[0].id, max([model.now, *ends]))

    model.watch = watch
    submit(model, [(*each[:5], True) for each in gangs])
    model.run()

    assert all(model.first_starts[name] <= end + 2 * 3 for name, end in latest.items())


@settings(max_examples=10, deadline=None)
@given(gangs=GANGS)
def test_fifo_and_priority_are_exact_for_equal_jobs(gangs: list[tuple[str, int, int, int, int, bool]]) -> None:
    """Without smaller jobs that may pass, jobs start in their order."""
    for order, key in ((Order.FIFO, lambda job: 0), (Order.PRIORITY, lambda job: -job.priority)):
        model = ClusterModel(QUEUES, order=order)
        submit(model, [(queue, 2, 0, seconds, priority, known) for queue, _, _, seconds, priority, known in gangs])
        model.run()

        jobs = sorted(model.jobs.values(), key=lambda job: (key(job), job.submitted, job.id))
        assert [job.id for job in jobs] == sorted(model.first_starts, key=lambda name: model.first_starts[name])


@pytest.mark.parametrize("order", [Order.FAIR, Order.FIFO])
@pytest.mark.parametrize("expected", [0.0, 1.0, 60.0])
def test_big_job_is_not_passed_forever(order: Order, expected: float) -> None:
    """Small jobs do not starve a big one, even with wrong or unknown durations."""
    model = ClusterModel({"a": QueueSpec("a"), "b": QueueSpec("b")}, order=order)
    for number in range(200):
        model.submit(make_job(f"small-{number:03}", "a", at=5.0 * number, expected_seconds=expected), 100.0)
    model.submit(make_job("big", "b", slots=12, at=50.0, expected_seconds=60.0), 60.0)
    model.run()

    assert model.first_starts[JobId("big")] <= 50 + 2 * 100 + 15


def test_capacity_of_the_model_is_as_expected() -> None:
    model = ClusterModel(QUEUES)

    assert times(Needs(cpus=UNIT), 12).cpus <= model.capacity.cpus < times(Needs(cpus=UNIT), 13).cpus
