"""The task's own folder for temporary files, TMPDIR of all that runs for it; it goes when the task has ended.

TensorFlow writes a file for each function that it translates, and removes it at the end of the program: those of killed
programs would stay for ever, in the /tmp of the agent. The folder is no part of the working directory, because paths of
AF_UNIX sockets have 107 characters at most (unix(7)), and those of working directories often have more.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Callable, Mapping

from tf_executor import locked_folders
from tf_executor.environment import TEMPORARY
from tf_executor.guarding import remove

_DEFAULT = "/tmp"  # noqa: S108 - the folder in it has a name that nobody guesses
_PREFIX = "tf-task-"
#: Seconds that the task's end waits for its removal, which goes on afterwards.
REMOVAL_LIMIT = 1.0

log = logging.getLogger(__name__)


class TemporaryFolder:
    """`make` once, then `remove`. `guard` tells another process what to remove if we are killed."""

    def __init__(self, guard: Callable[[str], None]) -> None:
        self._guard = guard
        self._folder: Path | None = None

    def make(self, environ: Mapping[str, str], owner: tuple[int, int] | None) -> str:
        """For `owner` (None: us), in the TMPDIR of `environ`; its path, empty where there can be none.

        Then programs do without: they have what they had before.
        """
        try:
            # The lock is held until we end; nothing else needs its descriptor.
            self._folder, _ = locked_folders.make(Path(environ.get(TEMPORARY) or _DEFAULT).absolute(), _PREFIX)
            self._guard(str(self._folder))
            if owner is not None:
                os.chown(self._folder, *owner)
        except OSError as error:
            log.warning("the task has no folder of its own for temporary files: %s", error)
            return ""
        return str(self._folder)

    def remove(self) -> None:
        """All processes of the task are gone. It may be huge, or lead to a server that does not answer."""
        if self._folder is None:
            return
        done = threading.Event()
        threading.Thread(target=_remove, args=(self._folder, done), name="temporary", daemon=True).start()
        if not done.wait(REMOVAL_LIMIT):
            log.warning("removing %s takes long; it goes on", self._folder)


def _remove(folder: Path, done: threading.Event) -> None:
    remove(str(folder))
    done.set()
    # An agent may kill the guardian together with the executor, and with all else in their control group.
    locked_folders.sweep(folder.parent, _PREFIX)
