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


def _uninstall(service: Service, given: Given) -> Any:
    found = service.cosmos("package.uninstall", "package/uninstall", {"packageName": PACKAGE, **app(service)})
    if given.get("no_wait"):
        return found
    Screen(sys.stderr).show((f"{app(service)['appId']} is being uninstalled. Ctrl-C ends the waiting, not that.",))
    said = wait_for_end(service)
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


def wait_for_end(service: Service) -> str:
    """Return when DC/OS has the service no more: what its scheduler said of what is left behind; empty: nothing."""
    said, done = "", False
    while _is_there(service, done):
        newer, done = last_words(_plan(service))
        said = newer or said
        time.sleep(_AGAIN)
    return said


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


def _is_there(service: Service, done: bool) -> bool:
    """Whether Marathon has the app; who may not see it has to do with what its scheduler said."""
    try:
        replace(service, name="marathon").get(f"v2/apps/{service.name.strip('/')}")
    except RefusedError as error:
        return error.status != _NOT_FOUND and not done
    return True


COMMANDS = (
    Command(
        "uninstall",
        "End the service: its tasks, its reservations, its state. Tells what was left behind, if anything was.",
        _uninstall,
        _show,
        (),
        (Option("no-wait", "Do not wait for the end of it.", "flag"),),
        confirm="End the service, its tasks, and forget what is stored of it?",
    ),
)
