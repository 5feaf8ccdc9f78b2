"""What may be shown of values that may be secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "********"

#: Names of variables that people give to secrets.
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|PWD|CREDENTIAL", re.IGNORECASE)
#: What is shown to a server, in a command that sends it.
_SHOWN = re.compile(r"(authorization:\s*(?:\w+\s+)?)[^\s\"']+", re.IGNORECASE)
#: The password in scheme://user:password@host.
_PASSWORD = re.compile(r"(?<=://)([^/@:\s]*):[^/@\s]+@")


def masked_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables: those with the name of a secret, and passwords in addresses, hidden."""
    return {name: MASK if _SECRET_NAME.search(name) else without_password(text) for name, text in variables.items()}


def without_password(text: str) -> str:
    """The text with the passwords of addresses in it hidden, and what follows `Authorization:`."""
    return _SHOWN.sub(rf"\g<1>{MASK}", _PASSWORD.sub(rf"\1:{MASK}@", text))
