"""Services that compete for the same agents: none starves."""

from __future__ import annotations

import random
from typing import Any

import pytest

from builders import a_job, a_spec, needs
from simulation.shared import Cluster, Machine
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.state import backoff
from tf_scheduler.model.placement import PlacementSpec
from tf_scheduler.model.spec import JobKind

JOB_SECONDS = 20.0


def a_service(name: Any, workers: Any) -> Any:
    """Each worker needs a machine: 3 of 4 cpus."""
    job = a_job(JobKind.WORKER, workers, needs=needs(cpus=2.9))
    return a_spec(
        name=name,
        role=f"{name}-role",
        jobs=(job,),
        strategy=Strategy.MULTI_WORKER_MIRRORED,
        placement=PlacementSpec(near=()),
    )


def a_cluster(seed: Any, machines: Any) -> Any:
    return Cluster([Machine.of(f"machine-{number}", cpus=4) for number in range(machines)], random.Random(seed))


@pytest.mark.parametrize("seed", range(6))
def test_competing_gangs_all_complete(seed: Any) -> None:
    """Two to six jobs, each needing over half of the machines, run one by one."""
    cluster = a_cluster(seed, machines=8)
    services = 2 + seed % 5
    for number in range(services):
        cluster.join(a_service(f"job-{number}", 5 + seed % 4), JOB_SECONDS)

    seconds = cluster.run(3600)

    assert seconds is not None
    assert seconds <= services * 240.0


@pytest.mark.parametrize("seed", range(3))
def test_small_jobs_run_while_large_job_waits(seed: Any) -> None:
    """The large job holds no resources while it waits, and runs after the small jobs."""
    cluster = a_cluster(seed, machines=4)
    large = cluster.join(a_service("large", 4), JOB_SECONDS)
    small = [cluster.join(a_service(f"small-{number}", 1), JOB_SECONDS) for number in range(6)]

    while not all(service.over for service in small):
        cluster.second()
        assert cluster.now < 1600.0

    assert cluster.run(600) is not None
    assert large.over


def test_single_service_is_not_delayed_by_back_off() -> None:
    """Machines that join late are used within one back-off and one round."""
    cluster = a_cluster(1, machines=4)
    late = cluster.machines[3].free
    cluster.machines[3].free = type(late)()
    service = cluster.join(a_service("alone", 4), JOB_SECONDS)
    for _ in range(300):
        cluster.second()

    cluster.machines[3].free = late
    joined = cluster.now
    while not service.world.mesos.live():
        cluster.second()

    assert cluster.now - joined <= backoff.MIN_DELAY + backoff.MAX_WINDOW + 2.0
