"""Where the local DC/OS keeps its things: a folder of the cluster's, so that it comes and goes with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

#: Others may pass through to what is theirs, the sandbox of a task that runs as somebody else, and see nothing else.
_PASSAGE = 0o711


def make_passage(path: Path) -> None:
    """Create a private folder, or make an existing one private, regardless of the umask."""
    path.mkdir(mode=_PASSAGE, parents=True, exist_ok=True)
    path.chmod(_PASSAGE)


@contextmanager
def private(folder: Folder) -> Iterator[None]:
    """Inside, what this process and those that it starts make is nobody else's; so is the folder, then and later."""
    before = os.umask(0o077)
    try:
        make_passage(folder.path)
        yield
    finally:
        os.umask(before)


@dataclass(frozen=True, slots=True)
class Folder:
    """`cluster`: the folder of the local Mesos."""

    cluster: Path

    @property
    def path(self) -> Path:
        return self.cluster / "dcos"

    @property
    def universe(self) -> Path:
        """What is served below /universe: the package's repository and artefacts."""
        return self.path / "universe"

    @property
    def marathon(self) -> Path:
        return self.path / "marathon"

    @property
    def record(self) -> Path:
        """Says who serves, and where."""
        return self.path / "serve.json"

    @property
    def log(self) -> Path:
        return self.cluster / "logs" / "dcos.log"

    @property
    def uninstalled(self) -> Path:
        """A log: what services that are gone have left behind."""
        return self.cluster / "logs" / "uninstalled.log"

    def checkpoints(self, service: str) -> Path:
        """Of a service that names no folder of its own."""
        return self.path / "checkpoints" / service.strip("/").replace("/", "__")
