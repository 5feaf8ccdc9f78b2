"""Mesos v1 scheduler events (JSON) -> model events."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tf_executor.reports import Ending
from tf_scheduler.model.events import (
    AgentFailed,
    Event,
    ExecutorFailed,
    InverseOfferRescinded,
    InverseOffersReceived,
    OfferRescinded,
    OffersReceived,
    OperationUpdated,
    StatusUpdated,
    Subscribed,
)
from tf_scheduler.model.ids import AgentId, ExecutorId, FrameworkId, OfferId, OperationId, TaskId
from tf_scheduler.model.offer import InverseOffer, Offer, Unavailability
from tf_scheduler.model.operation import OperationState, OperationStatus
from tf_scheduler.model.resources import Resource, Value, thousandths
from tf_scheduler.model.task import TaskState, TaskStatus

from . import said
from .messages import progress
from .permissions import explained

Json = Mapping[str, Any]

#: Fields of a Resource that are its name and value; all others are its shape.
_VALUE_FIELDS = frozenset({"name", "type", "scalar", "ranges", "set"})

_NANOSECONDS = 1e9


def event(raw: Json) -> Event | None:
    """The model's event; None for what the scheduler has no use for (foreign messages)."""
    decoder = _DECODERS.get(raw["type"])
    return None if decoder is None else decoder(raw)


def offer(raw: Json) -> Offer:
    """One offer. Its address is the agent's IP: host names need not resolve on other agents."""
    address = raw.get("url", {}).get("address", {})
    return Offer(
        id=OfferId(raw["id"]["value"]),
        agent_id=AgentId(raw["agent_id"]["value"]),
        hostname=raw["hostname"],
        address=address.get("ip") or address.get("hostname") or raw["hostname"],
        resources=tuple(resource(entry) for entry in raw.get("resources", ())),
        attributes={entry["name"]: attribute(entry) for entry in raw.get("attributes", ())},
        region=_domain(raw, "region"),
        zone=_domain(raw, "zone"),
        role=raw.get("allocation_info", {}).get("role", ""),
        unavailability=unavailability(raw["unavailability"]) if "unavailability" in raw else None,
    )


def inverse_offer(raw: Json) -> InverseOffer:
    """Mesos' wish to have an agent back."""
    return InverseOffer(
        OfferId(raw["id"]["value"]), AgentId(raw["agent_id"]["value"]), unavailability(raw["unavailability"])
    )


def unavailability(raw: Json) -> Unavailability:
    """A window without duration has no end."""
    start = int(raw["start"]["nanoseconds"]) / _NANOSECONDS
    duration = raw.get("duration")
    return Unavailability(start, start + int(duration["nanoseconds"]) / _NANOSECONDS if duration else None)


def resource(raw: Json) -> Resource:
    """One entry: its value apart, everything else as its shape, to be sent back as it came."""
    shape = {key: value for key, value in raw.items() if key not in _VALUE_FIELDS}
    return Resource(raw["name"], _value(raw), json.dumps(shape, sort_keys=True))


def attribute(raw: Json) -> str:
    """As Mesos writes it on the command line: text, `1.5`, `[1-3,5-9]`."""
    if "text" in raw:
        return str(raw["text"]["value"])
    if "scalar" in raw:
        return f"{raw['scalar']['value']:g}"
    ranges = raw.get("ranges", {}).get("range", ())
    return "[" + ",".join(f"{item['begin']}-{item['end']}" for item in ranges) + "]"


def status(raw: Json) -> TaskStatus:
    """What Mesos said of one launch."""
    agent = raw.get("agent_id", {}).get("value")
    ending = Ending.decode(said.data(raw.get("data")), said.ignored)
    return TaskStatus(
        id=TaskId(raw["task_id"]["value"]),
        state=TaskState(raw["state"]),
        agent_id=AgentId(agent) if agent else None,
        reason=raw.get("reason", ""),
        message=_message(raw),
        exit_code=ending.exit_code,
        signal=ending.signal,
        uuid=raw.get("uuid", ""),
        healthy=raw.get("healthy"),
        timestamp=said.time(raw.get("timestamp")),
        addresses=_addresses(raw.get("container_status", {})),
    )


def operation(raw: Json) -> OperationStatus:
    """What Mesos said of one operation; all of ours have ids, or it would not tell."""
    agent = raw.get("agent_id", {}).get("value")
    return OperationStatus(
        id=OperationId(raw.get("operation_id", {}).get("value", "")),
        state=OperationState(raw["state"]),
        agent_id=AgentId(agent) if agent else None,
        message=explained(said.text(raw.get("message"))),
        uuid=raw.get("uuid", {}).get("value", ""),
    )


def _addresses(container: Json) -> tuple[str, ...]:
    networks = container.get("network_infos", ())
    found = (entry.get("ip_address", "") for network in networks for entry in network.get("ip_addresses", ()))
    return tuple(address for address in found if address)


def _message(raw: Json) -> str:
    """What a program says is not explained."""
    text = said.text(raw.get("message"))
    return explained(text) if raw.get("reason") == "REASON_TASK_UNAUTHORIZED" else text


def _domain(raw: Json, name: str) -> str:
    """`region` or `zone` of a fault domain; empty when there is none."""
    return str(raw.get("domain", {}).get("fault_domain", {}).get(name, {}).get("name", ""))


def _value(raw: Json) -> Value:
    if raw["type"] == "SCALAR":
        return thousandths(raw["scalar"]["value"])
    if raw["type"] == "RANGES":
        return tuple(sorted((int(item["begin"]), int(item["end"])) for item in raw["ranges"].get("range", ())))
    return frozenset(raw["set"].get("item", ()))


def _subscribed(raw: Json) -> Event:
    return Subscribed(FrameworkId(raw["framework_id"]["value"]), _domain(raw.get("master_info", {}), "region"))


def _failure(raw: Json) -> Event:
    failure = raw["failure"]
    agent = AgentId(failure.get("agent_id", {}).get("value", ""))
    if "executor_id" not in failure:
        return AgentFailed(agent)
    return ExecutorFailed(agent, ExecutorId(failure["executor_id"]["value"]), int(failure.get("status", -1)))


_DECODERS: Mapping[str, Callable[[Json], Event | None]] = {
    "SUBSCRIBED": lambda raw: _subscribed(raw["subscribed"]),
    "OFFERS": lambda raw: OffersReceived(tuple(offer(item) for item in raw["offers"].get("offers", ()))),
    "RESCIND": lambda raw: OfferRescinded(OfferId(raw["rescind"]["offer_id"]["value"])),
    "INVERSE_OFFERS": lambda raw: InverseOffersReceived(
        tuple(inverse_offer(item) for item in raw["inverse_offers"].get("inverse_offers", ()))
    ),
    "RESCIND_INVERSE_OFFER": lambda raw: InverseOfferRescinded(
        OfferId(raw["rescind_inverse_offer"]["inverse_offer_id"]["value"])
    ),
    "UPDATE": lambda raw: StatusUpdated(status(raw["update"]["status"])),
    "UPDATE_OPERATION_STATUS": lambda raw: OperationUpdated(operation(raw["update_operation_status"]["status"])),
    "FAILURE": _failure,
    "MESSAGE": lambda raw: progress(raw["message"]),
}
