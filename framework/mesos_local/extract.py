"""Unpacks what the fetcher has brought, as the executor does where it fetches itself."""

from __future__ import annotations

from pathlib import Path

from tf_executor import archive

from .errors import MesosLocalError


def extract(fetched: Path, folder: Path) -> bool:
    """See `tf_executor.archive.extract`. Raises MesosLocalError."""
    try:
        return archive.extract(fetched, folder)
    except archive.ArchiveError as error:
        raise MesosLocalError(str(error)) from error
