"""Signal handlers in the main thread, and in a thread of their own."""

from __future__ import annotations

import signal
import threading

import pytest

from tf_scheduler.logging_setup import handle_signals, handle_signals_in_thread


@pytest.mark.timeout(30)
def test_handler_in_a_thread_may_take_a_lock_of_the_main_thread() -> None:
    lock, handled = threading.Lock(), threading.Event()

    def handler(number: signal.Signals) -> None:
        with lock:
            assert signal.SIGUSR1 == number
            handled.set()

    before = signal.getsignal(signal.SIGUSR1)
    with handle_signals_in_thread(handler, signal.SIGUSR1):
        with lock:
            signal.raise_signal(signal.SIGUSR1)
            assert not handled.is_set()
        assert handled.wait(20)
    assert before == signal.getsignal(signal.SIGUSR1)


def test_handler_in_the_main_thread_may_leave_the_block() -> None:
    def handler(number: signal.Signals) -> None:
        raise SystemExit(128 + number)

    with pytest.raises(SystemExit) as left, handle_signals(handler, signal.SIGUSR1):
        signal.raise_signal(signal.SIGUSR1)
    assert 128 + signal.SIGUSR1 == left.value.code
