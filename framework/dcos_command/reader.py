"""Who reads what we print may leave: that is noticed while nothing is printed, too."""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import contextmanager
from types import FrameType
from typing import Iterator, TextIO


class _Left(BaseException):
    """No error of whatever was being done: nobody on the way is to handle it as one."""


@contextmanager
def attended(out: TextIO) -> Iterator[None]:
    """Inside, BrokenPipeError is raised as soon as nobody reads `out` any more, whatever is being waited for.

    Where that cannot be watched (no poll, no signals, no main thread), the next line that is printed tells, as ever.
    """
    number = _number(out)
    if number is None:
        yield
        return
    left = threading.Event()

    def told(_number: int, _frame: FrameType | None) -> None:
        if left.is_set():  # else somebody has written to a connection that is broken, and learns it from the write
            raise _Left

    before = signal.signal(signal.SIGPIPE, told)
    end, ours = os.pipe()
    thread = threading.Thread(target=_watch, args=(number, end, left), daemon=True)
    thread.start()
    try:
        yield
    except _Left:
        raise BrokenPipeError("nobody reads any more") from None
    finally:
        signal.signal(signal.SIGPIPE, before if before is not None else signal.SIG_IGN)
        os.close(ours)
        thread.join()
        os.close(end)


def _watch(number: int, end: int, left: threading.Event) -> None:
    """Until one of the two is hung up; of a pipe's other end that is told unasked (POSIX, poll)."""
    poll = select.poll()
    poll.register(number, 0)
    poll.register(end, 0)
    if number in dict(poll.poll()):
        left.set()
        signal.pthread_kill(_main_thread(), signal.SIGPIPE)


def _main_thread() -> int:
    found = threading.main_thread().ident
    assert found is not None, "it runs"
    return found


def _number(out: TextIO) -> int | None:
    able = hasattr(select, "poll") and hasattr(signal, "pthread_kill")
    if not able or threading.current_thread() is not threading.main_thread():
        return None
    try:
        return out.fileno()
    except (OSError, ValueError):
        return None
