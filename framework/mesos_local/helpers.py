"""The programs that an agent expects in its launcher_dir. It calls them by `sh -c`, their path without quotes."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .commands import node_command
from .errors import MesosLocalError
from .signals import uninterrupted

_FOLDER = "libexec"
_PREFIX = "dcos-tensorflow-"
_FETCHER, _CONTAINERIZER = "mesos-fetcher", "mesos-containerizer"
_PLAIN = re.compile(r"[A-Za-z0-9/_.,:+@%-]+")  # what no shell reads as anything else


def launcher_dir(directory: Path) -> Path:
    """Where the helpers of the cluster in `directory` are."""
    return (directory / _FOLDER).resolve()


def write_helpers(directory: Path, library: Path) -> None:
    """Into `directory/libexec`; if a shell would misread its path, or nothing can be executed there, into a private
    folder that this is then a link to. Raises MesosLocalError if there is no place for that."""
    remove_helpers(directory)
    with uninterrupted():  # between the private folder and the link to it
        for folder in _places(directory):
            _write(folder, _CONTAINERIZER, node_command("containerizer", str(library)))
            _write(folder, _FETCHER, node_command("fetcher"))
            if os.access(folder / _FETCHER, os.X_OK):  # not so where programs are forbidden (noexec)
                if folder != directory / _FOLDER:
                    (directory / _FOLDER).symlink_to(folder)
                return
            _remove(folder)
    raise MesosLocalError(
        f"There is no folder for programs that Mesos calls: the paths of {directory} and of $XDG_RUNTIME_DIR hold "
        "spaces or quotes, or programs are forbidden there, and /tmp and /var/tmp cannot be used either."
    )


def remove_helpers(directory: Path) -> None:
    """The helpers, and the private folder if they are in one. Nothing else is removed, whatever the link points at."""
    folder = launcher_dir(directory)
    if not folder.name.startswith(_PREFIX) and folder != directory.resolve() / _FOLDER:
        return
    _remove(folder)
    with suppress(OSError):
        (directory / _FOLDER).unlink(missing_ok=True)


def _places(directory: Path) -> Iterator[Path]:
    """Made, empty."""
    if _PLAIN.fullmatch(str(directory)):
        (directory / _FOLDER).mkdir()
        yield directory / _FOLDER
    for parent in (os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp", "/var/tmp"):  # noqa: S108 - mkdtemp makes it safe
        with suppress(OSError):
            if parent.startswith("/") and _PLAIN.fullmatch(parent):
                yield Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))


def _write(folder: Path, name: str, command: list[str]) -> None:
    path = folder / name
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    path.chmod(0o755)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for name in (_CONTAINERIZER, _FETCHER):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
