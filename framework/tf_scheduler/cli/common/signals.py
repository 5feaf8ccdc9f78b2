"""Signal handlers for the time of a `with` block."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread


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
