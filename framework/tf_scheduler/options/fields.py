"""Typed, strict fields whose errors name the value and what is allowed.

marshmallow's own fields coerce ("2" becomes 2, true becomes 1); an options file that needs that is a mistake.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from marshmallow import ValidationError, fields

from .constraints import ConstraintError, parse_constraints

#: End of an entry of a list, and of a part of an entry, where a list travels in an environment variable: ASCII's own
#: characters for it.
RECORD_END, UNIT_END = "\x1e", "\x1f"
CONTROL = ("\0", RECORD_END, UNIT_END)

#: Of environment variables, as Kubernetes takes them: what shells, and whoever sets them, can write down.
VARIABLE = r"[-._a-zA-Z][-._a-zA-Z0-9]*"

_TYPE_NAMES = {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}


def shown(value: object) -> str:
    """A value as it stands in the JSON document, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def reject(expected: str, value: object) -> ValidationError:
    """The error for a value of the wrong kind or out of bounds; to be raised."""
    kind = "null" if value is None else _TYPE_NAMES.get(type(value), type(value).__name__)
    said = "" if value is None or kind.split()[-1] in expected else f" ({kind})"
    return ValidationError(f"must be {expected}, not {shown(value)}{said}")


class Text(fields.Field[str]):
    """Text; `choices` narrows it, `filled` forbids the empty one. Others fit `pattern`, which errors call `wanted`."""

    def __init__(
        self, *, choices: Sequence[str] = (), filled: bool = False, pattern: str = "", wanted: str = "", **options: Any
    ) -> None:
        super().__init__(**options)
        self.choices = tuple(choices)
        self.filled = filled
        self.pattern, self.wanted = pattern, wanted

    def _deserialize(self, value: object, *_args: Any, **_options: Any) -> str:
        if not isinstance(value, str):
            raise reject("text", value)
        if self.choices and value not in self.choices:
            raise reject(f"one of {', '.join(self.choices)}", value)
        if self.filled and not value.strip():
            raise ValidationError("must not be empty")
        if "\0" in value:
            raise ValidationError("must not contain a NUL character")
        if value and self.pattern and not re.fullmatch(self.pattern, value):
            raise ValidationError(f"must be {self.wanted}, not {shown(value)}")
        return value


class PlacementConstraint(Text):
    """Text in Marathon's constraint language, checked; it stays text."""

    def _deserialize(self, value: object, *_args: Any, **_options: Any) -> str:
        text = super()._deserialize(value)
        try:
            parse_constraints(text)
        except ConstraintError as error:
            raise ValidationError(list(error.messages)) from error
        return text


class Flag(fields.Field[bool]):
    """true or false."""

    def _deserialize(self, value: object, *_args: Any, **_options: Any) -> bool:
        if not isinstance(value, bool):
            raise reject("true or false", value)
        return value


class Whole(fields.Field[int]):
    """A whole number from `least` to `most`."""

    def __init__(self, *, least: int = 0, most: int = 1_000_000, **options: Any) -> None:
        super().__init__(**options)
        self.least, self.most = least, most

    def _deserialize(self, value: object, *_args: Any, **_options: Any) -> int:
        # The bounds come first: infinity has no whole part.
        if _is_number(value) and self.least <= value <= self.most and value == int(value):
            return int(value)
        raise reject(f"a whole number from {self.least} to {self.most}", value)


class Number(fields.Field[float]):
    """A number from `least` to `most`; `unit` is told in the error."""

    def __init__(self, *, least: float = 0.0, most: float = 1e9, unit: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.least, self.most, self.unit = least, most, unit

    def _deserialize(self, value: object, *_args: Any, **_options: Any) -> float:
        if _is_number(value) and self.least <= value <= self.most:
            return float(value)
        unit = f" ({self.unit})" if self.unit else ""
        raise reject(f"a number from {self.least:.12g} to {self.most:.12g}{unit}", value)


def _is_number(value: object) -> TypeGuard[int | float]:
    """To Python, true is the number 1."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Environment(fields.Field[Mapping[str, str]]):
    """Variables: an object of name -> text, or a list of {"name", "value"}."""

    def _deserialize(self, value: object, *_args: Any, **_options: Any) -> Mapping[str, str]:
        if isinstance(value, list):
            return _variables(value)
        if not isinstance(value, dict):
            raise reject('a list of {"name", "value"}, or an object of names and texts', value)
        wrong = {name: [text] for name, item in value.items() if (text := _variable_problem(name, item))}
        if wrong:
            raise ValidationError(wrong)
        return dict(value)


def _variables(entries: Sequence[object]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    wrong: dict[str, list[str]] = {}
    for place, entry in enumerate(entries):
        problem = _entry_problem(entry)
        if not problem and isinstance(entry, dict):
            problem = f"sets {entry['name']} again" if entry["name"] in found else ""
            found[entry["name"]] = entry["value"]
        if problem:
            wrong[str(place)] = [problem]
    if wrong:
        raise ValidationError(wrong)
    return found


def _entry_problem(entry: object) -> str:
    if not isinstance(entry, dict) or entry.keys() != {"name", "value"} or not isinstance(entry["name"], str):
        return f'must be {{"name": ..., "value": ...}}, not {shown(entry)}'
    return _variable_problem(entry["name"], entry["value"])


def _variable_problem(name: str, value: object) -> str:
    if not re.fullmatch(VARIABLE, name):
        allowed = "letters, digits, '_', '.' and '-', the first no digit"
        return f"{shown(name)} is no name of an environment variable: {allowed}"
    if not isinstance(value, str):
        return f"must be text, not {shown(value)}; write it in quotes"
    marks = [mark for mark in CONTROL if mark in f"{name}{value}"]
    return f"must not contain the control character {shown(marks[0])}" if marks else ""
