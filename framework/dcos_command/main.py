"""Run `dcos tensorflow`; root help and options shared with `dcos-tensorflow`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Collection, Mapping, Sequence

import click

# The import of these modules, and of those that they use, declares the commands.
from . import __version__, logs, tasks, update  # noqa: F401
from .client import URL_VARIABLE, ServiceClient, ServiceOptions, client_at, installed_names, with_token
from .command import COMMANDS, INTERRUPTED, CliProgram, Group, common_options, example_block, print_error
from .errors import CommandError, UsageError, error_document, wants_json
from .output import Screen
from .transport import attached_cluster

#: Output of --info, which the dcos command asks of a sub-command.
INFO = "Distributed TensorFlow on DC/OS"
#: Output of --config-schema: the settings of `dcos config set tensorflow.<name>`.
CONFIG_SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/schema#",
        "additionalProperties": False,
        "properties": {
            "service_name": {"title": "Service name", "type": "string"},
            "token": {"title": "Token of the scheduler's API", "type": "string"},
        },
        "type": "object",
    }
)
#: Default name of a service.
DEFAULT_SERVICE = "tensorflow"
#: Exit codes of every command; those with other codes describe them.
EXIT_CODES = (
    "Exit code: 0 success, 1 the job or its input failed, 2 wrong usage or not confirmed, 3 no answer, 130 Ctrl-C. "
    "Commands with other exit codes describe them in their help."
)
CONTEXT_SETTINGS: Mapping[str, Any] = {"help_option_names": ["-h", "--help"]}
#: Alternative names of groups: those of the DC/OS SDK.
_GROUP_ALIASES: Mapping[str, str] = {"plans": "plan", "pods": "pod"}


def add_commands(root: Group, program: CliProgram, without: Collection[str] = ()) -> None:
    """Make `root` the program's root; add all commands except those in `without`."""
    root.program = program
    for name, command in COMMANDS.commands.items():
        if name not in without:
            root.add_command(command)
    for alias, name in _GROUP_ALIASES.items():
        original = root.commands[name]
        assert isinstance(original, Group), "only groups have such aliases"
        group = Group(alias, original.commands, help=original.help, hidden=True)
        group.examples = original.examples
        root.add_command(group)
    path = click.Argument(["words"], nargs=-1, metavar="[COMMAND]...")
    root.add_command(click.Command("help", callback=_show_help, params=[path], help="Same as --help.", hidden=True))


def _show_help(words: Sequence[str]) -> None:
    """Print the same as `--help`; the DC/OS SDK's sub-commands have both forms."""
    context = click.get_current_context().find_root()
    for word in words:
        if not isinstance(context.command, click.Group):
            raise click.UsageError(f"No such command '{word}'.", context)
        command = context.command.resolve_command(context, [word])[1]
        assert command is not None, "resolve_command raises UsageError"
        context = click.Context(command, context, info_name=word, **command.context_settings)
    click.echo(context.get_help())


def root_help(summary: str, name: str, *lines: str) -> str:
    """Return the help of a root command: its summary, the exit codes, and examples."""
    return f"{summary}\n\n{EXIT_CODES}\n\n{example_block(name, lines)}"


def root_options() -> list[click.Option]:
    """Return the root's options: those of all commands, --info and --config-schema."""
    options = common_options()
    for option in options:
        option.expose_value, option.callback = False, _keep
    return [
        *options,
        _printing("--info", INFO, "Print a one-line description."),
        _printing("--config-schema", CONFIG_SCHEMA, "Print the JSON Schema of the settings."),
    ]


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    context.ensure_object(dict)[parameter.name] = value


def _printing(flag: str, text: str, help_text: str) -> click.Option:
    """Return an option that prints a text and exits."""

    def show(context: click.Context, _parameter: click.Parameter, is_set: bool) -> None:
        if is_set:
            click.echo(text)
            context.exit()

    return click.Option([flag], is_flag=True, is_eager=True, expose_value=False, callback=show, help=help_text)


def run_command(root: Group, arguments: Sequence[str]) -> int:
    """Run one command; return the exit code, see EXIT_CODES."""
    program = root.program
    assert program is not None, "set by add_commands"
    try:
        return root.main(args=list(arguments), prog_name=program.name, standalone_mode=False) or 0
    except click.ClickException as error:
        if wants_json(arguments, program.environment):
            click.echo(json.dumps(error_document(UsageError(error.format_message())), indent=2))
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except CommandError as error:
        print_error(f"{program.prefix}{error}")
        return error.exit_code


def plain_screen() -> Screen:
    """Return a plain-text screen on standard output, which may be closed."""
    return Screen(Path(os.devnull).open("w") if sys.stdout is None else sys.stdout)


def find_service(options: ServiceOptions, environment: Mapping[str, str]) -> ServiceClient:
    """Find the service at --url or in the attached cluster. Raise CommandError."""
    if options.run:
        raise UsageError("--run: only dcos-tensorflow has local runs")
    url = options.url or environment.get(URL_VARIABLE)
    if url:
        service = client_at(url, options.name.strip("/"), environment, ServiceClient.program)
    else:
        attached = attached_cluster(environment)
        service = ServiceClient(attached, options.name or attached.service or DEFAULT_SERVICE)
    return with_token(service, options.token, environment)


def find_services(options: ServiceOptions, environment: Mapping[str, str]) -> Sequence[ServiceClient]:
    """Find the service at --url or all in the attached cluster. Raise CommandError."""
    service = find_service(options, environment)
    if options.url or environment.get(URL_VARIABLE):
        return [service]
    return [replace(service, name=name) for name in installed_names(service) if options.name.strip("/") in ("", name)]


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run one command of `dcos tensorflow`; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == [DEFAULT_SERVICE]:  # the dcos command passes the sub-command's own name first
        arguments = arguments[1:]
    program = CliProgram(
        find_service,
        find_services,
        plain_screen,
        os.environ if environment is None else environment,
        sdk_json=True,
        prefix="dcos tensorflow: ",
        name="dcos tensorflow",
    )
    return run_command(root_group(program), arguments or ["--help"])


def root_group(program: CliProgram) -> Group:
    """Return the root command of `dcos tensorflow` with all its commands."""
    help_text = root_help(INFO, program.name, "submit options.json", "--name=mnist status", "list")
    root = Group("tensorflow", help=help_text, params=[*root_options()], context_settings=dict(CONTEXT_SETTINGS))
    root.params.append(_printing("--version", __version__, "Print the version."))
    add_commands(root, program)
    return root
