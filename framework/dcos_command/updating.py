"""What DC/OS would start the service with after an update, and what its scheduler says of that beforehand."""

from __future__ import annotations

import json
import time
from typing import Any, Iterator, Mapping

from .command import Given
from .configurations import differing
from .errors import CommandError, NothingToDo, UnreachableError
from .parts import Line, Parts, Table, Word
from .service import Service, path
from .settings import app

#: As it stands for a secret in what is stored of options.
MASK = "********"
#: How often, and every how many seconds, it is looked whether an update was replaced at once by another.
_LOOKS, _MOMENT = 2, 0.5
_UNKNOWN = "The scheduler does not answer, so what would change is not known."

Options = Mapping[str, Any]


def described(service: Service) -> Any:
    """What DC/OS knows of the service: its package and its options."""
    return service.cosmos("service.describe", "cosmos/service/describe", app(service))


def provided(service: Service) -> Options:
    """The options that DC/OS was given for the service; the others have their defaults."""
    found: Options = described(service).get("userProvidedOptions") or {}
    return found


def merged(below: Options, above: Options) -> dict[str, Any]:
    """Objects inside each other, as DC/OS merges options."""
    found = dict(below)
    for name, value in above.items():
        known = found.get(name)
        both = isinstance(known, Mapping) and isinstance(value, Mapping)
        found[name] = merged(known, value) if both else value  # type: ignore[arg-type]
    return found


def check(service: Service, options: Options, given: Given, *, whole: bool) -> None:
    """That DC/OS has these options, a moment after it took them; `whole`: no others.

    It reads an app, changes it, and writes it: of two updates at the same time one may be lost (dcos/cosmos,
    ServiceUpdateHandler). Raise CommandError when it is this one.
    """
    for _ in range(_LOOKS):
        time.sleep(_MOMENT)
        try:
            now = provided(service)
        except UnreachableError:
            return  # it was taken; more is not known
        if now != (options if whole else merged(now, options)):
            raise CommandError(
                "another update was made at the same time, and has replaced this one: the service has other options. "
                f"See them with: {given['program']} describe; and update again."
            )


def preview(service: Service, options: Options, version: str | None) -> Any:
    """What its scheduler says of an update to exactly these options. Raise UnreachableError where it does not answer.

    Raise CommandError with what is wrong with them.
    """
    package = described(service)["package"]
    body = {"packageName": package["name"], "packageVersion": version or package["version"], "options": options}
    rendered = service.cosmos("package.render", "package/render", {**body, "appId": app(service)["appId"]})
    environment = rendered["marathonJson"].get("env", {})
    return service.post(path("tf", "update", "preview"), {"environment": environment})


def foretold(service: Service, options: Options, version: str | None, *, anyway: bool = False) -> Parts:
    """What such an update does, for who is to confirm it. `anyway`: it is done also where it changes nothing.

    Raise CommandError with what is wrong with the options or is refused, NothingToDo when they change nothing.
    """
    try:
        found = preview(service, options, version)
    except UnreachableError:
        changes = differing(options, provided(service))
        return (_UNKNOWN, f"Options that change: {', '.join(changes) or 'none'}.")
    if found["refused"]:
        lines = [f"{item['option']}: {item['reason']}" for item in found["refused"]]
        raise CommandError("this update is refused, nothing was done:\n" + "\n".join(lines))
    refused = rejected(service)
    if not (found["changed"] or version or refused or anyway):
        raise NothingToDo("these are its options already: nothing to do")
    started = (f"What its scheduler was started with is refused; these take its place. {reason}" for reason in refused)
    return (*started, *_shown(found))


def rejected(service: Service) -> list[str]:
    """Why the service goes on with options that are not those that DC/OS has started it with; mostly empty."""
    found = service.get(path("configurations", "target"))
    return list(found.get("rejected") or ())


def _shown(found: Mapping[str, Any]) -> Iterator[Any]:
    rows = [(item["option"], _text(item["old"]), _text(item["new"])) for item in found["changed"]]
    yield Table(("option", "now", "then"), rows, empty="No option changes.")
    for item in found["restarted"]:
        yield Line((item["task"], " ", Word("restarts", "wait"), f": {item['reason']}"))
    for word, meaning in (("added", "good"), ("removed", "bad")):
        if found[word]:
            yield Line(
                (", ".join(found[word]), " ", Word(f"{'is' if len(found[word]) == 1 else 'are'} {word}", meaning))
            )
    if not (found["restarted"] or found["added"] or found["removed"]):
        yield Line(("No task restarts.",))


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


def earlier(service: Service, given: Given) -> tuple[str, Options]:
    """Id and options of the configuration to go back to: the one that is given, or the one before the present.

    Where the present options are refused, those before are in force. Secrets are not stored with them: they are those
    that the service has now. Raise CommandError for others.
    """
    ids = service.get(path("configurations"))
    before = ids if not given.get("id") and rejected(service) else ids[1:]
    if not given.get("id") and not before:
        raise CommandError("there is no configuration before the present one")
    wanted = given.get("id") or before[0]
    found = service.get(path("configurations", wanted))
    if "options" not in found:
        raise CommandError(f"the options of configuration {wanted} are not stored")
    options = unmasked(found["options"], provided(service))
    if hidden := list(_hidden(options, "")):
        raise CommandError(
            f"configuration {wanted} has secrets that are not stored: {', '.join(hidden)}. "
            f"See it with: {given['program']} config show {wanted}; and give all of it: "
            f"{given['program']} update start --replace --options FILE"
        )
    return wanted, options


def unmasked(options: Any, present: Any) -> Any:
    """The same, with what the service has now in the place of secrets."""
    if isinstance(options, Mapping):
        now = present if isinstance(present, Mapping) else {}
        return {name: unmasked(value, now.get(name)) for name, value in options.items()}
    if isinstance(options, list):
        return [_entry(entry, present) for entry in options]
    if isinstance(options, str) and MASK in options and isinstance(present, str):
        before, _, after = options.partition(MASK)
        return present if present.startswith(before) and present.endswith(after) else options
    return options


def _entry(entry: Any, present: Any) -> Any:
    """A variable is known by its name."""
    if not isinstance(entry, Mapping):
        return entry
    named = (item for item in present or () if isinstance(item, Mapping))
    same = [item for item in named if item.get("name") == entry.get("name")]
    return unmasked(entry, same[0]) if len(same) == 1 else entry


def _hidden(options: Any, where: str) -> Iterator[str]:
    if isinstance(options, Mapping):
        for name, value in options.items():
            yield from _hidden(value, f"{where}.{name}" if where else name)
    elif isinstance(options, list):
        for index, value in enumerate(options):
            yield from _hidden(value, f"{where}[{index}]")
    elif isinstance(options, str) and MASK in options:
        yield where
