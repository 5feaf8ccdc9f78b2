"""Fields that hold several values: whole numbers, and objects of a few texts each.

DC/OS renders options into environment variables by a template that can walk lists, but neither print an object nor a
text in a list without quotes. So these are the lists that an option may be. Their parts are parted by control
characters there, which no part may hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from marshmallow import Schema, ValidationError, fields

from .fields import CONTROL, Whole, reject

_ENDS = "must not contain the control characters 0x00, 0x1e and 0x1f"


class Wholes(fields.Field[tuple[int, ...]]):
    """A list of whole numbers, each from `least` to `most`."""

    def __init__(self, *, least: int, most: int, **options: Any) -> None:
        super().__init__(**options)
        self.item = Whole(least=least, most=most)

    def _deserialize(self, value: object, *_args: Any, **_options: Any) -> tuple[int, ...]:
        return tuple(_each(value, "a list of whole numbers", self.item.deserialize))


class Records(fields.Field[tuple[Mapping[str, Any], ...]]):
    """A list of objects, each as `schema` has it; its fields are texts."""

    def __init__(self, schema: type[Schema], **options: Any) -> None:
        super().__init__(**options)
        self.schema = schema()

    def _deserialize(self, value: object, *_args: Any, **_options: Any) -> tuple[Mapping[str, Any], ...]:
        return tuple(_each(value, "a list of objects", self._entry))

    def _entry(self, value: object) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise reject("an object", value)
        loaded = self._loaded(value)
        wrong = {name: [_ENDS] for name, item in loaded.items() if any(mark in item for mark in CONTROL)}
        if wrong:
            raise ValidationError(wrong)
        return loaded

    def _loaded(self, value: dict[str, Any]) -> Mapping[str, Any]:
        """What is wrong goes with the entry as it would be with defaults in its place, where there are such: rules look
        at all the rest of it."""
        try:
            loaded: Mapping[str, Any] = self.schema.load(value)
        except ValidationError as error:
            defaults = {name: field.load_default for name, field in self.schema.fields.items() if not field.required}
            valid = {**defaults, **cast("dict[str, Any]", error.valid_data or {})}
            complete = valid.keys() == self.schema.fields.keys()
            raise ValidationError(error.messages, valid_data=[valid] if complete else None) from error
        return loaded


def _each(value: object, expected: str, read: Callable[[object], Any]) -> list[Any]:
    """Every entry read; all that are wrong are told, by their place in the list."""
    if not isinstance(value, list):
        raise reject(expected, value)
    entries, known, wrong = [], True, {}
    for place, item in enumerate(value):
        try:
            entries.append(read(item))
        except ValidationError as error:
            wrong[str(place)] = error.messages
            entries += error.valid_data or ()
            known = known and bool(error.valid_data)
    if wrong:
        raise ValidationError(wrong, valid_data=entries if known else None)
    return entries
