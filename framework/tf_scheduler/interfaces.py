"""What the loop, and those that look at it, need from the world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .model.effects import Call, Decision
from .model.events import Event
from .model.state import SchedulerState
from .model.task import TaskRecord


class Driver(Protocol):
    """The connection to Mesos."""

    def start(self) -> None:
        """Connect in the background."""

    def stop(self) -> None:
        """Leave; tasks go on."""

    def perform(self, call: Call) -> object:
        """Send one call, or log why it was not sent; never raise for a lost connection."""


class Observer(Protocol):
    """Sees every decision after it is stored and its calls are made. Must not block."""

    def __call__(self, event: Event, decision: Decision) -> None: ...


class FileError(Exception):
    """A file cannot be read; `code` is the HTTP status that says why. `silent`: who was asked does not answer."""

    def __init__(self, code: int, message: str, *, silent: bool = False) -> None:
        super().__init__(message)
        self.code, self.silent = code, silent


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file."""

    offset: int
    data: bytes
    #: Of the whole file, as it was then.
    size: int


class Files(Protocol):
    """Files of tasks, read from their agents. Safe for all threads; may block, for seconds."""

    def read(self, state: SchedulerState, record: TaskRecord, name: str, offset: int | None, length: int) -> Piece:
        """`offset` None: the last `length` bytes. Raise FileError."""
