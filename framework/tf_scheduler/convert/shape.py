"""What kind of value a field of a foreign file has to have; each function raises ValueError with what is expected.

Files of strangers have anything anywhere: a null, a text in place of a list. Only that part is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .amounts import service_name
from .mapping import Deed, Put, Say, Spot, Take, attempt, shown

#: What YAML makes of `yes`, `1:30` or `2024-01-01` is not what was written.
_QUOTES = "it is text: put it in quotes"


def mapping(value: Any) -> Mapping[str, Any]:
    """As it is. Raise ValueError unless it has entries with names."""
    if not isinstance(value, Mapping):
        raise ValueError("it is an object, with names and values")
    return value


def inside(value: Any, *names: str) -> Any:
    """What is below `names`; None where there is no such thing, or something else in its place: the walk tells that."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def table(value: Any) -> Mapping[str, Any]:
    """As it is, or empty when it is something else."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> Sequence[Any]:
    """Raise ValueError unless it is a list."""
    if not isinstance(value, list):
        raise ValueError("it is a list")
    return value


def text(value: Any) -> str:
    """A number as it is written, too. Raise ValueError."""
    if not _is_text(value):
        raise ValueError(_QUOTES)
    return str(value)


def words(value: Any, name: str) -> list[str]:
    """A list of texts; none for null. Raise ValueError that tells which of them is none."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{name} is a list of words")
    wrong = next((place for place, word in enumerate(value) if not _is_text(word)), None)
    if wrong is not None:
        raise ValueError(f"{name}[{wrong}] is no text: put it in quotes")
    return [str(word) for word in value]


def _is_text(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def needed(value: Mapping[str, Any], name: str) -> str:
    """A text that an object has to have. Raise ValueError."""
    if not isinstance(value.get(name), str):
        raise ValueError(f"its {name} is missing, or is no text")
    return str(value[name])


def take_name(value: Any, spot: Spot) -> Iterator[Deed]:
    """A row's `take`: the name of the service. What Marathon does not take in it is told."""
    name = service_name(text(value))
    yield Put(("service", "name"), name)
    if name != value:
        why = "lower case letters, digits and dashes, 63 at most; write another into service.name"
        yield Say(spot.path, f"{shown(value)} became {name}: names of services have {why}")


def flag(value: Any) -> bool:
    """Raise ValueError unless it is true or false."""
    if not isinstance(value, bool):
        raise ValueError("it is true or false")
    return value


def each(value: Any, spot: Spot, take: Take) -> Iterator[Deed]:
    """What `take` makes of every object of a list; one that it cannot read is told, and the others are taken."""

    def of_object(item: Any, place: Spot) -> Iterable[Deed]:
        return take(mapping(item), place)

    for place, item in enumerate(items(value)):
        yield from attempt(of_object, item, replace(spot, path=f"{spot.path}[{place}]"))
