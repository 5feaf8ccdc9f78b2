"""`update ...`: what is asked of DC/OS' package service, and the plan that follows from it."""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, Mapping

from .command import Argument, Command, Fetch, Given, Option
from .errors import CommandError, UsageError
from .overwriting import taken_away, unchanged
from .parts import Parts
from .plans import IN_ERROR, roll_out, show_message, tree
from .service import Service, path
from .settings import app, as_json
from .updating import check, described, earlier, foretold, merged, provided


def _start(service: Service, given: Given) -> Any:
    version = {"packageVersion": given["package_version"]} if given.get("package_version") else {}
    # Not all of its options: what somebody else changes at the same time is to stay.
    return _submit(service, {"options": _given(given), "replace": bool(given.get("replace")), **version}, given)


def _submit(service: Service, body: Mapping[str, Any], given: Given) -> Any:
    if body["replace"]:
        unchanged(service, given["present"], given)
    found = service.cosmos("service.update", "cosmos/service/update", {**app(service), **body})
    check(service, body["options"], given, whole=body["replace"])
    return {name: value for name, value in found.items() if name != "package"}  # its files: nobody asked for them


def _foretell_start(service: Service, given: Given) -> tuple[Parts, Given]:
    options, replaces = _given(given), bool(given.get("replace"))
    present = provided(service)
    lost = taken_away(service, present, given) if replaces else ()
    wanted = options if replaces else merged(present, options)
    told = foretold(service, wanted, given.get("package_version"), anyway=bool(lost))
    return (*lost, *told), {"present": present}


def _given(given: Given) -> Mapping[str, Any]:
    if not given.get("options") and not given.get("package_version"):
        raise UsageError("nothing to update: give --options FILE, or --package-version")
    options: Mapping[str, Any] = _document(given["options"]) if given.get("options") else {}
    return options


def _rollback(service: Service, given: Given) -> Any:
    return _submit(service, {"options": given["wanted"], "replace": True}, given)


def _foretell_rollback(service: Service, given: Given) -> tuple[Parts, Given]:
    present = provided(service)  # before it is asked for the others: what comes in between is noticed
    lost = taken_away(service, present, given)
    wanted, options = earlier(service, given)
    told = foretold(service, options, None, anyway=bool(lost))
    return (*lost, f"Back to configuration {wanted}:", *told), {"present": present, "wanted": options}


@lru_cache(maxsize=1)
def _standard_input() -> str:
    """It cannot be read again."""
    return sys.stdin.read()


def _document(file: str) -> Any:
    name = "--options - (standard input)" if file == "-" else f"--options {file}"
    try:
        text = _standard_input() if file == "-" else Path(file).read_text(encoding="utf-8")
        found = json.loads(text)
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is no text in UTF-8: see its byte {error.start}") from error
    except RecursionError as error:
        raise CommandError(f"{name} is nested too deeply") from error
    except ValueError as error:
        raise CommandError(f"{name} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise CommandError(f"{name}: must be a JSON object")
    return found


def _show_start(_found: Any, given: Given) -> Parts:
    return (f"The update is under way. Follow it with: {given['program']} update status",)


def _status(service: Service, _given: Given) -> Any:
    name = roll_out(service)
    return {"plan": name, **service.get(path("plans", name), IN_ERROR)}


def _show_status(found: Mapping[str, Any], _given: Given) -> Parts:
    return tree(found["plan"], found)


def _command(verb: str) -> Fetch:
    def send(service: Service, given: Given) -> Any:
        return service.post(path("plans", roll_out(service), verb), phase=given.get("phase"), step=given.get("step"))

    return send


def _versions(service: Service, _given: Given) -> Any:
    found = described(service)
    current = found["package"]["version"]
    return {"current": current, "upgrades": found.get("upgradesTo", []), "downgrades": found.get("downgradesTo", [])}


_FORCE = Option("force", "Though DC/OS has options that the scheduler was not started with: they are lost.", "flag")
_PHASE = Argument("phase", "phase", required=False, help="Name or id of a phase.")
_STEP = Argument("step", "step", required=False, help="Name or id of a step of the phase.")
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
            _FORCE,
        ),
        foretell=_foretell_start,
        confirm="Update the service?",
    ),
    Command(
        "update rollback",
        "Give the service the options of an earlier configuration back; without ID, those before the present ones.",
        _rollback,
        _show_start,
        (Argument("id", "config", required=False, help="Id of a configuration: config list."),),
        (_FORCE,),
        foretell=_foretell_rollback,
        confirm="Update the service?",
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
)
