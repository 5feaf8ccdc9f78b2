"""`uninstall`: DC/OS is asked for it, and its end is waited for: only then is it known what was left behind."""

from __future__ import annotations

import sys
import time
from typing import Any, Mapping

from .client import ServiceClient, api_path, app_id, installation_of
from .command import Command, CommandOption, Params
from .errors import CommandError
from .output import Renderable, Screen
from .plans import PLAN_ERROR_CODES

#: The last step of the plan that takes a service down; its message says what is left behind.
LAST_STEP = "forget-state"
_LEFT_BEHIND = "left behind"
_POLL_SECONDS = 0.5  # seconds between two looks
#: Seconds that are waited at most. The scheduler's own limits are shorter (docs/updates.md), but it has to run.
TIMEOUT = 900


def _uninstall(service: ServiceClient, given: Params) -> Any:
    found = installation_of(service).uninstall()
    if given.get("no_wait"):
        return found
    said = wait_for_end(service, given["timeout"])
    return {**found, "results": [{**result, "message": said} for result in found["results"]]}


def _show(found: Mapping[str, Any], given: Params) -> Renderable:
    for result in found["results"]:
        if "message" in result:
            yield uninstalled_message(result["appId"], result["message"])
        else:
            yield f"{result['appId']} is being uninstalled. Follow it with: {given['program']} plan status deploy"


def uninstalled_message(app_id: str, said: str) -> str:
    """Of a service that is gone."""
    return f"{app_id} is uninstalled{f': {said}' if said else ''}"


def wait_for_end(service: ServiceClient, limit: float = TIMEOUT) -> str:
    """Return when DC/OS has the service no more: what its scheduler said of what is left behind; empty: nothing.

    What happens meanwhile is told on standard error: also why the scheduler ends, if it does, and is started again.
    Raise CommandError when the service is there still after `limit` seconds.
    """
    name, told = app_id(service), Screen(sys.stderr)
    told.show((f"{name} is being uninstalled. Ctrl-C ends the waiting, not that.",))
    said, done, failure, until = "", False, "", time.monotonic() + limit
    installation = installation_of(service)
    while (last := installation.last_failure(finished=done)) is not None:
        newer, done = leftovers_message(_plan(service))
        # One that is started once more has forgotten what the one before it left.
        said = newer if newer.startswith(_LEFT_BEHIND) or (not said.startswith(_LEFT_BEHIND) and newer) else said
        if last not in ("", failure):
            failure = last
            told.show((f"its scheduler ended, and is started again: {failure}",))
        if time.monotonic() > until:
            raise CommandError(_not_gone(name, limit, said or failure))
        time.sleep(_POLL_SECONDS)
    return said


def _not_gone(name: str, limit: float, said: str) -> str:
    why = said or "its scheduler does not say why"
    return (
        f"{name} is not gone after {limit:g} s: {why}. It goes on; wait for it again with this command. If its "
        f"scheduler cannot run, `dcos marathon app remove {name}` gives it up: "
        "Mesos ends its tasks after its failover timeout"
    )


def _plan(service: ServiceClient) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = service.get(api_path("plans", "deploy"), PLAN_ERROR_CODES)
    except CommandError:
        return {"phases": []}  # it starts, or ends just now
    return found


def leftovers_message(plan: Mapping[str, Any]) -> tuple[str, bool]:
    """What its last step says of what is left behind, and whether that is all."""
    steps = (step for phase in plan["phases"] for step in phase["steps"])
    last = next((step for step in steps if step["name"] == LAST_STEP), None)
    if last is None:
        return "", False
    done, message = last["status"] == "COMPLETE", str(last["message"])
    return (message if done or message.startswith(_LEFT_BEHIND) else ""), done


COMMANDS = (
    Command(
        "uninstall",
        "End the service: its tasks, its reservations, its state. Tells what was left behind, if anything was.",
        _uninstall,
        _show,
        (),
        (
            CommandOption("no-wait", "Do not wait for the end of it.", "flag"),
            CommandOption(
                "timeout", "Wait so many seconds at most.", "number", metavar="SECONDS", default=TIMEOUT, minimum=0
            ),
        ),
        confirm="End the service, its tasks, and forget what is stored of it?",
    ),
)
