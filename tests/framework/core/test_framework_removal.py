"""A framework removed by Mesos: its id is not reused; an operator has to reset it."""

from __future__ import annotations

from builders import a_spec, with_fields
from kit import worlds
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_executor.contract.states import Status, TaskState, Verdict
from tf_scheduler.core.framework import on_removed
from tf_scheduler.model.effects import FrameworkRegistered, Suppress
from tf_scheduler.model.events import CallFailed, ClockDrifted, ResetRequested
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.plan import Verb
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.store.records import writes

ALL = ("ps-0", "worker-0", "worker-1", "chief-0")


def deployed_job() -> World:
    return play(worlds.deployed(None, an_agent(cpus=8)), expect.alive(*ALL))


def away_for_too_long(world: World) -> World:
    """Let Mesos remove a disconnected framework, then start a scheduler."""
    world.mesos.disconnect()
    for task in world.mesos.tasks.values():
        world.mesos.agents[task.launch.record.agent_id].free += task.pool
        task.state = TaskState.KILLED
        task.updates.clear()
    world.mesos.removed = True
    return play(world, send.restart())


def reset(world: World) -> World:
    world.mesos.removed = False
    world.mesos.tasks.clear()
    return play(world, send.event(ResetRequested()), send.register(), send.offers(), send.running())


def test_removed_framework_message_names_loss_and_remedy() -> None:
    """The message has the command."""
    world = away_for_too_long(deployed_job())

    (message,) = [outcome.message for outcome in world.outcomes if outcome.warning]
    assert "Mesos has removed the framework framework-1 of digits" in message
    assert "no scheduler was connected for longer than service.failover_timeout (" in message
    assert "training since the last checkpoint is lost" in message
    assert "dcos-tensorflow scheduler run --reset framework-1" in message
    assert world.state.process.finished


def test_tasks_of_removed_framework_are_gone() -> None:
    """The API does not report them as running."""
    world = away_for_too_long(deployed_job())

    assert {TaskState.GONE} == {world.state.status(name).state for name in ALL}


def test_removed_framework_id_is_never_used_again() -> None:
    """The next start exits immediately: Mesos would refuse the id again."""
    world = away_for_too_long(deployed_job())

    world.restart()

    assert (True, True, None) == (world.state.process.finished, world.state.stored.removed, world.state.stored.result)


def test_ended_job_of_removed_framework_stays_ended() -> None:
    """After the TEARDOWN the id is useless; the result of the job is kept."""
    world = play(deployed_job(), send.status("chief-0", TaskState.FINISHED), expect.torn_down())

    world.restart()

    assert (True, True, "") == (world.state.process.finished, world.state.stored.removed, world.state.process.refused)
    assert Verdict.SUCCEEDED is world.state.stored.result.verdict


def test_refusal_after_teardown_is_not_a_failure() -> None:
    """The job has succeeded: no warning is needed."""
    world = play(deployed_job(), send.status("chief-0", TaskState.FINISHED), expect.torn_down())
    world.store.apply(writes(FrameworkRegistered(world.state.stored.framework_id), world.state))

    play(world, send.restart())

    assert (True, True) == (world.state.process.finished, world.state.stored.removed)
    assert Verdict.SUCCEEDED is world.state.stored.result.verdict
    assert [] == [outcome for outcome in world.outcomes if outcome.warning]


def test_reset_registers_new_framework() -> None:
    """Another framework, new launches, no records of the old one."""
    world = away_for_too_long(deployed_job())
    before = set(world.state.stored.statuses)

    reset(world)

    play(world, expect.alive(*ALL), expect.plan("deploy", Status.COMPLETE))
    assert (False, "framework-2") == (world.state.stored.removed, world.state.stored.framework_id)
    assert before.isdisjoint(world.state.stored.statuses)
    assert {1} == {record.generation for record in world.state.stored.tasks.values()}


def test_reset_is_stored() -> None:
    """The next scheduler gets no old state except commands of operators."""
    world = play(away_for_too_long(deployed_job()), send.event(ResetRequested()))

    world.restart()

    assert (None, {}, {}, False) == (
        world.state.stored.framework_id,
        world.state.stored.tasks,
        world.state.stored.statuses,
        world.state.process.finished,
    )
    assert {"plans"} == {key.partition("/")[0] for key in world.stored()}


def test_reset_forgets_what_health_shows_of_the_old_framework() -> None:
    """As for a restarted scheduler: neither its silence nor its wait for agents."""
    world = away_for_too_long(deployed_job())
    last = (TaskName("worker-0"), 1.0)
    world.state = world.state.with_process(waits_for_agents=True, last_progress=last)

    reset(world)

    assert (False, None) == (world.state.process.waits_for_agents, world.state.process.last_progress)


def test_reset_forgets_problems_of_the_old_connection() -> None:
    """The new driver does not know them, so it never reports their end."""
    world = away_for_too_long(deployed_job())
    refused = CallFailed(Suppress(), "Unauthorized", status=401)
    play(world, send.event(refused), send.event(ClockDrifted(60.0)))
    assert (1, 60.0) == (world.state.process.refused_calls.count, world.state.process.clock_drift)

    reset(world)

    process = world.state.process
    assert (None, {}, 0.0) == (process.refused_calls, process.reported_refusals, process.clock_drift)


def test_reset_keeps_commands_of_operators() -> None:
    """An interrupted plan stays interrupted: its tasks wait."""
    world = play(World(a_spec(), an_agent()), send.register(), send.command(Verb.INTERRUPT, "deploy"))

    away_for_too_long(world)
    reset(world)

    play(world, expect.alive(), expect.plan("deploy", Status.WAITING))


def test_live_framework_is_not_reset() -> None:
    """Its tasks would run on, unknown to any scheduler."""
    world = deployed_job()
    before = world.state

    play(world, send.event(ResetRequested()), expect.quiet())

    assert (before.stored.framework_id, before.stored.tasks) == (
        world.state.stored.framework_id,
        world.state.stored.tasks,
    )


def test_removal_of_unknown_or_removed_framework_changes_nothing() -> None:
    """Mesos may repeat the message, also to a scheduler that was never registered."""
    fresh = SchedulerState(a_spec())
    removed = with_fields(fresh, framework_id="fw-1", removed=True)

    assert [(), ()] == [on_removed(state).changes for state in (fresh, removed)]
