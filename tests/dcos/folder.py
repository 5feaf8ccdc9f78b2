"""The folder of the local DC/OS, inside the cluster's folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

#: Others may pass through to what is theirs, the sandbox of a task that runs as somebody else, and see nothing else.
_PASSAGE = 0o711


def make_passage(path: Path) -> None:
    """Create a private folder or make one private, regardless of the umask."""
    path.mkdir(mode=_PASSAGE, parents=True, exist_ok=True)
    path.chmod(_PASSAGE)


@contextmanager
def private(folder: Folder) -> Iterator[None]:
    """Make the folder private, and files that this process and its children create."""
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
        """The package's repository and artefacts, served below /universe."""
        return self.path / "universe"

    @property
    def marathon(self) -> Path:
        return self.path / "marathon"

    @property
    def record(self) -> Path:
        """Record of the server."""
        return self.path / "serve.json"

    @property
    def log(self) -> Path:
        return self.cluster / "logs" / "dcos.log"

    @property
    def uninstalled(self) -> Path:
        """Log of what uninstalled services left behind."""
        return self.cluster / "logs" / "uninstalled.log"

    def checkpoints(self, service: str) -> Path:
        """Default checkpoint folder of a service."""
        return self.path / "checkpoints" / service.strip("/").replace("/", "__")
