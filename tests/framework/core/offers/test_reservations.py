"""`gang.mode: reserve`: offers are reserved until the gang is complete."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from builders import a_job, a_spec, an_offer, needs, ports, scalar, with_fields
from kit.worlds import pass_time
from simulation.mesos import Agent, an_agent, traded_in
from simulation.pool import Pool
from simulation.world import World
from tf_scheduler.core.offers.reservations import (
    LOST_GRACE_SECONDS,
    UNRESERVE_SETTLE_SECONDS,
    UNRESERVE_TIMEOUT,
    active,
    expire_lost,
    reserve,
    settled,
    use,
)
from tf_scheduler.core.placement.agents import merge_offers
from tf_scheduler.core.placement.search import ChosenAgent
from tf_scheduler.model.effects import Accept, ReservationDropped, ReservationMade, Teardown
from tf_scheduler.model.events import StopRequested
from tf_scheduler.model.ids import AgentId
from tf_scheduler.model.placement import AgentLocation, GangMode, GangSpec
from tf_scheduler.model.resources import Operation, Reservation
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import Result, SchedulerState, Verdict

HOLD, TIMEOUT = 5.0, 60.0


def a_world(*agents, workers=3, principal=""):
    """Each worker takes a whole agent of two cpus."""
    spec = a_spec(
        jobs=(a_job(JobKind.WORKER, workers, needs=needs(cpus=1.5)),),
        gang=GangSpec(HOLD, GangMode.RESERVE, TIMEOUT),
        principal=principal,
    )
    world = World(spec, *(an_agent(name, cpus=2) for name in agents))
    world.register()
    return world


def join(world, name) -> None:
    agent = an_agent(name, cpus=2)
    world.mesos.agents[agent.id] = agent


def reserved(world):
    """Return the free reservations by host name, with their labels."""
    by_host = {}
    for agent in world.mesos.agents.values():
        for entry in agent.free.entries():
            for reservation in json.loads(entry.shape).get("reservations", ()):
                labels = {item["key"]: item["value"] for item in reservation["labels"]["labels"]}
                by_host[agent.hostname] = (reservation["role"], reservation.get("principal"), labels["namespace"])
    return by_host


def operations(world, name):
    """Return the `reserve` or `unreserve` operations that were sent."""
    return [operation for call in world.calls_of(Accept) for operation in getattr(call, name)]


def entries(world, name):
    return [entry for operation in operations(world, name) for entry in operation.resources]


def changes(world, kind):
    return [change for decision in world.decisions for change in decision.changes if isinstance(change, kind)]


def test_reservation_is_stored_before_it_is_made() -> None:
    """For the service's role and by its principal; nothing is launched."""
    world = a_world("a", "b", principal="digits-principal")

    pass_time(world, HOLD + 1)
    world.disconnect()

    assert dict.fromkeys("ab", ("digits-role", "digits-principal", "digits")) == reserved(world)
    reservations = [item for change in changes(world, ReservationMade) if not (item := change.reservation).is_confirmed]
    assert ["worker-0", "worker-1"] == [item.task for item in reservations]
    assert {f"reservations/{item.id}" for item in reservations} == {
        key for key in world.stored() if key.startswith("reservations/")
    }


def test_reserved_gang_launches_when_complete() -> None:
    """In one ACCEPT per agent, which unreserves and launches: nothing stays reserved."""
    world = a_world("a", "b")
    pass_time(world, 20)

    join(world, "c")
    world.decisions.clear()
    pass_time(world, HOLD + 3)

    assert {"worker-0": "a", "worker-1": "b", "worker-2": "c"} == {
        record.name: record.hostname for record in world.state.stored.tasks.values()
    }
    accepts = [call for call in world.calls_of(Accept) if call.launches]
    assert {"a-id": True, "b-id": True, "c-id": False} == {
        call.launches[0].record.agent_id: bool(call.unreserve) for call in accepts
    }
    assert 2 == len(changes(world, ReservationDropped))
    assert all(
        "reservations" not in entry.shape for record in world.state.stored.tasks.values() for entry in record.resources
    )
    assert {} == reserved(world) == dict(world.state.stored.reservations)


def test_pending_task_reports_its_reservation() -> None:
    """And the others list their shortages."""
    world = a_world("a", "b")

    pass_time(world, HOLD + 3)

    reasons_by_task = {name: str(reasons[0]) for name, reasons in world.state.session.pending.items()}
    assert reasons_by_task["worker-0"] == "has resources reserved on a, waits for the rest of its gang"
    assert reasons_by_task["worker-2"].startswith("agent a: needs cpus 1.6, has 0.4")


def test_reservations_are_released_at_deadline() -> None:
    """And the service backs off for a while, so that another can run."""
    world = a_world("a", "b")
    pass_time(world, HOLD + 1)
    assert len(world.state.stored.reservations) == 2

    pass_time(world, TIMEOUT + UNRESERVE_SETTLE_SECONDS)

    assert {} == reserved(world) == dict(world.state.stored.reservations)
    assert any("gang incomplete at the deadline" in outcome.message for outcome in world.outcomes)
    assert world.now < world.state.process.offer_round.back_off_until


def test_restarted_scheduler_uses_its_reservations() -> None:
    """The deadline is stored, too."""
    world = a_world("a", "b")
    pass_time(world, HOLD + 3)
    before = dict(world.state.stored.reservations)

    world.restart()
    world.register()
    join(world, "c")
    pass_time(world, HOLD + 3)

    assert before
    assert ["a", "b", "c"] == sorted(record.hostname for record in world.state.stored.tasks.values())
    assert {} == dict(world.state.stored.reservations)


def test_restart_after_deadline_releases_reservations() -> None:
    """Reservations outlive the scheduler, but not for long."""
    world = a_world("a", "b")
    pass_time(world, HOLD + 3)

    world.restart()
    world.now += TIMEOUT
    world.register()
    world.mesos.allocate(world.now)
    world.settle()
    assert len([call for call in world.calls_of(Accept) if call.unreserve]) == 2
    world.wait(UNRESERVE_SETTLE_SECONDS)

    assert {} == dict(world.state.stored.reservations)


def test_reservation_is_stored_until_unreserve_is_confirmed() -> None:
    """UNRESERVE may be lost with the scheduler: the next one releases the reservation."""
    world = a_world("a", "b")
    pass_time(world, HOLD + 3)

    world.step(StopRequested("enough"))

    assert 2 == len([call for call in world.calls_of(Accept) if call.unreserve])
    assert 2 == len(world.state.stored.reservations)
    world.mesos.allocate(world.now)
    world.settle()
    assert {} == dict(world.state.stored.reservations), "their agents offer without them"


def test_unknown_reservation_of_service_is_released() -> None:
    """The state was lost: a reservation with the service's label, without a record."""
    world = a_world("a", "b")
    pass_time(world, HOLD + 3)
    agents = list(world.mesos.agents.values())
    world.disconnect()

    other = World(world.state.spec, *agents)
    other.register()
    other.mesos.allocate(other.now)
    other.settle()

    assert {} == reserved(other)
    assert len([call for call in other.calls_of(Accept) if call.unreserve]) == 2


def test_uninstall_unreserves_before_teardown() -> None:
    """UNRESERVE, a pause, then TEARDOWN: a removed framework cannot unreserve."""
    world = a_world("a", "b")
    pass_time(world, HOLD + 3)

    world.decisions.clear()
    world.step(StopRequested("enough"))
    world.settle()
    pass_time(world, UNRESERVE_SETTLE_SECONDS + 3)

    kinds = [
        "unreserve" if isinstance(call, Accept) else "teardown"
        for call in world.calls
        if isinstance(call, Accept | Teardown)
    ]
    assert ["unreserve", "unreserve", "teardown"] == kinds
    assert {} == reserved(world)
    assert world.state.process.finished


@pytest.mark.parametrize("stops", [True, False])
def test_reservation_on_lost_agent_does_not_block_uninstall(stops: bool) -> None:
    """After a timeout the operator gets a list of reservations that may be left."""
    world = a_world("a", "b")
    pass_time(world, HOLD + 1)
    world.mesos.lose("a")
    world.settle()
    if stops:
        world.step(StopRequested("enough"))

    pass_time(world, (0 if stops else TIMEOUT) + UNRESERVE_TIMEOUT + 5)

    assert any("agent a unreachable" in outcome.message for outcome in world.outcomes)
    assert all(item.location.hostname != "a" for item in world.state.stored.reservations.values())
    assert stops is world.state.process.finished


def test_gang_that_fits_immediately_is_not_reserved() -> None:
    """Reservations are for gangs that do not fit."""
    world = a_world("a", "b", "c")

    pass_time(world, 2)

    assert [] == changes(world, ReservationMade)
    assert len(world.state.stored.tasks) == 3


def between_rounds(world, name):
    """Return the agent and its reservations while the scheduler holds no offer of it."""
    while name not in reserved(world):
        world.mesos.allocate(world.now)
        world.settle()
        world.wait(0.5)
    agent = next(agent for agent in world.mesos.agents.values() if agent.hostname == name)
    return agent, [entry for entry in agent.free.entries() if "reservations" in entry.shape]


def take_away(world, name, keep=0) -> None:
    """Let another process unreserve the reservation and use `keep` millicpus of it."""
    agent, ours = between_rounds(world, name)
    agent.free = traded_in(Operation(tuple(ours)), agent.free, reserve=False)
    (cpus,) = [entry for entry in agent.free.entries() if entry.name == "cpus"]
    agent.free -= Pool.of([replace(cpus, value=keep)])


def test_reservation_lost_to_another_framework_is_remade() -> None:
    """For a pending gang task the loss is reported; other reservations keep deadlines."""
    world = a_world("a", "b")
    pass_time(world, HOLD + 3)
    before = {item.location.hostname: item for item in world.state.stored.reservations.values()}

    take_away(world, "a")
    pass_time(world, 2 * (HOLD + LOST_GRACE_SECONDS))

    after = {item.location.hostname: item for item in world.state.stored.reservations.values()}
    assert after.keys() == before.keys() == {"a", "b"}
    assert before["b"] == after["b"]
    assert (True, False) == (after["a"].is_confirmed, before["a"].id == after["a"].id)
    assert before["a"].deadline == after["a"].deadline
    (lost,) = [entry for entry in world.outcomes if "lost to an operator" in entry.message]
    assert ("worker-0", True) == (lost.task, lost.warning)
    assert lost.message.startswith("reservation for worker-0 on a lost to an operator or to another framework in")


def test_lost_reservation_is_remade_on_another_agent() -> None:
    """And the gang starts when it is complete."""
    world = a_world("a", "b")
    pass_time(world, HOLD + 3)

    take_away(world, "a", keep=1600)
    pass_time(world, 3 * (HOLD + LOST_GRACE_SECONDS))
    for name in "cd":
        join(world, name)
    pass_time(world, 2 * (HOLD + 3))

    placed = {record.name: record.hostname for record in world.state.stored.tasks.values()}
    assert ("b", {"b", "c", "d"}, 3) == (placed["worker-1"], set(placed.values()), len(placed))


def test_reservation_offered_to_another_service_is_kept() -> None:
    """Another service in the role gets it offered, too."""
    world = a_world("a", "b")
    pass_time(world, HOLD + 3)
    before = dict(world.state.stored.reservations)

    agent, entries = between_rounds(world, "a")
    agent.free -= Pool.of(entries)
    pass_time(world, HOLD)
    agent.free += Pool.of(entries)
    pass_time(world, 3 * HOLD)

    assert before == world.state.stored.reservations
    assert {} == world.state.session.missing_reservations


def test_reservation_too_small_for_its_task_is_released() -> None:
    """The options grew while the scheduler was down; the next reservation suffices."""
    world = a_world("a", "b")
    pass_time(world, HOLD + 3)
    larger = a_job(JobKind.WORKER, 3, needs=needs(cpus=1.8))

    world.restart(replace(world.state.spec, jobs=(larger,)))
    world.register()
    world.decisions.clear()
    pass_time(world, HOLD + 3)

    assert 2 == len([call for call in world.calls_of(Accept) if call.unreserve])
    reserved_now = [entry for entry in entries(world, "reserve") if entry.name == "cpus"]
    assert [100, 1800, 100, 1800] == [entry.value for entry in reserved_now]


def test_reserved_resources_are_offered_again_immediately() -> None:
    """The agents' other resources are not refused: the gang may need them."""
    world = a_world("a", "b")

    pass_time(world, HOLD + 1)
    pass_time(world, TIMEOUT)

    accepts = world.calls_of(Accept)
    assert [True, True, False, False] == [bool(call.reserve) for call in accepts]
    assert {0.0} == {call.refuse_seconds for call in accepts}


def test_static_reservation_is_not_reserved_again() -> None:
    """An operator's static reservation: no other role gets it, and Mesos would refuse."""
    static = json.dumps({"reservations": [{"type": "STATIC", "role": "digits-role"}]})
    world = a_world("a", workers=4)
    entries = (scalar("cpus", 3.3, static), scalar("mem", 8192, static), ports((31000, 31009), shape=static))
    world.mesos.agents["b-id"] = Agent("b", Pool.of(entries), "b")

    pass_time(world, HOLD + 1)

    assert {"a"} == {change.reservation.location.hostname for change in changes(world, ReservationMade)}


@pytest.mark.parametrize(
    ("changed", "now", "expected"),
    [
        ({}, 99.0, ["ps-0"]),
        ({}, 100.0, []),
        ({"unreserved": frozenset({"r"})}, 99.0, []),
        ({"result": Result(Verdict.FAILED, "enough", 98.0)}, 99.0, []),
    ],
)
def test_reservation_is_active_until_released_or_expired(changed, now: float, expected) -> None:
    """Nothing is placed on one that is being released."""
    made = Reservation("r", "ps-0", "ps", AgentId("a-id"), AgentLocation("a"), 100.0)
    state = with_fields(SchedulerState(a_spec()), reservations={"r": made}, **changed)

    assert expected == list(active(state, now))


def a_reservation(name: str) -> Reservation:
    return Reservation(name, "ps-0", "ps", AgentId("agent-1-id"), AgentLocation("agent-1"), 100.0, is_confirmed=True)


def test_only_reservations_missing_for_long_enough_are_lost() -> None:
    missing = {"first": 10.0, "second": 10.5}
    made = {name: replace(a_reservation(name), task=name) for name in missing}
    state = with_fields(SchedulerState(a_spec()), reservations=made, missing_reservations=missing)
    due = 10.0 + state.spec.gang.hold_seconds + LOST_GRACE_SECONDS

    early, late = expire_lost(state, due - 0.1), expire_lost(state, due)

    assert ((), (ReservationDropped("first"),)) == (early.changes, late.changes)
    assert {"second": 10.5} == late.state.session.missing_reservations


def test_unreserve_settles_after_its_seconds() -> None:
    """The scheduler is called at this time, and must not call itself again for it."""
    made = {name: a_reservation(name) for name in ("kept", "released")}
    state = with_fields(
        SchedulerState(a_spec()), reservations=made, unreserved=frozenset({"released"}), unreserved_at=50.0
    )
    due = 50.0 + UNRESERVE_SETTLE_SECONDS

    assert ((), (ReservationDropped("released"),)) == (settled(state, due - 0.1), settled(state, due))


def test_shapes_are_canonical_with_and_without_reservation() -> None:
    """Only entries of equal shape are interchangeable."""
    state = SchedulerState(a_spec())
    task = next(state.spec.tasks())
    free = json.dumps({"allocation_info": {"role": "digits-role"}, "shared": {}}, sort_keys=True)
    static = {"role": "digits-role", "type": "STATIC"}
    (agent,) = merge_offers([an_offer(shape=free)])

    ((accept,), _) = reserve(state, [ChosenAgent(task, agent, "")], 100.0, ["r"])
    made = [entry for operation in accept.reserve for entry in operation.resources]
    stacked = tuple(replace(entry, shape=_below(entry.shape, static)) for entry in made)
    placement = use(task, replace(agent, reserved={"r": stacked}), a_reservation("r"), state.spec.executor.needs)

    assert {_sorted(entry.shape) for entry in made} == {entry.shape for entry in made}
    assert {_sorted(_below(free, static))} == {entry.shape for entry in placement.task_resources}


def _sorted(shape: str) -> str:
    return json.dumps(json.loads(shape), sort_keys=True)


def _below(shape: str, reservation: dict[str, str]) -> str:
    """Return the shape with this reservation under the others."""
    fields = json.loads(shape)
    return json.dumps({**fields, "reservations": [reservation, *fields.get("reservations", ())]}, sort_keys=True)
