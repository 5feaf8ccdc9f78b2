"""What may not change while a service runs: one function each, named as the sentence that it enforces.

Each takes the resolved options of before and after. The first two groups of reasons are Mesos': a framework keeps its
user and principal for ever (UPDATE_FRAMEWORK refuses others, SUBSCRIBE ignores them), and what a task holds is
allocated to the role that it was launched for. Service, user, region and network are fixed in the DC/OS SDK, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tf_scheduler.errors import Problem

from .fields import shown
from .spec import to_spec

Document = Mapping[str, Any]

_ANOTHER = "install another service"


def refusals(old: Document, new: Document) -> list[Problem]:
    """Every change that an update cannot make; empty: it can be made."""
    return [problem for rule in RULES for problem in rule(old, new)]


def the_service_name_cannot_change(old: Document, new: Document) -> Iterator[Problem]:
    """State, role and addresses of a running service go by its name."""
    if to_spec(old).name != to_spec(new).name:
        yield _fixed("service.name", old, new, _ANOTHER)


def the_user_cannot_change(old: Document, new: Document) -> Iterator[Problem]:
    if old["service"]["user"] != new["service"]["user"]:
        yield _fixed("service.user", old, new, "a Mesos framework keeps its user for ever")


def the_principal_cannot_change(old: Document, new: Document) -> Iterator[Problem]:
    if to_spec(old).principal == to_spec(new).principal:
        return
    for name in ("principal", "service_account"):
        if old["service"][name] != new["service"][name]:
            yield _fixed(f"service.{name}", old, new, "a Mesos framework keeps its principal for ever")


def the_role_cannot_change(old: Document, new: Document) -> Iterator[Problem]:
    if old["service"]["name"] == new["service"]["name"] and to_spec(old).role != to_spec(new).role:
        yield _fixed("service.role", old, new, "what runs is allocated to it")


def the_region_cannot_change(old: Document, new: Document) -> Iterator[Problem]:
    if old["service"]["region"] != new["service"]["region"]:
        yield _fixed("service.region", old, new, "a cluster has one region")


def the_strategy_cannot_change(old: Document, new: Document) -> Iterator[Problem]:
    """Which jobs there are, who leads and what a loss means all depend on it."""
    if old["service"]["strategy"] != new["service"]["strategy"]:
        yield _fixed("service.strategy", old, new, _ANOTHER)


def tasks_cannot_move_to_another_network(old: Document, new: Document) -> Iterator[Problem]:
    names = ("addressing", "virtual_network_enabled", "virtual_network_name", "virtual_network_plugin_labels")
    for name in names:
        if old["service"][name] != new["service"][name]:
            yield _fixed(f"service.{name}", old, new, "tasks on different networks do not reach each other")


def the_state_stays_where_it_is(old: Document, new: Document) -> Iterator[Problem]:
    """A scheduler that finds no state starts a second service beside the tasks of the first."""
    if _place(old["scheduler"]["state"]) != _place(new["scheduler"]["state"]):
        yield _fixed(
            "scheduler.state", old, new, "the service would be forgotten; export it, install it anew, import it"
        )


def _place(address: str) -> str:
    """Without what only says how a ZooKeeper is spoken to, such as `session_timeout`."""
    return address.partition("?")[0] if address.startswith(("zk://", "zks://")) else address


RULES: tuple[Callable[[Document, Document], Iterator[Problem]], ...] = (
    the_service_name_cannot_change,
    the_user_cannot_change,
    the_principal_cannot_change,
    the_role_cannot_change,
    the_region_cannot_change,
    the_strategy_cannot_change,
    tasks_cannot_move_to_another_network,
    the_state_stays_where_it_is,
)


def _fixed(path: str, old: Document, new: Document, reason: str) -> Problem:
    section, name = path.split(".")
    before, after = shown(old[section][name]), shown(new[section][name])
    return Problem(path, f"cannot change from {before} to {after}: {reason}")
