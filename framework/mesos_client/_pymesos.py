"""Import pymesos without its side effects; the only importer of pymesos.

The build copies pymesos into _vendor, and does not change an installed pymesos. Importing pymesos.process replaces the
SIGINT handler, which fails outside the main thread. pymesos also sets its logger's level and adds a stderr handler,
which would print each line twice.
"""

from __future__ import annotations

import logging
import signal
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


@contextmanager
def _logger_untouched() -> Iterator[None]:
    """Restore level and handlers of the logger that an installed pymesos also uses."""
    logger = logging.getLogger("pymesos")
    level, handlers = logger.level, list(logger.handlers)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.handlers[:] = handlers


try:
    with _signals_untouched(), _logger_untouched():
        from ._vendor.pymesos import MesosExecutorDriver, MesosSchedulerDriver
except ImportError as error:  # only in a checkout
    raise ImportError("pymesos is missing in this checkout; run scripts/setup") from error

__all__ = ["MesosExecutorDriver", "MesosSchedulerDriver"]
