"""Recovery: what is lost starts again, with the least that must start with it, and the job goes on."""

from __future__ import annotations

from typing import Any

import pytest

from builders import a_job, a_spec
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import Step, World, play
from tf_scheduler.model.policy import RecoveryPolicy, RestartPolicy
from tf_scheduler.model.spec import JobKind, ServiceSpec, Strategy
from tf_scheduler.model.state import Verdict
from tf_scheduler.model.task import TaskState

ALL = ("ps-0", "worker-0", "worker-1", "chief-0")
FAILED, FINISHED, LOST = TaskState.FAILED, TaskState.FINISHED, TaskState.LOST
KILLED_HARD = {"signal": 9, "message": "killed by signal 9 (SIGKILL)"}


def deployed(spec: ServiceSpec | None = None, *agents: Any) -> World:
    world = World(spec or a_spec(), *(agents or (an_agent("agent-1"), an_agent("agent-2"))))
    return play(world, send.register(), send.offers(), send.running())


def address(world: World, name: str) -> str:
    return world.state.tasks[name].address


def generation(world: World, name: str) -> int:
    return world.state.tasks[name].generation


def mirrored() -> ServiceSpec:
    jobs = (a_job(JobKind.WORKER, 3),)
    return a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=jobs)


def test_a_worker_that_dies_comes_back_alone_at_its_old_address():
    """Parameter server strategy: the chief takes it in again by itself, so nobody else is touched."""
    world = deployed()
    before = address(world, "worker-1")

    play(
        world,
        send.status("worker-1", FAILED, **KILLED_HARD),
        expect.killed(),
        expect.revives(1),
        send.offers(),
        expect.launched("worker-1"),
        expect.killed(),
        send.running(),
        expect.alive(*ALL),
    )

    assert before == address(world, "worker-1")
    assert {1} == {generation(world, name) for name in ALL}


def test_a_worker_that_cannot_go_home_takes_the_chief_along():
    """Its agent is gone: at a new address only a chief that starts anew finds it. The ps is left alone."""
    world = deployed(None, an_agent("agent-1", cpus=2), an_agent("agent-2", cpus=2))
    (name,) = (name for name in ("worker-0", "worker-1", "ps-0", "chief-0") if on(world, name, "agent-2"))
    others = [other for other in ALL if other not in (name, "chief-0")]
    spare = an_agent("agent-3", cpus=8)

    play(world, send.agent_lost("agent-2"), send.agent(spare), send.running(), send.offers(), send.running())

    assert set(ALL) == set(world.mesos.live())
    assert 2 == generation(world, "chief-0") == generation(world, name)
    assert {1} == {generation(world, other) for other in others}
    assert world.state.result is None


def on(world: World, name: str, hostname: str) -> bool:
    return world.state.tasks[name].hostname == hostname


def test_a_ps_takes_the_chief_along_and_the_chiefs_own_exit_is_not_blamed():
    """The chief notices the loss and exits 1: collateral, not a failure of its own."""
    world = deployed()

    play(
        world,
        send.status("ps-0", FAILED, **KILLED_HARD),
        expect.killed("chief-0"),
        send.offers(),
        expect.launched("ps-0", "chief-0"),
        send.running(),
        expect.alive(*ALL),
    )

    assert () == world.state.recoveries["chief-0"].failures
    assert {1} == {generation(world, name) for name in ALL}


def test_collective_training_starts_again_as_a_whole_and_at_once():
    """Survivors are killed, not left to time out; all come back together."""
    world = deployed(mirrored())

    play(
        world,
        send.status("worker-2", FAILED, **KILLED_HARD),
        expect.killed("worker-0", "worker-1"),
        send.offers(),
        expect.launched("worker-0", "worker-1", "worker-2"),
        send.running(),
        expect.alive("worker-0", "worker-1", "worker-2"),
    )

    assert world.state.result is None


def test_a_program_that_always_fails_ends_the_job_after_its_chances():
    """max_failures 2: three launches, with growing pauses, then the job fails with the reason."""
    world = deployed(a_spec(restart=RestartPolicy(max_failures=2, backoff=4.0)))
    error = send.status("worker-1", FAILED, exit_code=3, message="exit code 3")

    play(world, error, send.offers(), expect.launched("worker-1"), send.running())
    play(world, error, expect.told("launched again in "), send.offers(), expect.launched())
    play(world, send.wait(10.0), send.offers(), send.running(), error, expect.result(Verdict.FAILED))

    assert "worker-1 on agent-1 failed: exit code 3 (failure 3: restart.max_failures is 2" in world.state.result.reason


def test_what_is_not_the_programs_fault_is_not_counted():
    """Ten kills from outside, each retried."""
    world = deployed(a_spec(restart=RestartPolicy(max_failures=0)))
    again: list[Step] = []
    for _ in range(10):
        again += [send.status("worker-1", FAILED, **KILLED_HARD), send.wait(400), send.offers(), send.running()]

    play(world, *again, expect.alive(*ALL))

    assert world.state.result is None


@pytest.mark.parametrize("code", [42, 143])
def test_a_program_that_asks_for_a_restart_gets_it(code):
    """TensorFlow's preemption handler exits so after it has saved a checkpoint."""
    world = deployed(a_spec(restart=RestartPolicy(max_failures=0)))

    play(
        world,
        send.status("worker-0", FAILED, exit_code=code, message=f"exit code {code}"),
        send.offers(),
        expect.launched("worker-0"),
    )


def test_a_task_that_has_finished_is_never_launched_again():
    """Not even when its whole gang starts anew."""
    world = deployed(mirrored())

    play(
        world,
        send.status("worker-2", FINISHED),
        send.status("worker-1", FAILED, **KILLED_HARD),
        send.offers(),
        expect.launched("worker-0", "worker-1"),
    )


def test_an_unreachable_task_is_waited_for():
    """It may come back within its time, and then nothing has happened."""
    world = deployed(a_spec(recovery=RecoveryPolicy(unreachable_timeout=60.0)))

    play(
        world,
        send.status("worker-1", TaskState.UNREACHABLE),
        send.wait(59.0),
        expect.launched(),
        send.status("worker-1", TaskState.RUNNING),
        send.wait(120.0),
        expect.launched(),
        expect.alive(*ALL),
    )

    assert {} == world.state.recoveries


def test_an_unreachable_task_is_replaced_in_the_end_and_killed_when_it_returns():
    """Never both are kept."""
    world = deployed(a_spec(recovery=RecoveryPolicy(unreachable_timeout=60.0)))
    old = world.id_of("worker-1")

    play(world, send.status("worker-1", TaskState.UNREACHABLE), send.wait(60.0))
    assert LOST is world.state.status("worker-1").state
    play(world, send.status("worker-1", TaskState.RUNNING), expect.killed("worker-1"))

    assert old == world.id_of("worker-1")


def test_recovery_survives_the_scheduler():
    """The back-off goes on where it was, and the count of failures with it."""
    world = deployed(a_spec(restart=RestartPolicy(max_failures=2, backoff=40.0)))
    error = send.status("worker-1", FAILED, exit_code=3, message="exit code 3")
    play(world, error, send.offers(), send.running(), error)
    before = world.state.recoveries["worker-1"]

    play(world, send.restart(), send.offers(), expect.launched())
    assert before == world.state.recoveries["worker-1"]
    play(world, send.wait(41.0), send.offers(), send.running(), error, expect.result(Verdict.FAILED))


def test_a_refused_task_is_not_tried_again():
    """TASK_ERROR: the same again would be refused again."""
    world = deployed()

    play(world, send.status("worker-1", TaskState.ERROR, message="not allowed"), expect.result(Verdict.FAILED))

    assert "not allowed; another launch would end in the same way" in world.state.result.reason


def test_nothing_is_recovered_once_the_job_is_decided():
    """The chief has finished; a worker that fails while it is stopped stays away."""
    world = World(a_spec(), an_agent(), kills_at_once=False)
    play(
        world,
        send.register(),
        send.offers(),
        send.running(),
        send.status("chief-0", FINISHED),
        send.status("worker-1", FAILED, exit_code=1, message="exit code 1"),
        send.offers(),
        expect.launched(),
        expect.result(Verdict.SUCCEEDED),
    )
