"""Where the local DC/OS keeps its things: a folder of the cluster's, so that it comes and goes with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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
