"""Error types of the local cluster; redirect this process's output to files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class MesosLocalError(Exception):
    """Error of the local cluster. The message names the cause and a remedy."""

    kind: str = "local_cluster_failed"
    exit_code: int = 1
    http_status: int = 500

    @property
    def sentence(self) -> str:
        """First line of the message."""
        return str(self).partition("\n")[0]


class NodeDiedError(MesosLocalError):
    """A node exited unexpectedly; the message continues with the end of its log."""


class DamagedRecordError(MesosLocalError):
    """A cluster record is invalid; only the mark identifies its processes."""


@contextmanager
def explain_os_errors(what: str, path: Path) -> Iterator[None]:
    """Translate OSError to MesosLocalError with `what` ("cache folder") and path."""
    try:
        yield
    except OSError as error:
        raise MesosLocalError(f"{what} {path} cannot be used: {os_error_text(error, path)}") from error


def os_error_text(error: OSError, path: Path) -> str:
    """Return the system's message, with the file name unless it is `path`."""
    message = error.strerror or str(error)
    file = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(path)
    return message if file == str(path) else f"{message} ({file})"


def redirect_output(folder: str | None) -> None:
    """Redirect output and errors to the sandbox; libmesos would use the agent's."""
    if folder:
        for descriptor, name in ((1, "stdout"), (2, "stderr")):
            target = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(target, descriptor)
            os.close(target)
