"""Maintenance: tasks leave a draining agent in time, and it is not used any more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import a_job, a_record, a_running_state, a_spec, an_offer, needs, with_fields
from kit import worlds
from simulation.mesos import an_agent
from tf_executor.contract.states import TaskState
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.placement.constraints import MOVE_AHEAD
from tf_scheduler.core.recovery import recover
from tf_scheduler.core.recovery.recover import ASK_INTERVAL
from tf_scheduler.core.scheduler import next_deadline
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import AcceptInverseOffers, Kill, TaskLaunched
from tf_scheduler.model.events import InverseOfferRescinded
from tf_scheduler.model.ids import AgentId, OfferId
from tf_scheduler.model.offer import InverseOffer, Unavailability
from tf_scheduler.model.placement import PlacementSpec
from tf_scheduler.model.spec import JobKind

GRACE = 10.0
AHEAD = MOVE_AHEAD + GRACE


def a_world(*agents, strategy=Strategy.PARAMETER_SERVER, **options):
    jobs = (a_job(JobKind.WORKER, 2, needs=needs(cpus=1.5), kill_grace=GRACE),)
    return deployed_on(a_spec(jobs=jobs, strategy=strategy, **options), *agents)


def deployed_on(spec, *agents):
    return worlds.deployed(spec, *(an_agent(name, cpus=2) for name in agents))


def hosts(world):
    return {name: task.launch.record.hostname for name, task in world.mesos.live().items()}


def plan_window(world, hostname, start, end=None) -> None:
    world.decisions.clear()
    world.mesos.maintain(hostname, Unavailability(world.now + start, end))
    world.settle()


def pass_time(world, seconds) -> None:
    for _ in range(seconds):
        world.mesos.allocate(world.now)
        world.settle()
        world.wait(1.0)


def test_inverse_offer_is_accepted() -> None:
    """The window is the operator's; Mesos repeats inverse offers to show cancellation."""
    world = a_world("a", "b", "c")

    plan_window(world, "a", 3600.0)

    (answer,) = world.calls_of(AcceptInverseOffers)
    assert ASK_INTERVAL == answer.refuse_seconds
    (outcome,) = world.outcomes
    assert ("maintenance of agent a is scheduled", True) == (outcome.message, outcome.warning)


def test_tasks_are_moved_shortly_before_window() -> None:
    """Training runs as long as possible; the relaunch still ends before the window."""
    world = a_world("a", "b", "c")
    begun = world.now

    plan_window(world, "a", 600.0)
    pass_time(world, 60)  # the launches are checked meanwhile
    assert begun + 600.0 - AHEAD == next_deadline(world.state)
    pass_time(world, round(600 - AHEAD) - 62)
    assert {"worker-0": "a", "worker-1": "b"} == hosts(world)
    pass_time(world, 30)

    assert {"worker-0": "c", "worker-1": "b"} == hosts(world)
    assert world.now < begun + 600.0


def test_near_window_moves_tasks_immediately() -> None:
    """In the decision on the inverse offer."""
    world = a_world("a", "b", "c")

    plan_window(world, "a", 5.0)

    assert [world.state.stored.recoveries["worker-0"].launch] == [call.task_id for call in world.calls_of(Kill)]


def test_move_counts_no_failure() -> None:
    """No failure is counted."""
    world = a_world("a", "b", "c")

    plan_window(world, "a", 5.0)
    pass_time(world, 10)

    assert (0, ()) == (
        world.state.stored.recoveries["worker-0"].consecutive_failures,
        world.state.stored.recoveries["worker-0"].failures,
    )
    assert world.state.stored.result is None


def test_task_does_not_return_to_agent_that_it_leaves() -> None:
    """Also if draining_seconds is less than the time in which tasks leave."""
    world = a_world("a", placement=PlacementSpec(draining_seconds=0.0))
    launches = len(world.mesos.tasks)

    plan_window(world, "a", 50.0)
    pass_time(world, 40)

    assert launches == len(world.mesos.tasks)


def test_move_restarts_dependent_tasks() -> None:
    """Collective training stops as a whole; tasks on other agents stay there."""
    world = a_world("a", "b", "c", strategy=Strategy.MULTI_WORKER_MIRRORED)
    before = {name: task.launch.record.id for name, task in world.mesos.live().items()}

    plan_window(world, "a", 5.0)
    pass_time(world, 15)

    after = {name: task.launch.record.id for name, task in world.mesos.live().items()}
    assert {"worker-0": "c", "worker-1": "b"} == hosts(world)
    assert set() == {*before.values()} & {*after.values()}


def test_chief_restarts_with_moved_worker() -> None:
    """Only a restarted chief finds the new address; it stays at its own."""
    jobs = (a_job(JobKind.WORKER, 1, needs=needs(cpus=1.5)), a_job(JobKind.CHIEF, 1, needs=needs(cpus=1.5)))
    world = deployed_on(a_spec(jobs=jobs), "a", "b", "c")
    before = hosts(world)

    plan_window(world, before["worker-0"], 5.0)
    pass_time(world, 15)

    assert ["worker-0", "chief-0"] == [
        record.name for record in world.state.stored.tasks.values() if record.generation == 2
    ]
    assert before["chief-0"] == hosts(world)["chief-0"]
    assert before["worker-0"] != hosts(world)["worker-0"]


def test_finished_task_does_not_restart_with_move() -> None:
    """Its work is done."""
    jobs = (a_job(JobKind.WORKER, 3, needs=needs(cpus=1.5)),)
    world = deployed_on(a_spec(jobs=jobs, strategy=Strategy.MULTI_WORKER_MIRRORED), "a", "b", "c", "d")
    world.mesos.report(world.id_of("worker-1"), TaskState.FINISHED)
    world.settle()
    done = world.id_of("worker-1")

    plan_window(world, hosts(world)["worker-2"], 5.0)
    pass_time(world, 15)

    assert done == world.id_of("worker-1")
    assert {"worker-0", "worker-2"} == world.mesos.live().keys()


def test_drained_agent_is_not_used_again() -> None:
    """Its offers contain the reason."""
    world = a_world("a", "b")

    plan_window(world, "a", 5.0)
    pass_time(world, 8)

    assert {"worker-1": "b"} == hosts(world)
    assert any(
        "agent a: goes into maintenance" in str(reason) or "agent a: is in maintenance" in str(reason)
        for reason in world.state.session.round.reasons["worker-0"]
    )


@pytest.mark.parametrize("how", ["rescinded", "offered without a window", "reconnected"])
def test_cancelled_window_moves_no_task(how: str) -> None:
    """Reported by Mesos, seen in an offer, or missing after a new subscription."""
    world = a_world("a", "b", "c")
    plan_window(world, "a", 600.0)
    (window,) = world.state.session.windows.values()

    world.mesos.agents["a-id"].more.pop("unavailability")
    if how == "rescinded":
        world.step(InverseOfferRescinded(window.id))
    elif how == "reconnected":
        world.disconnect()
        world.register()
    else:
        world.mesos.suppressed, world.mesos.agents["a-id"].filters = False, []
        world.mesos.allocate(world.now)
        world.settle()

    assert {} == world.state.session.windows
    pass_time(world, 620)
    assert {"worker-0": "a", "worker-1": "b"} == hosts(world)


def test_drain_restarts_chief_in_the_same_decision() -> None:
    """Later, the chief would train for a while with an address that is gone."""
    spec = a_spec()
    state = apply(a_running_state(spec), TaskLaunched(a_record(spec, "worker-0", agent_id=AgentId("b"))))
    window = InverseOffer(OfferId("i"), AgentId("b"), Unavailability(100.0 + MOVE_AHEAD))

    decision = recover.drain(with_fields(state, windows={window.agent_id: window}), 100.0)

    assert ["worker-0", "chief-0"] == [change.recovery.task for change in decision.changes]
    assert [("worker-0", True), ("chief-0", True)] == [(outcome.task, outcome.warning) for outcome in decision.outcomes]


def test_only_offer_without_window_ends_maintenance() -> None:
    """Until its window an agent still offers resources, with the window."""
    soon = Unavailability(500.0)
    agents = ("a", "b")
    windows = {AgentId(f"{name}-id"): InverseOffer(OfferId(name), AgentId(f"{name}-id"), soon) for name in agents}
    state = with_fields(a_running_state(a_spec()), windows=windows)

    after = recover.forget_windows(state, [an_offer(agent="a"), an_offer("o-2", "b", unavailability=soon)])

    assert {"b-id"} == set(after.session.windows)


def test_window_is_announced_once_unless_it_changes() -> None:
    """Mesos repeats its inverse offers."""
    state = a_running_state(a_spec())
    window = InverseOffer(OfferId("i"), AgentId("a"), Unavailability(1000.0))
    first = recover.on_inverse_offers(state, [window])

    same = recover.on_inverse_offers(first.state, [window])
    moved = recover.on_inverse_offers(first.state, [replace(window, unavailability=Unavailability(2000.0))])

    assert [1, 0, 1] == [len(decision.outcomes) for decision in (first, same, moved)]
