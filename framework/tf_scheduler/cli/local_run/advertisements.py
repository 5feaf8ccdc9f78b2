"""Advertisements of services, by which other commands of this user find them."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from mesos_local.host import ProcessId
from tf_scheduler.cli.common.folders import state_home


@dataclass(frozen=True, slots=True)
class Advertisement:
    """A running service: URL of its API, its name, and its folder if it is installed.

    `run`: folder of a local run. `process`: `PID:START_TIME` of a local run. Both are empty for other services.
    `token_file`: file with the token of the API; empty: the API requires no token, or the user passes the token.
    """

    url: str
    name: str
    folder: str = ""
    token_file: str = ""
    run: str = ""
    process: str = ""

    @property
    def token(self) -> str:
        """Token of the API; empty if there is none."""
        try:
            return Path(self.token_file).read_text() if self.token_file else ""
        except OSError:
            return ""  # the run has just ended


@contextmanager
def advertise(name: str, folder: str = "", token_file: str = "", run: str = "") -> Iterator[Callable[[str], None]]:
    """Let other commands find the service; yield a function that publishes its URL.

    The advertisement is a file that this process locks. Commands ignore the file as soon as this process exits.
    """
    path, own = _folder() / f"{uuid.uuid4().hex}.json", ProcessId.current()
    process = f"{own.pid}:{own.start_time}" if run else ""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = ""

    def publish(url: str) -> None:
        nonlocal written
        text = json.dumps(asdict(Advertisement(url, name, folder, token_file, run, process)))
        if text != written:
            os.pwrite(file.fileno(), text.encode(), 0)
            os.ftruncate(file.fileno(), len(text.encode()))
            written = text

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield publish
        finally:
            path.unlink(missing_ok=True)


def advertisements() -> list[Advertisement]:
    """Return the advertisements of running processes."""
    return [note for path in _folder().glob("*.json") if (note := _read(path)) is not None]


def _read(path: Path) -> Advertisement | None:
    try:
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return Advertisement(**json.load(file))
            path.unlink(missing_ok=True)  # its process was killed
    except (OSError, ValueError, TypeError):
        return None  # just removed, or not yet written
    return None


def _folder() -> Path:
    return state_home() / "services"
