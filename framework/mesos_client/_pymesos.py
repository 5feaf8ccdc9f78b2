"""The only importer of pymesos: what its import leaves behind is kept out of the process.

pymesos.process replaces the SIGINT handler when it is imported, which also fails outside the main thread. pymesos
adds a handler for stderr to its logger, and sets a level, so that each line would appear twice.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from contextlib import contextmanager
from typing import Any, Iterator


@contextmanager
def _signals_untouched() -> Iterator[None]:
    """Let the calling thread's `signal.signal` do nothing. Other threads keep the real one."""
    real, importer = signal.signal, threading.get_ident()

    def guarded(number: int, handler: Any) -> Any:
        return signal.getsignal(number) if threading.get_ident() == importer else real(number, handler)

    signal.signal = guarded  # type: ignore[assignment]
    try:
        yield
    finally:
        signal.signal = real


def _quieten() -> None:
    logger = logging.getLogger("pymesos")
    logger.removeHandler(sys.modules["pymesos"].handler)
    logger.setLevel(logging.NOTSET)


if "pymesos" in sys.modules:
    # Someone else imported it and may rely on what it set up.
    from pymesos import MesosExecutorDriver, MesosSchedulerDriver
else:
    with _signals_untouched():
        from pymesos import MesosExecutorDriver, MesosSchedulerDriver
    _quieten()

__all__ = ["MesosExecutorDriver", "MesosSchedulerDriver"]
