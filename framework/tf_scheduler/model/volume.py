"""Folders of agents that tasks see."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Volume:
    """A folder, or a file, of whichever agent a task runs on."""

    #: Absolute.
    host_path: str
    #: Where the task finds it: absolute, or below its working directory.
    container_path: str
    read_only: bool = False
