"""Task reconciliation: which tasks, and how often (as documented by Mesos)."""

from __future__ import annotations

from builders import a_spec
from kit import worlds
from simulation import expect, send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_scheduler.core.recovery.reconcile import FIRST_WAIT, FULL_INTERVAL, LONGEST_WAIT
from tf_scheduler.core.scheduler import next_deadline
from tf_scheduler.model.effects import Reconcile
from tf_scheduler.model.ids import name_of
from tf_scheduler.model.spec import RecoveryPolicy
from tf_scheduler.model.task import TaskState

ALL = {"ps-0", "worker-0", "worker-1", "chief-0"}


def on_two_agents() -> World:
    """Two tasks on each of two agents."""
    spec = a_spec(recovery=RecoveryPolicy(start_timeout=None))
    world = worlds.deployed(spec, an_agent("agent-1", cpus=1.3), an_agent("agent-2", cpus=1.3))
    return play(world, expect.alive(*ALL))


def on(world: World, agent: str) -> set[str]:
    return {record.name for record in world.state.stored.tasks.values() if record.hostname == agent}


def questions(world: World) -> list[set[str]]:
    """Return the task names of each RECONCILE."""
    return [{name_of(task) for task in call.tasks} for call in world.calls_of(Reconcile)]


def test_unanswered_reconciliation_is_repeated_with_back_off() -> None:
    """After a master failover, the master omits tasks of agents that are not back."""
    world = on_two_agents()
    world.mesos.missing = {"agent-2-id"}
    play(world, send.restart())
    assert [ALL, set()] == questions(world)

    waits = []
    for _ in range(6):
        before = world.now
        play(world, send.wait())
        assert [on(world, "agent-2")] == questions(world)
        waits.append(world.now - before)

    assert [FIRST_WAIT, 10, 20, 40, LONGEST_WAIT, LONGEST_WAIT] == waits


def test_answered_reconciliation_is_not_repeated() -> None:
    """Any update counts as an answer."""
    world = on_two_agents()
    world.mesos.missing = {"agent-2-id"}
    play(world, send.restart())
    first, second = sorted(on(world, "agent-2"))

    play(world, send.status(first, TaskState.RUNNING), send.wait())
    assert [{second}] == questions(world)
    world.mesos.missing = set()
    play(world, send.wait())
    assert [{second}] == questions(world)

    assert world.state.session.reconciliation.started_at + FULL_INTERVAL == next_deadline(world.state)


def test_new_connection_restarts_reconciliation() -> None:
    """One run at a time: requests to the previous master are void."""
    world = on_two_agents()
    world.mesos.missing = {"agent-2-id"}
    play(world, send.restart(), send.wait(60.0), send.disconnect(), send.register())

    assert [ALL, set()] == questions(world)
    assert world.now + FIRST_WAIT == next_deadline(world.state)


def test_full_reconciliation_runs_every_quarter_hour() -> None:
    """Both ways: known tasks may be gone, and unknown tasks may run."""
    world = on_two_agents()

    play(world, send.wait(FULL_INTERVAL))
    assert [ALL, set()] == questions(world)

    play(world, send.wait(FULL_INTERVAL))
    assert [ALL, set()] == questions(world)


def test_unchanged_status_is_not_stored() -> None:
    """Ten thousand tasks would be ten thousand transactions, every quarter of an hour."""
    world = on_two_agents()

    play(world, send.wait(FULL_INTERVAL))

    assert len(ALL) * 2 < len(world.decisions)
    assert [] == [decision.changes for decision in world.decisions if decision.changes]


def test_full_reconciliation_detects_lost_task() -> None:
    """Its last update never came."""
    world = on_two_agents()
    lost = world.mesos.tasks.pop(world.id_of("worker-1"))
    world.mesos.agents[lost.launch.record.agent_id].free += lost.pool

    play(world, send.wait(FULL_INTERVAL), expect.outcome("worker-1 is gone"))
    play(world, send.offers(), expect.launched("worker-1"))
