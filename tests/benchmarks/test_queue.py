"""Cost of a decision, and of a submit, of a queue service with ten thousand jobs.

Run with `-s` to see the numbers. Each benchmark first checks the decision. What the matcher of a scheduler costs for up
to a hundred jobs is not included.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TypeVar

import pytest

from kit.cluster_model import ClusterModel, make_job, minus
from kit.commands import request, scheduler_environment, start_scheduler
from kit.waiting import wait_until
from kit.zookeeper_ensemble import ZooKeeperEnsemble
from mesos_local.host import free_ports
from tf_scheduler.queue.admission import MAX_COMPARED, next_admission
from tf_scheduler.queue.job import JobState
from tf_scheduler.queue.shares import QueueSpec
from tf_scheduler.queue_service.job_store import QueueStore
from tf_scheduler.service.store import open_store

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


@pytest.mark.usefixtures("real_zookeeper")
@pytest.mark.parametrize("kind", ["SQLite", "ZooKeeper"])
def test_submit_with_ten_thousand_waiting_jobs(tmp_path: Path, kind: str) -> None:
    """Seconds of `POST /v1/jobs` until the answer, which comes after the store."""
    file = {"service": {"strategy": "independent", "command": "train"}, "worker": {"count": 2}}
    waiting = [make_job(f"waits-{number:05}", "default", 2, number / WAITING) for number in range(WAITING)]
    with ZooKeeperEnsemble() if kind == "ZooKeeper" else nullcontext() as servers:
        state = f"zk://{servers.addresses}/ml" if servers else (tmp_path / "state.db").as_uri()
        with closing(QueueStore(open_store(state, "ml"))) as store:
            for first in range(0, WAITING, 500):
                store.put(waiting[first : first + 500], file=file)
        (port,) = free_ports(1)
        options = {
            "service": {"name": "ml", "kind": "queue"},
            "mesos": {"master": "127.0.0.1:1"},
            "api": {"authentication": "none"},
            "scheduler": {"state": state},
        }
        (tmp_path / "queue.json").write_text(json.dumps(options))
        environment = scheduler_environment(port, MESOS_SANDBOX=str(tmp_path))
        process = start_scheduler(tmp_path / "queue.json", environment, tmp_path / "log")
        try:
            wait_until(lambda: request(port, "/v1/jobs/waits-00000").status == 200)
            costs, names = [], set()
            for _ in range(101):
                start = time.perf_counter()
                answer = request(port, "/v1/jobs", "POST", body=json.dumps(file).encode())
                costs.append(1000 * (time.perf_counter() - start))
                assert 201 == answer.status, answer
                names.add(answer.json["id"])
        finally:
            process.kill()  # without an end: what it has answered is stored already
            process.wait()
        with closing(QueueStore(open_store(state, "ml"))) as store:
            assert {job.id for job in waiting} | names == store.jobs.keys()
            assert [file] * len(costs) == [store.file(name) for name in names]
    print(f"\n{kind}, {WAITING:,} waiting: submit {median(costs):.1f} ms (median), {max(costs):.1f} ms (maximum)")
