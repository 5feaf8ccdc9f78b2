"""Convert job files of other systems to options by tables; parse their values.

Every field of a file is converted by its row of a table, or reported. The tables of docs/how-to/migrate are generated
from the same rows. Parsers of amounts, durations, names and commands raise ValueError with the expected form. The
caller then omits only this field.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from tf_executor.contract.text import printable

#: Maximum nodes of a file; YAML aliases can expand to billions.
MAX_NODES = 20_000


@dataclass(frozen=True, slots=True)
class SetOption:
    """Set an option to a value."""

    path: tuple[str, ...]
    value: Any


@dataclass(frozen=True, slots=True)
class Note:
    """A note for the user about one field of the file."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(frozen=True, slots=True)
class Location:
    """A field of the file, passed to the converter of its row."""

    #: Path in messages, such as `spec.runPolicy.backoffLimit`.
    path: str
    #: Section of the options; empty: none.
    section: str = ""
    #: Mapping that contains the field.
    siblings: Mapping[str, Any] = field(default_factory=dict)
    #: Command line of containers without one; empty: unknown.
    program: str = ""


Action = SetOption | Note
Converter = Callable[[Any, Location], Iterable[Action]]


@dataclass(frozen=True, slots=True)
class Row:
    """Row of a table: how one field of the file is converted, with its nested fields."""

    #: Path with dots; `[]` matches each item of a list.
    source: str
    #: Resulting options, with `{job}` for the section; empty: omitted for the reason in `note`.
    to: tuple[str, ...]
    note: str
    converter: Converter | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.source.replace("[]", ".[]").split("."))


#: Message about a field without a row.
UNKNOWN = "omitted: unknown field"


class TooBigError(ValueError):
    """The file has too many nodes."""


def convert_tree(rows: Sequence[Row], node: Any, location: Location) -> Iterator[Action]:
    """Convert every leaf of `node` by its row, or report the leaf as unknown."""
    table = {row.parts: row for row in rows}
    budget = iter(range(MAX_NODES))
    yield from _visit(table, node, (), location, budget)


def _visit(
    table: Mapping[tuple[str, ...], Row], node: Any, parts: tuple[str, ...], location: Location, budget: Iterator[int]
) -> Iterator[Action]:
    if next(budget, None) is None:
        raise TooBigError(f"more than {MAX_NODES} entries")
    row = table.get(parts)
    if node in (None, {}, []) and row is None:
        return  # empty, treated as missing
    if row is not None:
        yield from apply_row(row, node, location) if node is not None else ()
    elif expected := _expected(table, parts, node):
        yield unexpected_value(node, location, expected)
    elif hint := suggestion("".join(parts[-1:]), _siblings(table, parts)):
        yield Note(location.path, UNKNOWN + hint)
    elif isinstance(node, Mapping):
        for name, value in node.items():
            path = f"{location.path}.{name}" if location.path else str(name)
            below = replace(location, path=path, siblings=node)
            yield from _visit(table, value, (*parts, str(name)), below, budget)
    elif isinstance(node, list):
        for place, value in enumerate(node):
            yield from _visit(table, value, (*parts, "[]"), replace(location, path=f"{location.path}[{place}]"), budget)
    else:
        yield Note(location.path, UNKNOWN)


def suggestion(name: str, valid_names: Collection[str]) -> str:
    """Return a hint with the most similar valid name; empty if `name` is valid."""
    near = [] if name in valid_names else get_close_matches(name, valid_names, n=1, cutoff=0.8)
    return f"; did you mean `{near[0]}`?" if near else ""


def _siblings(table: Mapping[tuple[str, ...], Row], parts: tuple[str, ...]) -> set[str]:
    """Return the names of the fields that rows have in the same object."""
    depth = len(parts) - 1
    return {path[depth] for path in table if path[:depth] == parts[:depth] and len(path) > depth >= 0}


def _expected(table: Mapping[tuple[str, ...], Row], parts: tuple[str, ...], node: Any) -> str:
    """Return the type that nested rows expect; empty if the node already has it."""
    depth = len(parts)
    inner = next((path[depth] for path in table if path[:depth] == parts and len(path) > depth), "")
    if inner == "[]":
        return "" if isinstance(node, list) else "a list"
    return "" if not inner or isinstance(node, Mapping) else "an object"


def apply_row(row: Row, node: Any, location: Location) -> Iterator[Action]:
    """Apply a row to a value; report an invalid value."""
    if row.converter is None:
        yield Note(location.path, f"omitted: {row.note}")
        return
    yield from attempt(row.converter, node, location)


def attempt(converter: Converter, node: Any, location: Location) -> Iterator[Action]:
    """Return the actions of the converter, or a note if the value is invalid."""
    try:
        yield from list(converter(node, location))
    except ValueError as error:
        yield unexpected_value(node, location, str(error))


def unexpected_value(node: Any, location: Location, expected: str) -> Note:
    return Note(location.path, f"omitted: invalid value {display_value(node)}: expected {expected}")


def display_value(node: Any) -> str:
    """Return the value as printable JSON of at most 60 characters."""
    shown = repr(node) if isinstance(node, str) else json.dumps(node, ensure_ascii=False, default=str, skipkeys=True)
    text = printable(shown)
    return text if len(text) <= 60 else f"{text[:57]}..."


def collect(actions: Iterable[Action]) -> tuple[dict[str, Any], list[Note]]:
    """Return the options and the distinct notes of all actions.

    If an option gets two values, objects are merged, and lists are joined. Of two numbers, the larger one is used.
    Otherwise, the first value is used. A note reports the value that is not used.
    """
    document: dict[str, Any] = {}
    notes: dict[Note, None] = {}
    for action in actions:
        if isinstance(action, Note):
            notes[action] = None
            continue
        section = document
        for name in action.path[:-1]:
            section = section.setdefault(name, {})
        name, path = action.path[-1], ".".join(action.path)
        section[name], conflict = _united(section.get(name), action.value)
        if conflict:
            notes[Note(path, f"one value applies to all tasks: {section[name]!r} is used, {conflict}")] = None
    return document, list(notes)


def _united(old: Any, new: Any) -> tuple[Any, str]:
    if old is None or old == new:
        return new, ""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **new}, ""
    if isinstance(old, list) and isinstance(new, list):
        return [*old, *(item for item in new if item not in old)], ""
    if isinstance(old, int | float) and isinstance(new, int | float):
        return max(old, new), f"not {min(old, new)!r}"
    return old, f"not {new!r}"


def option_row(source: str, option: str, note: str, parse: Callable[[Any], Any], warning: str = "") -> Row:
    """Return a row that sets one option (`{job}`: the section) and adds a warning."""

    def converter(value: Any, location: Location) -> Iterator[Action]:
        yield SetOption(tuple(option.format(job=location.section).split(".")), parse(value))
        if warning:
            yield Note(location.path, warning)

    return Row(source, (option,), note, converter)


def ignore(_value: Any, _location: Location) -> Iterable[Action]:
    """Convert a field that has no effect, or that another row reads: do nothing."""
    return ()


#: Suffixes of Kubernetes' quantities (Kubernetes API reference, Quantity).
_SUFFIXES = {"": 1.0, "m": 1e-3}
_SUFFIXES |= {unit: 1e3**power for power, unit in enumerate("kMGTP", 1)}
_SUFFIXES |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTP", 1)}
_MEBI = 2.0**20
#: `$(NAME)`, which Kubernetes replaces before the container starts; `$$(NAME)` stays `$(NAME)`.
_REFERENCE = re.compile(r"(\$?)\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


def quantity(value: object) -> float:
    """Parse a quantity: `500m` -> 0.5, `4Gi` -> 4294967296.0. Raises ValueError."""
    match = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]{0,2})", str(value).strip())
    if match is None or match[2] not in _SUFFIXES:
        raise ValueError("a quantity, such as 2, 500m or 4Gi")
    return number(number(match[1]) * _SUFFIXES[match[2]])


def integer(value: object) -> int:
    """Parse a whole number: `3`, `"3"` or `3.0` -> 3. Raises ValueError."""
    result = _float(value)
    if not result.is_integer():
        raise ValueError("a whole number")
    return int(result)


def number(value: object) -> float:
    """Parse a number: `2` -> 2.0, `"2.5"` -> 2.5. Raises ValueError."""
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
    """Parse TonY's memory: `2g`, `2048m` or `2048` (MB) -> 2048. Raises ValueError."""
    match = re.fullmatch(r"([0-9]+)\s*([kmgt]?)b?", str(value).strip().lower())
    if match is None:
        raise ValueError("an amount of memory, such as 2g or 2048m")
    factors = {"k": 2.0**-10, "": 1.0, "m": 1.0, "g": 2.0**10, "t": 2.0**20}
    return max(1, math.ceil(number(number(match[1]) * factors[match[2]])))


def seconds_of_milliseconds(value: object) -> float:
    """Convert milliseconds: `90000` -> 90.0. Raises ValueError."""
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
    """Return the text in the required field `name` of an object. Raises ValueError."""
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
    """Return a converter for a list of objects; it skips invalid items with a note."""

    def of_list(value: Any, location: Location) -> Iterator[Action]:
        if not isinstance(value, list):
            raise ValueError("a list")
        for place, item in enumerate(value):
            here = replace(location, path=f"{location.path}[{place}]")
            yield from attempt(lambda item, here: converter(require_mapping(item), here), item, here)

    return of_list
