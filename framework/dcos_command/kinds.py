"""What arguments name, and where the names are: for completion, and for the hint when a name is wrong."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Mapping

from .command import Argument, Command, Given
from .errors import CommandError
from .plans import IN_ERROR, roll_out
from .service import Service, path

#: Kind -> where its names are listed.
_LISTS: Mapping[str, str] = {
    "plan": path("plans"),
    "pod": path("pod"),
    "endpoint": path("endpoints"),
    "config": path("configurations"),
    "property": path("state", "properties"),
}
#: Kind -> the command that lists its names.
_COMMANDS: Mapping[str, str] = {
    "plan": "plan list",
    "phase": "plan status {plan}",
    "step": "plan status {plan}",
    "pod": "pod list",
    "task": "tasks",
    "endpoint": "endpoints",
    "config": "config list",
    "property": "state properties",
}
#: Of the plan that is named; else of the one that rolls out options.
_PARTS = ("phase", "step")
_SHOWN = 12  # names in a hint
#: With these words the scheduler lists names itself.
_LISTED = "there are: "


def names(service: Service, kind: str, given: Given) -> list[str]:
    """Every name of this kind. Raise CommandError, as the request for them does."""
    if kind in _LISTS:
        return [str(name) for name in service.get(_LISTS[kind])]
    if kind == "task":
        return [task["name"] for task in service.get(path("tasks"))["tasks"]]
    if kind in _PARTS:
        plan = given.get("plan") or roll_out(service)
        phases = service.get(path("plans", plan), IN_ERROR)["phases"]
        if kind == "phase":
            return [phase["name"] for phase in phases]
        return [step["name"] for phase in phases if phase["name"] == given.get("phase") for step in phase["steps"]]
    return []


def hint(service: Service, command: Command, given: Given, told: str = "") -> str:
    """Which of the names is wrong, what there is instead, and the command that tells; empty: nothing is known.

    `told`: what the scheduler said. Names that it has listed are not listed again.
    """
    for argument in command.arguments:
        found = _unknown(service, argument, given, told)
        if found is not None:
            return found
    return ""


def _unknown(service: Service, argument: Argument, given: Given, told: str) -> str | None:
    value = given.get(argument.name)
    if not value or argument.kind not in _COMMANDS:
        return None
    try:
        known = names(service, argument.kind, given)
    except CommandError:
        return None
    if value in known:
        return None
    listing = _COMMANDS[argument.kind] if given.get("plan") or argument.kind not in _PARTS else "update status"
    return f"\n{_instead(str(value), known, told)}See: {service.program} {listing.format(**given)}"


def _instead(value: str, known: list[str], told: str) -> str:
    close: Any = get_close_matches(value, known, n=_SHOWN)
    if close:
        *others, last = [name for name in known if name in close]
        return f"Did you mean {', '.join(others)}{' or ' if others else ''}{last}? "
    if _LISTED in told:
        return ""
    if not known:
        return "There are none. "
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return f"There are: {', '.join(known[:_SHOWN])}{more}. "
