"""Errors of the operating system, told in a sentence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import MesosLocalError


@contextmanager
def telling(what: str, path: Path) -> Iterator[None]:
    """Within, OSError becomes MesosLocalError: `what` ("The cache folder"), its path, and what the system says."""
    try:
        yield
    except OSError as error:
        raise MesosLocalError(f"{what} {path} cannot be used: {reason(error, path)}") from error


def reason(error: OSError, path: Path) -> str:
    """What the system says, with the file's name if that is not `path` itself."""
    said = error.strerror or str(error)
    named = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(path)
    return said if named == str(path) else f"{said} ({named})"
