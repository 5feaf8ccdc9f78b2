"""Agents of the cluster and what is free on them, from the master's operator API.

Mesos documentation, operator HTTP API, GET_AGENTS and GET_QUOTA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mesos_client.http import MALFORMED
from mesos_client.results import SendResult, Sent
from tf_scheduler.model.ids import OfferId
from tf_scheduler.model.offer import Offer
from tf_scheduler.model.resources import Needs, Ranges, Resource, thousandths

from . import decode

Json = Mapping[str, Any]
#: Fields of a resource that only its allocation has.
_ALLOCATION = ("allocation_info", "allocationInfo")


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a role can use. `free`: an offer of each agent with what is unallocated.

    `problem`: why it is unknown; then nothing else counts.
    """

    total: Needs = field(default_factory=Needs)
    free: Sequence[Offer] = ()
    #: What the quota of the role still permits; None: no limit.
    quota: Mapping[str, int] | None = None
    problem: str = ""


def read_capacity(ask: Callable[[Json], SendResult], role: str) -> Capacity:
    """Ask the master; raises nothing."""
    reply, quotas = ask({"type": "GET_AGENTS"}), ask({"type": "GET_QUOTA"})
    if not isinstance(reply, Sent):
        return Capacity(problem=f"the Mesos master does not list its agents: {reply}")
    try:
        agents = [item for item in reply.answer["get_agents"].get("agents", ()) if item.get("active", True)]
        totals = [decode.resource(each) for item in agents for each in item.get("total_resources", ())]
        quota = _quota(quotas.answer, agents, role) if isinstance(quotas, Sent) else None
        total = Needs.of(entry for entry in totals if _is_for(entry, role))
        return Capacity(total, [_offer(item, role) for item in agents], quota)
    except MALFORMED as error:
        return Capacity(problem=f"the Mesos master lists its agents in an unexpected form: {error!r}")


def _offer(item: Json, role: str) -> Offer:
    """Return the free resources of an agent in the form of an offer."""
    info = item["agent_info"]
    taken = [_plain(each) for each in item.get("allocated_resources", ())]
    free = _subtract(map(_plain, item.get("total_resources", ())), taken)
    own = decode.offer({**info, "agent_id": info["id"], "resources": []})
    return replace(own, id=OfferId(own.agent_id), resources=tuple(entry for entry in free if _is_for(entry, role)))


def _plain(raw: Json) -> Resource:
    return decode.resource({key: value for key, value in raw.items() if key not in _ALLOCATION})


def _is_for(entry: Resource, role: str) -> bool:
    """Whether the role may use the entry: it is unreserved, or reserved for the role."""
    return '"role"' not in entry.shape or f'"role": "{role}"' in entry.shape or '"role": "*"' in entry.shape


def _subtract(totals: Iterable[Resource], taken: Iterable[Resource]) -> list[Resource]:
    """Return what is left of each entry; taken entries have the shape of their total."""
    left = list(totals)
    for used in taken:
        for place, entry in enumerate(left):
            if (entry.name, entry.shape) == (used.name, used.shape):
                left[place] = replace(entry, value=_rest(entry.value, used.value))
                break
    return left


def _rest(total: Any, used: Any) -> Any:
    if isinstance(total, int):
        return max(0, total - used)
    return total - used if isinstance(total, frozenset) else _cut(total, used)


def _cut(total: Ranges, used: Ranges) -> Ranges:
    """Return the ranges without the used ones; both are ascending."""
    left: list[tuple[int, int]] = []
    for begin, end in total:
        for first, last in used:
            if first <= end and last >= begin:
                if begin < first:
                    left.append((begin, first - 1))
                begin = last + 1
        if begin <= end:
            left.append((begin, end))
    return tuple(left)


def _quota(answer: Json, agents: Iterable[Json], role: str) -> Mapping[str, int] | None:
    """Return what the limits of a role leave; None without limits."""
    configs = answer["get_quota"]["status"].get("configs", ())
    limits: Json = next((item.get("limits", {}) for item in configs if item["role"] == role), {})
    allocated = [each for item in agents for each in item.get("allocated_resources", ())]
    used = Needs.of(decode.resource(each) for each in allocated if each.get("allocation_info", {}).get("role") == role)
    left = {name: thousandths(float(limit["value"])) - getattr(used, name, 0) for name, limit in limits.items()}
    return left or None
