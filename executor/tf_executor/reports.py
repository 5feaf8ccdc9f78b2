"""What the executor says to the scheduler for machines, as JSON in two `data` fields of Mesos.

`Ending` travels in `TaskStatus.data` of the last update, `Progress` in framework messages. Both are for those who must
not parse a message meant for people. Standard library only, Python 3.8.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Mapping

#: Grows when a scheduler of the version before would misread a progress message.
PROGRESS_VERSION = 1


@dataclass(frozen=True)
class Ending:
    """How the program ended: exactly one of the first two is set when it ran at all, none when it never started."""

    #: What the program returned, 0 to 255.
    exit_code: int | None = None
    #: Number of the signal that ended it.
    signal: int | None = None
    #: Whether the kernel killed something in the task's container for lack of memory; None: it did not.
    oom: bool | None = None
    #: The command beside the program that failed, such as `pre` or `post`; None: none did.
    failed_stage: str | None = None

    def encode(self) -> bytes:
        """As bytes for `TaskStatus.data` (before its base64)."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Ending:
        """Empty when `data` is not ours: updates that the agent or the master wrote carry none."""
        try:
            found = json.loads(data)
            return cls(**{item.name: found.get(item.name) for item in fields(cls)})
        except (ValueError, AttributeError):
            return NO_ENDING


NO_ENDING = Ending()


@dataclass(frozen=True)
class Progress:
    """How far one launch of a task has come; what the program does not tell is None."""

    #: Mesos id of the launch.
    task_id: str
    #: Grows with every message of the launch: one that comes late is older than one that came before.
    sequence: int
    #: Seconds since the epoch, by the agent's clock.
    time: float
    step: int | None = None
    #: Steps that the training will have made at its end.
    total: int | None = None
    #: May be infinite or no number: that is how a training that diverges looks.
    loss: float | None = None
    #: Examples seen since the start of the training.
    examples: int | None = None
    steps_per_second: float | None = None
    examples_per_second: float | None = None
    #: When the first step was made, as `time` is, where that is known better than by the first message.
    begun: float | None = None

    def encode(self) -> bytes:
        """As bytes for a framework message (before its base64): strict JSON, so that others can read it too."""
        found = {name: _spoken(value) for name, value in asdict(self).items() if value is not None}
        return json.dumps({"version": PROGRESS_VERSION, "kind": "progress", **found}, allow_nan=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> Progress | None:
        """None when `data` is no progress message of a version that we know: it is best effort on both sides."""
        try:
            found: Mapping[str, Any] = json.loads(data)
            if (found["version"], found["kind"]) != (PROGRESS_VERSION, "progress"):
                return None
            whole = {name: _number(int, found.get(name)) for name in ("step", "total", "examples")}
            real = {name: _number(float, found.get(name)) for name in _REAL}
            return cls(str(found["task_id"]), int(found["sequence"]), float(found["time"]), **whole, **real)
        except (ValueError, KeyError, TypeError, OverflowError):
            return None


_REAL = ("loss", "steps_per_second", "examples_per_second", "begun")


def _number(kind: type, value: Any) -> Any:
    return None if value is None else kind(value)


def _spoken(value: Any) -> Any:
    """JSON has no word for infinity and for what is no number; `float` understands Python's."""
    return (
        str(value) if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))) else value
    )
