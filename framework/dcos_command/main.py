"""Run `dcos tensorflow`; root help and options shared with `dcos-tensorflow`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Mapping, Sequence

import click

from . import __version__
from .command import (
    INTERRUPTED,
    CliProgram,
    Group,
    LazyGroup,
    Listed,
    common_options,
    declared_in,
    example_block,
    late,
    print_error,
)
from .errors import CommandError, UsageError, error_document, wants_json
from .output import Screen

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
#: Exit codes of every command; those with other codes describe them.
EXIT_CODES = (
    "Exit code: 0 success, 1 the job or its input failed, 2 wrong usage or not confirmed, 3 no answer, 130 Ctrl-C. "
    "Commands with other exit codes describe them in their help."
)
_CLIENT = "dcos_command.client"  # the loader of archives in Python 3.8 does not set __package__
CONTEXT_SETTINGS: Mapping[str, Any] = {"help_option_names": ["-h", "--help"]}

#: Commands that ask a service, of both programs.
SERVICE_COMMANDS: Mapping[str, Listed] = {
    **declared_in(
        "dcos_command.tasks",
        submit="Submit a job, and follow it to its end.",
        list="List the services with their state and progress.",
        status="Show training, tasks, reasons for waiting and events.",
        open="Open the web page of the service, else of past runs.",
        tasks="List the tasks with state, agent and last message.",
        why="Show why tasks are pending.",
        cluster="Show the ClusterSpec, or the TF_CONFIG of a task.",
        cp="Copy a file or folder of a task to this machine.",
    ),
    **declared_in(
        "dcos_command.logs",
        logs="Show the output of tasks, of all tasks by time.",
        events="Show the events of the service with their reasons.",
        exec="Run a command in a task, without a terminal.",
        stacks="Show where the Python processes of a task are.",
    ),
    **declared_in(
        "dcos_command.service",
        progress="Show the training progress, updated live on a terminal.",
        wait="Wait for the result; the exit code tells it.",
        result="Show how the training ended; the exit code tells it.",
        health="Show service health.",
        endpoints="List endpoints, or the addresses of one endpoint.",
        endpoint="",
        describe="Show the options of the service.",
        config="Show configurations.",
        state="Show the scheduler's stored state.",
        secrets="Manage secrets of tasks.",
    ),
    **declared_in(
        "dcos_command.update",
        scale="Change the number of tasks of a job.",
        update="Change or roll back options of the service.",
        uninstall="Remove the service with its tasks and its state.",
        cancel="Stop the job as Ctrl-C does, and remove the service.",
    ),
    **declared_in(
        "dcos_command.plans",
        plan="Show and control the plans of the service.",
        pod="Show, restart, replace and pause pods.",
        queue="Show and control the jobs of a queue service.",
    ),
    # The DC/OS SDK's names.
    "plans": Listed("", ("dcos_command.plans",), same_as="plan"),
    "pods": Listed("", ("dcos_command.plans",), same_as="pod"),
    "debug": Listed("Show offer decisions.", ("dcos_command.plans", "dcos_command.service")),
}


def set_program(root: LazyGroup, program: CliProgram) -> None:
    """Make `root` the program's root."""
    root.program = program
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


def run_command(root: Group, arguments: Sequence[str], name: str = "") -> int:
    """Run one command; return the exit code, see EXIT_CODES.

    `name`: as the user called it, for usage and completion; empty: the program's.
    """
    program = root.program
    assert program is not None, "set by add_commands"
    try:
        return root.main(args=list(arguments), prog_name=name or program.name, standalone_mode=False) or 0
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


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run one command of `dcos tensorflow`; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["tensorflow"]:  # the dcos command passes the sub-command's own name first
        arguments = arguments[1:]
    program = CliProgram(
        late(_CLIENT, "find_service"),
        late(_CLIENT, "find_services"),
        plain_screen,
        os.environ if environment is None else environment,
        sdk_json=True,
        prefix="dcos tensorflow: ",
        name="dcos tensorflow",
    )
    return run_command(root_group(program), arguments or ["--help"])


def root_group(program: CliProgram) -> LazyGroup:
    """Return the root command of `dcos tensorflow` with all its commands."""
    help_text = root_help(INFO, program.name, "submit options.json", "--name=mnist status", "list")
    settings = {"help": help_text, "params": [*root_options()], "context_settings": dict(CONTEXT_SETTINGS)}
    root = LazyGroup("tensorflow", later=SERVICE_COMMANDS, **settings)
    root.params.append(_printing("--version", __version__, "Print the version."))
    set_program(root, program)
    return root
