"""The end of a cluster: of its nodes, and of all that they have left, with a record of them or without."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from pathlib import Path

from .errors import MesosLocalError
from .folder import has_been_used, is_temporary, release_directory
from .leftovers import end_leftovers, find_leftovers, is_marked
from .members import Node, listens
from .process import ProcessId
from .record import NAME
from .signals import uninterrupted


def end_nodes(directory: Path, nodes: Iterable[Node], node_grace: float, grace: float, guard: ProcessId | None) -> None:
    """End these nodes, `node_grace` seconds between SIGTERM and SIGKILL, then whatever is left of the cluster in
    `directory`, with `grace` seconds; not its guard. Raises MesosLocalError if a process or a port is left."""
    started = {node.address: node.process for node in nodes if node.process is not None}
    for process in started.values():
        process.signal(signal.SIGTERM)
    for process in started.values():
        process.end(node_grace)
    end_leftovers(directory, grace, spare=guard)
    if left := [address for address in started if listens(address)]:
        raise MesosLocalError(f"Something still listens at {', '.join(left)}.")


def end_unrecorded(directory: Path, grace: float) -> bool:
    """End all that the cluster in `directory` has left, found by its mark. False if there was nothing.

    `grace`: seconds between SIGTERM and SIGKILL. In a folder that no cluster of ours has used, and that no process
    says it belongs to, nothing is looked for: the sandboxes of others may be in it.
    """
    with uninterrupted():
        recorded = (directory / NAME).exists()
        if not recorded and not has_been_used(directory) and not is_marked(directory):
            return False
        found = find_leftovers(directory)
        if not recorded and not found:
            return False
        end_leftovers(directory, grace)
        release_directory(directory, is_temporary(directory))
        return True
