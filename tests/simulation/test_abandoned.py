"""Launches that were given up while their agent did not answer."""

from __future__ import annotations

from builders import a_spec
from kit.worlds import deployed
from simulation import expect, send
from simulation.world import World, play
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import Status, TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.api.views.plan_messages import leftovers_message, sdk_uninstall_plan
from tf_scheduler.core.recovery.reconcile import ABANDONED_INTERVAL
from tf_scheduler.core.state.after_job import AGENT_WAIT, abandoned_message
from tf_scheduler.model.effects import EntryForgotten, Kill, Reconcile, Teardown
from tf_scheduler.model.events import ProgressReported, ResetRequested, SecretsRequested, StatusUpdated
from tf_scheduler.model.ids import AgentId, TaskId
from tf_scheduler.model.plan import Verb
from tf_scheduler.model.spec import RecoveryPolicy
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import AbandonedLaunch, TaskStatus
from tf_scheduler.store import records
from tf_scheduler.store.interface import Delete

SPEC = a_spec(strategy=Strategy.INDEPENDENT, chief=0, ps=0, recovery=RecoveryPolicy(unreachable_timeout=60.0))
UNREACHABLE = TaskState.UNREACHABLE
#: Seconds in which an unreachable task is killed without success, then given up, when the job ends.
STOP = 12.0


def with_abandoned() -> tuple[World, TaskId]:
    """Return a service whose worker-1 was replaced, and its previous launch."""
    world = deployed(SPEC)
    old = world.id_of("worker-1")
    play(world, send.status("worker-1", UNREACHABLE), send.wait(60.0), send.offers(), send.running())
    assert old != world.id_of("worker-1")
    assert [old] == list(world.state.stored.abandoned)
    return world, old


def returns(world: World, launch: TaskId) -> World:
    """The agent of an abandoned launch returns; the scheduler does not hear of it."""
    world.mesos.tasks[launch].state = TaskState.RUNNING
    return world


def test_abandoned_launch_is_killed_when_its_agent_returns() -> None:
    """Its status is requested regularly, since the master's update may be lost."""
    world, old = with_abandoned()
    play(world, send.wait(ABANDONED_INTERVAL), expect.killed())
    assert {old} == {task for call in world.calls_of(Reconcile) for task in call.tasks}

    play(returns(world, old), send.wait(ABANDONED_INTERVAL), expect.killed("worker-1"))

    assert {} == world.state.stored.abandoned
    assert TaskState.KILLED is world.mesos.tasks[old].state
    assert TaskState.RUNNING is world.state.status("worker-1").state


def test_abandoned_launch_is_remembered_across_restarts() -> None:
    world, old = with_abandoned()

    play(world, send.restart())
    assert "worker-1 may still run on agent-1" == abandoned_message(world.state)

    play(returns(world, old), send.restart(), expect.killed("worker-1"))
    assert {} == world.state.stored.abandoned


def test_abandoned_launch_is_forgotten_after_its_end() -> None:
    """Also if it ended by itself, or an operator reports its agent as gone."""
    for end in (TaskState.FINISHED, TaskState.GONE_BY_OPERATOR):
        world, old = with_abandoned()
        world.mesos.report(old, end)
        play(world, send.wait(1.0), expect.killed())
        assert {} == world.state.stored.abandoned


def test_unreachable_status_of_replaced_launch_is_remembered() -> None:
    """It was reported as gone, but the master expects that it may return."""
    world = deployed(SPEC)
    old = world.id_of("worker-1")
    play(world, send.status("worker-1", TaskState.GONE), send.offers(), send.running())
    assert {} == world.state.stored.abandoned

    status = TaskStatus(old, UNREACHABLE, AgentId("agent-1-id"))
    play(world, send.event(StatusUpdated(status)), expect.outcome("worker-1 may still run on agent-1"))

    assert [old] == list(world.state.stored.abandoned)


def test_progress_of_abandoned_launch_kills_it() -> None:
    """At intervals: programs report every few seconds."""
    world, old = with_abandoned()
    event = ProgressReported(old, Progress(1, world.now, step=9), AgentId("agent-1-id"))

    world.mesos.kills_at_once = False
    returns(world, old)
    play(world, send.event(event), expect.killed("worker-1"))
    play(world, send.event(event), expect.killed())

    assert {} == world.state.process.progress


def test_progress_of_current_launch_kills_nothing() -> None:
    world, _ = with_abandoned()
    event = ProgressReported(world.id_of("worker-1"), Progress(1, world.now, step=9), AgentId("agent-2-id"))

    play(world, send.event(event), expect.killed())

    assert [event.task_id] == list(world.state.process.progress)


def test_abandoned_launch_that_requests_secrets_is_killed() -> None:
    """Only known launches: anyone can send such a request."""
    world, old = with_abandoned()
    returns(world, old)

    play(world, send.event(SecretsRequested(TaskId("worker-1__9"), "token", "nonce", "10.0.0.1")), expect.killed())
    play(world, send.event(SecretsRequested(old, "token", "nonce", "10.0.0.1")), expect.killed("worker-1"))


def test_teardown_waits_for_agent_of_abandoned_launch() -> None:
    """A Mesos 1.11 master may abort if the agent returns after TEARDOWN."""
    world, old = with_abandoned()
    play(
        world,
        send.stop(),
        expect.outcome("waits up to 600 s for agents that do not answer: worker-1 may still run on"),
        expect.phases("uninstall", ("kill-tasks", Status.COMPLETE), ("deregister-service", Status.PENDING)),
        expect.says("uninstall", "deregister-service", "worker-1 may still run on agent-1"),
        send.wait(AGENT_WAIT - 60.0),
    )
    assert [] == world.calls_of(Teardown)

    play(returns(world, old), send.wait(ABANDONED_INTERVAL), expect.torn_down())

    assert [old] == [call.task_id for call in world.calls_of(Kill)]
    assert "nothing is left behind" == leftovers_message(world.state)


def test_wait_for_agents_is_limited() -> None:
    """The launches are then reported as left behind, also by the next scheduler."""
    world, _ = with_abandoned()
    play(world, send.stop(), send.wait(AGENT_WAIT + ABANDONED_INTERVAL), expect.torn_down())
    play(world, expect.outcome("left behind: worker-1 may still run on agent-1; Mesos ends it when the agent returns"))

    play(world, send.restart())

    assert "left behind: worker-1 may still run on agent-1" in leftovers_message(world.state)
    (text,) = sdk_uninstall_plan(world.state).phases[-1].steps[0].left_behind
    assert "mark the agent as gone" in text


def test_launch_given_up_long_ago_does_not_delay_removal() -> None:
    """Its agent is probably lost for good."""
    world, _ = with_abandoned()

    play(world, send.wait(AGENT_WAIT), send.stop(), expect.torn_down())

    assert "left behind: worker-1 may still run" in leftovers_message(world.state)


def test_forced_removal_does_not_wait_for_agents() -> None:
    world, _ = with_abandoned()

    play(world, send.stop(), send.command(Verb.FORCE_COMPLETE, "uninstall", "deregister-service"), expect.torn_down())

    assert "left behind: worker-1 may still run" in leftovers_message(world.state)


def test_task_that_is_unreachable_at_the_end_is_abandoned() -> None:
    """The wait includes tasks whose agent went away shortly before the end."""
    world = deployed(SPEC, kills_at_once=False)
    old = world.id_of("worker-1")
    play(world, send.status("worker-1", UNREACHABLE), send.stop(), send.killed("worker-0"), send.wait(STOP))
    assert ([old], []) == (list(world.state.stored.abandoned), world.calls_of(Teardown))

    world.mesos.kills_at_once = True
    play(returns(world, old), send.wait(ABANDONED_INTERVAL), expect.torn_down())

    assert "nothing is left behind" == leftovers_message(world.state)


def test_reset_forgets_abandoned_launches() -> None:
    """They belonged to the removed framework."""
    world, _ = with_abandoned()
    world.mesos.disconnect()
    world.mesos.removed = True
    play(world, send.restart(), send.event(ResetRequested()))

    assert {} == world.state.stored.abandoned
    assert not [key for key in world.stored() if key.startswith("abandoned/")]


def test_abandoned_launch_is_stored_until_its_end() -> None:
    before = SchedulerState(a_spec())
    abandoned = AbandonedLaunch(TaskId("worker-0__1"), AgentId("agent-1-id"), "agent-1", 5.0)

    (put,) = records.writes(abandoned, before)

    assert (abandoned,) == records.changes({put.key: put.value})
    assert (Delete(put.key),) == records.writes(EntryForgotten("abandoned", "worker-0__1"), before)
