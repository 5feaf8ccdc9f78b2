"""Commands: groups that import them when called, examples in their help, signals."""

from __future__ import annotations

import importlib
import inspect
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from keyword import iskeyword
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import click

from dcos_command.main import Group, example_block

_Command = TypeVar("_Command", bound=Callable[..., Any])


class LazyGroup(Group):
    """Group that imports commands when called. `later`: name -> `cli.commands` module."""

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


@contextmanager
def handle_signals(handler: Callable[[signal.Signals], None], *signals: signal.Signals) -> Iterator[None]:
    """Call `handler` with each signal in the block, then restore earlier handlers.

    It interrupts the main thread, and must not take a lock that this thread may hold.
    """
    previous = {each: signal.signal(each, lambda number, _frame: handler(signal.Signals(number))) for each in signals}
    try:
        yield
    finally:
        for each, restored in previous.items():
            signal.signal(each, restored)


@contextmanager
def handle_signals_in_thread(handler: Callable[[signal.Signals], None], *signals: signal.Signals) -> Iterator[None]:
    """Call `handler` as `handle_signals` does, in a thread; it may take any lock."""
    # SimpleQueue.put may interrupt itself (documented as reentrant).
    received: SimpleQueue[signal.Signals | None] = SimpleQueue()

    def run() -> None:
        while (number := received.get()) is not None:
            handler(number)

    Thread(target=run, name="signals", daemon=True).start()
    try:
        with handle_signals(received.put, *signals):
            yield
    finally:
        received.put(None)
