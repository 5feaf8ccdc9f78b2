"""Status of RESERVE and UNRESERVE: stored, acknowledged; a refusal frees its slot."""

from __future__ import annotations

import pytest

from builders import a_job, a_spec, needs
from kit.worlds import pass_time
from simulation.mesos import an_agent
from simulation.world import World
from tf_scheduler.core.offers.operations import FEEDBACK_TIMEOUT
from tf_scheduler.core.offers.reservations import UNRESERVE_SETTLE_SECONDS
from tf_scheduler.model.effects import Accept, AcknowledgeOperation, ReconcileOperations, ReservationMade
from tf_scheduler.model.events import OperationUpdated, StopRequested, Tick
from tf_scheduler.model.placement import GangMode, GangSpec
from tf_scheduler.model.resources import OperationState, OperationStatus
from tf_scheduler.model.spec import JobKind

HOLD, TIMEOUT = 5.0, 300.0


@pytest.fixture
def world():
    """Three workers, each as large as an agent, and two agents."""
    job = a_job(JobKind.WORKER, 3, needs=needs(cpus=1.5))
    created = World(
        a_spec(jobs=(job,), gang=GangSpec(HOLD, GangMode.RESERVE, TIMEOUT)), *(_agent(name) for name in "ab")
    )
    created.register()
    return created


def _agent(name):
    return an_agent(name, cpus=2)


def reserve(world, *, hear=True):
    """Reserve the available slots; with `hear`, deliver the status of the operations."""
    while not world.state.stored.reservations:
        world.mesos.allocate(world.now)
        world.settle()
        world.now += 1.0
        world.step(Tick())
    if hear:
        world.settle()
    return list(world.state.stored.reservations.values())


def reserved(world):
    """Return all reservations, offered or not."""
    pools = [agent.free for agent in world.mesos.agents.values()] + [pool for _, pool in world.mesos.offers.values()]
    return [entry.shape for pool in pools for entry in pool.entries() if "reservations" in entry.shape]


def ids(world, name):
    """Return the ids of the `reserve` or `unreserve` operations that were sent."""
    return [operation.id for call in world.calls_of(Accept) for operation in getattr(call, name)]


def test_reservation_is_stored_then_acknowledged(world) -> None:
    """Each reservation is an operation of its own, with its id."""
    first, second = reserve(world)

    decisions = [
        decision for decision in world.decisions if any(isinstance(c, AcknowledgeOperation) for c in decision.calls)
    ]
    assert (
        [first.operation, second.operation]
        == ids(world, "reserve")
        == [f"{item.id}.reserve" for item in (first, second)]
    )
    assert [(ReservationMade(first),), (ReservationMade(second),)] == [decision.changes for decision in decisions]
    assert first.is_confirmed
    assert second.is_confirmed
    assert {} == world.mesos.operations


def test_repeated_operation_status_is_only_acknowledged(world) -> None:
    """The acknowledgement may be lost, or the scheduler before it sends one."""
    first, _ = reserve(world)
    again = OperationStatus(first.operation, OperationState.FINISHED, first.agent_id, uuid="uuid-9")
    world.mesos.operations[first.operation] = again

    decision = world.step(OperationUpdated(again))

    assert () == decision.changes
    assert (AcknowledgeOperation(first.operation, first.agent_id, "uuid-9"),) == decision.calls


def test_refused_reservation_is_dropped_with_reason(world) -> None:
    """The message is the master's, e.g. about an access list; the service backs off."""
    world.mesos.refusal = "not authorized"

    pass_time(world, HOLD + 1)

    assert {} == world.state.stored.reservations
    assert "cannot reserve resources on a: not authorized" == str(world.state.session.pending["worker-0"][0])
    assert "worker-0 is pending: cannot reserve resources on a: not authorized" in {
        outcome.message for outcome in world.outcomes if outcome.warning
    }
    assert 1 == world.state.process.offer_round.failures
    assert world.now < world.state.process.offer_round.back_off_until


@pytest.mark.parametrize("state", OperationState)
def test_only_final_operation_failure_drops_reservation(world, state) -> None:
    """An unreachable agent may have made it. If so, it is offered, and released."""
    first, _ = reserve(world)

    world.step(OperationUpdated(OperationStatus(first.operation, state)))

    lost = state.has_failed
    assert lost is (first.id not in world.state.stored.reservations)
    assert lost is (state.label in {"failed", "error", "dropped", "gone by operator", "unknown"})
    assert len(world.state.stored.reservations) == (1 if lost else 2)


def test_agent_without_operation_feedback_gets_no_ids(world) -> None:
    """The master refuses the id, not the reservation: without the id it succeeds."""
    for agent in world.mesos.agents.values():
        agent.mute = True

    pass_time(world, 3 * HOLD)

    assert ["", ""] == [item.operation for item in world.state.stored.reservations.values()]
    assert "agent a does not support operation feedback" in {outcome.message for outcome in world.outcomes}
    world.mesos.agents["c-id"] = _agent("c")
    world.decisions.clear()
    pass_time(world, HOLD + 3)
    assert len(world.state.stored.tasks) == 3
    assert ["", ""] == ids(world, "unreserve")


def test_pending_operation_is_reconciled_after_subscription(world) -> None:
    """With its agent. The operation is unknown to Mesos: reservations are released."""
    items = reserve(world, hear=False)
    world.mesos.operations.clear()

    world.restart()
    world.register()

    assert [ReconcileOperations({item.operation: item.agent_id for item in items})] == world.calls_of(
        ReconcileOperations
    )
    assert {} == world.state.stored.reservations
    world.mesos.allocate(world.now)
    world.settle()
    assert [] == reserved(world)


def test_operation_on_recovering_agent_is_reconciled_again(world) -> None:
    """The master says so, and it may take minutes."""
    items = reserve(world, hear=False)
    world.mesos.operations.clear()
    world.mesos.missing = {item.agent_id for item in items}
    world.restart()
    world.register()

    world.decisions.clear()
    world.wait(FEEDBACK_TIMEOUT + 1)

    assert 1 == len(world.calls_of(ReconcileOperations))
    assert 2 == len(world.state.stored.reservations)


def test_acknowledged_operation_is_not_reconciled(world) -> None:
    """After its acknowledgement Mesos does not know it any more."""
    reserve(world)

    world.restart()
    world.register()

    assert [] == world.calls_of(ReconcileOperations)
    assert 2 == len(world.state.stored.reservations)


def test_unreserved_reservation_is_forgotten_with_status(world) -> None:
    """Without the status it would be forgotten after a timeout."""
    items = reserve(world)

    world.step(StopRequested("enough"))
    world.mesos.allocate(world.now)
    world.settle()

    assert {f"{item.id}.unreserve" for item in items} == {key.rpartition(".")[0] for key in ids(world, "unreserve")}
    assert {} == world.state.stored.reservations
    assert {} == world.mesos.operations
    assert world.now < world.state.process.unreserved_at + UNRESERVE_SETTLE_SECONDS


def test_failed_unreserve_is_reported(world) -> None:
    """It is offered again, and released again."""
    first, _ = reserve(world)

    refused = OperationStatus(f"{first.id}.unreserve.offer-9", OperationState.ERROR, message="not authorized")
    decision = world.step(OperationUpdated(refused))

    (outcome,) = decision.outcomes
    assert ("cannot unreserve resources on a: not authorized", True) == (outcome.message, outcome.warning)
    assert first.id in world.state.stored.reservations
