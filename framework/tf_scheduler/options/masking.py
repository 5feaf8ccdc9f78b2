"""Options as they may be shown: without the secrets in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tf_scheduler.model.masking import MASK, masked_variables, without_password

from .fields import Environment
from .tree import OPTIONS, Option

__all__ = ["MASK", "masked", "masked_value"]


def masked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Resolved options with secret options, variables with the name of a secret, and passwords in addresses hidden."""
    shown: dict[str, Any] = {}
    for option in OPTIONS:
        section = shown
        for name in option.path[:-1]:
            section = section.setdefault(name, {})
        section[option.path[-1]] = masked_value(option, option.value(options))
    return shown


def masked_value(option: Option, value: Any) -> Any:
    """One value of it, as it may be shown."""
    if option.said("secret"):
        return MASK if value else value
    if isinstance(option.field, Environment):
        return masked_variables(value)
    return without_password(value) if isinstance(value, str) else value
