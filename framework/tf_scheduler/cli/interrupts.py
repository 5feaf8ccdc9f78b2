"""Ctrl-C, SIGTERM and a closed terminal: the first asks for a graceful end, the second leaves at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """What arrived so far. Nothing is interrupted by it: whoever waits has to look."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.names)

    @property
    def reason(self) -> str:
        return f"{self.names[0]} received" if self.names else ""

    @property
    def insisted(self) -> bool:
        """Whether somebody does not want to wait for the graceful end."""
        return len(self.names) > 1


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Collect signals for the time of the block."""
    found = Interrupts()

    def note(number: int, _frame: FrameType | None) -> None:
        found.names.append(signal.Signals(number).name)

    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
