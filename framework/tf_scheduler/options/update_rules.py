"""Refuse updates of options that cannot change while a service runs.

Mesos fixes the user and the principal of a framework (UPDATE_FRAMEWORK refuses changes, SUBSCRIBE ignores them), and
allocates the resources of a running task to its role. The DC/OS SDK also fixes service, user, region and network.
"""

from __future__ import annotations

from collections.abc import Iterator

from tf_scheduler.errors import Problem
from tf_scheduler.options.schema.fields import json_excerpt
from tf_scheduler.options.schema.values import Document
from tf_scheduler.options.spec import to_spec

_ANOTHER = "install another service"
_NETWORK = "tasks on different networks cannot connect"
#: Option of `service` -> why its value is fixed.
_FIXED = {
    "user": "the user of a Mesos framework is fixed",
    "region": "running and new tasks would be in different regions",
    # Jobs, leader and recovery depend on the strategy.
    "strategy": _ANOTHER,
    "addressing": _NETWORK,
    "virtual_network_enabled": _NETWORK,
    "virtual_network_name": _NETWORK,
    "virtual_network_plugin_labels": _NETWORK,
}


def find_refusals(old: Document, new: Document) -> Iterator[Problem]:
    """Return the refused changes between two resolved options documents."""
    before, after = to_spec(old), to_spec(new)
    # State, role and addresses of a running service depend on its name.
    if before.name != after.name:
        yield _refusal("service.name", old, new, _ANOTHER)
    elif before.role != after.role:
        yield _refusal("service.role", old, new, "resources of running tasks are allocated to the previous role")
    for name, reason in _FIXED.items():
        if old["service"][name] != new["service"][name]:
            yield _refusal(f"service.{name}", old, new, reason)
    for name in ("principal", "service_account"):
        if before.principal != after.principal and old["service"][name] != new["service"][name]:
            yield _refusal(f"service.{name}", old, new, "the principal of a Mesos framework is fixed")
    # A scheduler without state would start a second service next to the running tasks.
    if _without_parameters(old["scheduler"]["state"]) != _without_parameters(new["scheduler"]["state"]):
        reason = "the state would be lost; export it, reinstall the service, import it"
        yield _refusal("scheduler.state", old, new, reason)


def _without_parameters(address: str) -> str:
    """Remove connection parameters of ZooKeeper, such as `session_timeout`."""
    return address.partition("?")[0] if address.startswith(("zk://", "zks://")) else address


def _refusal(path: str, old: Document, new: Document, reason: str) -> Problem:
    section, name = path.split(".")
    before, after = json_excerpt(old[section][name]), json_excerpt(new[section][name])
    return Problem(path, f"cannot change from {before} to {after}: {reason}")
