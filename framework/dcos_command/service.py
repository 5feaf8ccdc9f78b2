"""`config`, `state`, `secrets`, `describe`, `endpoints`, `debug` ...: what the service is made of and has done."""

from __future__ import annotations

import json
from typing import Any, Iterator, Mapping, Sequence

from .client import ServiceClient, api_path, installation_of
from .command import Command, CommandArgument, Fetch, Params
from .errors import RefusedError
from .logs import local_time
from .output import Line, Renderable, Table, Word, status_word
from .plans import show_message, show_names

_GONE = 404
_MAX_CHANGES = 3  # options
_MAX_VALUE = 24  # characters of a value

Options = Mapping[str, Any]


def fetch_configuration_ids(service: ServiceClient, _given: Params) -> Any:
    """As the API gives them, newest first: the target, the one before, and so on."""
    return service.get(api_path("configurations"))


def fetch_configurations(service: ServiceClient, given: Params) -> Any:
    """The same, each with all that is known of it."""
    return [found for name in fetch_configuration_ids(service, given) for found in _fetch_configuration(service, name)]


def _fetch_configuration(service: ServiceClient, name: str) -> Iterator[Mapping[str, Any]]:
    try:
        yield {**service.get(api_path("configurations", name)), "id": name}
    except RefusedError as error:
        if error.http_status != _GONE:  # the oldest is forgotten when a new one comes
            raise


def show_configurations(found: Sequence[Mapping[str, Any]], _given: Params) -> Renderable:
    """A row for each."""
    before = [each.get("options") for each in found[1:]]
    rows = [_row(each, older, number == 0) for number, (each, older) in enumerate(zip(found, [*before, None]))]
    yield Table(("id", "made", "target", "what changed"), rows)


def _row(found: Mapping[str, Any], older: Options | None, is_target: bool) -> Sequence[Any]:
    made = local_time(found["at"]) if "at" in found else "-"
    target = Word("yes", "good") if is_target else "-"
    return found["id"], made, target, _change_summary(_changed(found, older))


def _changed(found: Mapping[str, Any], older: Options | None) -> list[str] | None:
    """What was other in the target before it. None: not known.

    Configurations that an older scheduler has stored do not tell; `older` are the options of the one below then.
    """
    if "changed" in found:
        return [f"{item['option']}: {_text(item['old'])} → {_text(item['new'])}" for item in found["changed"]]
    if older is None:
        return None
    now, then = dict(_flat(found.get("options") or {}, "")), dict(_flat(older, ""))
    return [f"{name}: {_value(then, name)} → {_value(now, name)}" for name in _differing(now, then)]


def _change_summary(told: list[str] | None) -> str:
    if told is None:
        return "-"
    more = f", and {len(told) - _MAX_CHANGES} more" if len(told) > _MAX_CHANGES else ""
    return ", ".join(told[:_MAX_CHANGES]) + more or "no option that is shown"


def changed_options(options: Options, older: Options) -> Sequence[str]:
    """Names of those that are not the same in both."""
    return list(_differing(dict(_flat(options, "")), dict(_flat(older, ""))))


def _differing(now: Options, then: Options) -> Iterator[str]:
    names = [*now, *(name for name in then if name not in now)]
    return (name for name in names if name not in now or name not in then or now[name] != then[name])


def _flat(options: Options, above: str) -> Iterator[tuple[str, Any]]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _value(options: Options, name: str) -> str:
    return _text(options[name]) if name in options else "default"


def _text(value: Any) -> str:
    text = value if isinstance(value, str) and value else json.dumps(value)
    return text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 1] + "…"


def _fetch_path(*parts: str) -> Fetch:
    def fetch(service: ServiceClient, _given: Params) -> Any:
        return service.get(api_path(*parts))

    return fetch


def _fetch_named(argument: str, *parts: str) -> Fetch:
    def fetch(service: ServiceClient, given: Params) -> Any:
        return service.get(api_path(*parts, given[argument]))

    return fetch


def show_json(found: Any, _given: Params) -> Renderable:
    """A document is shown as it is."""
    return (json.dumps(found, indent=2),)


def _endpoints(service: ServiceClient, given: Params) -> Any:
    return service.get(api_path("endpoints", given["endpoint"]) if given.get("endpoint") else api_path("endpoints"))


def _show_endpoints(found: Any, given: Params) -> Iterator[Any]:
    if not given.get("endpoint"):
        yield from found
        return
    rows = [(kind, str(place)) for kind, places in found.items() for place in _listed(places)]
    yield Table(("", "where"), rows, empty="It has no address yet.")


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _refresh(service: ServiceClient, _given: Params) -> Any:
    return service.put(api_path("state", "refresh"))


def _refresh_secrets(service: ServiceClient, _given: Params) -> Any:
    return service.post(api_path("tf", "secrets", "refresh"))


#: Statuses of the API's health that are no failure of the request.
_HEALTH_CODES = (203, 205, 206, 207, 318, 319, 320, 321, 500)
#: HTTP allows these no body.
_HEALTH_WITHOUT_BODY = {204: "deploying: nothing is launched yet", 205: "recovering"}
_ID = CommandArgument("id", "config", help="Id of a configuration.")
_PROPERTY = CommandArgument("property", "property", help="Name of a property.")


def _describe(service: ServiceClient, _given: Params) -> Any:
    """The options with every default, as DC/OS keeps them; without DC/OS what the scheduler made of them."""
    if service.direct and service.installation is None:
        return service.get(api_path("configurations", "target"))
    return installation_of(service).describe()["resolvedOptions"]


def _health(service: ServiceClient, _given: Params) -> Any:
    status, found = service.get_with_status(api_path("health"), _HEALTH_CODES, verbose="true")
    return found or {"value": status, "reasons": [_HEALTH_WITHOUT_BODY.get(status, "")]}


def _show_health(found: Any, _given: Params) -> Iterator[Any]:
    value = found["value"]
    yield Line((Word(str(value), "bad" if value >= 400 else "good"), "  ", "; ".join(found.get("reasons") or ())))


def _result(service: ServiceClient, _given: Params) -> Any:
    return service.get(api_path("tf", "result"))


def show_result(found: Mapping[str, Any], _given: Params) -> Renderable:
    """One sentence."""
    if found["verdict"] is None:
        return (Line((Word("not decided yet", "wait"),)),)
    return (Line((status_word(found["verdict"]), ": ", str(found["reason"]))),)


_MAX_OFFERS = 20  # offers


def _offers(service: ServiceClient, _given: Params) -> Any:
    return service.get("v2/debug/offers")


def _show_offers(found: Mapping[str, Any], _given: Params) -> Iterator[Any]:
    yield Line((f"accepted {found['acceptedCount']}, rejected {found['rejectedCount']}",))
    rows = [_offer_row(look) for look in found["offers"][:_MAX_OFFERS]]
    yield Table(("when", "pod", "outcome", "why"), rows, empty="No offer was looked at yet.")


def _offer_row(look: Mapping[str, Any]) -> Sequence[Any]:
    when = local_time(look["timestamp"] / 1000)  # the SDK's are milliseconds
    return when, look["pod-instance-name"], status_word(look["outcome"]), "\n".join(look["explanation"])


def _reservations(service: ServiceClient, _given: Params) -> Any:
    return service.get(api_path("debug", "reservations"))


def _show_reservations(found: Mapping[str, Any], _given: Params) -> Renderable:
    rows = [(host, name) for host, names in sorted(found.items()) for name in names]
    yield Table(("agent", "reservation"), rows, empty="Nothing is reserved.")


COMMANDS = (
    Command(
        "endpoints",
        "Where the tasks are reached: the names, or the addresses of ENDPOINT.",
        _endpoints,
        _show_endpoints,
        (CommandArgument("endpoint", "endpoint", required=False, help="Name of an endpoint."),),
        aliases=("endpoint",),
        sdk_json=True,
    ),
    Command(
        "config list",
        "The configurations: their ids, when they were made, what each has changed.",
        fetch_configuration_ids,
        show_configurations,
        fetch_for_humans=fetch_configurations,
        sdk_json=True,
        aliases=("debug config list",),
    ),
    Command(
        "config show",
        "A configuration.",
        _fetch_named("id", "configurations"),
        show_json,
        (_ID,),
        aliases=("debug config show",),
    ),
    Command(
        "config target",
        "The configuration that is aimed at.",
        _fetch_path("configurations", "target"),
        show_json,
        aliases=("debug config target",),
    ),
    Command(
        "config target-id",
        "Its id.",
        _fetch_path("configurations", "targetId"),
        show_names,
        sdk_json=True,
        aliases=("config target_id", "debug config target_id"),
    ),
    Command(
        "state framework-id",
        "The id of the framework in Mesos.",
        _fetch_path("state", "frameworkId"),
        show_names,
        sdk_json=True,
        aliases=("state framework_id", "debug state framework_id"),
    ),
    Command(
        "state properties",
        "The names of what is stored.",
        _fetch_path("state", "properties"),
        show_names,
        sdk_json=True,
        aliases=("debug state properties",),
    ),
    Command(
        "state property",
        "One of them.",
        _fetch_named("property", "state", "properties"),
        show_json,
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
    Command("describe", "The options of the service, with every default.", _describe, show_json),
    Command("health", "How the service is.", _health, _show_health),
    Command("result", "How the training ended.", _result, show_result),
    Command("debug offers", "The last looks at offers, and why each did not fit.", _offers, _show_offers),
    Command("debug reservations", "What is reserved for the service, by agent.", _reservations, _show_reservations),
)
