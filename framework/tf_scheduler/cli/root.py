"""The group of all commands: each is loaded when it is called, for most need much of the program."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

import click

#: Command -> the module of this package that has it, under the same name.
LOADED_LATER = {
    "convert": "convert",
    "executor": "executor",
    "history": "history",
    "local": "local",
    "options": "options",
    "package": "package",
    "runtime": "runtime",
    "scheduler": "scheduler",
    "state": "state",
}


class Later(click.Group):
    """Has what is added to it, and what `later` names: command -> module of this package."""

    def __init__(self, *arguments: Any, later: Mapping[str, str], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.later = later

    def list_commands(self, _context: click.Context) -> list[str]:
        return sorted({*self.commands, *self.later})

    def get_command(self, _context: click.Context | None, name: str) -> click.Command | None:
        if name not in self.commands and name in self.later:
            module = importlib.import_module(f"{__package__}.{self.later[name]}")
            found = getattr(module, name)
            assert isinstance(found, click.Command), f"{name} is a command"
            self.add_command(found)
        return self.commands.get(name)


class Root(Later):
    """Of LOADED_LATER, and of the commands that ask a service: all of those are made when one is wanted."""

    _complete = False

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, later=LOADED_LATER, **named)

    def list_commands(self, context: click.Context) -> list[str]:
        self._make()
        return super().list_commands(context)

    def get_command(self, context: click.Context | None, name: str) -> click.Command | None:
        if name not in self.later:
            self._make()
        return super().get_command(context, name)

    def invoke(self, context: click.Context) -> Any:
        """Who reads only the beginning of what is printed has enough: no error, nothing is left to flush."""
        try:
            result = super().invoke(context)
            if sys.stdout is not None:
                sys.stdout.flush()
            return result
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def _make(self) -> None:
        if not self._complete:
            from .operate.build import add_to

            self._complete = True
            add_to(self, without=LOADED_LATER)
