"""Collective training that waits for a checkpoint before it changes its size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import a_spec
from kit.worlds import deployed
from simulation import expect, send
from simulation.world import Step, World, play
from tf_scheduler.model.events import ProgressReported, ScaleRequested
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import Reply
from tf_scheduler.model.spec import ServiceSpec, Strategy
from tf_scheduler.model.task import Progress, TaskState


def collective(workers: int, **changes: Any) -> ServiceSpec:
    """Workers that wait up to ten minutes for a checkpoint."""
    spec = a_spec(workers=workers, ps=0, chief=0, strategy=Strategy.MULTI_WORKER_MIRRORED)
    return replace(spec, resize_wait=600.0, min_workers=2, max_workers=4, **changes)


#: Offers are taken, tasks run, and those that nobody needs are stopped.
ROUNDS = (send.offers(), send.running(), send.offers(), send.running())
KILLED_HARD: dict[str, Any] = {"signal": 9, "message": "killed by signal 9 (SIGKILL)"}


def saves(step: int) -> Step:
    """The executor of worker-0 sees a checkpoint."""

    def report(world: World) -> None:
        record = world.state.stored.tasks[TaskName("worker-0")]
        last = world.state.process.progress.get(record.id)
        progress = Progress(1 + (last.sequence if last else 0), world.now, step, saved_step=step)
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

    play(world, send.wait(2), expect.killed("worker-0", "worker-1"), expect.outcome("no checkpoint in 600 s"))


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


@pytest.mark.parametrize(
    ("workers", "spec", "reply", "words"),
    [
        (1, collective(2), Reply.CONFLICT, "must be from 2 to 4"),
        (5, collective(2), Reply.CONFLICT, "must be from 2 to 4"),
        (2, collective(2), Reply.ALREADY, "already is 2"),
        (3, replace(collective(2), max_workers=0), Reply.CONFLICT, "worker.elastic.max"),
    ],
)
def test_request_is_refused_with_the_reason(workers: int, spec: ServiceSpec, reply: Reply, words: str) -> None:
    play(deployed(spec), scale(workers), expect.answered(reply, words), send.wait(1000), expect.killed())


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
