"""`dcos-tensorflow`: the root command (exit codes: see dcos_command.main)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TextIO

import click

from dcos_command.command import LazyGroup, print_error
from dcos_command.main import CONTEXT_SETTINGS, add_commands, root_help, root_options, run_command
from tf_scheduler import __version__

from .local_run.discovery import SERVICE_PROGRAM

_MODULES = ("convert", "doctor", "history", "local", "options", "package", "runtime", "scheduler", "state")
#: Command -> module that defines it. Imported when called, because each needs much of the program.
LAZY_COMMANDS = {
    name: f"{__package__}.commands.{module}"
    for name, module in {
        **{n: n for n in _MODULES},
        "executor": "package",
        "submit": "install",
        "try": "attempt",
    }.items()
}


@click.group(cls=LazyGroup, later=LAZY_COMMANDS, context_settings=dict(CONTEXT_SETTINGS))
@click.version_option(__version__, prog_name="dcos-tensorflow")
def cli() -> None:
    """Distributed TensorFlow on Mesos and DC/OS."""


cli.help = root_help(
    str(cli.help), "dcos-tensorflow", "try train.py --workers 2", "submit options.json", "status", "logs worker-0 -f"
)
cli.params += root_options()
add_commands(cli, SERVICE_PROGRAM, without=LAZY_COMMANDS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit."""
    try:
        code = run_command(cli, sys.argv[1:] if arguments is None else arguments)
    except OSError as error:
        code, place = 1, error.filename or _failed_output()
        print_error(f"{place}: {error.strerror}" if place else str(error))
    except Exception as error:
        if (code := getattr(error, "exit_code", 0)) == 0:
            raise
        print_error(str(error))
    _give_up_output(sys.stdout, sys.stderr)
    sys.exit(code)


def _give_up_output(*streams: TextIO | None) -> None:
    """Discard output that cannot be written (full disk); Python would exit with 120."""
    for stream in filter(None, streams):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _failed_output() -> str:
    """Return `standard output` if it cannot be written, else an empty text.

    Standard output is then replaced, because Python would try to write the rest again when it exits.
    """
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        _give_up_output(sys.stdout)
        return "standard output"
    return ""
