"""Import pymesos without its side effects; the only importer of pymesos.

Importing pymesos.process replaces the SIGINT handler, which fails outside the main thread. pymesos also adds a stderr
handler and a level to its logger, so that each line would appear twice.
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
    """Disable `signal.signal` in the calling thread only."""
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
    # Another importer may rely on its side effects.
    from pymesos import MesosExecutorDriver, MesosSchedulerDriver
else:
    with _signals_untouched():
        from pymesos import MesosExecutorDriver, MesosSchedulerDriver
    _quieten()

__all__ = ["MesosExecutorDriver", "MesosSchedulerDriver"]
