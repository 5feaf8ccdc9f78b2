"""The scheduler's own log: a file of the run, and the terminal where nobody draws on it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_OURS = ("tf_scheduler", "mesos_client")


@contextmanager
def log_to(path: Path, *, console: bool) -> Iterator[None]:
    """Log to `path`, and with `console` to standard error as well, for the time of the block."""
    handlers: list[logging.Handler] = [logging.FileHandler(path)]
    handlers[0].setFormatter(logging.Formatter(_FORMAT))
    if console:
        handlers.append(logging.StreamHandler())
        handlers[1].setFormatter(logging.Formatter("%(message)s"))
    loggers = [logging.getLogger(name) for name in _OURS]
    for logger in loggers:
        logger.setLevel(logging.INFO)
        for handler in handlers:
            logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            for handler in handlers:
                logger.removeHandler(handler)
        for handler in handlers:
            handler.close()
