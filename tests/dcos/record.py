"""serve.json: who serves the local DC/OS, so that other commands find it. Quick to import."""

from __future__ import annotations

import json
from dataclasses import dataclass

from mesos_local.host.process import ProcessId

from .folder import Folder


@dataclass(frozen=True, slots=True)
class Record:
    """Who serves. `cluster_id` stays the same for as long as the cluster's folder lives."""

    url: str
    cluster_id: str
    process: ProcessId

    @classmethod
    def read(cls, folder: Folder) -> Record | None:
        """None when nobody serves there."""
        try:
            found = json.loads(folder.record.read_text())
        except FileNotFoundError:
            return None
        process = ProcessId(**found["process"])
        return cls(found["url"], found["cluster_id"], process) if process.alive() else None
