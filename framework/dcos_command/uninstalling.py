"""`uninstall`: DC/OS is asked for it, and its end is waited for: only then is it known what was left behind."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any, Mapping

from .command import Command, Given, Option
from .errors import CommandError, RefusedError
from .parts import Parts
from .plans import IN_ERROR
from .screen import Screen
from .service import Service, path
from .settings import app

PACKAGE = "tensorflow"
#: The last step of the plan that takes a service down; its message says what is left behind.
FORGET = "forget-state"
_LEFT = "left behind"
_AGAIN = 0.5  # seconds between two looks
_NOT_FOUND = 404
#: Seconds that are waited at most. The scheduler's own limits are shorter (docs/updates.md), but it has to run.
LIMIT = 900


def _uninstall(service: Service, given: Given) -> Any:
    found = service.cosmos("package.uninstall", "package/uninstall", {"packageName": PACKAGE, **app(service)})
    if given.get("no_wait"):
        return found
    said = wait_for_end(service, given["timeout"])
    return {**found, "results": [{**result, "message": said} for result in found["results"]]}


def _show(found: Mapping[str, Any], given: Given) -> Parts:
    for result in found["results"]:
        if "message" in result:
            yield told(result["appId"], result["message"])
        else:
            yield f"{result['appId']} is being uninstalled. Follow it with: {given['program']} plan status deploy"


def told(app_id: str, said: str) -> str:
    """Of a service that is gone."""
    return f"{app_id} is uninstalled{f': {said}' if said else ''}"


def wait_for_end(service: Service, limit: float = LIMIT) -> str:
    """Return when DC/OS has the service no more: what its scheduler said of what is left behind; empty: nothing.

    What happens meanwhile is told on standard error: also why the scheduler ends, if it does, and is started again.
    Raise CommandError when the service is there still after `limit` seconds.
    """
    name, told = app(service)["appId"], Screen(sys.stderr)
    told.show((f"{name} is being uninstalled. Ctrl-C ends the waiting, not that.",))
    said, done, failure, until = "", False, "", time.monotonic() + limit
    while (found := _found(service, done)) is not None:
        newer, done = last_words(_plan(service))
        # One that is started once more has forgotten what the one before it left.
        said = newer if newer.startswith(_LEFT) or (not said.startswith(_LEFT) and newer) else said
        if (last := why_it_ended(found)) not in ("", failure):
            failure = last
            told.show((f"its scheduler ended, and is started again: {failure}",))
        if time.monotonic() > until:
            raise CommandError(_not_gone(name, limit, said or failure))
        time.sleep(_AGAIN)
    return said


def why_it_ended(found: Mapping[str, Any]) -> str:
    """What Marathon says of the last scheduler of an app that ended by itself; empty: none of this version did."""
    last = found.get("lastTaskFailure") or {}
    message = str(last.get("message") or "")
    if not message or last.get("version") != found.get("version"):
        return ""
    # Marathon itself knows no more than a number.
    return message if "\n" in message else f"{message} (its log: dcos task log --completed {last.get('taskId')} stderr)"


def _not_gone(name: str, limit: float, said: str) -> str:
    why = said or "its scheduler does not say why"
    return (
        f"{name} is not gone after {limit:g} s: {why}. It goes on; wait for it again with this command. If its "
        f"scheduler cannot run, `dcos marathon app remove {name}` gives it up: "
        "Mesos ends its tasks after its failover timeout"
    )


def _plan(service: Service) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = service.get(path("plans", "deploy"), IN_ERROR)
    except CommandError:
        return {"phases": []}  # it starts, or ends just now
    return found


def last_words(plan: Mapping[str, Any]) -> tuple[str, bool]:
    """What its last step says of what is left behind, and whether that is all."""
    steps = (step for phase in plan["phases"] for step in phase["steps"])
    last = next((step for step in steps if step["name"] == FORGET), None)
    if last is None:
        return "", False
    done, message = last["status"] == "COMPLETE", str(last["message"])
    return (message if done or message.startswith(_LEFT) else ""), done


def _found(service: Service, done: bool) -> Mapping[str, Any] | None:
    """The app, as Marathon has it; None: it is gone. Who may not see it has to do with what its scheduler said."""
    try:
        found: Mapping[str, Any] = replace(service, name="marathon").get(f"v2/apps/{service.name.strip('/')}")
    except RefusedError as error:
        return None if error.status == _NOT_FOUND or done else {}
    return dict(found.get("app") or {})


COMMANDS = (
    Command(
        "uninstall",
        "End the service: its tasks, its reservations, its state. Tells what was left behind, if anything was.",
        _uninstall,
        _show,
        (),
        (
            Option("no-wait", "Do not wait for the end of it.", "flag"),
            Option("timeout", "Wait so many seconds at most.", "number", metavar="SECONDS", default=LIMIT, least=0),
        ),
        confirm="End the service, its tasks, and forget what is stored of it?",
    ),
)
