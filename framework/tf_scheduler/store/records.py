"""Encode state changes as keys with versioned JSON; decode the stored state.

framework                  framework id
tasks/<task name>          TaskRecord: the task's last launch
statuses/<task id>         TaskStatus: the last status from Mesos
retired/<task id>          plan that stops this launch
abandoned/<task id>        AbandonedLaunch: a launch that was given up, and may still run
recoveries/<task name>     Recovery: the launch to replace, or already replaced
size                       number of workers, while an elastic cluster runs with fewer than configured
members                    Members: workers that the running chief is to use
agents/<agent id>          failures counted against an agent
redeemed/<task id>         nonce that redeemed the secret token of this launch
exposed/<agent id>         SecretExposure: secrets that another process may have taken on an agent
paused/<task name>         time at which an operator paused the task
plans/<plan>               PlanControl: operator commands to the plan
result                     result of the service
configurations/<id>        Configuration: current and earlier target options
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from tf_executor.contract.reports import TaskEnd
from tf_executor.contract.states import TaskState, Verdict
from tf_scheduler import __version__
from tf_scheduler.model import effects
from tf_scheduler.model.ids import FrameworkId, TaskId, TaskName
from tf_scheduler.model.placement import AgentLocation
from tf_scheduler.model.plan import PlanControl
from tf_scheduler.model.resources import Resource
from tf_scheduler.model.secrets import SecretExposure
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import Configuration, Result, SchedulerState
from tf_scheduler.model.task import (
    AbandonedLaunch,
    AgentFailures,
    Cause,
    EarlierLaunch,
    Members,
    Recovery,
    Resized,
    TaskRecord,
    TaskStatus,
)

from .interface import CHECKSUM, WITHOUT_BACKUP, Delete, Put, StoreCorruptError, StoreVersionError, Write, checksum

_T = TypeVar("_T")

#: Schema of every stored value. A newer one is rejected.
SCHEMA = 1
#: Name of the version that wrote a value, in the value.
PROGRAM = "program"

FRAMEWORK, TASKS, STATUSES, RESULT = "framework", "tasks", "statuses", "result"
REDEEMED = "redeemed"
RETIRED, PLANS, RECOVERIES = "retired", "plans", "recoveries"
ABANDONED = "abandoned"
AGENTS, PAUSED, SIZE, MEMBERS = "agents", "paused", "size", "members"
CONFIGURATIONS = "configurations"
EXPOSED = "exposed"
#: Field of StoredState -> prefix of its keys.
_TABLES = {
    "abandoned": ABANDONED,
    "agent_failures": AGENTS,
    "paused": PAUSED,
    "exposures": EXPOSED,
    "configurations": CONFIGURATIONS,
}


def writes(change: effects.Change, before: SchedulerState) -> tuple[Write, ...]:
    """Return the writes of one change; `before` is the state before the change."""
    match change:
        case effects.FrameworkRegistered():
            return (encode_value(FRAMEWORK, {"id": change.framework_id, "removed": change.removed}),)
        case effects.FrameworkForgotten():
            return tuple(map(Delete, _of_framework(before)))
        case effects.TaskLaunched():
            return (put_record(change.record), *_forget(change.record.name, before))
        case effects.TaskForgotten():
            # Another change of the same decision may have written them.
            keys = (f"{folder}/{change.name}" for folder in (TASKS, PAUSED, RECOVERIES))
            return (*map(Delete, keys), *_forget(change.name, before))
        case Resized() | Members():
            return (encode_value(SIZE if isinstance(change, Resized) else MEMBERS, fields_of(change)),)
        case AgentFailures():
            return (encode_value(f"{AGENTS}/{change.agent_id}", fields_of(change)),)
        case effects.SecretTokenRedeemed():
            return (encode_value(f"{REDEEMED}/{change.task_id}", fields_of(change)),)
        case SecretExposure():
            return (encode_value(f"{EXPOSED}/{change.agent_id}", fields_of(change)),)
        case effects.EntryForgotten():
            return (Delete(f"{_TABLES[change.table]}/{change.key}"),)
        case effects.TaskPaused():
            return (encode_value(f"{PAUSED}/{change.name}", fields_of(change)),)
        case effects.LaunchRetired():
            return (encode_value(f"{RETIRED}/{change.task_id}", {"id": change.task_id, "plan": change.plan}),)
        case AbandonedLaunch():
            return (encode_value(f"{ABANDONED}/{change.id}", fields_of(change)),)
        case effects.RecoveryDecided():
            return (encode_value(f"{RECOVERIES}/{change.recovery.task}", fields_of(change.recovery)),)
        case effects.PlanControlled():
            return (encode_value(f"{PLANS}/{change.plan}", {"plan": change.plan, **_control_fields(change.control)}),)
        case effects.StatusStored():
            values = {**fields_of(change.status), "end": change.status.end.to_json()}
            return (encode_value(f"{STATUSES}/{change.status.id}", values),)
        case effects.ResultDecided():
            return (encode_value(RESULT, fields_of(change.result)),)
        case Configuration():
            return (encode_value(f"{CONFIGURATIONS}/{change.id}", fields_of(change)),)
    raise TypeError(change)


def put_record(record: TaskRecord) -> Put:
    """Return the write of a task's record."""
    return encode_value(f"{TASKS}/{record.name}", fields_of(record))


def read_record(name: str, data: bytes) -> TaskRecord:
    """Return the record of a task. Raises StoreError."""
    change = decode_value(f"{TASKS}/{name}", data, _record, "the label of the task")
    assert isinstance(change, effects.TaskLaunched)
    return change.record


def changes(stored: Mapping[str, bytes], place: str = "the state") -> tuple[effects.Change, ...]:
    """Decode stored values to changes: records before statuses, recoveries by time.

    Raises StoreCorruptError, which names `place`.
    """
    keys = sorted(stored)
    return tuple(
        change
        for prefix, decoder in _DECODERS.items()
        for change in sorted(
            (
                decode_value(key, stored[key], decoder, place)
                for key in keys
                if key == prefix or key.startswith(f"{prefix}/")
            ),
            # The reducer keeps only the latest losses.
            key=lambda change: change.recovery.since if isinstance(change, effects.RecoveryDecided) else 0.0,
        )
    )


def _forget(name: TaskName, before: SchedulerState) -> tuple[Write, ...]:
    """Delete the values of a task's last launch, except its record."""
    record = before.stored.tasks.get(name)
    if record is None:
        return ()
    redeemed = (Delete(f"{REDEEMED}/{record.id}"),) if record.id in before.stored.redeemed_tokens else ()
    return (Delete(f"{STATUSES}/{record.id}"), Delete(f"{RETIRED}/{record.id}"), *redeemed)


def _of_framework(before: SchedulerState) -> tuple[str, ...]:
    """Return the keys of all values that are invalid without the present framework."""
    return (
        FRAMEWORK,
        RESULT,
        MEMBERS,
        *(f"{TASKS}/{name}" for name in before.stored.tasks),
        *(f"{STATUSES}/{launch}" for launch in before.stored.statuses),
        *(f"{RETIRED}/{launch}" for launch in before.stored.retired),
        *(f"{RECOVERIES}/{name}" for name in before.stored.recoveries),
        *(f"{REDEEMED}/{launch}" for launch in before.stored.redeemed_tokens),
        *(f"{ABANDONED}/{launch}" for launch in before.stored.abandoned),
    )


def fields_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an object for its stored JSON."""
    return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return fields_of(value) if is_dataclass(value) else value


def encode_value(key: str, value: Mapping[str, Any]) -> Put:
    """Return the write of a value with schema, version of the program, checksum."""
    content = {"schema": SCHEMA, PROGRAM: __version__, **value}
    return Put(key, json.dumps({**content, CHECKSUM: checksum(key, content)}, sort_keys=True).encode())


def decode_value(key: str, data: bytes, decoder: Callable[[dict[str, Any]], _T], place: str) -> _T:
    """Return the decoded value. Raises StoreCorruptError, which names `place`."""
    try:
        fields: dict[str, Any] = json.loads(data)
        schema = fields.pop("schema")
        if schema > SCHEMA:
            raise StoreVersionError(
                f"stored value {key!r} in {place}", schema, SCHEMA, fields.get(PROGRAM, ""), replaceable=True
            )
        if schema < 1:
            raise ValueError(f"invalid schema {schema}")
        if fields.pop(CHECKSUM) != checksum(key, {"schema": schema, **fields}):
            raise ValueError("its checksum is wrong")
        del fields[PROGRAM]
        return decoder(fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        remedy = f"import a backup with `dcos-tensorflow state import --replace`; {WITHOUT_BACKUP}"
        raise StoreCorruptError(f"stored value {key!r} in {place} cannot be read: {error}; {remedy}") from error


def _record(fields: dict[str, Any]) -> effects.Change:
    resources = tuple(Resource(item["name"], _value(item["value"]), item["shape"]) for item in fields["resources"])
    typed = {"job": JobKind(fields["job"]), "resources": resources, "location": AgentLocation(**fields["location"])}
    typed["earlier"] = tuple(EarlierLaunch(**item) for item in fields["earlier"])
    return effects.TaskLaunched(TaskRecord(**{**fields, **typed}))


def _value(value: Any) -> int | tuple[tuple[int, int], ...]:
    return value if isinstance(value, int) else tuple((begin, end) for begin, end in value)


def _status(fields: dict[str, Any]) -> effects.Change:
    state, end = TaskState.of(fields["state"]), TaskEnd.from_json(fields["end"])
    typed = {"state": state, "end": end, "addresses": tuple(fields["addresses"])}
    return effects.StatusStored(TaskStatus(**{**fields, **typed}))


def _recovery(fields: dict[str, Any]) -> effects.Change:
    typed = {"cause": Cause(fields["cause"]), "failures": tuple(fields["failures"])}
    typed["bad_addresses"] = tuple(fields["bad_addresses"])
    typed["uncounted"] = tuple(fields["uncounted"])
    return effects.RecoveryDecided(Recovery(**{**fields, **typed}))


def _control_fields(control: PlanControl) -> dict[str, Any]:
    """Encode a plan's nodes as lists, because JSON keys cannot be tuples."""
    return {
        **{name: sorted(map(list, getattr(control, name))) for name in _NODE_SETS},
        "parameters": dict(control.parameters),
        "restarted": [[list(node), number] for node, number in sorted(control.restarted.items())],
        "target": control.target,
        "completed": control.completed,
    }


def _control(fields: dict[str, Any]) -> effects.Change:
    plan = fields.pop("plan")
    nodes = {name: frozenset(map(tuple, fields[name])) for name in _NODE_SETS}
    restarted = {tuple(node): number for node, number in fields["restarted"]}
    return effects.PlanControlled(plan, PlanControl(**{**fields, **nodes, "restarted": restarted}))


_NODE_SETS = ("interrupted", "forced", "released")


def _result(fields: dict[str, Any]) -> effects.Change:
    typed = {"verdict": Verdict(fields["verdict"]), "collateral": tuple(fields["collateral"])}
    return effects.ResultDecided(Result(**{**fields, **typed}))


_DECODERS: Mapping[str, Callable[[dict[str, Any]], effects.Change]] = {
    FRAMEWORK: lambda fields: effects.FrameworkRegistered(FrameworkId(fields["id"]), fields["removed"]),
    TASKS: _record,
    STATUSES: _status,
    RETIRED: lambda fields: effects.LaunchRetired(TaskId(fields["id"]), fields["plan"]),
    ABANDONED: lambda fields: AbandonedLaunch(**fields),
    PLANS: _control,
    RECOVERIES: _recovery,
    SIZE: lambda fields: Resized(**fields),
    MEMBERS: lambda fields: Members(**{**fields, "left": tuple(fields["left"])}),
    AGENTS: lambda fields: AgentFailures(**{**fields, "failures": tuple(fields["failures"])}),
    REDEEMED: lambda fields: effects.SecretTokenRedeemed(TaskId(fields["task_id"]), fields["nonce"]),
    EXPOSED: lambda fields: SecretExposure(**{**fields, "secrets": tuple(fields["secrets"])}),
    PAUSED: lambda fields: effects.TaskPaused(TaskName(fields["name"]), fields["since"]),
    RESULT: _result,
    CONFIGURATIONS: lambda fields: Configuration(**fields),
}
