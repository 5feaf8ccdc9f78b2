"""`config`, `state`, `secrets`, `describe`, `endpoints` ...: what the service is told, and says of itself."""

from __future__ import annotations

import json
from typing import Any, Iterator, Mapping

from . import configurations
from .command import Argument, Command, Fetch, Given
from .parts import Line, Parts, Table, Word, status
from .plans import show_message, show_names
from .service import Service, path


def _at(*parts: str) -> Fetch:
    def fetch(service: Service, _given: Given) -> Any:
        return service.get(path(*parts))

    return fetch


def _named(argument: str, *parts: str) -> Fetch:
    def fetch(service: Service, given: Given) -> Any:
        return service.get(path(*parts, given[argument]))

    return fetch


def as_json(found: Any, _given: Given) -> Parts:
    """A document is shown as it is."""
    return (json.dumps(found, indent=2),)


def _endpoints(service: Service, given: Given) -> Any:
    return service.get(path("endpoints", given["endpoint"]) if given.get("endpoint") else path("endpoints"))


def _show_endpoints(found: Any, given: Given) -> Iterator[Any]:
    if not given.get("endpoint"):
        yield from found
        return
    rows = [(kind, str(place)) for kind, places in found.items() for place in _listed(places)]
    yield Table(("", "where"), rows, empty="It has no address yet.")


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _refresh(service: Service, _given: Given) -> Any:
    return service.put(path("state", "refresh"))


def _refresh_secrets(service: Service, _given: Given) -> Any:
    return service.post(path("tf", "secrets", "refresh"))


#: Statuses of the API's health that are no failure of the request.
_HEALTH = (203, 205, 206, 207, 318, 319, 320, 321, 500)
#: HTTP allows these no body.
_SILENT = {204: "deploying: nothing is launched yet", 205: "recovering"}
_ID = Argument("id", "config", help="Id of a configuration.")
_PROPERTY = Argument("property", "property", help="Name of a property.")


def _describe(service: Service, _given: Given) -> Any:
    """The options with every default, as DC/OS keeps them; without DC/OS what the scheduler made of them."""
    if service.direct:
        return service.get(path("configurations", "target"))
    return service.cosmos("service.describe", "cosmos/service/describe", app(service))["resolvedOptions"]


def app(service: Service) -> Mapping[str, Any]:
    """How Cosmos is told which service is meant."""
    return {"appId": "/" + service.name.strip("/")}


def _health(service: Service, _given: Given) -> Any:
    status, found = service.look(path("health"), _HEALTH, verbose="true")
    return found or {"value": status, "reasons": [_SILENT.get(status, "")]}


def _show_health(found: Any, _given: Given) -> Iterator[Any]:
    value = found["value"]
    yield Line((Word(str(value), "bad" if value >= 400 else "good"), "  ", "; ".join(found.get("reasons") or ())))


def _result(service: Service, _given: Given) -> Any:
    return service.get(path("tf", "result"))


def show_result(found: Mapping[str, Any], _given: Given) -> Parts:
    """One sentence."""
    if found["verdict"] is None:
        return (Line((Word("not decided yet", "wait"),)),)
    return (Line((status(found["verdict"]), ": ", str(found["reason"]))),)


COMMANDS = (
    Command(
        "endpoints",
        "Where the tasks are reached: the names, or the addresses of ENDPOINT.",
        _endpoints,
        _show_endpoints,
        (Argument("endpoint", "endpoint", required=False, help="Name of an endpoint."),),
        aliases=("endpoint",),
        sdk_json=True,
    ),
    Command(
        "config list",
        "The configurations: their ids, when they were made, what each has changed.",
        configurations.ids,
        configurations.show_stored,
        read=configurations.stored,
        sdk_json=True,
        aliases=("debug config list",),
    ),
    Command(
        "config show",
        "A configuration.",
        _named("id", "configurations"),
        as_json,
        (_ID,),
        aliases=("debug config show",),
    ),
    Command(
        "config target",
        "The configuration that is aimed at.",
        _at("configurations", "target"),
        as_json,
        aliases=("debug config target",),
    ),
    Command(
        "config target-id",
        "Its id.",
        _at("configurations", "targetId"),
        show_names,
        sdk_json=True,
        aliases=("config target_id", "debug config target_id"),
    ),
    Command(
        "state framework-id",
        "The id of the framework in Mesos.",
        _at("state", "frameworkId"),
        show_names,
        sdk_json=True,
        aliases=("state framework_id", "debug state framework_id"),
    ),
    Command(
        "state properties",
        "The names of what is stored.",
        _at("state", "properties"),
        show_names,
        sdk_json=True,
        aliases=("debug state properties",),
    ),
    Command(
        "state property",
        "One of them.",
        _named("property", "state", "properties"),
        as_json,
        (_PROPERTY,),
        aliases=("debug state property",),
    ),
    Command(
        "state refresh",
        "Read what is stored anew.",
        _refresh,
        show_message,
        aliases=("state refresh_cache", "debug state refresh_cache"),
    ),
    Command("secrets refresh", "Programs that run get new values of secrets now.", _refresh_secrets, show_message),
    Command("describe", "The options of the service, with every default.", _describe, as_json),
    Command("health", "How the service is.", _health, _show_health),
    Command("result", "How the training ended.", _result, show_result),
)
