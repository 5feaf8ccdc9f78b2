"""Write Mesos' helper programs to a folder whose path needs no quotes in `sh -c`."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .host.errors import MesosLocalError
from .host.process import uninterrupted
from .node import node_command

_FOLDER = "libexec"
_PREFIX = "dcos-tensorflow-"
_FETCHER, _CONTAINERIZER = "mesos-fetcher", "mesos-containerizer"
_SAFE_PATH = re.compile(r"[A-Za-z0-9/_.,:+@%-]+")  # needs no quotes in a shell


def helper_folder(directory: Path) -> Path:
    """Return the folder with the helpers of the cluster in `directory`."""
    return (directory / _FOLDER).resolve()


def write_helpers(directory: Path, library: Path) -> None:
    """Write the helpers to `directory/libexec`, or to a private folder linked there.

    The private folder is for paths that need quotes or are mounted noexec. Raises MesosLocalError if none is suitable.
    """
    remove_helpers(directory)
    with uninterrupted():  # between the private folder and the link to it
        for folder in _candidate_folders(directory):
            _write(folder, _CONTAINERIZER, node_command("containerizer", str(library)))
            _write(folder, _FETCHER, node_command("fetcher"))
            if os.access(folder / _FETCHER, os.X_OK):  # false on a noexec mount
                if folder != directory / _FOLDER:
                    (directory / _FOLDER).symlink_to(folder)
                return
            _remove(folder)
    raise MesosLocalError(
        f"no usable folder for the programs that Mesos runs; tried: {directory}, $XDG_RUNTIME_DIR, /tmp and /var/tmp. "
        "The path must not contain spaces or quotes, and the folder must not be mounted noexec"
    )


def remove_helpers(directory: Path) -> None:
    """Remove the helpers and their private folder; never another linked folder."""
    folder = helper_folder(directory)
    if not folder.name.startswith(_PREFIX) and folder != directory.resolve() / _FOLDER:
        return
    _remove(folder)
    with suppress(OSError):
        (directory / _FOLDER).unlink(missing_ok=True)


def _candidate_folders(directory: Path) -> Iterator[Path]:
    """Create empty folders."""
    if _SAFE_PATH.fullmatch(str(directory)):
        (directory / _FOLDER).mkdir()
        yield directory / _FOLDER
    for parent in (os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp", "/var/tmp"):  # noqa: S108 - mkdtemp makes it safe
        with suppress(OSError):
            if parent.startswith("/") and _SAFE_PATH.fullmatch(parent):
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
