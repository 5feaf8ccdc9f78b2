"""Frozen tasks are named, and replaced; the tasks that wait for them are not."""

from __future__ import annotations

import pytest

from builders import a_job, a_spec
from kit.worlds import deployed
from simulation import expect, send
from simulation.world import World, play
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import Status, TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.api.views import service
from tf_scheduler.api.views.base import MAX_NOTICES, Snapshot
from tf_scheduler.api.views.overview import overview
from tf_scheduler.model.events import ProgressReported
from tf_scheduler.model.spec import JobKind, ServiceSpec
from tf_scheduler.model.task import Cause

RUNNING, FAILED = TaskState.RUNNING, TaskState.FAILED
WHY = "process 12 is stopped by a signal (SIGSTOP) and uses no CPU time"
MIRRORED = a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=(a_job(JobKind.WORKER, 2),))


def health(world: World) -> tuple[int, list[str]]:
    """Return status and reasons of the health check, now."""
    snapshot = Snapshot(world.state, now=world.now)
    answer = service.health(snapshot, {"verbose": True})
    assert tuple(text for text in answer.body["reasons"] if text != "running") == overview(snapshot).notices
    return answer.body["value"], answer.body["reasons"]


@pytest.mark.parametrize("spec", [MIRRORED, a_spec()], ids=["multi_worker_mirrored", "parameter_server"])
def test_frozen_worker_is_named_and_replaced(spec: ServiceSpec) -> None:
    """The chief that waits for it keeps running, or restarts at no cost."""
    world = deployed(spec)
    others = [name for name in world.state.stored.tasks if name != "worker-1"]
    host = world.state.stored.tasks["worker-1"].hostname

    play(
        world,
        send.status("worker-1", RUNNING, healthy=False, message=WHY),
        expect.killed(),
        expect.outcome(f"worker-1 on {host} is frozen: {WHY}"),
        expect.plan("deploy", Status.COMPLETE),
    )
    assert world.outcomes[-1].warning
    assert (205, [f"worker-1 is frozen: {WHY}"]) == health(world)

    end = {"signal": 9, "message": f"frozen for 900 s: {WHY}; killed by signal 9 (SIGKILL)"}
    play(world, send.status("worker-1", FAILED, **end), expect.outcome(f"frozen for 900 s: {WHY}"))
    recovery = world.state.stored.recoveries["worker-1"]
    assert (Cause.INFRASTRUCTURE, ()) == (recovery.cause, recovery.failures)
    assert not [name for name in others if name in world.state.stored.recoveries and spec is not MIRRORED]

    play(world, send.killed(), send.offers(), send.running(), expect.alive(*others, "worker-1"))
    assert (200, ["running"]) == health(world)


@pytest.mark.parametrize("healthy", [True, None])
def test_continued_task_is_not_frozen(healthy: bool | None) -> None:
    """Whether its server has answered before or not."""
    world = deployed(MIRRORED)
    play(
        world,
        send.status("worker-1", RUNNING, healthy=False, message=WHY),
        send.status("worker-1", RUNNING, healthy=healthy, message="continues after it was frozen for 95 s"),
        expect.outcome("is running: continues after it was frozen for 95 s"),
    )
    assert (200, ["running"]) == health(world)
    assert 0 == world.state.derived.unhealthy_count
    play(world, send.status("worker-1", TaskState.UNKNOWN))
    assert (205, ["worker-1 is unknown: no answer"]) == health(world)


def test_silence_names_the_last_report() -> None:
    """The time of arrival counts, because clocks of agents may be wrong."""
    world = deployed(MIRRORED)
    play(world, send.wait(200.0))
    assert (200, ["running"]) == health(world), "no task has ever reported progress"
    reports = [ProgressReported(world.id_of(f"worker-{n}"), Progress(1, 5.0, step=1)) for n in (0, 1)]
    play(world, send.event(reports[1]), send.wait(5.0), send.event(reports[0]), send.wait(59.0))
    assert (200, ["running"]) == health(world)

    play(world, send.wait(16.0))

    assert (200, ["running", "no progress for 1 min 10 s, last from worker-0"]) == health(world)
    play(world, send.event(ProgressReported(world.id_of("worker-1"), Progress(2, 6.0, step=2))))
    assert (200, ["running"]) == health(world)


def test_number_of_listed_tasks_is_limited() -> None:
    world = deployed(a_spec(workers=MAX_NOTICES + 2))
    frozen = [send.status(f"worker-{n}", RUNNING, healthy=False, message=WHY) for n in range(MAX_NOTICES + 1)]
    play(world, *frozen)
    assert MAX_NOTICES == len(health(world)[1])
