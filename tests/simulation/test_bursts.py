"""A burst of updates has the same result as single updates, but is decided once."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_job, a_spec
from kit import worlds
from simulation import send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.states import TaskState, Verdict
from tf_executor.contract.strategies import Strategy
from tf_scheduler.model.effects import Acknowledge, Kill
from tf_scheduler.model.ids import name_of
from tf_scheduler.model.spec import JobKind, JobSpec, RestartPolicy

ENDS = st.sampled_from(
    [
        (TaskState.FAILED, {"exit_code": 1}),
        (TaskState.FAILED, {"signal": 9}),
        (TaskState.FINISHED, {}),
        (TaskState.GONE, {}),
        (TaskState.RUNNING, {"healthy": True}),
    ]
)


def training(bursts: bool, strategy: Strategy = Strategy.PARAMETER_SERVER, workers: int = 4) -> World:
    jobs: tuple[JobSpec, ...] = (a_job(JobKind.PS), a_job(JobKind.WORKER, workers), a_job(JobKind.CHIEF))
    if strategy is not Strategy.PARAMETER_SERVER:
        jobs = (a_job(JobKind.WORKER, workers + 2),)
    spec = a_spec(jobs=jobs, strategy=strategy, restart=RestartPolicy(max_failures=2))
    world = worlds.deployed(spec, an_agent("agent-1", cpus=100, mem=1_000_000))
    world.bursts = bursts
    return world


@given(
    st.sampled_from([Strategy.PARAMETER_SERVER, Strategy.MULTI_WORKER_MIRRORED, Strategy.INDEPENDENT]),
    st.lists(st.tuples(st.integers(0, 5), ENDS), min_size=1, max_size=6, unique_by=lambda item: item[0]),
)
@settings(max_examples=15, deadline=None)
def test_burst_has_same_result_as_single_updates(strategy: Any, ends: Any) -> None:
    """A burst must lead to the same tasks, generations and stored records."""
    worlds = [training(bursts, strategy) for bursts in (False, True)]
    for world in worlds:
        names = sorted(world.state.stored.tasks)
        for which, (state, details) in ends:
            world.mesos.report(world.id_of(names[which]), state, **details)
        world.settle()
        for _ in range(6):
            world.wait(30.0)
            if world.mesos.subscribed:
                world.mesos.allocate(world.now)
            world.settle()
            for task in world.mesos.live().values():
                if task.state is TaskState.STAGING:
                    world.mesos.report(task.launch.record.id, TaskState.RUNNING)
            world.settle()

    one, burst = worlds
    assert set(one.mesos.live()) == set(burst.mesos.live())
    assert (one.state.stored.result and one.state.stored.result.verdict) == (
        burst.state.stored.result and burst.state.stored.result.verdict
    )
    for name, record in one.state.stored.tasks.items():
        assert (record.generation, record.address) == (
            burst.state.stored.tasks[name].generation,
            burst.state.stored.tasks[name].address,
        )


def test_burst_is_stored_before_it_is_acknowledged() -> None:
    """All updates are stored in one transaction; the calls of the plans follow once."""
    points: list[tuple[str, str]] = []
    world = training(True, Strategy.MULTI_WORKER_MIRRORED)
    world.checkpoint = lambda moment, what: points.append((moment, what))
    for index in range(4):
        world.mesos.report(world.id_of(f"worker-{index}"), TaskState.FAILED, signal=9)
    world.decisions.clear()

    world.settle()

    stores = [place for place, point in enumerate(points) if point == ("after", "store")]
    acknowledged = [place for place, point in enumerate(points) if point == ("before", "Acknowledge")]
    assert 4 <= len([call for call in world.calls if isinstance(call, Acknowledge)])
    assert stores[0] < acknowledged[0]
    assert [place for place in stores if place < acknowledged[3]] == stores[:1]
    assert {"worker-4", "worker-5"} == {name_of(call.task_id) for call in world.calls_of(Kill)}


def test_burst_that_ends_job_lists_all_failures() -> None:
    """The first failure is blamed, the others are listed."""
    world = World(a_spec(restart=RestartPolicy(max_failures=0)), an_agent("agent-1", cpus=8))
    play(world, send.register(), send.offers(), send.running())
    world.bursts = True
    for name in ("worker-1", "chief-0", "worker-0"):
        world.mesos.report(world.id_of(name), TaskState.FAILED, exit_code=1, message="exit code 1")

    world.settle()

    assert Verdict.FAILED is world.state.stored.result.verdict
    assert world.state.stored.result.sentence.startswith("worker-1 on agent-1 failed")
    assert ("chief-0", "worker-0") == world.state.stored.result.collateral
