"""The guard of a cluster: a process that ends it after its owner has exited.

PR_SET_PDEATHSIG would not reach the executors, which have their own sessions, and would not remove the folder. The
kernel also sends it when only the *thread* that started a node exits.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from .host import ProcessId, end_orphans, locked, spawn
from .node import environment, node_command
from .record import LOCK, belongs_to, release_directory


def start_guard(directory: Path, identity: str = "", temporary: bool = True) -> ProcessId:
    """Start a guard, which ends the cluster when this process exits. Stop it last.

    `identity`: see ClusterRecord; empty for processes without a record. `temporary`: also remove the folder.
    """
    owner, then = ProcessId.current(), "remove" if temporary else "keep"
    command = node_command("guard", str(directory), identity, then, str(owner.pid), str(owner.start_time))
    return spawn(command, environment(directory), directory / "logs" / "guard.log")


def run_guard(directory: Path, identity: str, temporary: bool, owner: ProcessId) -> None:
    """Wait until the owner has exited, then end its cluster without a grace period."""
    owner.wait()
    # A cluster that starts in the same folder holds the lock until it has written its record.
    with locked(directory / LOCK) if directory.is_dir() else nullcontext():
        if belongs_to(directory, identity):
            end_orphans(directory, grace=0)
            release_directory(directory, temporary)
