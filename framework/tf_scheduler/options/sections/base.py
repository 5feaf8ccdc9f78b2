"""What every section shares: strictness, defaults, and what is said of an option beside its type and bounds."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from marshmallow import RAISE, Schema, fields


class Section(Schema):
    """Unknown names are errors: an option that is silently ignored costs a week of GPU time."""

    class Meta:
        unknown = RAISE


#: Said of options that are part of a launch, but not of the program itself: nobody wants to lose training for them.
FROM_NOW_ON = "Holds for tasks that are launched from then on."


class Change(str, Enum):
    """What a new value does to a service that runs."""

    #: Takes effect when it is next needed; no task restarts for it.
    LIVE = "live"
    #: Tasks are added or removed; those that must know every address restart.
    SCALE = "scale"
    #: Is part of what tasks are launched with: those that it concerns restart.
    RESTART = "restart"
    #: Is refused.
    FIXED = "fixed"


def about(
    description: str,
    unit: str = "",
    *,
    change: Change = Change.LIVE,
    examples: Sequence[Any] = (),
    environment: str = "",
    media: str = "",
    required: bool = False,
    secret: bool = False,
    obsolete: str = "",
) -> dict[str, Any]:
    """Metadata of a field. Type, bounds and default are the field's own; what is not said has no entry.

    `environment`: variable of the scheduler that carries it, where that is not the path in capitals. `media`: hint to
    the DC/OS page. `required`: the original package says so, although there is a default. `secret`: never shown.
    `obsolete`: accepted, but without effect; a sentence says why.
    """
    given = {
        "unit": unit,
        "examples": tuple(examples),
        "environment": environment,
        "media": media,
        "required": required,
        "secret": secret,
        "obsolete": obsolete,
    }
    return {"description": description, "change": change, **{name: value for name, value in given.items() if value}}


def section(schema: type[Section], description: str) -> fields.Nested:
    """A section inside another or at the top; left out, it has the defaults of its options."""
    return fields.Nested(schema, load_default=lambda: _defaults(schema), metadata={"description": description})


def _defaults(schema: type[Section]) -> dict[str, Any]:
    loaded: dict[str, Any] = schema().load({})
    return loaded
