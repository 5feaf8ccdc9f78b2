"""Reservations of an incomplete gang (`gang.mode: reserve`): made, used, given back.

    RESERVE what a round found -> the reserved resources are offered to nobody else -> when every task of the gang has
    its own, or a free place, UNRESERVE and LAUNCH in one ACCEPT per agent -> nothing stays reserved while tasks run.
    At the deadline all is given back, and the service keeps away for a while, as after any round without success.

What becomes of these operations is told by Mesos: core/operations.py.

UNRESERVE may be lost, as any call, and so may the scheduler before it has sent it. So a reservation is forgotten only
when its agent offers without it, or when it was not offered again for a moment after UNRESERVE.

What carries our label and is not in the state was left by an earlier life: it is given back as soon as it is offered.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tf_scheduler.model.effects import Accept, Change, ReservationDropped, ReservationMade
from tf_scheduler.model.ids import OperationId, TaskName
from tf_scheduler.model.offer import Offer
from tf_scheduler.model.operation import Operation
from tf_scheduler.model.reservation import Reservation
from tf_scheduler.model.resources import Needs, Resource
from tf_scheduler.model.spec import TaskSpec
from tf_scheduler.model.state import SchedulerState

from .matching import Placement, placed
from .placement.agents import FRAMEWORK_ID, NAMESPACE, RESOURCE_ID, Agent, merge, nature_of
from .placement.search import Chosen
from .resources import consume, shortages

#: Seconds after the deadline for which a reservation is waited for, so that it can be given back.
GIVE_BACK_WITHIN = 60.0
#: Seconds after the last UNRESERVE before TEARDOWN may be sent: the master works on each call by itself.
SETTLE = 2.0


def live(state: SchedulerState, now: float) -> Mapping[TaskName, Reservation]:
    """Reservations that still serve, by task."""
    return {
        item.task: item
        for item in state.reservations.values()
        if now < item.deadline and state.result is None and item.id not in state.returned
    }


def give_back(
    state: SchedulerState, offers: Iterable[Offer], wanted: Mapping[TaskName, TaskSpec], now: float
) -> tuple[Accept, ...]:
    """UNRESERVE everything of ours that does not serve.

    That is what is past its deadline, unknown, of a task that needs no place, or too small for its task by now.
    """
    name = state.spec.name
    ours = [offer for offer in offers if any(nature_of(entry.shape).namespace == name for entry in offer.resources)]
    kept = {item.id: item for item in live(state, now).values() if item.task in wanted}
    calls = []
    for agent in merge(ours, name):
        serving = {
            key
            for key in agent.reserved.keys() & kept.keys()
            if use(wanted[kept[key].task], agent, kept[key], state.spec.executor.needs)
        }
        useless = tuple(
            _unreserve(state.reservations.get(key), entries, agent)
            for key, entries in agent.reserved.items()
            if key not in serving
        )
        if useless:
            calls.append(Accept(agent.offer_ids, (), 0.0, unreserve=useless))
    return tuple(calls)


def named(calls: Iterable[Accept]) -> frozenset[str]:
    """Ids of what those calls give back."""
    given_back = (entry for call in calls for operation in call.unreserve for entry in operation.resources)
    return frozenset(nature_of(entry.shape).resource_id for entry in given_back)


def gone(state: SchedulerState, offers: Sequence[Offer], now: float) -> tuple[Change, ...]:
    """Drop what does not serve any more and whose agent offers without it: only we could use it."""
    agents = {offer.agent_id for offer in offers}
    shown = {
        nature_of(entry.shape).resource_id
        for offer in (*offers, *(held.offer for held in state.offers.values()))
        for entry in offer.resources
    }
    serving = {item.id for item in live(state, now).values()}
    return tuple(
        ReservationDropped(item.id)
        for item in state.reservations.values()
        if item.agent_id in agents and item.id not in serving and item.id not in shown
    )


def settled(state: SchedulerState, now: float) -> tuple[Change, ...]:
    """Drop what was given back and has not been offered since."""
    if now < state.given_back_at + SETTLE:
        return ()
    return tuple(ReservationDropped(key) for key in state.reservations if key in state.returned)


def lost(state: SchedulerState, now: float) -> tuple[Reservation, ...]:
    """Reservations that were to be given back, and whose agents were not heard of in time."""
    return tuple(item for item in state.reservations.values() if now >= lost_at(state, item))


def lost_at(state: SchedulerState, item: Reservation) -> float:
    """When it is given up, if its agent is not heard of; seconds since the epoch."""
    ended = math.inf if state.result is None else state.result.decided_at
    return GIVE_BACK_WITHIN + min(item.deadline, ended)


def settling_until(state: SchedulerState) -> float:
    """From when on it is clear that what was given back is not reserved any more."""
    return state.given_back_at + SETTLE


def use(task: TaskSpec, agent: Agent, reservation: Reservation, executor: Needs) -> Placement | None:
    """The task on what was reserved for it; None when that does not hold it (any more)."""
    entries = agent.reserved[reservation.id]
    free = tuple(_without_ours(entry) for entry in entries)
    for_executor, rest = consume(free, executor) if not shortages(free, executor) else ((), ())
    if not for_executor or shortages(rest, task.job.needs):
        return None
    for_task, _ = consume(rest, task.job.needs)
    why = "it was reserved for it"
    unreserve = (_unreserve(reservation, entries, agent),)
    return Placement(task, agent, for_task, for_executor, why, unreserve, reservation.id)


def reserve(
    state: SchedulerState, part: Sequence[Chosen], deadline: float, new_ids: Iterable[str]
) -> tuple[tuple[Accept, ...], tuple[Change, ...]]:
    """RESERVE the places that a round found, one ACCEPT per agent; the changes are stored before."""
    bare = {item.agent.id: _reservable(item.agent) for item in part}
    possible = [replace(item, agent=bare[item.agent.id]) for item in _that_fit(part, bare, state.spec.executor.needs)]
    match = placed([item.task for item in possible], possible, state.spec.executor.needs)
    accepts: dict[str, Accept] = {}
    changes: list[Change] = []
    for placement, unique in zip(match.placements, new_ids, strict=False):
        agent, job = placement.agent, placement.task.job
        operation = OperationId("" if agent.id in state.mute else f"{unique}.reserve")
        made = Reservation(unique, placement.task.name, job.group, agent.id, agent.place, deadline, operation)
        changes.append(ReservationMade(made))
        taken = (*placement.executor_resources, *placement.task_resources)
        entries = tuple(_with_ours(state, entry, unique) for entry in taken)
        before = accepts.get(agent.id, Accept(agent.offer_ids, (), 0.0))
        accepts[agent.id] = replace(before, reserve=(*before.reserve, Operation(entries, operation)))
    return tuple(accepts.values()), tuple(changes)


def _unreserve(known: Reservation | None, entries: tuple[Resource, ...], agent: Agent) -> Operation:
    """With an id only where the agent has told of RESERVE: a launch in the same call depends on it.

    An offer is answered once, so that its id makes ours unique.
    """
    unique = f"{known.id}.unreserve.{agent.offer_ids[0]}" if known is not None and known.made else ""
    return Operation(entries, OperationId(unique))


def _that_fit(part: Iterable[Chosen], bare: Mapping[Any, Agent], executor: Needs) -> list[Chosen]:
    """Those whose agents hold them with what can be reserved; each looks at what the ones before left."""
    left = {key: agent.resources for key, agent in bare.items()}
    fit = []
    for item in part:
        resources = left[item.agent.id]
        if shortages(resources, executor):
            continue
        _, rest = consume(resources, executor)
        if shortages(rest, item.task.job.needs):
            continue
        _, left[item.agent.id] = consume(rest, item.task.job.needs)
        fit.append(item)
    return fit


def _reservable(agent: Agent) -> Agent:
    """Without what is reserved for our role already: nobody else gets that, and it cannot be reserved twice."""
    return replace(agent, resources=tuple(entry for entry in agent.resources if not nature_of(entry.shape).reserved))


def _with_ours(state: SchedulerState, entry: Resource, unique: str) -> Resource:
    """As a dynamic reservation (Mesos documentation, reservation), with the SDK's labels."""
    spec = state.spec
    labels = {NAMESPACE: spec.name, FRAMEWORK_ID: state.framework_id or "", RESOURCE_ID: unique}
    reservation = {
        "type": "DYNAMIC",
        "role": spec.role,
        **({"principal": spec.principal} if spec.principal else {}),
        "labels": {"labels": [{"key": key, "value": value} for key, value in labels.items()]},
    }
    shape = json.loads(entry.shape)
    shape["reservations"] = [*shape.get("reservations", ()), reservation]
    return replace(entry, shape=json.dumps(shape, sort_keys=True))


def _without_ours(entry: Resource) -> Resource:
    """As it is after UNRESERVE: the last reservation of the stack is gone."""
    shape = json.loads(entry.shape)
    stack = shape.pop("reservations")[:-1]
    return replace(entry, shape=json.dumps({**shape, **({"reservations": stack} if stack else {})}, sort_keys=True))
