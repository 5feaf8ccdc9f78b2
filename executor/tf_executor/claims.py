"""What a task may ask the scheduler for, and what it gets: its secrets. `handover` asks."""

from __future__ import annotations

import json
from dataclasses import dataclass, field


class HandoverError(Exception):
    """The secrets cannot be had; the text says why, and never holds a value."""


@dataclass(frozen=True)
class Secret:
    """One value and where it goes: a variable, a file in the working directory, or a file whose path is in one."""

    env: str
    file: str
    value: bytes = field(repr=False)
    #: Whether the program wants to hear of another value while it runs.
    reload: bool = False


@dataclass(frozen=True)
class Claim:
    """What is asked for."""

    url: str
    task_id: str
    token: str = field(repr=False)
    nonce: str = field(repr=False)
    #: PEM; empty: the machine's authorities.
    authorities: str = ""

    @property
    def body(self) -> bytes:
        """As the scheduler reads it."""
        return json.dumps({"task_id": self.task_id, "token": self.token, "nonce": self.nonce}).encode()
