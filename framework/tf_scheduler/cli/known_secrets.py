"""Secrets that the scheduler holds itself, so that its log can hide them. Those of tasks it has for one answer only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tf_scheduler.api.policy import Policy
from tf_scheduler.options.fields import Environment
from tf_scheduler.options.masking import MASK, masked_value
from tf_scheduler.options.tree import OPTIONS

_CREDENTIAL = "DCOS_SERVICE_ACCOUNT_CREDENTIAL"
_SOURCE = "env:"
#: Sources of tasks' secrets whose values are among them.
KNOWN = (_SOURCE, "option:")


def known_secrets(options: Mapping[str, Any], environment: Mapping[str, str], policy: Policy) -> Iterator[str]:
    """Of resolved options, of the variables that these name as sources, and the API's tokens."""
    for option in OPTIONS:
        value = option.value(options)
        if isinstance(option.field, Environment):
            shown = masked_value(option, value)
            yield from (text for name, text in value.items() if shown[name] == MASK)
        elif option.said("secret") and value:
            yield str(value)
    yield from _named(options, environment)
    yield from filter(None, (policy.read_token, policy.write_token))
    yield from _account(environment.get(_CREDENTIAL, ""))


def _named(value: Any, environment: Mapping[str, str]) -> Iterator[str]:
    """Values of variables that stand anywhere in it as `env:NAME`."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _named(item, environment)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _named(item, environment)
    elif isinstance(value, str) and value.startswith(_SOURCE):
        yield environment.get(value.removeprefix(_SOURCE), "")


def _account(credential: str) -> Iterator[str]:
    """Of a service account of DC/OS: the variable may hold all of it, with its key."""
    if credential.lstrip().startswith("{"):
        yield credential
        try:
            yield str(json.loads(credential).get("private_key", ""))
        except (ValueError, RecursionError):
            return
