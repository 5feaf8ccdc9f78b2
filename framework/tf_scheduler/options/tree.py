"""The options one by one, as everything that is generated from the schema needs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from marshmallow import Schema, fields

from .schema import Options
from .sections.base import Change


@dataclass(frozen=True, slots=True)
class Option:
    """One option: where it is, and its field with type, bounds, default and metadata."""

    #: Names from the outermost section to the option.
    path: tuple[str, ...]
    field: fields.Field[Any]

    def __str__(self) -> str:
        return ".".join(self.path)

    @property
    def default(self) -> Any:
        """What stands for an option that is left out; None: it stays without a value."""
        default = self.field.load_default
        return default() if callable(default) else default

    @property
    def description(self) -> str:
        """Sentences for people, with what keeps the option from having an effect."""
        about = self.field.metadata
        obsolete = f" Has no effect: {about['obsolete']}." if "obsolete" in about else ""
        return f"{about['description']}{obsolete}"

    @property
    def change(self) -> Change:
        """What a new value does to a service that runs."""
        change: Change = self.field.metadata["change"]
        return change

    def said(self, name: str) -> Any:
        """An entry of the metadata; None when there is none."""
        return self.field.metadata.get(name)

    def value(self, document: Mapping[str, Any]) -> Any:
        """Its value in resolved options."""
        found: Any = document
        for name in self.path:
            found = found[name]
        return found


def options_of(schema: Schema, path: tuple[str, ...] = ()) -> Iterator[Option]:
    """Every option of a schema, section by section."""
    for name, field in schema.fields.items():
        if isinstance(field, fields.Nested):
            yield from options_of(field.schema, (*path, name))
        else:
            yield Option((*path, name), field)


#: Every option there is.
OPTIONS = tuple(options_of(Options()))
