"""Parse and check amounts, durations, names, commands and types in job files.

Functions raise ValueError with the expected form; the caller omits only that field.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .tables import Action, Converter, Location, Note, SetOption, attempt, display_value

#: Suffixes of Kubernetes' quantities (Kubernetes API reference, Quantity).
_SUFFIXES = {"": 1.0, "m": 1e-3}
_SUFFIXES |= {unit: 1e3**power for power, unit in enumerate("kMGTP", 1)}
_SUFFIXES |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTP", 1)}
_MEBI = 2.0**20
#: `$(NAME)`, which Kubernetes replaces before the container starts; `$$(NAME)` stays `$(NAME)`.
_REFERENCE = re.compile(r"(\$?)\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


def quantity(value: object) -> float:
    """`500m` -> 0.5, `4Gi` -> 4294967296.0. Raises ValueError."""
    match = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]{0,2})", str(value).strip())
    if match is None or match[2] not in _SUFFIXES:
        raise ValueError("a quantity, such as 2, 500m or 4Gi")
    return number(number(match[1]) * _SUFFIXES[match[2]])


def integer(value: object) -> int:
    """`3`, `"3"`, `3.0` -> 3. Raises ValueError."""
    result = _float(value)
    if not result.is_integer():
        raise ValueError("a whole number")
    return int(result)


def number(value: object) -> float:
    """`2`, `"2.5"` -> 2.0, 2.5. Raises ValueError."""
    result = _float(value)
    if not math.isfinite(result):
        raise ValueError("a number")
    return result


def _float(value: object) -> float:
    """Return the number, or nan."""
    try:
        return float("nan" if isinstance(value, bool) else str(value))
    except ValueError:
        return math.nan


def megabytes(value: object) -> int:
    """Return a quantity of bytes in Mesos MB (2^20 bytes), rounded up."""
    return math.ceil(quantity(value) / _MEBI)


def cores(value: object) -> float:
    """Return a quantity of CPUs, at least the minimum of Mesos."""
    return max(0.01, round(quantity(value), 3))


def hadoop_megabytes(value: object) -> int:
    """`2g`, `2048m`, `2048` (MB) -> 2048, as TonY reads memory. Raises ValueError."""
    match = re.fullmatch(r"([0-9]+)\s*([kmgt]?)b?", str(value).strip().lower())
    if match is None:
        raise ValueError("an amount of memory, such as 2g or 2048m")
    factors = {"k": 2.0**-10, "": 1.0, "m": 1.0, "g": 2.0**10, "t": 2.0**20}
    return max(1, math.ceil(number(number(match[1]) * factors[match[2]])))


def seconds_of_milliseconds(value: object) -> float:
    """`90000` -> 90.0."""
    return number(value) / 1000


def service_name(value: object) -> str:
    """Return a valid Marathon name: lower case, with dashes for other characters."""
    return re.sub(r"[^a-z0-9]+", "-", str(value).lower()).strip("-")[:63].strip("-") or "tensorflow"


def command_line(words: Sequence[object]) -> str:
    """Quote words for the shell; `$(NAME)` becomes a shell variable."""
    return " ".join(_word(str(word)) for word in words)


def _word(text: str) -> str:
    done, parts = 0, []
    for match in _REFERENCE.finditer(text):
        before = text[done : match.start()]
        parts.append(_quoted(before) if before else "")
        parts.append(shlex.quote(f"$({match[2]})") if match[1] else f'"${{{match[2]}}}"')
        done = match.end()
    rest = text[done:]
    return "".join(parts) + (_quoted(rest) if rest or not parts else "")


def _quoted(text: str) -> str:
    """Quote for the shell; escape placeholders such as `{task_index}`."""
    return re.sub(r"\{(?=[a-z_]+\})", "{''", shlex.quote(text))


def has_reference(text: str) -> bool:
    """Return whether the text has a `$(NAME)` that Kubernetes would replace."""
    return any(not match[1] for match in _REFERENCE.finditer(text))


def is_true(value: object) -> bool:
    """Return whether the value is `true` in any case."""
    return str(value).strip().lower() == "true"


#: YAML converts unquoted text such as `yes`, `1:30` or `2024-01-01`.
_QUOTES = "text; use quotes"


def require_mapping(value: Any) -> Mapping[str, Any]:
    """Return the mapping. Raises ValueError for another type."""
    if not isinstance(value, Mapping):
        raise ValueError("an object")
    return value


def nested_value(value: Any, *names: str) -> Any:
    """Return the nested value, or None; `convert_tree` reports wrong types."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def mapping_or_empty(value: Any) -> Mapping[str, Any]:
    """Return the mapping, or an empty one for another type."""
    return value if isinstance(value, Mapping) else {}


def require_text(value: Any) -> str:
    """Return text or a number as text. Raises ValueError."""
    if not _is_text(value):
        raise ValueError(_QUOTES)
    return str(value)


def require_words(value: Any, name: str) -> list[str]:
    """Return a list of texts; empty for null. Raises ValueError with the invalid item."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"a list of words in {name}")
    wrong = next((place for place, word in enumerate(value) if not _is_text(word)), None)
    if wrong is not None:
        raise ValueError(f"text in {name}[{wrong}]; use quotes")
    return [str(word) for word in value]


def _is_text(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def require_field(value: Mapping[str, Any], name: str) -> str:
    """Return a required text of an object. Raises ValueError."""
    if not isinstance(value.get(name), str):
        raise ValueError(f"an object whose field {name} is text")
    return str(value[name])


def convert_name(value: Any, location: Location) -> Iterator[Action]:
    """Convert the name of the service; note characters that Marathon rejects."""
    name = service_name(require_text(value))
    yield SetOption(("service", "name"), name)
    if name != value:
        why = "a service name has up to 63 lower case letters, digits and dashes"
        yield Note(location.path, f"{display_value(value)} converted to {name}: {why}")


def require_bool(value: Any) -> bool:
    """Return the boolean. Raises ValueError for another type."""
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def one_of(values: Mapping[str, str]) -> Callable[[Any], str]:
    """Return a parser of the keys of `values`; other texts raise ValueError."""

    def parse(value: Any) -> str:
        if not isinstance(value, str) or value not in values:
            raise ValueError(f"one of {', '.join(name or 'an empty text' for name in values)}")
        return values[value]

    return parse


def each(converter: Converter) -> Converter:
    """Return a converter of a list of objects that notes and skips invalid items."""

    def of_list(value: Any, location: Location) -> Iterator[Action]:
        if not isinstance(value, list):
            raise ValueError("a list")
        for place, item in enumerate(value):
            here = replace(location, path=f"{location.path}[{place}]")
            yield from attempt(lambda item, here: converter(require_mapping(item), here), item, here)

    return of_list
