"""`config list`: the configurations of a service, with what each has changed."""

from __future__ import annotations

import json
from typing import Any, Iterator, Mapping, Sequence

from .command import Given
from .errors import RefusedError
from .parts import Parts, Table, Word
from .service import Service, path
from .streams import clock

_GONE = 404
_SHOWN = 3  # options
_LONG = 24  # characters of a value

Options = Mapping[str, Any]


def ids(service: Service, _given: Given) -> Any:
    """As the API gives them, newest first: the target, the one before, and so on."""
    return service.get(path("configurations"))


def stored(service: Service, given: Given) -> Any:
    """The same, each with all that is known of it."""
    return [found for name in ids(service, given) for found in _one(service, name)]


def _one(service: Service, name: str) -> Iterator[Mapping[str, Any]]:
    try:
        yield {**service.get(path("configurations", name)), "id": name}
    except RefusedError as error:
        if error.status != _GONE:  # the oldest is forgotten when a new one comes
            raise


def show_stored(found: Sequence[Mapping[str, Any]], _given: Given) -> Parts:
    """A row for each."""
    before = [each.get("options") for each in found[1:]]
    rows = [_row(each, older, number == 0) for number, (each, older) in enumerate(zip(found, [*before, None]))]
    yield Table(("id", "made", "target", "what changed"), rows)


def _row(found: Mapping[str, Any], older: Options | None, is_target: bool) -> Sequence[Any]:
    made = clock(found["at"]) if "at" in found else "-"
    target = Word("yes", "good") if is_target else "-"
    return found["id"], made, target, _words(_changed(found, older))


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


def _words(told: list[str] | None) -> str:
    if told is None:
        return "-"
    more = f", and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    return ", ".join(told[:_SHOWN]) + more or "no option that is shown"


def differing(options: Options, older: Options) -> Sequence[str]:
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
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"
