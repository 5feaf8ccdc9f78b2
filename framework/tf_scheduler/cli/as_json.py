"""`--json` of the commands that ask no service. Before the command, or as a variable, it counts as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_switch(told: str) -> Callable[[_Command], _Command]:
    """The option, as the parameter `as_json`; `told`: its help."""
    return click.option("--json", "as_json", is_flag=True, callback=_also_before, help=told)


def _also_before(context: click.Context, _parameter: click.Parameter, value: bool) -> bool:
    """What it says for a group, it says for the group's commands."""
    before = context.ensure_object(dict)
    before["as_json"] = value or bool(before.get("as_json"))
    return bool(before["as_json"])


json_option = json_switch("Print JSON.")
