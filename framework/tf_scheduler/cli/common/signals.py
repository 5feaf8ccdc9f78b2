"""Signal handlers for the time of a `with` block."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def handle_signals(handler: Callable[[signal.Signals], None], *signals: signal.Signals) -> Iterator[None]:
    """Call `handler` with each signal in the block, then restore earlier handlers."""
    previous = {each: signal.signal(each, lambda number, _frame: handler(signal.Signals(number))) for each in signals}
    try:
        yield
    finally:
        for each, restored in previous.items():
            signal.signal(each, restored)
