"""Start-up timeouts of launches that never start and clusters that no task joins."""

from __future__ import annotations

from builders import a_job, a_spec
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.states import TaskState, Verdict
from tf_executor.contract.strategies import Strategy
from tf_scheduler.model.spec import JobKind, Program, ServiceSpec
from tf_scheduler.model.task import Cause, PodVerb

ALL = ("ps-0", "worker-0", "worker-1", "chief-0")
OTHERS = ("ps-0", "worker-0", "chief-0")
NOT_JOINED = "no task has joined: 600 s after the start, no TensorFlow server of worker-0, worker-1, chief-0 and ps-0"


def launched(spec: ServiceSpec | None = None, cpus: float = 2) -> World:
    world = World(spec or a_spec(), an_agent("agent-1", cpus=cpus), an_agent("agent-2", cpus=cpus))
    return play(world, send.register(), send.offers())


def test_launch_stuck_in_staging_is_lost_and_moves() -> None:
    """After start_timeout the launch is killed; no failure counts against the program."""
    world = play(launched(cpus=8), send.running(*OTHERS), send.status("worker-1", TaskState.STAGING))
    host = world.state.stored.tasks["worker-1"].hostname

    play(world, send.wait(599.0), expect.killed())
    play(world, send.wait(1.0), expect.killed("worker-1"))
    play(
        world,
        expect.outcome("worker-1 is lost: its agent has not started it 600 s after"),
    )
    play(world, send.offers(), send.running(), send.offers(), send.running(), expect.alive(*ALL))

    assert host != world.state.stored.tasks["worker-1"].hostname
    assert () == world.state.stored.recoveries["worker-1"].failures
    assert 0 == world.state.unstarted_count()


def test_stuck_launch_on_only_agent_is_retried_there() -> None:
    """The task is retried on the same agent and does not stay pending."""
    world = World(a_spec(), an_agent("agent-1", cpus=8))
    play(world, send.register(), send.offers(), send.running(*OTHERS), send.wait(600.0))

    play(world, send.offers(), send.wait(100.0), send.offers(), send.running(), send.offers(), send.running())

    play(world, expect.alive(*ALL))


def test_launch_without_any_update_is_lost() -> None:
    """The launch time is stored, so the timeout survives a restart of the scheduler."""
    world = play(launched(), send.running(*OTHERS), send.wait(590.0))
    world.mesos.missing.update(world.mesos.agents)

    play(world, send.restart(), send.wait(59.0), expect.killed(), send.wait(2.0), expect.killed("worker-1"))

    assert Cause.INFRASTRUCTURE is world.state.stored.recoveries["worker-1"].cause


def test_restarted_scheduler_reconciles_before_timeouts() -> None:
    """A restarted scheduler has only the launch records of its previous process."""
    world = play(launched(), send.running("ps-0", "worker-0"), *send.joined("ps-0"), send.disconnect())
    world.now += 3600.0
    world.mesos.report(world.id_of("worker-1"), TaskState.RUNNING, healthy=True)
    world.mesos.report(world.id_of("chief-0"), TaskState.RUNNING, healthy=True)
    world.mesos.report(world.id_of("worker-0"), TaskState.RUNNING, healthy=True)

    play(world, send.restart(), expect.killed(), send.wait(3600.0), expect.killed(), expect.alive(*ALL))

    assert {} == world.state.stored.recoveries


def test_killed_launch_that_never_started_blocks_no_task() -> None:
    """An operator restarted it; its agent does not report that either."""
    world = World(a_spec(), an_agent("agent-1", cpus=8), an_agent("agent-2", cpus=8), kills_at_once=False)
    play(world, send.register(), send.offers(), send.running(*OTHERS))

    play(world, send.pod(PodVerb.RESTART, "worker-1"), send.wait(600.0), send.offers(), expect.launched("worker-1"))


def test_cluster_without_joined_tasks_is_reported_once() -> None:
    """No task is killed: the program may have no server."""
    world = play(launched(), send.running(), send.wait(599.0))
    play(world, send.wait(1.0), expect.outcome(NOT_JOINED), expect.killed())

    play(world, send.wait(7_200.0), expect.killed())
    assert [] == [outcome.message for outcome in world.outcomes if "no task has joined" in outcome.message]
    play(world, expect.alive(*ALL))


def test_programs_with_injected_servers_are_late() -> None:
    """With an injected server the port must open: each task is killed and relaunched."""
    jobs = (a_job(JobKind.PS, command=""), a_job(JobKind.WORKER, 2, command=""))
    spec = a_spec(strategy=Strategy.BETWEEN_GRAPH, jobs=jobs, program=Program("train"))
    world = play(launched(spec), send.running(), send.wait(600.0))

    play(world, expect.killed("ps-0", "worker-0", "worker-1"), expect.outcome("answer, and no other server does"))


def test_tasks_that_joined_before_are_late() -> None:
    """The program has opened a server before; a restarted scheduler remembers this."""
    workers = ("worker-0", "worker-1", "worker-2")
    spec = a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=(a_job(JobKind.WORKER, 3),))
    world = play(launched(spec), send.running(), *send.joined(*workers))
    play(world, send.status("worker-2", TaskState.FAILED, signal=9), send.offers(), send.running(), send.restart())

    play(world, send.wait(600.0), expect.killed(*workers), expect.outcome("has not joined the others"))


def test_late_launches_count_through_restarts_with_others() -> None:
    """Of two tasks that are late in turn, one is late for the third time in round 5."""
    spec = a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=(a_job(JobKind.WORKER, 3),))
    world = launched(spec)

    for number, late in enumerate(("worker-1", "worker-2", "worker-1", "worker-2", "worker-1"), 1):
        play(world, send.running("worker-0", late), send.wait(5.0), send.running(), *send.joined("worker-0"))
        assert world.state.stored.result is None, f"round {number}"
        play(world, send.wait(600.0), send.offers(), send.wait(120.0), send.offers())

    play(world, expect.result(Verdict.FAILED))
