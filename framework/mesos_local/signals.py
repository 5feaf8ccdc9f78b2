"""Clean-up that Ctrl-C does not cut short."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Within, SIGINT, SIGTERM and SIGHUP wait; the first that came is delivered afterwards.

    In another thread than the main one this does nothing: Python handles signals in the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = _replace(dict.fromkeys(_SIGNALS, note))
    try:
        yield
    finally:
        _replace(before)
        for number in came[:1]:
            signal.raise_signal(number)


def _replace(handlers: Mapping[signal.Signals, signal._HANDLER]) -> Mapping[signal.Signals, signal._HANDLER]:
    """Set all or none, though one of them may arrive meanwhile; returns those before, of signals not ignored."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        before = {number: signal.getsignal(number) or signal.SIG_DFL for number in handlers}
        before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
        for number in before:
            signal.signal(number, handlers[number])
        return before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
