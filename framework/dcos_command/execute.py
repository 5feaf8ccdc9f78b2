"""Run a command: send requests, print the answer, suggest names after a wrong one."""

from __future__ import annotations

import json
import sys
import time
from difflib import get_close_matches
from typing import Any, Iterator, Mapping, Sequence

from . import logs, plans, service, tasks, update
from .client import ServiceClient, api_path
from .command import Command, CommandArgument, Params
from .errors import CommandError, RefusedError, UnreachableError
from .output import Line, Renderable, Screen, confirm, dim
from .plans import fetch_plan, rollout_plan

COMMANDS: tuple[Command, ...] = (*plans.COMMANDS, *tasks.COMMANDS, *logs.COMMANDS, *service.COMMANDS, *update.COMMANDS)
#: First words of commands -> their help.
GROUPS: Mapping[str, str] = {
    "plan": "Show and control the plans of the service.",
    "pod": "Show, restart, replace and pause pods.",
    "config": "Show configurations.",
    "state": "Show the scheduler's stored state.",
    "secrets": "Manage secrets of tasks.",
    "update": "Change or roll back options of the service.",
    "debug": "Show offer decisions.",
    "debug config": "Same as `config`.",
    "debug pod": "Same as `pod`.",
    "debug state": "Same as `state`.",
}
#: Group -> examples of its help.
GROUP_EXAMPLES: Mapping[str, Sequence[str]] = {
    "plan": ("plan status", "plan pause deploy worker"),
    "pod": ("pod status worker-0", "pod restart worker-0"),
    "config": ("config list", "config show ID"),
    "state": ("state properties", "state property worker-0:task-status"),
    "secrets": ("secrets refresh",),
    "update": ("update start --options options.json", "update rollback"),
    "debug": ("debug offers",),
}
#: Alternative names of groups: those of the DC/OS SDK.
GROUP_ALIASES: Mapping[str, str] = {"plans": "plan", "pods": "pod"}

#: Kind -> where the API lists its names.
_LIST_PATHS: Mapping[str, str] = {
    "plan": api_path("plans"),
    "pod": api_path("pod"),
    "endpoint": api_path("endpoints"),
    "config": api_path("configurations"),
    "property": api_path("state", "properties"),
}
#: Kind -> the command that lists its names.
LIST_COMMANDS: Mapping[str, str] = {
    "plan": "plan list",
    "phase": "plan status {plan}",
    "step": "plan status {plan}",
    "pod": "pod list",
    "task": "tasks",
    "endpoint": "endpoints",
    "config": "config list",
    "property": "state properties",
}
#: Parts of the named plan, or of the one that rolls out options.
_PLAN_PARTS = ("phase", "step")
_MAX_NAMES = 12  # names in a hint


def valid_names(service: ServiceClient, kind: str, params: Params) -> list[str]:
    """Every name of this kind. Raise CommandError."""
    if kind in _LIST_PATHS:
        return [str(name) for name in service.get(_LIST_PATHS[kind])]
    if kind == "task":
        return [task["name"] for task in service.get(api_path("tasks"))["tasks"]]
    if kind in _PLAN_PARTS:
        phases = fetch_plan(service, params.get("plan") or rollout_plan(service))["phases"]
        if kind == "phase":
            return [phase["name"] for phase in phases]
        return [step["name"] for phase in phases if phase["name"] == params.get("phase") for step in phase["steps"]]
    return []


def _name_hint(service: ServiceClient, command: Command, params: Params, *, listed: bool) -> str:
    """Return the argument's valid names and the command that lists them, if known.

    `listed`: the scheduler's message lists the names, so they are not repeated.
    """
    values = [(argument, params.get(argument.name) or "") for argument in command.arguments]
    each = ((argument, one) for argument, value in values for one in (value if argument.many else (value,)))
    hints = (_argument_hint(service, argument, value, params, listed) for argument, value in each)
    return next(filter(None, hints), "")


def _argument_hint(service: ServiceClient, argument: CommandArgument, value: Any, params: Params, listed: bool) -> str:
    if not value or argument.kind not in LIST_COMMANDS:
        return ""
    try:
        names = valid_names(service, argument.kind, params)
    except CommandError:
        return ""
    if value in names:
        return ""
    in_rollout = argument.kind in _PLAN_PARTS and not params.get("plan")
    listing = "update status" if in_rollout else LIST_COMMANDS[argument.kind].format(**params)
    return f"\n{_suggestion(str(value), argument.kind, names, listed)}See: {service.program} {listing}"


def _suggestion(value: str, kind: str, names: list[str], listed: bool) -> str:
    close: Any = get_close_matches(value, names, n=_MAX_NAMES)
    if close:
        *others, last = [name for name in names if name in close]
        return f"Did you mean {', '.join(others)}{' or ' if others else ''}{last}? "
    if listed:
        return ""
    if not names:
        return f"No {kind} exists. "
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"Valid names: {', '.join(names[:_MAX_NAMES])}{more}. "


_REFRESH_SECONDS = 0.5
_MAX_FAILURES = 20  # polls without an answer, in which a restarted scheduler usually comes back
#: Statuses of the answer to a wrong name.
_NAME_ERROR_CODES = (400, 404)


def perform(command: Command, service: ServiceClient, params: Params, screen: Screen, *, as_json: bool) -> int:
    """Run the command and show the answer; return the exit code.

    Confirms first if required, unless `yes` is given. Raise CommandError; after a wrong name with the valid ones.
    """
    params = {**params, "program": service.program}  # for hints
    try:
        if command.preview is not None:
            effects, more = command.preview(service, params)
            Screen(sys.stderr).show(effects)  # standard output is for the answer
            params = {**params, **more}
        if command.confirm and not params.get("yes"):
            confirm(command.confirm.format(**params), sys.stdin, sys.stderr)
        return _perform(command, service, params, screen, as_json)
    except RefusedError as error:
        wrong_name = error.http_status in _NAME_ERROR_CODES
        hint = _name_hint(service, command, params, listed=error.lists_names) if wrong_name else ""
        raise RefusedError(f"{error}{hint}", error.http_status, error.kind) from error


def _perform(command: Command, service: ServiceClient, params: Params, screen: Screen, as_json: bool) -> int:
    if params.get("follow") and command.follow is not None and command.show_item is not None:
        with screen.quit_on_close():
            for item in command.follow(service, params):
                screen.show((json.dumps(item),) if as_json else command.show_item(item, params))
        return 0
    if command.poll_until is not None and screen.is_interactive and not as_json:
        answers: list[Any] = []
        screen.show_live(_frames(command, service, params, answers))
        return command.exit_code(answers[-1])
    answer = (command.fetch if as_json else command.fetch_for_humans or command.fetch)(service, params)
    screen.show((json.dumps(answer, indent=2),) if as_json else command.show(answer, params))
    return command.exit_code(answer)


def _frames(command: Command, service: ServiceClient, params: Params, answers: list[Any]) -> Iterator[Renderable]:
    """Yield the answer repeatedly until the command is done or requests fail.

    The last answer is appended to `answers`.
    """
    assert command.poll_until is not None, "checked by the caller"
    frame: list[Any] = []
    failures = 0
    while True:
        try:
            last = command.poll_until(service)
            frame = list(command.show(command.fetch(service, params), params))
            failures = 0
        except UnreachableError:
            failures += 1
            if not frame:
                raise
            # The scheduler of a local run exits with its job.
            last = service.run.result() if service.run else None
            if failures > _MAX_FAILURES and service.run is None:
                raise UnreachableError(f"{service.url} stopped answering; the service may have ended") from None
        if last is not None:
            answers.append(last)
            yield [*frame, *(command.show_last(last, params) if command.show_last else ())]
            return
        yield [*frame, Line((dim("No answer, retrying."),))] if failures else frame
        time.sleep(_REFRESH_SECONDS)
