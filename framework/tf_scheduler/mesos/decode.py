"""Decode Mesos v1 scheduler events (JSON) into model events.

Text and data of executors are untrusted: they are bounded and sanitized, and malformed values never raise.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tf_executor.contract import reports
from tf_executor.contract.reports import MAX_BYTES, TaskEnd
from tf_executor.contract.states import TaskState
from tf_scheduler.model import events
from tf_scheduler.model.ids import AgentId, ExecutorId, FrameworkId, OfferId, TaskId, executor_of
from tf_scheduler.model.offer import InverseOffer, Offer, Unavailability
from tf_scheduler.model.resources import Resource, Value, thousandths
from tf_scheduler.model.task import TaskStatus

#: Maximum characters of a message. An agent's message may quote its fetcher; a cause is at the start or the end.
MAX_TEXT_LENGTH = 1000
_ELLIPSIS = " ... "
#: Sandbox of a task below the agent's work folder.
_SANDBOX = re.compile(r"[^\s'\"]*/slaves/[^/\s]+/frameworks/[^/\s]+/executors/[^/\s]+/runs/[\w-]+")

log = logging.getLogger(__name__)

#: Control characters, bidirectional overrides and lone surrogates.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def sanitize_text(value: Any) -> str:
    """Return a text, shortened and without unsafe characters; "" for another type.

    A text above MAX_TEXT_LENGTH is cut in the middle. `<sandbox>` replaces sandbox paths; U+FFFD replaces unsafe
    characters.
    """
    if not isinstance(value, str):
        return ""
    text = _SANDBOX.sub("<sandbox>", value)
    if len(text) > MAX_TEXT_LENGTH:
        half = (MAX_TEXT_LENGTH - len(_ELLIPSIS)) // 2
        text = text[:half] + _ELLIPSIS + text[-half:]
    return _UNSAFE.sub("\ufffd", text)


def part(value: Any, *path: str) -> Any:
    """Return a part of untrusted JSON; None if it is missing."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def base64_bytes(value: Any) -> bytes:
    """Decode base64, up to a report's maximum size plus one byte; empty if invalid."""
    if not isinstance(value, str):
        return b""
    try:
        return base64.b64decode(value[:_BASE64_BYTES])
    except ValueError:
        return b""


def timestamp(value: Any) -> float:
    """Return seconds since the epoch; 0 if `value` is not a finite number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LAST_SECOND
    return float(value) if is_number and math.isfinite(value) else 0.0


#: Ids of Mesos (src/common/validation.cpp) are parts of paths there and of keys in the store; ours are ASCII.
_ID = re.compile(r"(?!\.{1,2}$)[ -.0-\[\]-~]{1,255}")
#: Base64 length of one byte more than `reports` accepts, so that `reports` detects a longer report.
_BASE64_BYTES = (MAX_BYTES // 3 + 1) * 4
#: End of the year 9999, the last one that Python can format as a date.
_LAST_SECOND = 253_402_300_800


def message(raw: Mapping[str, Any]) -> events.ProgressReported | events.UsageReported | None:
    """Decode an executor's message; None: invalid, or about another executor's task."""
    decoded = reports.decode_message(base64_bytes(raw.get("data")), log.warning)
    if decoded is None:
        return None
    task_id = TaskId(decoded.task_id)
    sender = raw.get("executor_id")  # added by the agent
    if not isinstance(sender, Mapping) or executor_of(task_id) != sender.get("value"):
        log.warning("report ignored: the task belongs to another executor")
        return None
    agent_id = AgentId(_id(raw, "agent_id")) if raw.get("agent_id") else None
    if isinstance(decoded.report, reports.Usage):
        return events.UsageReported(task_id, decoded.report, agent_id)
    return events.ProgressReported(task_id, decoded.report, agent_id)


#: Refusals of Mesos 1.11 (src/master/master.cpp) -> ACL (docs/authorization.md) and DC/OS permission.
_ACL_ERRORS: Mapping[str, tuple[str, str]] = {
    r"[Nn]ot authorized to register framework\s+with roles \{ (.+?) \}": (
        "register_frameworks",
        "dcos:mesos:master:framework:role:{} create",
    ),
    r"not? authorized to launch task .* under user '(.+?)'": ("run_tasks", "dcos:mesos:master:task:user:{} create"),
}


def explain_acl_error(message: str) -> str:
    """Prefix a refusal with the missing permission, because a suffix may be cut off."""
    for pattern, (acl, permission) in _ACL_ERRORS.items():
        if match := re.search(pattern, message):
            return f"needs the permission {acl} (DC/OS: {permission.format(match[1])}): {message}"
    return message


Json = Mapping[str, Any]

#: Fields of a Resource with its name and value; all others are its shape.
_VALUE_FIELDS = frozenset({"name", "type", "scalar", "ranges", "set"})

_NANOSECONDS = 1e9


#: Errors of decoders: a field is missing, has another type, or an unknown value.
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


def event(raw: Json) -> events.Event | None:
    """Decode one event; None for events that the scheduler does not use.

    A malformed event becomes an EventSkipped. A malformed offer is declined; the other offers of the event are used.
    """
    kind = str(raw.get("type", ""))
    decoder = _DECODERS.get(kind)
    try:
        return None if decoder is None else decoder(raw)
    except _MALFORMED as error:
        return events.EventSkipped(kind, _problem(error))


def _text(raw: Json, name: str) -> str:
    """Return the text in the field `name`. Raises TypeError for another type."""
    value = raw[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is not text")
    return value


def _id(raw: Json, name: str) -> str:
    """Return the id in the field `name`. Raises TypeError or ValueError if invalid."""
    value = _text({name: raw[name]["value"]}, name)
    if not _ID.fullmatch(value):
        raise ValueError(f"{name} {value!r} is not a valid id")
    return value


def _problem(error: Exception) -> str:
    """Return the text of a decoder's error, sanitized."""
    return (
        sanitize_text(f"missing field {error}" if isinstance(error, KeyError) else str(error)) or type(error).__name__
    )


def _offers(raw: Json) -> events.Event:
    decoded, malformed = [], []
    for item in raw.get("offers", ()):
        try:
            decoded.append(offer(item))
        except _MALFORMED as error:
            try:
                malformed.append(OfferId(_id(item, "id")))
            except _MALFORMED:  # it cannot be declined either; the others must not be lost with it
                log.warning("ignoring an offer that cannot be decoded: %s", _problem(error))
            else:
                log.warning("declining offer %s, which cannot be decoded: %s", malformed[-1], _problem(error))
    return events.OffersReceived(tuple(decoded), tuple(malformed))


def offer(raw: Json) -> Offer:
    """Decode an offer. Prefer the agent's IP address: its host name may not resolve."""
    address = raw.get("url", {}).get("address", {})
    return Offer(
        id=OfferId(_id(raw, "id")),
        agent_id=AgentId(_id(raw, "agent_id")),
        hostname=_text(raw, "hostname"),
        address=str(address.get("ip") or address.get("hostname") or raw["hostname"]),
        resources=tuple(resource(entry) for entry in raw.get("resources", ())),
        attributes={_text(entry, "name"): attribute(entry) for entry in raw.get("attributes", ())},
        region=_domain(raw, "region"),
        zone=_domain(raw, "zone"),
        role=str(raw.get("allocation_info", {}).get("role", "")),
        unavailability=unavailability(raw["unavailability"]) if "unavailability" in raw else None,
    )


def inverse_offer(raw: Json) -> InverseOffer:
    """Decode a request of Mesos to vacate an agent."""
    return InverseOffer(OfferId(_id(raw, "id")), AgentId(_id(raw, "agent_id")), unavailability(raw["unavailability"]))


def unavailability(raw: Json) -> Unavailability:
    """Decode a maintenance window; without a duration its end is None."""
    start = int(raw["start"]["nanoseconds"]) / _NANOSECONDS
    duration = raw.get("duration")
    return Unavailability(start, start + int(duration["nanoseconds"]) / _NANOSECONDS if duration else None)


def resource(raw: Json) -> Resource:
    """Decode a resource; `shape` has all fields except name and value, as JSON."""
    shape = {key: value for key, value in raw.items() if key not in _VALUE_FIELDS}
    return Resource(_text(raw, "name"), _value(raw), json.dumps(shape, sort_keys=True))


def attribute(raw: Json) -> str:
    """Format an attribute like the agent's `--attributes`: text, `1.5`, `[1-3,5-9]`."""
    if "text" in raw:
        return str(raw["text"]["value"])
    if "scalar" in raw:
        return f"{raw['scalar']['value']:g}"
    ranges = raw.get("ranges", {}).get("range", ())
    return "[" + ",".join(f"{item['begin']}-{item['end']}" for item in ranges) + "]"


def status(raw: Json) -> TaskStatus:
    """Decode a task status."""
    end = TaskEnd.decode(base64_bytes(raw.get("data")), log.warning)
    end = replace(end, error=sanitize_text(end.error))
    if raw.get("reason") == "REASON_CONTAINER_LIMITATION_MEMORY":
        end = replace(end, out_of_memory=True)
    text = sanitize_text(raw.get("message"))
    matches = ((pattern.match(text), sentence) for pattern, sentence in _IMAGE_PROBLEMS.items())
    unusable = next((sentence.format(*match.groups()) for match, sentence in matches if match), "")
    if unusable:
        end = replace(end, error=end.error or unusable, cannot_start=True)
    return TaskStatus(
        id=TaskId(_id(raw, "task_id")),
        state=TaskState.of(raw["state"]),
        agent_id=AgentId(_id(raw, "agent_id")) if raw.get("agent_id") else None,
        reason=str(raw.get("reason", "")),
        message=unusable or _message(raw),
        end=end,
        uuid=str(raw.get("uuid", "")),
        healthy=None if raw.get("healthy") is None else raw["healthy"] is True,
        timestamp=timestamp(raw.get("timestamp")),
        addresses=_addresses(raw.get("container_status") or {}),
        source=str(raw.get("source", "")),
    )


def _addresses(container: Json) -> tuple[str, ...]:
    networks = container.get("network_infos", ())
    addresses = (entry.get("ip_address", "") for network in networks for entry in network.get("ip_addresses", ()))
    return tuple(str(address) for address in addresses if address)


_LAUNCH = "Failed to launch container: (?:Collect failed: )?"
#: Messages of Mesos' provisioner (src/slave/containerizer/mesos/provisioner) for images that no launch can use, and of
#: its isolator filesystem/linux for volumes.
_IMAGE_PROBLEMS = {
    re.compile(
        f"{_LAUNCH}Failed to find archive for image '(.+?)' at '(.+?)'"
    ): "the agent has no image `{}`: no file {}",
    re.compile(f"{_LAUNCH}Subprocess 'tar, tar, -x, -f, (.+?), -C, .+?' failed: tar: (.+)"): "damaged image {}: {}",
    re.compile(f"{_LAUNCH}.*Mount point '(.+?)' is an absolute path. It must exist"): (
        "volumes: container_path `{}`: does not exist on the agent; create it, use a relative path, or set an image"
    ),
}


#: Text of Mesos in the message of a status; the fetcher's exit status follows, but not its words.
FETCH_FAILED = "Failed to fetch all URIs for container"


def is_failed_fetch(raw: Json) -> bool:
    """Whether it is the status of a task whose files the agent could not fetch."""
    return FETCH_FAILED in str(part(raw, "update", "status", "message"))


def _message(raw: Json) -> str:
    """Return a status message with errors explained, and without memory statistics."""
    text = sanitize_text(raw.get("message")).partition("\n\nMEMORY STATISTICS:")[0]
    _, fetcher, status = text.partition(FETCH_FAILED)
    if fetcher:
        why = status.partition(": ")[2] or "no reason given"
        return f"the agent cannot fetch the task's files: {why}; hint: its stderr names the file and the cause"
    if text == "Executor terminated":
        return "the executor was killed, or could not start; hint: stderr of the task names the cause"
    return explain_acl_error(text) if raw.get("reason") == "REASON_TASK_UNAUTHORIZED" else text


def _domain(raw: Json, name: str) -> str:
    """Return the `region` or `zone` of the fault domain; empty if unset."""
    return str(raw.get("domain", {}).get("fault_domain", {}).get(name, {}).get("name", ""))


def _value(raw: Json) -> Value:
    if raw["type"] == "SCALAR":
        return thousandths(raw["scalar"]["value"])
    if raw["type"] == "RANGES":
        return tuple(sorted((int(item["begin"]), int(item["end"])) for item in raw["ranges"].get("range", ())))
    return frozenset(map(str, raw["set"].get("item", ())))


def _subscribed(raw: Json) -> events.Event:
    return events.Subscribed(FrameworkId(_id(raw, "framework_id")), _domain(raw.get("master_info", {}), "region"))


def _failure(raw: Json) -> events.Event:
    failure = raw["failure"]
    agent = AgentId(_id(failure, "agent_id") if failure.get("agent_id") else "")
    if "executor_id" not in failure:
        return events.AgentFailed(agent)
    return events.ExecutorFailed(agent, ExecutorId(_id(failure, "executor_id")), int(failure.get("status", -1)))


_DECODERS: Mapping[str, Callable[[Json], events.Event | None]] = {
    "SUBSCRIBED": lambda raw: _subscribed(raw["subscribed"]),
    "OFFERS": lambda raw: _offers(raw["offers"]),
    "RESCIND": lambda raw: events.OfferRescinded(OfferId(_id(raw["rescind"], "offer_id"))),
    "INVERSE_OFFERS": lambda raw: events.InverseOffersReceived(
        tuple(inverse_offer(item) for item in raw["inverse_offers"].get("inverse_offers", ()))
    ),
    "RESCIND_INVERSE_OFFER": lambda raw: events.InverseOfferRescinded(
        OfferId(_id(raw["rescind_inverse_offer"], "inverse_offer_id"))
    ),
    "UPDATE": lambda raw: events.StatusUpdated(status(raw["update"]["status"])),
    "FAILURE": _failure,
    "MESSAGE": lambda raw: message(raw["message"]),
}
