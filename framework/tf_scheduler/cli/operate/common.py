"""The options of the commands that ask a service: each has them, and the group before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from dcos_command import AS_JSON
from dcos_command.about import CONFIG_SCHEMA, INFO

_SETTINGS = "Print the settings of the dcos command for it, as JSON Schema."


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


def asked_by_dcos() -> list[click.Option]:
    """What the dcos command asks a sub-command: this program tells it, too, and ends."""

    def told(text: str) -> Callable[[click.Context, click.Parameter, bool], None]:
        def tell(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
            if wanted:
                click.echo(text)
                context.exit()

        return tell

    words = (("--info", INFO, "Print what this is, in one line."), ("--config-schema", CONFIG_SCHEMA, _SETTINGS))
    return [
        click.Option([flag], is_flag=True, is_eager=True, expose_value=False, callback=told(text), help=help_text)
        for flag, text, help_text in words
    ]


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """What stands before the command; the group itself has no use for it."""
    context.ensure_object(dict)[parameter.name] = value
