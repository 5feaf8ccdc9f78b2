"""Which services run on this machine: the commands that start some leave a note of where these are.

A note is a file that its writer keeps locked: so a writer that has ended, however suddenly, is noticed.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tf_scheduler.cli.folders import state_home


@dataclass(frozen=True, slots=True)
class Note:
    """`url`: of the API of the service `name`; without a name that of a local DC/OS, which has services."""

    url: str
    name: str = ""


@contextmanager
def noted(name: str = "") -> Iterator[Callable[[str], None]]:
    """Gives what notes the URL, as often as it changes. At the end of the block there is none."""
    path = _folder() / f"{uuid.uuid4().hex}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    written = ""

    def tell(url: str) -> None:
        nonlocal written
        text = json.dumps(asdict(Note(url, name)))
        if text != written:
            os.pwrite(file.fileno(), text.encode(), 0)
            os.ftruncate(file.fileno(), len(text.encode()))
            written = text

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield tell
        finally:
            path.unlink(missing_ok=True)


def notes() -> list[Note]:
    """Those whose writer lives."""
    return [note for path in _folder().glob("*.json") if (note := _read(path)) is not None]


def _read(path: Path) -> Note | None:
    try:
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return Note(**json.load(file))
            path.unlink(missing_ok=True)  # its writer was killed
    except (OSError, ValueError, TypeError):
        return None  # it ends just now, or has not told anything yet
    return None


def _folder() -> Path:
    return state_home() / "services"
