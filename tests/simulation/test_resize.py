"""Collective training that waits for a checkpoint before it changes its size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import a_spec, needs
from kit.worlds import deployed, pass_time
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import Step, World, play
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import Status, TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.model.events import FrameworksWait, ProgressReported, ScaleRequested
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.spec import JobKind, ServiceSpec
from tf_scheduler.runner import restore


def collective(workers: int, **changes: Any) -> ServiceSpec:
    """Workers that wait up to ten minutes for a checkpoint."""
    spec = a_spec(workers=workers, ps=0, chief=0, strategy=Strategy.MULTI_WORKER_MIRRORED)
    return replace(
        spec, **{"resize_wait": 600.0, "checkpoint_dir": "/data", "min_workers": 2, "max_workers": 4, **changes}
    )


#: Offers are taken, tasks run, and those that nobody needs are stopped.
ROUNDS = (send.offers(), send.running(), send.offers(), send.running())
KILLED_HARD: dict[str, Any] = {"signal": 9, "message": "killed by signal 9 (SIGKILL)"}


def saves(step: int) -> Step:
    """The executor of worker-0 sees a checkpoint."""

    def report(world: World) -> None:
        record = world.state.stored.tasks[TaskName("worker-0")]
        last = world.state.process.progress.get(record.id)
        progress = Progress(1 + (last.sequence if last else 0), world.now, step, saved_step=step, saves=step)
        world.step(ProgressReported(record.id, progress, record.agent_id))
        world.wait(0.1)

    return Step(f"worker-0 saves step {step}", report, fresh=True)


def scale(workers: int) -> Step:
    return Step(f"scale to {workers}", lambda world: world.step(ScaleRequested(workers)), fresh=True)


@pytest.mark.parametrize("changed", [send.restart(collective(3)), scale(3)], ids=["options", "request"])
def test_resize_waits_for_the_next_checkpoint(changed: Step) -> None:
    """All restart once, with all workers."""
    world = play(deployed(collective(2)), saves(10), changed, send.offers(), send.wait(60))
    play(world, expect.killed(), expect.alive("worker-0", "worker-1"))

    play(world, saves(20), expect.killed("worker-0", "worker-1"), send.offers(), send.running(), send.offers())
    play(world, expect.cluster("worker-0", worker=3), saves(30), send.wait(1000), expect.killed())

    assert world.state.stored.resized.until is None


def test_resize_waits_no_longer_than_allowed() -> None:
    """A program that saves nothing gets its workers nevertheless."""
    world = play(deployed(collective(2)), scale(4), send.wait(599), expect.killed())

    play(world, send.wait(2), expect.killed("worker-0", "worker-1"), expect.outcome("no checkpoint in 10 min"))


def test_restart_during_the_wait_applies_the_size() -> None:
    """Two restarts would do steps twice."""
    world = play(
        deployed(collective(2)), scale(3), send.wait(5), send.status("worker-1", TaskState.FAILED, **KILLED_HARD)
    )

    play(world, send.wait(20), *ROUNDS, expect.cluster("worker-0", worker=3))
    play(world, saves(50), send.wait(1000), expect.killed())


def test_other_changes_do_not_wait() -> None:
    """All tasks restart for them anyway."""
    world = play(deployed(collective(2)), scale(3), send.restart(collective(2, user="other")))

    play(world, expect.killed("worker-0", "worker-1"))


def test_scheduler_waits_on_after_its_restart() -> None:
    """And the requested number counts until the options have another one."""
    world = play(deployed(collective(2)), saves(10), scale(4), send.wait(100), send.restart(), send.offers())
    play(world, expect.killed(), saves(20), expect.killed("worker-0", "worker-1"), *ROUNDS)
    play(world, expect.cluster("worker-0", worker=4), send.restart(), send.offers(), send.wait(1000), expect.killed())

    play(world, send.restart(collective(3)), saves(30), *ROUNDS, expect.cluster("worker-0", worker=3))


def test_withdrawn_request_changes_nothing() -> None:
    world = play(deployed(collective(2)), scale(4), scale(2), saves(10), send.wait(1000), send.offers())

    play(world, expect.killed(), expect.alive("worker-0", "worker-1"))
    assert world.state.stored.full_spec is None


def test_workers_of_a_parameter_server_change_at_once() -> None:
    """Only the chief restarts, or nobody if they are live."""
    spec = a_spec(workers=2, ps=1, chief=1, strategy=Strategy.PARAMETER_SERVER)
    world = play(deployed(replace(spec, max_workers=3, resize_wait=600.0)), scale(3), *ROUNDS)

    play(world, expect.cluster("chief-0", chief=1, ps=1, worker=3))
    play(
        world,
        scale(1),
        *ROUNDS,
        expect.cluster("chief-0", chief=1, ps=1, worker=1),
        expect.alive("chief-0", "ps-0", "worker-0"),
    )


def test_chief_trains_on_until_its_new_workers_are_placed() -> None:
    """A chief that waited for their addresses would not train meanwhile."""
    spec = a_spec(workers=2, ps=1, chief=1, strategy=Strategy.PARAMETER_SERVER)
    world = deployed(replace(spec, max_workers=4), an_agent("agent-1", cpus=2.5))
    play(world, scale(4), *ROUNDS, send.wait(3600), expect.killed())
    play(world, expect.says("update", "chief-0", "running on agent-1; waits for the address of worker-2 and worker-3"))

    play(world, send.agent(an_agent("agent-2")), *ROUNDS, *ROUNDS)
    play(world, expect.cluster("chief-0", chief=1, ps=1, worker=4), expect.plan("update", Status.COMPLETE))


def test_smaller_chief_makes_room_for_a_new_worker() -> None:
    """Its resources are those for which the worker waits."""

    def spec(workers: int, cpus: float) -> ServiceSpec:
        spec = a_spec(workers=workers, ps=1, chief=1, strategy=Strategy.PARAMETER_SERVER)
        jobs = (replace(job, needs=needs(cpus)) if job.kind is JobKind.CHIEF else job for job in spec.jobs)
        return replace(spec, jobs=tuple(jobs))

    world = deployed(spec(1, 1.2), an_agent("agent-1", cpus=2.5))
    play(world, send.restart(spec(2, 0.5)), *ROUNDS, *ROUNDS)

    play(world, expect.cluster("chief-0", chief=1, ps=1, worker=2), expect.plan("update", Status.COMPLETE))


def test_size_that_does_not_fit_is_reduced() -> None:
    """A request must not stop a training that could go on."""
    three = [an_agent(f"agent-{number}", cpus=1) for number in range(3)]
    spec = collective(2)
    world = deployed(replace(spec, jobs=tuple(replace(job, min_count=1) for job in spec.jobs)), *three)
    play(world, scale(4), saves(10), *(step for _ in range(6) for step in (send.offers(), send.wait(20))))

    play(world, send.running(), expect.cluster("worker-0", worker=3))


def test_removed_worker_is_launched_when_it_is_wanted_again() -> None:
    """Also if the options are those of the last complete update again."""
    at_once = collective(3, resize_wait=0.0)
    (job,) = (job for job in at_once.jobs if job.count)
    large = replace(job, needs=replace(job.needs, cpus=9000))
    world = play(deployed(at_once), send.restart(replace(at_once, jobs=(large,))), *ROUNDS)
    play(
        world, send.restart(replace(at_once, jobs=(replace(large, count=2),))), *ROUNDS, send.restart(at_once), *ROUNDS
    )

    play(world, expect.cluster("worker-0", worker=3), expect.alive("worker-0", "worker-1", "worker-2"))


def test_workers_do_not_restart_while_one_is_silent() -> None:
    """The size would wait for an agent that does not answer."""
    world = play(deployed(collective(2)), scale(3), send.status("worker-1", TaskState.UNREACHABLE), saves(10))

    play(
        world,
        expect.killed(),
        send.status("worker-1", TaskState.RUNNING),
        send.wait(1),
        expect.killed("worker-0", "worker-1"),
    )


def test_store_forgets_a_worker_that_fails_before_it_leaves() -> None:
    """One decision stores its recovery and forgets its task."""
    world = play(deployed(collective(4)), saves(10), scale(2), send.wait(5))
    play(world, send.status("worker-3", TaskState.FAILED, exit_code=1, message="boom"))

    stored = restore(collective(4), world.store, world.now).stored.recoveries

    assert stored.keys() == world.state.stored.recoveries.keys()


# --- Idle agents


def growing(**changes: Any) -> World:
    """Two workers that train on two agents; two others are idle."""
    first, others = ([an_agent(f"agent-{number}", cpus=1) for number in numbers] for numbers in ((0, 1), (8, 9)))
    world = deployed(collective(2, grows=True, **changes), *first)
    return play(world, saves(10), asks(), *map(send.agent, others))


def asks(*names: str) -> Step:
    return send.event(FrameworksWait(names))


def test_job_takes_idle_agents_at_its_next_checkpoint() -> None:
    """It asks for offers a minute after its start; until the restart it holds none."""
    world = play(growing(), expect.suppressed(), send.wait(61), expect.suppressed(False), send.offers())
    play(world, expect.killed(), expect.holds(0), saves(20), expect.killed("worker-0", "worker-1"), *ROUNDS)

    play(world, expect.cluster("worker-0", worker=4), send.wait(1000), send.offers(), expect.killed())


def test_agents_go_back_to_frameworks_that_ask() -> None:
    """At the next checkpoint, too; while they ask, the job takes none."""
    world = play(growing(), send.wait(61), send.offers(), saves(20), *ROUNDS, asks("marathon"), send.wait(9))
    play(world, expect.killed(), saves(30), expect.killed(*(f"worker-{index}" for index in range(4))), *ROUNDS)
    play(world, expect.cluster("worker-0", worker=2), send.wait(1000), expect.suppressed())

    play(world, asks(), send.wait(590), expect.suppressed(), send.wait(20), expect.suppressed(False))


def test_offers_left_by_a_relaunch_are_for_more_workers() -> None:
    """They came with those that the lost worker returned on."""
    spec = a_spec(workers=2, ps=1, chief=1, strategy=Strategy.PARAMETER_SERVER, live=True, grows=True, max_workers=4)
    world = deployed(spec, *(an_agent(f"agent-{number}", cpus=1.3) for number in (0, 1)))
    play(
        world,
        *send.joined("chief-0", "ps-0", "worker-0", "worker-1"),
        asks(),
        send.agent(an_agent("agent-9", cpus=1.3)),
    )
    play(world, send.status("worker-1", TaskState.FAILED, **KILLED_HARD), *ROUNDS)

    pass_time(world, 70)

    assert {"worker-1", "worker-2"} <= world.mesos.live().keys()


@pytest.mark.parametrize(
    ("strategy", "changes"),
    [
        (Strategy.INDEPENDENT, {}),
        (Strategy.PARAMETER_SERVER, {}),
        (Strategy.MULTI_WORKER_MIRRORED, {"checkpoint_dir": ""}),
        (Strategy.MULTI_WORKER_MIRRORED, {"resize_wait": 0.0}),
    ],
)
def test_job_that_would_lose_steps_takes_no_idle_agents(strategy: Strategy, changes: dict[str, Any]) -> None:
    world = growing(strategy=strategy, min_workers=1, **changes)
    pass_time(world, 200)

    play(world, send.running(), expect.suppressed())
    assert {"worker-0", "worker-1"} == world.mesos.live().keys()


@pytest.mark.parametrize("strategy", [Strategy.MULTI_WORKER_MIRRORED, Strategy.PYTORCH_DDP, Strategy.HOROVOD])
def test_job_restarts_without_agents_that_left(strategy: Strategy) -> None:
    """They were idle when it asked; it does not wait for them."""
    world = growing(strategy=strategy)
    play(world, send.wait(61), send.offers(), saves(20), send.agent_lost("agent-9"), send.offers())
    play(world, *(step for _ in range(6) for step in (send.offers(), send.wait(20), send.running())))

    play(world, expect.alive("worker-0", "worker-1", "worker-2"))


@pytest.mark.parametrize("changes", [{"grows": False}, {"max_workers": 2}])
def test_job_asks_for_no_more_than_allowed(changes: dict[str, Any]) -> None:
    world = growing()
    world.restart(replace(world.state.spec, **changes))
    world.register()
    play(world, asks(), send.wait(1000), expect.suppressed(), send.offers(), saves(20), expect.killed())
