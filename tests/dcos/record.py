"""serve.json: the running server of the local DC/OS, for other commands."""

from __future__ import annotations

import json
from dataclasses import dataclass

from mesos_local.host import ProcessId

from .folder import Folder


@dataclass(frozen=True, slots=True)
class Record:
    """The server. `cluster_id` stays the same while the cluster's folder exists."""

    url: str
    cluster_id: str
    process: ProcessId

    @classmethod
    def read(cls, folder: Folder) -> Record | None:
        """Return the record, or None without a running server."""
        try:
            found = json.loads(folder.record.read_text())
        except FileNotFoundError:
            return None
        process = ProcessId(**found["process"])
        return cls(found["url"], found["cluster_id"], process) if process.alive() else None
