"""Rules over updates: options that cannot change while a service runs.

Mesos fixes the user and the principal of a framework (UPDATE_FRAMEWORK refuses changes, SUBSCRIBE ignores them), and
allocates the resources of a running task to its role. The DC/OS SDK also fixes service, user, region and network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tf_scheduler.errors import Problem
from tf_scheduler.options.schema.fields import json_excerpt
from tf_scheduler.options.spec import to_spec

Document = Mapping[str, Any]

_ANOTHER = "install another service"


def find_refusals(old: Document, new: Document) -> list[Problem]:
    """Return the refused changes between two resolved options documents."""
    return [problem for rule in RULES for problem in rule(old, new)]


def service_name_is_fixed(old: Document, new: Document) -> Iterator[Problem]:
    """State, role and addresses of a running service depend on its name."""
    if to_spec(old).name != to_spec(new).name:
        yield _fixed("service.name", old, new, _ANOTHER)


def user_is_fixed(old: Document, new: Document) -> Iterator[Problem]:
    if old["service"]["user"] != new["service"]["user"]:
        yield _fixed("service.user", old, new, "the user of a Mesos framework is fixed")


def principal_is_fixed(old: Document, new: Document) -> Iterator[Problem]:
    if to_spec(old).principal == to_spec(new).principal:
        return
    for name in ("principal", "service_account"):
        if old["service"][name] != new["service"][name]:
            yield _fixed(f"service.{name}", old, new, "the principal of a Mesos framework is fixed")


def role_is_fixed(old: Document, new: Document) -> Iterator[Problem]:
    if old["service"]["name"] == new["service"]["name"] and to_spec(old).role != to_spec(new).role:
        yield _fixed("service.role", old, new, "running tasks are allocated to the role")


def region_is_fixed(old: Document, new: Document) -> Iterator[Problem]:
    if old["service"]["region"] != new["service"]["region"]:
        yield _fixed("service.region", old, new, "a cluster has one region")


def strategy_is_fixed(old: Document, new: Document) -> Iterator[Problem]:
    """Jobs, leader and recovery depend on the strategy."""
    if old["service"]["strategy"] != new["service"]["strategy"]:
        yield _fixed("service.strategy", old, new, _ANOTHER)


def network_is_fixed(old: Document, new: Document) -> Iterator[Problem]:
    names = ("addressing", "virtual_network_enabled", "virtual_network_name", "virtual_network_plugin_labels")
    for name in names:
        if old["service"][name] != new["service"][name]:
            yield _fixed(f"service.{name}", old, new, "tasks on different networks cannot connect")


def state_address_is_fixed(old: Document, new: Document) -> Iterator[Problem]:
    """A scheduler without state would start a second service next to the running tasks."""
    if _without_parameters(old["scheduler"]["state"]) != _without_parameters(new["scheduler"]["state"]):
        yield _fixed(
            "scheduler.state", old, new, "the state would be lost; export it, reinstall the service, import it"
        )


def _without_parameters(address: str) -> str:
    """Remove connection parameters of ZooKeeper, such as `session_timeout`."""
    return address.partition("?")[0] if address.startswith(("zk://", "zks://")) else address


RULES: tuple[Callable[[Document, Document], Iterator[Problem]], ...] = (
    service_name_is_fixed,
    user_is_fixed,
    principal_is_fixed,
    role_is_fixed,
    region_is_fixed,
    strategy_is_fixed,
    network_is_fixed,
    state_address_is_fixed,
)


def _fixed(path: str, old: Document, new: Document, reason: str) -> Problem:
    section, name = path.split(".")
    before, after = json_excerpt(old[section][name]), json_excerpt(new[section][name])
    return Problem(path, f"cannot change from {before} to {after}: {reason}")
