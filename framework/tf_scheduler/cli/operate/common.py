"""The options of the commands that ask a service: each has them, and the group before it."""

from __future__ import annotations

from typing import Any

import click

from dcos_command import AS_JSON


def common() -> list[click.Option]:
    """The options that all these commands have; also before the command."""
    return [
        click.Option(["--name"], help="Name of the service."),
        click.Option(["--url"], help="Where its scheduler is, or DC/OS with /service/NAME."),
        click.Option(["--token"], help="What it wants to see, if it does."),
        click.Option(
            ["--json", "as_json"], is_flag=True, envvar=AS_JSON, help="Print the scheduler's answer, as JSON."
        ),
    ]


def before() -> list[click.Option]:
    """The same, for the group: what they said is in the context's object."""
    found = common()
    for option in found:
        option.expose_value, option.callback = False, _keep
    return found


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """What stands before the command; the group itself has no use for it."""
    context.ensure_object(dict)[parameter.name] = value
