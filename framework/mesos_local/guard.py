"""A process that outlives its owner by a moment: when the owner ends, however it ends, it ends the owner's cluster.

The kernel's own means, PR_SET_PDEATHSIG, would reach the nodes only, not the executors, which are their own sessions,
nor the folder; and it fires when the *thread* that started the node ends.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

from .commands import environment, node_command
from .folder import LOCK, release_directory
from .leftovers import end_leftovers
from .lock import locked
from .process import ProcessId, spawn
from .record import belongs_to

KEEP, REMOVE = "keep", "remove"  # what becomes of the folder


def start_guard(directory: Path, identity: str = "", temporary: bool = True) -> ProcessId:
    """Guard the cluster in `directory`, whose owner we are; end the guard last. `identity`: see Record; empty for
    processes that only their folder keeps together. `temporary`: the folder goes, too."""
    owner = ProcessId.of(os.getpid())
    assert owner is not None, "we exist"
    what = [str(directory), identity, REMOVE if temporary else KEEP]
    command = node_command("guard", *what, str(owner.pid), str(owner.start_time))
    return spawn(command, environment(directory), directory / "logs" / "guard.log")


def run_guard(directory: Path, identity: str, temporary: bool, owner: ProcessId) -> None:
    """Returns when the owner and then its cluster have ended. Nobody is there to wait for a graceful end."""
    owner.wait()
    # A cluster that is being started in the same folder has the lock until its record is written.
    with locked(directory / LOCK) if directory.is_dir() else nullcontext():
        if belongs_to(directory, identity):
            end_leftovers(directory, grace=0)
            release_directory(directory, temporary)
