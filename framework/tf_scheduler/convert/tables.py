"""Table-driven conversion: every field of a file matches a row or is reported.

The tables of docs/how-to/migrate are generated from the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

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
    """One field of the file with its nested fields."""

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
            below = replace(location, path=_joined(location.path, str(name)), siblings=node)
            yield from _visit(table, value, (*parts, str(name)), below, budget)
    elif isinstance(node, list):
        for place, value in enumerate(node):
            yield from _visit(table, value, (*parts, "[]"), replace(location, path=f"{location.path}[{place}]"), budget)
    else:
        yield Note(location.path, UNKNOWN)


def suggestion(name: str, known: Collection[str]) -> str:
    """Return the end of a message with a similar known name; empty for a known name."""
    near = [] if name in known else get_close_matches(name, known, n=1, cutoff=0.8)
    return f"; did you mean `{near[0]}`?" if near else ""


def _siblings(table: Mapping[tuple[str, ...], Row], parts: tuple[str, ...]) -> set[str]:
    """Return the names that rows have next to a field."""
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


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def display_value(node: Any) -> str:
    """Return the value as printable JSON of at most 60 characters."""
    text = repr(node) if isinstance(node, str) else json.dumps(node, ensure_ascii=False, default=str, skipkeys=True)
    text = "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    return text if len(text) <= 60 else f"{text[:57]}..."


def collect(actions: Iterable[Action]) -> tuple[dict[str, Any], list[Note]]:
    """Return the options and the distinct notes of all actions.

    Objects are merged and lists joined. Of two values for one option, the larger number or the first value wins, with a
    note.
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
    """Converter for fields without effect, or read by another row."""
    return ()
