"""What Marathon demands of an app beyond its schema: the rules that a scheduler's app can break, one function each.

Facts: mesosphere/marathon, api/v2/validation (AppValidation, SchedulingValidation, EnvVarValidation).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tf_scheduler.errors import Problem

from .options_check import mismatches

App = Mapping[str, Any]

_ID = re.compile(r"/?[a-z0-9]([a-z0-9.-]*[a-z0-9])?(/[a-z0-9]([a-z0-9.-]*[a-z0-9])?)*")
_PORT_NAME = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_COUNT = {"type": "integer", "minimum": 0}
_AMOUNT = {"type": "number", "minimum": 0}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}

#: The members that we look at; others are left to the real Marathon.
SHAPE: Mapping[str, Any] = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "string"},
        "cmd": {"type": ["string", "null"], "minLength": 1},
        "user": {"type": "string"},
        "role": {"type": "string"},
        "instances": _COUNT,
        **dict.fromkeys(("cpus", "mem", "disk", "gpus"), _AMOUNT),
        "env": {"type": "object", "additionalProperties": {"type": ["string", "object"]}},
        "labels": _TEXTS,
        "fetch": {"type": "array", "items": {"type": "object", "required": ["uri"]}},
        "healthChecks": {"type": "array", "items": {"type": "object"}},
        "portDefinitions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "port": {"type": "integer", "minimum": 0, "maximum": 65535},
                    "name": {"type": "string", "pattern": _PORT_NAME},
                    "labels": _TEXTS,
                },
            },
        },
    },
}


def app_problems(app: App) -> list[Problem]:
    """Everything that Marathon would answer 422 for; empty for an app that it takes."""
    found = [Problem(entry["instance"]["pointer"] or "/", entry["message"]) for entry in mismatches(app, SHAPE)]
    return found or [problem for rule in RULES for problem in rule(app)]


def the_id_is_a_path(app: App) -> Iterator[Problem]:
    if not _ID.fullmatch(app["id"]):
        yield Problem("/id", f"{app['id']!r} is no path of lower-case letters, digits, dots and dashes")


def there_is_a_command_or_an_image(app: App) -> Iterator[Problem]:
    given = [name for name in ("cmd", "args", "container") if app.get(name) is not None]
    if given[:2] == ["cmd", "args"]:
        yield Problem("/", "has both cmd and args")
    if not given:
        yield Problem("/", "has neither cmd nor args nor container")


def secrets_in_the_environment_are_declared(app: App) -> Iterator[Problem]:
    for name, value in app.get("env", {}).items():
        if isinstance(value, Mapping) and value.get("secret") not in app.get("secrets", {}):
            yield Problem(f"/env/{name}", f"references an undefined secret named {value.get('secret')!r}")


def a_single_instance_app_has_one_instance_and_no_overlap(app: App) -> Iterator[Problem]:
    if app.get("labels", {}).get("MARATHON_SINGLE_INSTANCE_APP") != "true":
        return
    if app.get("instances", 1) > 1:
        yield Problem("/instances", "a single instance app may have one instance only")
    if app.get("upgradeStrategy", {"minimumHealthCapacity": 0, "maximumOverCapacity": 0}) != {
        "minimumHealthCapacity": 0,
        "maximumOverCapacity": 0,
    }:
        yield Problem("/upgradeStrategy", "of a single instance app must be 0 and 0")


def health_checks_name_a_port_that_there_is(app: App) -> Iterator[Problem]:
    ports = len(app.get("portDefinitions", ()))
    for index, check in enumerate(app.get("healthChecks", ())):
        if check.get("protocol") != "COMMAND" and "port" not in check and check.get("portIndex", 0) >= ports:
            yield Problem(f"/healthChecks/{index}/portIndex", f"there are {ports} ports only")


def at_most_one_health_check_is_done_by_mesos(app: App) -> Iterator[Problem]:
    if sum(str(check.get("protocol", "")).startswith("MESOS_") for check in app.get("healthChecks", ())) > 1:
        yield Problem("/healthChecks", "at most one MESOS_ check is allowed")


RULES: tuple[Callable[[App], Iterator[Problem]], ...] = (
    the_id_is_a_path,
    there_is_a_command_or_an_image,
    secrets_in_the_environment_are_declared,
    a_single_instance_app_has_one_instance_and_no_overlap,
    health_checks_name_a_port_that_there_is,
    at_most_one_health_check_is_done_by_mesos,
)
