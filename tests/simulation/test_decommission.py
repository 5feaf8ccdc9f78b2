"""Decommission: stop and forget, in order, tasks missing from the new options."""

from __future__ import annotations

from typing import Any

from builders import a_spec
from kit.worlds import deployed
from simulation import expect, send
from simulation.world import play
from tf_executor.contract.states import Status, TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.model.plan import Reply, Verb

COMPLETE, PENDING, STARTING = Status.COMPLETE, Status.PENDING, Status.STARTING
IN_PROGRESS, WAITING = Status.IN_PROGRESS, Status.WAITING


def workers(count: Any) -> Any:
    """Its tasks need not know each other's addresses."""
    return a_spec(workers=count, ps=1, chief=0, strategy=Strategy.PARAMETER_SERVER)


def test_decommission_starts_with_highest_index() -> None:
    """Tasks stop one by one; stopped tasks are removed from the state and the store."""
    world = play(
        deployed(workers(4), kills_at_once=False),
        expect.plan("decommission", COMPLETE),
        send.restart(workers(2)),
        expect.killed("worker-3"),
        expect.phases("decommission", ("worker-3", STARTING), ("worker-2", PENDING)),
        expect.steps(
            "decommission",
            kill_worker_3=STARTING,
            erase_worker_3=PENDING,
            kill_worker_2=PENDING,
            erase_worker_2=PENDING,
        ),
        expect.says("decommission", "kill-worker-3", "worker-3__"),
        send.killed("worker-3"),
        expect.outcome("worker-3 is decommissioned"),
        expect.killed("worker-2"),
        send.killed("worker-2"),
        expect.plan("decommission", COMPLETE),
        expect.alive("ps-0", "worker-0", "worker-1"),
        expect.result(None),
    )

    assert {"ps-0", "worker-0", "worker-1"} == set(world.state.stored.tasks)
    assert [] == [key for key in world.stored() if "worker-2" in key or "worker-3" in key]


def test_decommission_and_update_restart_chief_once() -> None:
    """The chief must know the cluster's size: it restarts as the surplus worker stops."""
    play(
        deployed(a_spec(workers=3)),
        send.restart(a_spec(workers=2)),
        expect.killed("worker-2", "chief-0"),
        send.offers(),
        expect.launched("chief-0"),
        expect.cluster("chief-0", ps=1, worker=2, chief=1),
        send.running(),
        expect.plan("update", COMPLETE),
        expect.plan("decommission", COMPLETE),
    )


def test_scaling_up_again_cancels_decommission() -> None:
    """A task being killed is relaunched; a task that waits for its step continues."""
    play(
        deployed(workers(4), kills_at_once=False),
        send.restart(workers(2)),
        expect.killed("worker-3"),
        send.restart(workers(4)),
        expect.plan("decommission", COMPLETE),
        send.killed("worker-3"),
        send.offers(),
        expect.launched("worker-3"),
        send.running(),
        expect.alive("ps-0", "worker-0", "worker-1", "worker-2", "worker-3"),
        expect.plan("update", COMPLETE),
    )


def test_failure_of_surplus_task_does_not_fail_job() -> None:
    """The task is not needed any more."""
    play(
        deployed(workers(4), kills_at_once=False),
        send.restart(workers(2)),
        send.status("worker-2", TaskState.FAILED),
        expect.result(None),
        send.status("worker-3", TaskState.FINISHED),
        expect.result(None),
        expect.plan("decommission", COMPLETE),
    )


def test_interrupted_decommission_waits() -> None:
    """Over a restart, too."""
    play(
        deployed(workers(3), kills_at_once=False),
        send.command(Verb.INTERRUPT, "decommission"),
        expect.answered(Reply.ALREADY),
        send.restart(workers(1)),
        send.command(Verb.INTERRUPT, "decommission"),
        expect.answered(Reply.OK),
        send.killed("worker-2"),
        expect.killed(),
        expect.plan("decommission", WAITING),
        send.restart(),
        expect.killed(),
        send.command(Verb.CONTINUE, "decommission"),
        expect.killed("worker-1"),
    )
