"""`dcos-tensorflow`: the commands, and what an error means for the exit code.

0 success, 1 the job or its input failed, 2 usage, 3 nothing answers, 130 Ctrl-C.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from dcos_command.main import CONTEXT_SETTINGS, CliProgram, Group, add_commands, print_error, root_options, run_command
from tf_scheduler import __version__

from .common.discovery import resolve_service
from .common.output import screen

# --- root
# The group of all commands: each is loaded when it is called, for most need much of the program.


#: Command -> the module of this package that has it, under the same name.
LAZY_COMMANDS = {
    "convert": "convert",
    "executor": "package",
    "history": "history",
    "local": "local",
    "options": "options",
    "package": "package",
    "runtime": "runtime",
    "scheduler": "scheduler",
    "state": "state",
}
#: How the commands that ask a service find it and print.
SERVICE_PROGRAM = CliProgram(resolve_service, screen, os.environ)


class LazyGroup(Group):
    """Has what is added to it, and what `later` names: command -> module of this package."""

    def __init__(self, *arguments: Any, later: Mapping[str, str], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.later = later

    def list_commands(self, _context: click.Context) -> list[str]:
        return sorted({*self.commands, *self.later})

    def get_command(self, _context: click.Context | None, name: str) -> click.Command | None:
        if name not in self.commands and name in self.later:
            module = importlib.import_module(f"{__package__}.commands.{self.later[name]}")
            found = getattr(module, name)
            assert isinstance(found, click.Command), f"{name} is a command"
            self.add_command(found)
        return self.commands.get(name)


class RootGroup(LazyGroup):
    """Of LOADED_LATER, and of the commands that ask a service: all of those are made when one is wanted."""

    _complete = False

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, later=LAZY_COMMANDS, **named)

    def list_commands(self, context: click.Context) -> list[str]:
        self._make()
        return super().list_commands(context)

    def get_command(self, context: click.Context | None, name: str) -> click.Command | None:
        if name not in self.later:
            self._make()
        return super().get_command(context, name)

    def _make(self) -> None:
        if not self._complete:
            self._complete = True
            add_commands(self, SERVICE_PROGRAM, without=LAZY_COMMANDS)


# --- main


FAILED = 1


@click.group(cls=RootGroup, context_settings=dict(CONTEXT_SETTINGS))
@click.version_option(__version__, prog_name="dcos-tensorflow")
def cli() -> None:
    """Distributed TensorFlow on Mesos and DC/OS."""


cli.params += root_options()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; ends the process."""
    try:
        code = run_command(cli, "dcos-tensorflow", sys.argv[1:] if arguments is None else arguments, SERVICE_PROGRAM)
    except OSError as error:
        code = _fail(f"{place}: {error.strerror}" if (place := error.filename or _output()) else error, FAILED)
    except Exception as error:
        if (exit_code := getattr(error, "exit_code", None)) is None:
            raise
        code = _fail(error, exit_code)
    sys.exit(code)


def _output() -> str:
    """Its name, when it is standard output that cannot be written: an end of line is tried.

    Then that is given up, or Python would try once more at its end.
    """
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return "standard output"
    return ""


def _fail(error: object, code: int) -> int:
    print_error(str(error))
    return code
