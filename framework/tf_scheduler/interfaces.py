"""Interfaces between parts: Mesos driver, observers of decisions, task files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .model.effects import Call, Decision
from .model.events import Event
from .model.state import SchedulerState
from .model.task import TaskRecord


class Driver(Protocol):
    """Connection to Mesos."""

    def start(self) -> None:
        """Connect in the background."""

    def stop(self) -> None:
        """Send enqueued calls for some seconds, and disconnect; tasks keep running."""

    def perform(self, call: Call) -> object:
        """Send or enqueue a call; do not wait for Mesos, nor raise if disconnected."""


class Observer(Protocol):
    """Gets each decision after it is stored and its calls to Mesos are sent.

    Must not block.
    """

    def __call__(self, event: Event, decision: Decision) -> None: ...


@dataclass(frozen=True, slots=True)
class FileChunk:
    """Part of a file; `size` is that of the whole file at the time of the read."""

    offset: int
    data: bytes
    size: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Entry of a folder. `mode` has the form of `ls -l`; a link has its target's mode."""

    name: str
    mode: str
    size: int


class TaskFiles(Protocol):
    """Read files of tasks from their agents. Thread-safe; may block for seconds."""

    def read(self, state: SchedulerState, record: TaskRecord, name: str, offset: int | None, length: int) -> FileChunk:
        """Return bytes from `offset` (None: the last `length` bytes). Raises FileError."""

    def list(self, state: SchedulerState, record: TaskRecord, folder: str) -> Sequence[FileEntry]:
        """Return the entries of a folder; empty: the working directory. Raises FileError."""
