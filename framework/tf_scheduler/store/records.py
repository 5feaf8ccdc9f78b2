"""Stored changes <-> keys and JSON bytes, each with a schema version.

framework                  the framework id
tasks/<task name>          TaskRecord: the fact that we launched it
statuses/<task id>         TaskStatus: what Mesos said last
retired/<task id>          the plan that told this launch to end
recoveries/<task name>     Recovery: the launch that is to be replaced, or was
size                       how many workers a cluster does with, while that is fewer than the options want
agents/<agent id>          Suspect: what is held against an agent
given/<task id>            which nonce has used the token of this launch
paused/<task name>         since when an operator has it paused
plans/<plan>               PlanControl: what operators did to it
result                     how the service ended
configurations/<id>        Configuration: options that were, or are, the target
reservations/<id>          Reservation: what a task of an incomplete gang keeps of an agent
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from tf_scheduler.model.configuration import Configuration
from tf_scheduler.model.effects import (
    AgentSuspected,
    Change,
    ConfigurationForgotten,
    ConfigurationStored,
    FrameworkForgotten,
    FrameworkRegistered,
    LaunchRetired,
    PlanControlled,
    RecoveryDecided,
    ReservationDropped,
    ReservationMade,
    Resized,
    ResultDecided,
    SecretsGiven,
    StatusStored,
    TaskForgotten,
    TaskLaunched,
    TaskPaused,
    TaskResumed,
)
from tf_scheduler.model.failure import Cause
from tf_scheduler.model.ids import FrameworkId, TaskId, TaskName
from tf_scheduler.model.placement import Place
from tf_scheduler.model.plan import Node, PlanControl
from tf_scheduler.model.recovery import Recovery, Suspect
from tf_scheduler.model.reservation import Reservation
from tf_scheduler.model.resources import Resource
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import Result, SchedulerState, Verdict
from tf_scheduler.model.task import TaskRecord, TaskState, TaskStatus

from .interface import Delete, Put, StoreCorrupt, StoreVersionError, Write

#: Of every stored value. A newer one than ours is refused: an old scheduler must not guess.
SCHEMA = 1
#: Step n takes the fields of a value of schema n + 1 to those of schema n + 2; the first part of the key says which
#: kind it is. Never change a released step. A value is stored in the new schema when it is written next.
UPGRADES: tuple[Callable[[str, dict[str, Any]], dict[str, Any]], ...] = ()

FRAMEWORK, TASKS, STATUSES, RESULT = "framework", "tasks", "statuses", "result"
RESERVATIONS, GIVEN = "reservations", "given"
RETIRED, PLANS, RECOVERIES = "retired", "plans", "recoveries"
AGENTS, PAUSED, SIZE = "agents", "paused", "size"
CONFIGURATIONS = "configurations"


def writes(change: Change, before: SchedulerState) -> tuple[Write, ...]:
    """What one change writes. `before` is the state that it applies to."""
    match change:
        case FrameworkRegistered():
            return (_put(FRAMEWORK, {"id": change.framework_id, "removed": change.removed}),)
        case FrameworkForgotten():
            return tuple(map(Delete, _of_framework(before)))
        case TaskLaunched():
            return (_put(f"{TASKS}/{change.record.name}", asdict(change.record)), *_forget(change.record.name, before))
        case TaskForgotten():
            paused = (Delete(f"{PAUSED}/{change.name}"),) if change.name in before.paused else ()
            return (Delete(f"{TASKS}/{change.name}"), *_forget(change.name, before), *paused)
        case Resized():
            return (_put(SIZE, asdict(change)),)
        case AgentSuspected():
            return (_put(f"{AGENTS}/{change.suspect.agent_id}", asdict(change.suspect)),)
        case SecretsGiven():
            return (_put(f"{GIVEN}/{change.task_id}", asdict(change)),)
        case TaskPaused():
            return (_put(f"{PAUSED}/{change.name}", asdict(change)),)
        case TaskResumed():
            return (Delete(f"{PAUSED}/{change.name}"),)
        case LaunchRetired():
            return (_put(f"{RETIRED}/{change.task_id}", {"id": change.task_id, "plan": change.plan}),)
        case RecoveryDecided():
            return (_put(f"{RECOVERIES}/{change.recovery.task}", asdict(change.recovery)),)
        case PlanControlled():
            return (_put(f"{PLANS}/{change.plan}", {"plan": change.plan, **_control_fields(change.control)}),)
        case StatusStored():
            return (_put(f"{STATUSES}/{change.status.id}", asdict(change.status)),)
        case ResultDecided():
            return (_put(RESULT, asdict(change.result)),)
        case ReservationMade():
            return (_put(f"{RESERVATIONS}/{change.reservation.id}", asdict(change.reservation)),)
        case ReservationDropped():
            return (Delete(f"{RESERVATIONS}/{change.id}"),)
        case ConfigurationStored():
            return (_put(f"{CONFIGURATIONS}/{change.configuration.id}", asdict(change.configuration)),)
        case ConfigurationForgotten():
            return (Delete(f"{CONFIGURATIONS}/{change.id}"),)
    raise TypeError(change)


def changes(stored: Mapping[str, bytes]) -> tuple[Change, ...]:
    """The changes that rebuild the stored state, records before statuses. Raise StoreCorrupt naming the key."""
    found: list[Change] = []
    for prefix, decoder in _DECODERS.items():
        for key in sorted(stored):
            if key == prefix or key.startswith(f"{prefix}/"):
                found.append(_decoded(key, stored[key], decoder))
    return tuple(found)


def _forget(name: TaskName, before: SchedulerState) -> tuple[Write, ...]:
    """What is stored of the last launch of a task, beside its record."""
    record = before.tasks.get(name)
    if record is None:
        return ()
    given = (Delete(f"{GIVEN}/{record.id}"),) if record.id in before.given else ()
    return (Delete(f"{STATUSES}/{record.id}"), Delete(f"{RETIRED}/{record.id}"), *given)


def _of_framework(before: SchedulerState) -> tuple[str, ...]:
    """Keys of everything that is void without the framework."""
    return (
        FRAMEWORK,
        RESULT,
        *(f"{TASKS}/{name}" for name in before.tasks),
        *(f"{STATUSES}/{launch}" for launch in before.statuses),
        *(f"{RETIRED}/{launch}" for launch in before.retired),
        *(f"{RECOVERIES}/{name}" for name in before.recoveries),
        *(f"{GIVEN}/{launch}" for launch in before.given),
        *(f"{RESERVATIONS}/{key}" for key in before.reservations),
    )


def _put(key: str, value: Mapping[str, Any]) -> Put:
    return Put(key, json.dumps({"schema": SCHEMA, **value}, sort_keys=True).encode())


def _decoded(key: str, data: bytes, decoder: Callable[[dict[str, Any]], Change]) -> Change:
    try:
        fields: dict[str, Any] = json.loads(data)
        schema = fields.pop("schema")
        if schema > SCHEMA:
            raise StoreVersionError(
                f"stored value {key!r} was written by a newer version of this program (schema {schema}, known here: up "
                f"to {SCHEMA}): run that version"
            )
        if schema < 1:
            raise ValueError(f"it has schema version {schema}")
        for upgrade in UPGRADES[schema - 1 :]:
            fields = upgrade(key.partition("/")[0], fields)
        return decoder(fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreCorrupt(f"stored value {key!r} cannot be read: {error}") from error


def _record(fields: dict[str, Any]) -> Change:
    resources = tuple(Resource(item["name"], _value(item["value"]), item["shape"]) for item in fields["resources"])
    typed = {"job": JobKind(fields["job"]), "resources": resources, "place": Place(**fields["place"])}
    return TaskLaunched(TaskRecord(**{**fields, **typed}))


def _value(value: Any) -> int | tuple[tuple[int, int], ...]:
    return value if isinstance(value, int) else tuple((begin, end) for begin, end in value)


def _status(fields: dict[str, Any]) -> Change:
    typed = {"state": TaskState(fields["state"]), "addresses": tuple(fields.get("addresses", ()))}
    return StatusStored(TaskStatus(**{**fields, **typed}))


def _retired(fields: dict[str, Any]) -> Change:
    return LaunchRetired(TaskId(fields["id"]), fields["plan"])


def _recovery(fields: dict[str, Any]) -> Change:
    typed = {"cause": Cause(fields["cause"]), "failures": tuple(fields["failures"])}
    typed["shuns"] = tuple(fields.get("shuns", ()))
    return RecoveryDecided(Recovery(**{**fields, **typed}))


def _control_fields(control: PlanControl) -> dict[str, Any]:
    """Nodes become lists: JSON has no tuples as keys."""
    return {
        **{name: sorted(map(list, getattr(control, name))) for name in _NODE_SETS},
        "parameters": dict(control.parameters),
        "restarted": [[list(node), number] for node, number in sorted(control.restarted.items())],
        "target": control.target,
        "completed": control.completed,
    }


def _control(fields: dict[str, Any]) -> Change:
    plan = fields.pop("plan")
    nodes = {name: frozenset(map(_node, fields[name])) for name in _NODE_SETS}
    restarted = {_node(node): number for node, number in fields["restarted"]}
    return PlanControlled(plan, PlanControl(**{**fields, **nodes, "restarted": restarted}))


def _node(parts: list[str]) -> Node:
    return tuple(parts)


_NODE_SETS = ("interrupted", "forced", "released")


def _result(fields: dict[str, Any]) -> Change:
    typed = {"verdict": Verdict(fields["verdict"]), "collateral": tuple(fields.get("collateral", ()))}
    return ResultDecided(Result(**{**fields, **typed}))


_DECODERS: Mapping[str, Callable[[dict[str, Any]], Change]] = {
    FRAMEWORK: lambda fields: FrameworkRegistered(FrameworkId(fields["id"]), fields.get("removed", False)),
    TASKS: _record,
    STATUSES: _status,
    RETIRED: _retired,
    PLANS: _control,
    RECOVERIES: _recovery,
    SIZE: lambda fields: Resized(fields["count"], fields["at"]),
    AGENTS: lambda fields: AgentSuspected(Suspect(**{**fields, "failures": tuple(fields["failures"])})),
    GIVEN: lambda fields: SecretsGiven(TaskId(fields["task_id"]), fields["nonce"]),
    PAUSED: lambda fields: TaskPaused(TaskName(fields["name"]), fields["since"]),
    RESULT: _result,
    CONFIGURATIONS: lambda fields: ConfigurationStored(Configuration(**fields)),
    RESERVATIONS: lambda fields: ReservationMade(Reservation(**{**fields, "place": Place(**fields["place"])})),
}
