"""Life cycle of the reservations of an incomplete gang (`gang.mode: reserve`).

RESERVE keeps the resources that a round has selected. When every task has reserved or free resources, one ACCEPT per
agent does UNRESERVE and LAUNCH, so nothing stays reserved while tasks run. At the deadline all reservations are
released, followed by a back-off.

Calls can be lost, and the scheduler can crash before it sends them. A reservation is forgotten only when its agent
offers without it, or shortly after UNRESERVE. Offered resources with the service's label but without a stored
reservation are unreserved immediately.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tf_scheduler.core.placement.agents import (
    FRAMEWORK_ID,
    NAMESPACE,
    RESOURCE_ID,
    Agent,
    consume,
    entry_use,
    merge_offers,
    shortages,
)
from tf_scheduler.core.placement.matching import Placement, allocate
from tf_scheduler.core.placement.search import ChosenAgent
from tf_scheduler.core.plans.scheduling import Gang
from tf_scheduler.core.state.reducer import decide
from tf_scheduler.model.effects import Accept, Change, Decision, Outcome, ReservationDropped, ReservationMade
from tf_scheduler.model.ids import OperationId, TaskName
from tf_scheduler.model.offer import Offer
from tf_scheduler.model.resources import Needs, Operation, Reservation, Resource
from tf_scheduler.model.spec import TaskSpec
from tf_scheduler.model.state import SchedulerState

#: Seconds after the deadline within which the agent must offer a reservation for its release.
UNRESERVE_TIMEOUT = 60.0
#: Seconds between the last UNRESERVE and TEARDOWN: the master processes calls separately.
UNRESERVE_SETTLE_SECONDS = 2.0


def active(state: SchedulerState, now: float) -> Mapping[TaskName, Reservation]:
    """Return the reservations in use, by task."""
    return {
        item.task: item
        for item in state.stored.reservations.values()
        if now < item.deadline and state.stored.result is None and item.id not in state.session.unreserved
    }


def unreserve_unneeded(
    state: SchedulerState, offers: Iterable[Offer], gangs: Iterable[Gang], now: float
) -> tuple[Accept, ...]:
    """UNRESERVE reservations that are expired, unknown, not needed, or too small."""
    name = state.spec.name
    labelled = [offer for offer in offers if any(entry_use(entry.shape).namespace == name for entry in offer.resources)]
    if not labelled:
        return ()
    wanted = {task.name: task for gang in gangs for task in gang.tasks}
    kept = {item.id: item for item in active(state, now).values() if item.task in wanted}
    calls = []
    for agent in merge_offers(labelled, name):
        serving = {
            key
            for key in agent.reserved.keys() & kept.keys()
            if use(wanted[kept[key].task], agent, kept[key], state.spec.executor.needs)
        }
        useless = tuple(
            _unreserve(state.stored.reservations.get(key), entries, agent)
            for key, entries in agent.reserved.items()
            if key not in serving
        )
        if useless:
            calls.append(Accept(agent.offer_ids, (), 0.0, unreserve=useless))
    return tuple(calls)


def reservation_ids(calls: Iterable[Accept]) -> frozenset[str]:
    """Return the ids of reservations that these calls release."""
    released_entries = (entry for call in calls for operation in call.unreserve for entry in operation.resources)
    return frozenset(entry_use(entry.shape).resource_id for entry in released_entries)


def released(state: SchedulerState, offers: Sequence[Offer], now: float) -> tuple[Change, ...]:
    """Drop unused reservations that agents do not offer: only this service gets them."""
    if not state.stored.reservations:
        return ()
    agents = {offer.agent_id for offer in offers}
    offered = {
        entry_use(entry.shape).resource_id
        for offer in (*offers, *state.session.offers.values())
        for entry in offer.resources
    }
    serving = {item.id for item in active(state, now).values()}
    return tuple(
        ReservationDropped(item.id)
        for item in state.stored.reservations.values()
        if item.agent_id in agents and item.id not in serving and item.id not in offered
    )


def settled(state: SchedulerState, now: float) -> tuple[Change, ...]:
    """Drop released reservations that were not offered since."""
    if now < settling_until(state):
        return ()
    return tuple(ReservationDropped(key) for key in state.stored.reservations if key in state.session.unreserved)


def unreachable(state: SchedulerState, now: float) -> tuple[Reservation, ...]:
    """Return reservations to release whose agents did not offer them in time."""
    return tuple(item for item in state.stored.reservations.values() if now >= unreachable_at(state, item))


def unreachable_at(state: SchedulerState, item: Reservation) -> float:
    """Return the Unix time at which a reservation that is not offered is given up."""
    ended = math.inf if state.stored.result is None else state.stored.result.decided_at
    return UNRESERVE_TIMEOUT + min(item.deadline, ended)


def settling_until(state: SchedulerState) -> float:
    """Return the Unix time from which the last UNRESERVE counts as done."""
    return state.process.unreserved_at + UNRESERVE_SETTLE_SECONDS


def use(task: TaskSpec, agent: Agent, reservation: Reservation, executor: Needs) -> Placement | None:
    """Return the placement on reserved resources; `None` if they are insufficient."""
    entries = agent.reserved[reservation.id]
    free = tuple(_without_reservation(entry) for entry in entries)
    for_executor, rest = consume(free, executor) if not shortages(free, executor) else ((), ())
    if shortages(rest, task.job.needs):
        return None
    for_task, _ = consume(rest, task.job.needs)
    why = "its resources are reserved there"
    unreserve = (_unreserve(reservation, entries, agent),)
    return Placement(task, agent, for_task, for_executor, why, unreserve, reservation.id)


def reserve(
    state: SchedulerState, part: Sequence[ChosenAgent], deadline: float, new_ids: Iterable[str]
) -> tuple[tuple[Accept, ...], tuple[Change, ...]]:
    """RESERVE the agents' resources, one ACCEPT per agent; store the changes first."""
    bare = {item.agent.id: _reservable(item.agent) for item in part}
    possible = [
        replace(item, agent=bare[item.agent.id]) for item in _reservable_choices(part, bare, state.spec.executor.needs)
    ]
    match = allocate([item.task for item in possible], possible, state.spec.executor.needs)
    accepts: dict[str, Accept] = {}
    changes: list[Change] = []
    for placement, unique in zip(match.placements, new_ids, strict=False):
        agent, job = placement.agent, placement.task.job
        operation = OperationId("" if agent.id in state.process.agents_without_feedback else f"{unique}.reserve")
        made = Reservation(unique, placement.task.name, job.group, agent.id, agent.location, deadline, operation)
        changes.append(ReservationMade(made))
        taken = (*placement.executor_resources, *placement.task_resources)
        entries = tuple(_with_reservation(state, entry, unique) for entry in taken)
        before = accepts.get(agent.id, Accept(agent.offer_ids, (), 0.0))
        accepts[agent.id] = replace(before, reserve=(*before.reserve, Operation(entries, operation)))
    return tuple(accepts.values()), tuple(changes)


def _unreserve(reservation: Reservation | None, entries: tuple[Resource, ...], agent: Agent) -> Operation:
    """Return an UNRESERVE, with an id only if the agent has confirmed RESERVE.

    A launch in the same call depends on UNRESERVE. An offer is answered once, which makes the id unique.
    """
    if reservation is None or not reservation.is_confirmed:
        return Operation(entries, OperationId(""))
    return Operation(entries, OperationId(f"{reservation.id}.unreserve.{agent.offer_ids[0]}"))


def _reservable_choices(part: Iterable[ChosenAgent], bare: Mapping[Any, Agent], executor: Needs) -> list[ChosenAgent]:
    """Return the choices that fit into unreserved resources, one after the other."""
    left = {key: agent.resources for key, agent in bare.items()}
    fit = []
    for item in part:
        resources, needs = left[item.agent.id], executor + item.task.job.needs
        if not shortages(resources, needs):
            _, left[item.agent.id] = consume(resources, needs)
            fit.append(item)
    return fit


def _reservable(agent: Agent) -> Agent:
    """Return the agent without reserved resources: they cannot be reserved twice."""
    return replace(agent, resources=tuple(entry for entry in agent.resources if not entry_use(entry.shape).reserved))


def _with_reservation(state: SchedulerState, entry: Resource, unique: str) -> Resource:
    """Return the entry reserved with SDK labels (Mesos documentation, reservation)."""
    spec = state.spec
    labels = {NAMESPACE: spec.name, FRAMEWORK_ID: state.stored.framework_id or "", RESOURCE_ID: unique}
    reservation = {
        "type": "DYNAMIC",
        "role": spec.role,
        **({"principal": spec.principal} if spec.principal else {}),
        "labels": {"labels": [{"key": key, "value": value} for key, value in labels.items()]},
    }
    shape = json.loads(entry.shape)
    shape["reservations"] = [*shape.get("reservations", ()), reservation]
    return replace(entry, shape=json.dumps(shape, sort_keys=True))


def _without_reservation(entry: Resource) -> Resource:
    """Return the entry after UNRESERVE: without the last reservation of the stack."""
    shape = json.loads(entry.shape)
    stack = shape.pop("reservations")[:-1]
    return replace(entry, shape=json.dumps({**shape, **({"reservations": stack} if stack else {})}, sort_keys=True))


# --- Lost reservations
#
# Frameworks in the same role and operators can remove a reservation, and Mesos sends no notification. An agent offers
# everything free: if its offers lack a reservation for a while, the reservation is forgotten and the task is placed
# again. A reservation that reappears is released by its label.


#: Additional seconds before a missing reservation counts as lost: another service may hold an offer with it.
LOST_GRACE_SECONDS = 5.0


def detect_lost(state: SchedulerState, offers: Sequence[Offer], now: float) -> SchedulerState:
    """Update which confirmed reservations these offers lack."""
    made = {item.id: item for item in active(state, now).values() if item.is_confirmed}
    if not made:
        return state.with_session(missing_reservations={}) if state.session.missing_reservations else state
    held = (*offers, *state.session.offers.values())
    offered = {entry_use(entry.shape).resource_id for offer in held for entry in offer.resources}
    agents = {offer.agent_id for offer in offers}
    absent = {key for key, item in made.items() if item.agent_id in agents} - offered
    since = {key: at for key, at in state.session.missing_reservations.items() if key in made.keys() - offered}
    return state.with_session(missing_reservations={**dict.fromkeys(absent, now), **since})


def expire_lost(state: SchedulerState, now: float) -> Decision:
    """Forget reservations missing for too long, and request offers for their tasks."""
    late = [key for key, at in state.session.missing_reservations.items() if now >= _lost_deadline(state, at)]
    if not late:
        return decide(state)
    gone = [item for item in active(state, now).values() if item.id in late]
    role = state.spec.role
    message = "reservation for {0} on {1} lost to an operator or to another framework in role {2}; rescheduling {0}"
    outcomes = (
        Outcome("ReservationLost", message.format(item.task, item.location.hostname, role), item.task, warning=True)
        for item in gone
    )
    left = {key: at for key, at in state.session.missing_reservations.items() if key not in late}
    requested = state.session.requested_tasks - {item.task for item in gone}
    after = state.with_session(missing_reservations=left, requested_tasks=requested)
    return decide(after, *(ReservationDropped(item.id) for item in gone), outcomes=tuple(outcomes))


def deadlines(state: SchedulerState) -> Iterator[float]:
    """Return the times of `expire_lost`."""
    return (_lost_deadline(state, at) for at in state.session.missing_reservations.values())


def _lost_deadline(state: SchedulerState, since: float) -> float:
    return since + state.spec.gang.hold_seconds + LOST_GRACE_SECONDS
