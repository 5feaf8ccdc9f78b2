"""Cost of a decision of a queue service with ten thousand waiting jobs.

Run with `-s` to see the numbers. Each benchmark first checks the decision. What the matcher of a scheduler costs for up
to a hundred jobs is not included.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from kit.cluster_model import ClusterModel, make_job, minus
from tf_scheduler.queue.admission import MAX_COMPARED, next_admission
from tf_scheduler.queue.job import JobState
from tf_scheduler.queue.shares import QueueSpec

WAITING, ROUNDS = 10_000, 9
QUEUES = {name: QueueSpec(name, weight=weight) for name, weight in (("a", 1.0), ("b", 2.0), ("c", 1.0))}
_T = TypeVar("_T")


def full_cluster(agents: int) -> ClusterModel:
    """Return a cluster of 8 slots per agent that is full, and jobs that wait."""
    chance, model = random.Random(1), ClusterModel(QUEUES, agents=agents, slots=8)
    number = 0
    while any(not model.fits(make_job("any", slots=slots)) for slots in (1, 4)):
        slots = chance.randint(1, 4) if not model.fits(make_job("any", slots=4)) else 1
        job = make_job(f"runs-{number}", "abc"[number % 3], slots, expected_seconds=chance.uniform(60, 200))
        places = model.place(job)
        assert places is not None
        model.places[job.id], model.seconds[job.id] = places, job.expected_seconds
        model.free.update({agent: minus(model.free[agent], needs) for agent, needs in places.items()})
        model.jobs[job.id] = replace(job, state=JobState.RUNNING)
        number += 1
    for number in range(WAITING):
        slots, seconds = chance.randint(1, 4), chance.uniform(60, 180)
        job = make_job(f"waits-{number:05}", "abc"[number % 3], slots, number / WAITING, expected_seconds=seconds)
        model.jobs[job.id] = replace(job, priority=chance.randint(0, 3))
    model.now = 10.0
    return model


def timed(function: Callable[[], _T]) -> tuple[_T, float]:
    """Return a result, and the least milliseconds of processor time."""
    costs = []
    for _ in range(ROUNDS):
        start = time.process_time()
        result = function()
        costs.append(time.process_time() - start)
    return result, 1000 * min(costs)


@pytest.mark.parametrize("agents", [3, 20, 200])
def test_decision_with_ten_thousand_waiting_jobs(agents: int) -> None:
    model = full_cluster(agents)
    facts, order_cost = timed(model.facts)
    assert all(map(model.fits, facts.order[:MAX_COMPARED]))
    facts = replace(facts, fits=lambda job: "no room")
    nothing, admission_cost = timed(lambda: next_admission(facts))
    expected, estimate_cost = timed(lambda: model.expected(facts))

    assert nothing.job is None
    assert {job.id for job in facts.order[:MAX_COMPARED]} == set(nothing.waits)
    assert {job.id for job in facts.order} == set(expected)
    assert all(expected[job.id].at is not None for job in facts.order)
    print(
        f"\n{agents} agents, {len(facts.ends)} running jobs, {WAITING:,} waiting: "
        f"usage and order {order_cost:.1f} ms, admission {admission_cost:.1f} ms, "
        f"expected starts {estimate_cost:.1f} ms"
    )
