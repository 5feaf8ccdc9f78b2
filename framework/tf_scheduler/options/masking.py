"""Options as they may be shown: without the secrets in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .fields import Environment
from .tree import OPTIONS, Option

MASK = "********"

#: Names of variables that people give to secrets.
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
#: The password in scheme://user:password@host.
_PASSWORD = re.compile(r"(?<=://)([^/@:\s]*):[^/@\s]+@")


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
        return {name: MASK if _SECRET_NAME.search(name) else _without_password(text) for name, text in value.items()}
    return _without_password(value)


def _without_password(value: Any) -> Any:
    return _PASSWORD.sub(rf"\1:{MASK}@", value) if isinstance(value, str) else value
