"""What a converter is made of: a table of rows, and a walk over the foreign file that leaves nothing out.

The tables are the converters: docs/migrate shows the same rows, so that it cannot tell anything else than what happens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

#: Nodes of one file: far more than any job has, and few enough to be done at once (YAML's aliases can make billions).
MOST_NODES = 20_000


@dataclass(frozen=True, slots=True)
class Put:
    """An option gets a value."""

    path: tuple[str, ...]
    value: Any


@dataclass(frozen=True, slots=True)
class Say:
    """What the user has to know of one place of the file."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(frozen=True, slots=True)
class Spot:
    """A place of the foreign file that a row is asked about."""

    #: For people, such as `spec.runPolicy.backoffLimit`.
    path: str
    #: Section of the options that it belongs to; empty: none.
    section: str = ""
    #: The mapping that it is an entry of.
    siblings: Mapping[str, Any] = field(default_factory=dict)
    #: Program of containers that name none; empty: not known.
    program: str = ""


def at(spot: Spot, path: str) -> Spot:
    """The same, at another place."""
    return replace(spot, path=path)


Deed = Put | Say
Take = Callable[[Any, Spot], Iterable[Deed]]


@dataclass(frozen=True, slots=True)
class Row:
    """One field of the foreign file, or all that begin with it."""

    #: Names with dots between; `*` stands for any one name, `[]` for each item of a list.
    source: str
    #: Options that it becomes, `{job}` for the section; none: it is not taken along, and `note` says why.
    to: tuple[str, ...]
    note: str
    take: Take | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(re.sub(r"\[\]", ".[]", self.source).split("."))


class TooBigError(ValueError):
    """More in one file than a job can have."""


def walk(rows: Sequence[Row], node: Any, spot: Spot) -> Iterator[Deed]:
    """Every leaf of `node` meets a row, or is told as not known."""
    table = {row.parts: row for row in rows}
    budget = iter(range(MOST_NODES))
    yield from _visit(table, node, (), spot, budget)


def _visit(
    table: Mapping[tuple[str, ...], Row], node: Any, parts: tuple[str, ...], spot: Spot, budget: Iterator[int]
) -> Iterator[Deed]:
    if next(budget, None) is None:
        raise TooBigError(f"it has more than {MOST_NODES} entries")
    row = _row(table, parts)
    if node in (None, {}, []) and row is None:
        return  # as if it was not there
    if row is not None:
        yield from asked(row, node, spot) if node is not None else ()
    elif expected := _expected(table, parts, node):
        yield unexpected(node, spot, expected)
    elif isinstance(node, Mapping):
        for name, value in node.items():
            below = replace(spot, path=_joined(spot.path, str(name)), siblings=node)
            yield from _visit(table, value, (*parts, str(name)), below, budget)
    elif isinstance(node, list):
        for place, value in enumerate(node):
            yield from _visit(table, value, (*parts, "[]"), replace(spot, path=f"{spot.path}[{place}]"), budget)
    else:
        yield Say(spot.path, "is not known here and was left out")


def _expected(table: Mapping[tuple[str, ...], Row], parts: tuple[str, ...], node: Any) -> str:
    """What is expected where rows are about what is inside; empty: that is there, or no row is."""
    depth = len(parts)
    inner = next((found[depth] for found in table if found[:depth] == parts and len(found) > depth), "")
    if inner == "[]":
        return "" if isinstance(node, list) else "it is a list"
    return "" if not inner or isinstance(node, Mapping) else "it is an object, with names and values"


def _row(table: Mapping[tuple[str, ...], Row], parts: tuple[str, ...]) -> Row | None:
    if parts in table:
        return table[parts]
    alike = (row for found, row in table.items() if len(found) == len(parts) and "*" in found)
    return next((row for row in alike if all(a in ("*", b) for a, b in zip(row.parts, parts, strict=True))), None)


def asked(row: Row, node: Any, spot: Spot) -> Iterator[Deed]:
    """What one row makes of one value; a value that it cannot read is told."""
    if row.take is None:
        yield Say(spot.path, f"was left out: {row.note}")
        return
    yield from attempt(row.take, node, spot)


def attempt(take: Take, node: Any, spot: Spot) -> Iterator[Deed]:
    """All that `take` makes of a value, or, when it cannot read it, that: the place, the value, what is expected."""
    try:
        yield from list(take(node, spot))
    except ValueError as error:
        yield unexpected(node, spot, str(error))


def unexpected(node: Any, spot: Spot, expected: str) -> Say:
    return Say(spot.path, f"was left out: {shown(node)} is not what was expected there ({expected})")


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def shown(node: Any) -> str:
    """A value, in JSON as a file may have it; the begin of it where it is long."""
    text = repr(node) if isinstance(node, str) else json.dumps(node, ensure_ascii=False, default=str, skipkeys=True)
    text = "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    return text if len(text) <= 60 else f"{text[:57]}..."


def collect(deeds: Iterable[Deed]) -> tuple[dict[str, Any], list[Say]]:
    """The options, and what is to be said, each thing once.

    Objects are united and lists joined. Of two values for one option that all tasks share, the larger number wins, else
    the first, and that is said.
    """
    document: dict[str, Any] = {}
    said: dict[Say, None] = {}
    for deed in deeds:
        if isinstance(deed, Say):
            said[deed] = None
            continue
        section = document
        for name in deed.path[:-1]:
            section = section.setdefault(name, {})
        name, path = deed.path[-1], ".".join(deed.path)
        section[name], conflict = _united(section.get(name), deed.value)
        if conflict:
            said[Say(path, f"has one value for all tasks here: {section[name]!r} was taken, {conflict}")] = None
    return document, list(said)


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


def to(*path: str, as_: Callable[[Any], Any] = lambda value: value, say: str = "") -> Take:
    """A row's `take` that writes the value to one option; `{job}` in the path is the section."""

    def take(value: Any, spot: Spot) -> Iterator[Deed]:
        yield Put(tuple(part.format(job=spot.section) for part in path), as_(value))
        if say:
            yield Say(spot.path, say)

    return take


def nothing(_value: Any, _spot: Spot) -> Iterable[Deed]:
    """For what needs no word: it says what the file is, or another row reads it."""
    return ()
