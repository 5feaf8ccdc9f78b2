"""`update ...` and `uninstall`: what is asked of DC/OS' package service, and the plans that follow from it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Mapping

from .command import Argument, Command, Fetch, Given, Option
from .errors import CommandError, UsageError
from .parts import Parts
from .plans import IN_ERROR, show_message, tree
from .service import Service, path
from .settings import app, as_json

#: Plans that roll out options: the first of them that there is.
_UPDATE, _DEPLOY = "update", "deploy"
PACKAGE = "tensorflow"


def _start(service: Service, given: Given) -> Any:
    body: dict[str, Any] = {**app(service), "replace": bool(given.get("replace"))}
    if given.get("options"):
        body["options"] = _document(given["options"])
    if given.get("package_version"):
        body["packageVersion"] = given["package_version"]
    if len(body) == 2:
        raise UsageError("nothing to update: give --options FILE, or --package-version")
    return service.cosmos("service.update", "cosmos/service/update", body)


def _document(file: str) -> Any:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        found = json.loads(text)
    except OSError as error:
        raise CommandError(f"--options {file}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"--options {file}: {error}") from error
    if not isinstance(found, dict):
        raise CommandError(f"--options {file}: must be a JSON object")
    return found


def _show_start(_found: Any, given: Given) -> Parts:
    return (f"The update is under way. Follow it with: {given['program']} update status",)


def _plan(service: Service) -> str:
    return _UPDATE if _UPDATE in service.get(path("plans")) else _DEPLOY


def _status(service: Service, _given: Given) -> Any:
    name = _plan(service)
    return {"plan": name, **service.get(path("plans", name), IN_ERROR)}


def _show_status(found: Mapping[str, Any], _given: Given) -> Parts:
    return tree(found["plan"], found)


def _command(verb: str) -> Fetch:
    def send(service: Service, given: Given) -> Any:
        return service.post(path("plans", _plan(service), verb), phase=given.get("phase"), step=given.get("step"))

    return send


def _versions(service: Service, _given: Given) -> Any:
    found = service.cosmos("service.describe", "cosmos/service/describe", app(service))
    current = found["package"]["version"]
    return {"current": current, "upgrades": found.get("upgradesTo", []), "downgrades": found.get("downgradesTo", [])}


def _uninstall(service: Service, _given: Given) -> Any:
    return service.cosmos("package.uninstall", "package/uninstall", {"packageName": PACKAGE, **app(service)})


def _show_uninstall(found: Mapping[str, Any], given: Given) -> Parts:
    for result in found["results"]:
        yield f"{result['appId']} is being uninstalled. Follow it with: {given['program']} plan status deploy"


_PHASE = Argument("phase", required=False, help="Name or id of a phase.")
_STEP = Argument("step", required=False, help="Name or id of a step of the phase.")
COMMANDS = (
    Command(
        "update start",
        "Give the service other options: on top of its own, and what they concern is launched again.",
        _start,
        _show_start,
        (),
        (
            Option("options", "JSON file of options; - for standard input.", metavar="FILE"),
            Option("replace", "Forget the options that it has.", "flag"),
            Option("package-version", "Another version of the package.", metavar="VERSION"),
        ),
    ),
    Command("update status", "How far it is.", _status, _show_status, aliases=("update show",)),
    Command("update pause", "Begin no further step.", _command("interrupt"), show_message, (_PHASE,)),
    Command("update resume", "Go on.", _command("continue"), show_message, (_PHASE,)),
    Command("update force-restart", "From the beginning.", _command("restart"), show_message, (_PHASE, _STEP)),
    Command(
        "update force-complete",
        "Count as complete, whatever it is.",
        _command("forceComplete"),
        show_message,
        (_PHASE, _STEP),
    ),
    Command("update package-versions", "The version, and which it can be changed to.", _versions, as_json),
    Command(
        "uninstall",
        "End the service: its tasks, its reservations, its state.",
        _uninstall,
        _show_uninstall,
        confirm="End the service, its tasks, and forget what is stored of it?",
    ),
)
