"""What the loop needs from the world."""

from __future__ import annotations

from typing import Protocol

from .model.effects import Call, Decision
from .model.events import Event


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
