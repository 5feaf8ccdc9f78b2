"""Field types for options: strict checks, metadata, errors that name valid values.

marshmallow's own fields coerce ("2" becomes 2, true becomes 1), which hides mistakes in an options file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Any, TypeGuard, TypeVar, cast

from marshmallow import RAISE, Schema, ValidationError, fields, missing

from tf_executor.contract.strategies import Strategy

_T = TypeVar("_T")

#: ASCII separators of list entries, and of the fields of an entry, in environment variables.
RECORD_END, UNIT_END = "\x1e", "\x1f"
CONTROL = ("\0", RECORD_END, UNIT_END)

#: Names of environment variables, as in Kubernetes.
VARIABLE_PATTERN = r"[-._a-zA-Z][-._a-zA-Z0-9]*"

_TYPE_NAMES = {bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}


def json_excerpt(value: object) -> str:
    """Return the value as JSON, at most 60 characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


#: Other names of values -> value.
ALIASES = {alias: strategy.value for strategy in Strategy for alias in strategy.traits.aliases}


def _similar(value: str, choices: Sequence[str]) -> str:
    """Suggest the choice that resembles a value such as `MultiWorkerMirroredStrategy`."""
    if (alias := ALIASES.get(value.lower(), "")) in choices:
        return f'; did you mean "{alias}"?'
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|[\s-]", "_", value.rpartition(".")[2].removesuffix("Strategy")).lower()
    similar = get_close_matches(words, choices, n=1)
    return f'; did you mean "{similar[0]}"?' if similar else ""


def mismatch(expected: str, value: object, advice: str = "") -> ValidationError:
    """Return the error for a value of the wrong type or out of bounds."""
    kind = "null" if value is None else _TYPE_NAMES.get(type(value), type(value).__name__)
    note = "" if value is None or kind.split()[-1] in expected else f" ({kind})"
    return ValidationError(f"must be {expected}, not {json_excerpt(value)}{note}{advice}")


#: Note in descriptions of launch options whose change restarts no task.
NEXT_LAUNCH_ONLY = "A new value applies to tasks launched afterwards."


class OnUpdate(str, Enum):
    """Effect of a new value on a running service."""

    #: Takes effect at the next use; no task restarts.
    NEXT_LAUNCH = "live"
    #: Tasks are added or removed; tasks that need every address restart.
    SCALE = "scale"
    #: Affected tasks restart.
    RESTART = "restart"
    #: The change is refused.
    REJECTED = "fixed"


class OptionField(fields.Field[_T]):
    """A field of an option with its description.

    Args:
        default: Value of an omitted option; None for an option without a default.
        required: Whether each object of a list must have the field; for fields of such objects only.
        title: Label in the DC/OS form, without the unit; empty: the words of the option's name.
        variable: Name of the scheduler's environment variable; empty: the path in capitals.
        media: Hint for the DC/OS form.
        form_required: Required by the original package, although the option has a default.
        secret: Mask the value in all output.
        obsolete: Reason why the option has no effect.
    """

    def __init__(
        self,
        description: str,
        default: Any = None,
        *,
        unit: str = "",
        update: OnUpdate = OnUpdate.NEXT_LAUNCH,
        examples: Sequence[Any] = (),
        title: str = "",
        variable: str = "",
        media: str = "",
        required: bool = False,
        form_required: bool = False,
        secret: bool = False,
        obsolete: str = "",
    ) -> None:
        values = {
            "unit": unit,
            "examples": tuple(examples),
            "title": title,
            "environment": variable,
            "media": media,
            "required": form_required,
            "secret": secret,
            "obsolete": obsolete,
        }
        metadata = {name: value for name, value in values.items() if value}
        super().__init__(
            required=required,
            load_default=missing if required else default,
            allow_none=False,
            metadata={"description": description, "on_update": update, **metadata},
        )


class String(OptionField[str]):
    """Text: one of `choices`, or a text that matches `pattern`.

    `expected` describes the pattern. `parse` raises ValueError for an invalid value; each argument of this error is a
    message. The value stays text.
    """

    def __init__(
        self,
        description: str,
        default: str | None = "",
        *,
        choices: Sequence[str] = (),
        non_empty: bool = False,
        pattern: str = "",
        expected: str = "",
        parse: Callable[[str], object] = str,
        **options: Any,
    ) -> None:
        super().__init__(description, default, **options)
        self.choices = tuple(choices)
        self.non_empty = non_empty
        self.pattern, self.expected, self.parse = pattern, expected, parse

    def _deserialize(self, value: object, *_args: Any, **_options: Any) -> str:
        if not isinstance(value, str):
            raise mismatch("text", value)
        if self.choices and value not in self.choices:
            raise mismatch(f"one of {', '.join(self.choices)}", value, _similar(value, self.choices))
        if self.non_empty and not value.strip():
            raise ValidationError("must not be empty")
        if "\0" in value:
            raise ValidationError("must not contain a NUL character")
        if value and self.pattern and not re.fullmatch(self.pattern, value):
            raise ValidationError(f"must be {self.expected}, not {json_excerpt(value)}")
        try:
            self.parse(value)
        except ValueError as error:
            raise ValidationError([str(message) for message in error.args]) from error
        return value


def choice(description: str, default: Enum, **options: Any) -> String:
    """Return a field whose choices are the values of the default's enumeration."""
    return String(description, default.value, choices=[item.value for item in type(default)], **options)


class Boolean(OptionField[bool]):
    """true or false."""

    def __init__(self, description: str, *, default: bool = False, **options: Any) -> None:
        super().__init__(description, default, **options)

    def _deserialize(self, value: object, *_args: Any, **_options: Any) -> bool:
        if not isinstance(value, bool):
            raise mismatch("true or false", value)
        return value


class Integer(OptionField[int]):
    """A whole number from `minimum` to `maximum`."""

    def __init__(
        self, description: str, default: int | None, *, minimum: int = 0, maximum: int = 1_000_000, **options: Any
    ) -> None:
        super().__init__(description, default, **options)
        self.minimum, self.maximum = minimum, maximum

    def _deserialize(self, value: object, *_args: Any, **_options: Any) -> int:
        # Check the bounds first: int(infinity) raises.
        if _is_number(value) and self.minimum <= value <= self.maximum and value == int(value):
            return int(value)
        if isinstance(value, str) and (unit := self.metadata.get("unit")):
            raise mismatch(f"{unit}, such as {self.load_default or self.minimum}", value)
        raise mismatch(f"a whole number from {self.minimum} to {self.maximum}", value)


class Number(OptionField[float]):
    """A number from `minimum` to `maximum`; errors name the unit."""

    def __init__(
        self, description: str, default: float, *, minimum: float = 0.0, maximum: float, **options: Any
    ) -> None:
        super().__init__(description, default, **options)
        self.minimum, self.maximum = minimum, maximum

    def _deserialize(self, value: object, *_args: Any, **_options: Any) -> float:
        if _is_number(value) and self.minimum <= value <= self.maximum:
            return float(value)
        unit = f" ({self.metadata['unit']})" if "unit" in self.metadata else ""
        raise mismatch(f"a number from {self.minimum:.12g} to {self.maximum:.12g}{unit}", value)


class Seconds(Number):
    """A time from `minimum` to `maximum` seconds, by default up to a year."""

    def __init__(self, description: str, default: float, *, maximum: float = 31_536_000.0, **options: Any) -> None:
        super().__init__(description, default, maximum=maximum, unit="seconds", **options)


class Cores(Number):
    """A number of CPU cores."""

    def __init__(self, description: str, default: float, *, maximum: float = 4096.0, **options: Any) -> None:
        super().__init__(description, default, minimum=0.01, maximum=maximum, unit="cores", **options)


class Memory(Integer):
    """Megabytes of memory."""

    def __init__(self, description: str, default: int, **options: Any) -> None:
        super().__init__(description, default, minimum=32, maximum=100_000_000, unit="MB", **options)


def _is_number(value: object) -> TypeGuard[int | float]:
    """Whether the value is a number, but not True, which is an int in Python."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Environment(OptionField[Mapping[str, str]]):
    """Environment variables: a list of {"name", "value"}, or an object name -> text.

    The object is shorter, but Cosmos can render only the list.
    """

    def __init__(self, description: str, **options: Any) -> None:
        super().__init__(description, dict, **options)

    def _deserialize(self, value: object, *_args: Any, **_options: Any) -> Mapping[str, str]:
        if isinstance(value, list):
            return _variables(value)
        if not isinstance(value, dict):
            raise mismatch('a list of {"name": ..., "value": ...}', value)
        wrong = {name: [text] for name, item in value.items() if (text := _variable_problem(name, item))}
        if wrong:
            raise ValidationError(wrong)
        return dict(value)


def _variables(entries: Sequence[object]) -> Mapping[str, str]:
    variables: dict[str, str] = {}

    def read(entry: object) -> None:
        if not isinstance(entry, dict) or entry.keys() != {"name", "value"} or not isinstance(entry["name"], str):
            raise ValidationError(f'must be {{"name": ..., "value": ...}}, not {json_excerpt(entry)}')
        name, value = entry["name"], entry["value"]
        problem = _variable_problem(name, value)
        if problem or name in variables:
            raise ValidationError(problem or f"duplicate variable {name}")
        variables[name] = value

    _each(entries, "a list", read)
    return variables


def _variable_problem(name: str, value: object) -> str:
    if not re.fullmatch(VARIABLE_PATTERN, name):
        allowed = "letters, digits, '_', '.' and '-', but no digit at the start"
        return f"invalid name of an environment variable: {json_excerpt(name)}; use {allowed}"
    if not isinstance(value, str):
        return f"must be text, not {json_excerpt(value)}; use quotes"
    marks = [mark for mark in CONTROL if mark in f"{name}{value}"]
    return f"must not contain the control character {json_excerpt(marks[0])}" if marks else ""


_ENDS = "must not contain the control characters 0x00, 0x1e and 0x1f"


class IntegerList(OptionField[tuple[int, ...]]):
    """A list of integers from `minimum` to `maximum`."""

    def __init__(
        self, description: str, default: Sequence[int] = (), *, minimum: int, maximum: int, **options: Any
    ) -> None:
        super().__init__(description, default, **options)
        self.item = Integer("", 0, minimum=minimum, maximum=maximum)

    def _deserialize(self, value: object, *_args: Any, **_options: Any) -> tuple[int, ...]:
        return tuple(_each(value, "a list of whole numbers", self.item.deserialize))


class NameList(OptionField[tuple[str, ...]]):
    """A list of names that match `pattern`, which `expected` describes."""

    def __init__(self, description: str, *, pattern: str, expected: str, **options: Any) -> None:
        super().__init__(description, (), **options)
        self.item = String("", non_empty=True, pattern=pattern, expected=expected)

    def _deserialize(self, value: object, *_args: Any, **_options: Any) -> tuple[str, ...]:
        return tuple(_each(value, "a list of names", self.item.deserialize))


class RecordList(OptionField[tuple[Mapping[str, Any], ...]]):
    """A list of objects of one schema.

    Fields are texts or numbers, except in `service.data`. The mustache template of DC/OS can iterate over lists, but
    cannot render an object. It separates the fields with control characters, so a field may not contain these
    (`CONTROL`).
    """

    def __init__(self, schema: type[Schema], description: str, **options: Any) -> None:
        super().__init__(description, (), **options)
        self.schema = schema()

    def _deserialize(self, value: object, *_args: Any, **_options: Any) -> tuple[Mapping[str, Any], ...]:
        return tuple(_each(value, "a list of objects", self._entry))

    def _entry(self, value: object) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise mismatch("an object", value)
        record = self._loaded(value)
        wrong = {name: [_ENDS] for name, item in record.items() if any(mark in str(item) for mark in CONTROL)}
        if wrong:
            raise ValidationError(wrong)
        return record

    def _loaded(self, value: dict[str, Any]) -> Mapping[str, Any]:
        """Load an entry. ValidationError has the entry, with defaults for invalid fields."""
        try:
            record: Mapping[str, Any] = self.schema.load(value)
        except ValidationError as error:
            defaults = {name: field.load_default for name, field in self.schema.fields.items() if not field.required}
            valid = {**defaults, **cast("dict[str, Any]", error.valid_data or {})}
            complete = valid.keys() == self.schema.fields.keys()
            raise ValidationError(error.messages, valid_data=[valid] if complete else None) from error
        return record


def _each(value: object, expected: str, read: Callable[[object], Any]) -> list[Any]:
    """Read all entries of a list. Raises ValidationError with each invalid index."""
    if not isinstance(value, list):
        raise mismatch(expected, value)
    entries, complete, wrong = [], True, {}
    for index, item in enumerate(value):
        try:
            entries.append(read(item))
        except ValidationError as error:
            wrong[str(index)] = error.messages
            entries += error.valid_data or ()
            complete = complete and bool(error.valid_data)
    if wrong:
        raise ValidationError(wrong, valid_data=entries if complete else None)
    return entries


class Section(Schema):
    """Schema that rejects unknown names: a misspelled option could waste GPU time."""

    class Meta:
        unknown = RAISE


def section(schema: type[Section], description: str, title: str = "") -> fields.Nested:
    """Return a field for a nested section; an omitted section has all defaults."""
    metadata = {"description": description, "title": title}
    return fields.Nested(schema, load_default=lambda: schema().load({}), metadata=metadata)


#: Limits of setrlimit(2) on Linux.
ULIMIT_NAMES = (
    "as",
    "core",
    "cpu",
    "data",
    "fsize",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "rttime",
    "sigpending",
    "stack",
)
UNLIMITED = -1

_ENTRY = re.compile(r"\s*(?P<name>[a-z]+)=(?P<soft>unlimited|-1|\d{1,18})(?::(?P<hard>unlimited|-1|\d{1,18}))?\s*")


def parse_ulimits(text: str) -> dict[str, tuple[int, int]]:
    """Parse the ulimits of a container to name -> (soft, hard). Raises ValueError.

    The form is `name=soft:hard,...` or `name=both,...`, as in `docker run --ulimit`.
    """
    limits = {}
    for entry in text.split(",") if text.strip() else ():
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise ValueError(f"must be name=soft:hard entries, separated by commas; invalid: {json_excerpt(entry)}")
        if match["name"] not in ULIMIT_NAMES:
            raise ValueError(f"unknown limit {match['name']}; use one of {', '.join(ULIMIT_NAMES)}")
        soft = _number(match["soft"])
        hard = _number(match["hard"] or match["soft"])
        if hard != UNLIMITED and (soft == UNLIMITED or soft > hard):
            raise ValueError(f"{match['name']}: the soft limit exceeds the hard limit in {json_excerpt(entry)}")
        limits[match["name"]] = (soft, hard)
    return limits


def _number(text: str) -> int:
    return UNLIMITED if text == "unlimited" else int(text)
