"""What is free on the agents, from answers of the master's operator API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mesos_client.results import Failed, SendResult, Sent
from tf_scheduler.mesos.capacity import Capacity, read_capacity
from tf_scheduler.model.resources import UNIT, Needs

ROLE = "ml-role"


def scalar(name: str, value: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "SCALAR", "scalar": {"value": value}, **more}


def ports(*pairs: tuple[int, int]) -> dict[str, Any]:
    ranges = [{"begin": begin, "end": end} for begin, end in pairs]
    return {"name": "ports", "type": "RANGES", "ranges": {"range": ranges}}


def agent(total: list[dict[str, Any]], allocated: list[dict[str, Any]] = [], **more: Any) -> dict[str, Any]:  # noqa: B006
    info = {"id": {"value": "S1"}, "hostname": "agent-1", "attributes": []}
    return {"agent_info": info, "total_resources": total, "allocated_resources": allocated, "active": True, **more}


def read(*agents: Mapping[str, Any], quota: Mapping[str, float] | None = None) -> Capacity:
    limits = {name: {"value": value} for name, value in (quota or {}).items()}
    configs = [{"role": ROLE, "limits": limits}] if quota else []

    def ask(call: Mapping[str, Any]) -> SendResult:
        if call["type"] == "GET_AGENTS":
            return Sent({"get_agents": {"agents": list(agents)}})
        return Sent({"get_quota": {"status": {"configs": configs}}})

    return read_capacity(ask, ROLE)


def test_allocated_resources_are_not_free() -> None:
    allocated = [
        scalar("cpus", 1.5, allocation_info={"role": "x"}),
        {**ports((31002, 31003)), "allocation_info": {"role": "x"}},
    ]

    capacity = read(agent([scalar("cpus", 4), ports((31000, 31009))], allocated))

    (free,) = capacity.free
    assert {"cpus": 2500, "ports": ((31000, 31001), (31004, 31009))} == {
        each.name: each.value for each in free.resources
    }
    assert Needs(cpus=4 * UNIT) == capacity.total


def test_reservations_of_other_roles_do_not_count() -> None:
    def reserved(role: str) -> dict[str, Any]:
        return scalar("cpus", 2, reservations=[{"type": "STATIC", "role": role}])

    capacity = read(agent([scalar("cpus", 1), reserved(ROLE), reserved("other")]))

    assert Needs(cpus=3 * UNIT) == capacity.total
    assert [1000, 2000] == [each.value for each in capacity.free[0].resources]


def test_inactive_agents_do_not_count() -> None:
    assert () == tuple(read(agent([scalar("cpus", 4)], active=False)).free)


def test_quota_limits_what_is_left() -> None:
    allocated = [scalar("cpus", 1, allocation_info={"role": ROLE})]

    assert {"cpus": 1000} == read(agent([scalar("cpus", 4)], allocated), quota={"cpus": 2}).quota
    assert read(agent([scalar("cpus", 4)])).quota is None


def test_problem_names_what_the_master_answered() -> None:
    assert "does not list its agents: failed: timed out" in read_capacity(lambda _: Failed("timed out"), ROLE).problem
    assert "in an unexpected form" in read_capacity(lambda _: Sent({}), ROLE).problem
