"""Command groups that import commands when called, and examples in their help."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from keyword import iskeyword
from typing import Any, TypeVar

import click

from dcos_command.command import Group, example_block

_Command = TypeVar("_Command", bound=Callable[..., Any])


class LazyGroup(Group):
    """Group that imports commands on demand. `later`: name -> `cli.commands` module."""

    def __init__(self, *arguments: Any, later: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.later = later

    def list_commands(self, _context: click.Context) -> list[str]:
        return sorted({*self.commands, *self.later})

    def get_command(self, _context: click.Context | None, name: str) -> click.Command | None:
        if name not in self.commands and name in self.later:
            module = importlib.import_module(f"tf_scheduler.cli.commands.{self.later[name]}")
            self.add_command(getattr(module, f"{name}_" if iskeyword(name) else name))
        return self.commands.get(name)


def examples(*lines: str) -> Callable[[_Command], _Command]:
    """Add examples to a command's long help; each line follows `dcos-tensorflow`."""

    def decorate(function: _Command) -> _Command:
        block = example_block("dcos-tensorflow", lines)
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{block}"
        return function

    return decorate
