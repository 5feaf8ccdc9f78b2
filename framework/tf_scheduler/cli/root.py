"""The group of all commands: each is loaded when it is called, for most need much of the program."""

from __future__ import annotations

import importlib

import click

#: Command -> the module of this package that has it, under the same name.
LOADED_LATER = {
    "convert": "convert",
    "executor": "executor",
    "history": "history",
    "local": "local_commands",
    "options": "options",
    "package": "package",
    "runtime": "runtime",
    "scheduler": "scheduler",
    "state": "state",
}


class Root(click.Group):
    """Has what was added to it, and what LOADED_LATER names."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return sorted({*self.commands, *LOADED_LATER})

    def get_command(self, _context: click.Context | None, name: str) -> click.Command | None:
        if name not in self.commands and name in LOADED_LATER:
            module = importlib.import_module(f"{__package__}.{LOADED_LATER[name]}")
            found = getattr(module, name)
            assert isinstance(found, click.Command), f"{name} is a command"
            self.add_command(found)
        return self.commands.get(name)
