"""Run one command of the table: ask the service, print the answer, and suggest names after a wrong one."""

from __future__ import annotations

import json
import sys
import time
from difflib import get_close_matches
from typing import Any, Iterator, Mapping

from . import logs, plans, pods, progress, service, tasks, uninstall, update
from .client import ServiceClient, api_path
from .command import Command, CommandArgument, Params
from .errors import CommandError, RefusedError, UnreachableError
from .output import Line, Renderable, Screen, confirm, dim
from .plans import PLAN_ERROR_CODES, rollout_plan

COMMANDS: tuple[Command, ...] = (
    *plans.COMMANDS,
    *pods.COMMANDS,
    *tasks.COMMANDS,
    *logs.COMMANDS,
    *progress.COMMANDS,
    *service.COMMANDS,
    *update.COMMANDS,
    *uninstall.COMMANDS,
)
#: Words that commands begin with -> what they are about.
GROUPS: Mapping[str, str] = {
    "plan": "Ordered work: what is done, what is left; go on, wait, or begin again.",
    "pod": "The tasks as the DC/OS SDK speaks of them: launch again, replace, pause.",
    "config": "What the service is made of.",
    "state": "What the scheduler has stored.",
    "secrets": "What programs get of passwords and keys.",
    "update": "Give the service other options.",
    "debug": "What the scheduler thought of offers, and what is reserved.",
    "debug config": "As `config`.",
    "debug pod": "As `pod`.",
    "debug state": "As `state`.",
}
#: Other words for the first of them: those of the DC/OS SDK.
GROUP_ALIASES: Mapping[str, str] = {"plans": "plan", "pods": "pod"}


#: Kind -> where its names are listed.
_LIST_PATHS: Mapping[str, str] = {
    "plan": api_path("plans"),
    "pod": api_path("pod"),
    "endpoint": api_path("endpoints"),
    "config": api_path("configurations"),
    "property": api_path("state", "properties"),
}
#: Kind -> the command that lists its names.
_LIST_COMMANDS: Mapping[str, str] = {
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
_PLAN_PARTS = ("phase", "step")
_MAX_NAMES = 12  # names in a hint


def valid_names(service: ServiceClient, kind: str, given: Params) -> list[str]:
    """Every name of this kind. Raise CommandError, as the request for them does."""
    if kind in _LIST_PATHS:
        return [str(name) for name in service.get(_LIST_PATHS[kind])]
    if kind == "task":
        return [task["name"] for task in service.get(api_path("tasks"))["tasks"]]
    if kind in _PLAN_PARTS:
        plan = given.get("plan") or rollout_plan(service)
        phases = service.get(api_path("plans", plan), PLAN_ERROR_CODES)["phases"]
        if kind == "phase":
            return [phase["name"] for phase in phases]
        return [step["name"] for phase in phases if phase["name"] == given.get("phase") for step in phase["steps"]]
    return []


def name_hint(service: ServiceClient, command: Command, given: Params, *, listed: bool = False) -> str:
    """Return which name is wrong, the valid names, and the command that lists them; empty: not known.

    `listed`: the scheduler's message lists the names, so they are not listed again.
    """
    for argument in command.arguments:
        found = _argument_hint(service, argument, given, listed)
        if found is not None:
            return found
    return ""


def _argument_hint(service: ServiceClient, argument: CommandArgument, given: Params, listed: bool) -> str | None:
    value = given.get(argument.name)
    if not value or argument.kind not in _LIST_COMMANDS:
        return None
    try:
        known = valid_names(service, argument.kind, given)
    except CommandError:
        return None
    if value in known:
        return None
    listing = (
        _LIST_COMMANDS[argument.kind] if given.get("plan") or argument.kind not in _PLAN_PARTS else "update status"
    )
    return f"\n{_suggestion(str(value), known, listed)}See: {service.program} {listing.format(**given)}"


def _suggestion(value: str, known: list[str], listed: bool) -> str:
    close: Any = get_close_matches(value, known, n=_MAX_NAMES)
    if close:
        *others, last = [name for name in known if name in close]
        return f"Did you mean {', '.join(others)}{' or ' if others else ''}{last}? "
    if listed:
        return ""
    if not known:
        return "There are none. "
    more = f" and {len(known) - _MAX_NAMES} more" if len(known) > _MAX_NAMES else ""
    return f"There are: {', '.join(known[:_MAX_NAMES])}{more}. "


_REFRESH_SECONDS = 0.5  # seconds between two looks
_MAX_FAILURES = 20  # looks without an answer: a scheduler that is started again is mostly there by then
#: Statuses with which a wrong name is answered.
_NAME_ERROR_CODES = (400, 404)


def perform(command: Command, service: ServiceClient, given: Params, screen: Screen, *, as_json: bool) -> None:
    """Ask, and show what is answered. What cannot be undone is confirmed first, unless `yes` is given.

    Raise CommandError; where a name is wrong, it tells those that there are.
    """
    given = {**given, "program": service.program}  # for those who tell what to do next
    try:
        if command.preview is not None:
            told, found = command.preview(service, given)
            Screen(sys.stderr).show(told)  # not among what is printed of the answer
            given = {**given, **found}
        if command.confirm and not given.get("yes"):
            confirm(command.confirm.format(**given), sys.stdin, sys.stderr)
        _perform(command, service, given, screen, as_json)
    except RefusedError as error:
        known = (
            name_hint(service, command, given, listed=error.lists_names)
            if error.http_status in _NAME_ERROR_CODES
            else ""
        )
        raise RefusedError(f"{error}{known}", error.http_status, error.kind) from error


def _perform(command: Command, service: ServiceClient, given: Params, screen: Screen, as_json: bool) -> None:
    if given.get("follow") and command.follow is not None and command.show_item is not None:
        with screen.quit_on_close():
            for item in command.follow(service, given):
                screen.show((json.dumps(item),) if as_json else command.show_item(item, given))
    elif command.poll_until is not None and screen.is_interactive and not as_json:
        screen.show_live(_frames(command, service, given))
    else:
        found = (command.fetch if as_json else command.fetch_for_humans or command.fetch)(service, given)
        screen.show((json.dumps(found, indent=2),) if as_json else command.show(found, given))


def _frames(command: Command, service: ServiceClient, given: Params) -> Iterator[Renderable]:
    """What is to be seen now, again and again, until the end, or until nothing has answered for a while."""
    assert command.poll_until is not None, "the caller has looked"
    shown: list[Any] = []
    failures = 0
    while True:
        try:
            last = command.poll_until(service)
            shown = [*command.show(command.fetch(service, given), given), *(last or ())]
            failures = 0
        except UnreachableError:
            failures += 1
            if not shown:
                raise
            if failures > _MAX_FAILURES:
                raise UnreachableError(f"{service.url} does not answer any more: the service has ended") from None
            last = None
        yield [*shown, Line((dim("No answer: asking again."),))] if failures else shown
        if last is not None:
            return
        time.sleep(_REFRESH_SECONDS)
