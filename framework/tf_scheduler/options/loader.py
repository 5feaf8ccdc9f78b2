"""Bytes -> ServiceSpec, or OptionsError with every message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from marshmallow import ValidationError

from tf_scheduler.errors import OptionsError, Problem
from tf_scheduler.model.spec import ServiceSpec

from .parse import parse
from .problems import problems
from .rules import RULES, Rule
from .schema import Options
from .spec import to_spec

__all__ = ["load", "resolve", "to_spec"]


def load(data: bytes, source: str, defaults: Mapping[str, Mapping[str, Any]] | None = None) -> ServiceSpec:
    """The validated spec. `source` is named in errors.

    `defaults` (section -> option -> value) stand for options that the document does not set: what the place knows
    where the service runs, such as the user and the executor's URL on a laptop.
    """
    return to_spec(resolve(parse(data, source), defaults or {}))


def resolve(
    document: Mapping[str, Any],
    defaults: Mapping[str, Mapping[str, Any]] | None = None,
    more_rules: Iterable[Rule] = (),
) -> dict[str, Any]:
    """The document with every option filled in. Raise OptionsError with all problems, of fields and of rules.

    `more_rules` hold where the service runs only: that a file is there, say.
    """
    merged = {**document}
    for section, values in (defaults or {}).items():
        given = document.get(section, {})
        merged[section] = {**values, **given} if isinstance(given, Mapping) else given
    options, wrong = _fields(merged)
    found = {problem.path for problem in wrong}
    broken = [problem for rule in (*RULES, *more_rules) for problem in rule(options)]
    wrong += [problem for problem in broken if problem.path not in found]
    if wrong:
        raise OptionsError(wrong)
    return options


def _fields(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """What the fields accept, with defaults in place of what they do not, so that the rules can be checked too."""
    schema = Options()
    try:
        return schema.load(document), []
    except ValidationError as error:
        messages: dict[str, Any] = error.normalized_messages()  # type: ignore[no-untyped-call]
        valid: Mapping[str, Any] = error.valid_data  # type: ignore[assignment]
        return _merged(schema.load({}), valid), sorted(problems(messages, schema, document), key=str)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on `base`, objects inside each other; what is invalid is missing in `over`."""
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[name] = _merged(below, value)
        else:
            merged[name] = value
    return merged
