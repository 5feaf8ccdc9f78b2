"""What the executor says to the scheduler for machines, as JSON in two `data` fields of Mesos.

`Ending` travels in `TaskStatus.data` of the last update, `Progress` in framework messages. Both are for those who must
not parse a message meant for people. What is read may come from a malicious program, which can speak to its agent as
the executor: nothing of it raises, what is wrong is ignored and told. Standard library only, Python 3.8.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Callable, Mapping, TypeVar

#: Of an ending or a message; ours have a few hundred.
MOST_BYTES = 1 << 14
#: Counts are what 64 bits hold: others could not be stored or drawn.
MOST_COUNT = 2**63 - 1
_MOST_CODE, _MOST_SIGNAL, _LONGEST_TEXT = 255, 64, 255
_NO_NUMBERS = ("nan", "inf", "-inf")

#: Grows when a scheduler of the version before would misread a progress message.
PROGRESS_VERSION = 1

#: Takes a sentence on what is ignored; it quotes nothing of what was sent.
Tell = Callable[[str], None]

Found = TypeVar("Found")


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
    def decode(cls, data: bytes, tell: Tell = lambda _: None) -> Ending:
        """Empty when `data` is not ours: updates that the agent or the master wrote carry none. Never raises."""
        found = _parsed(data, tell)
        wrong: list[str] = []

        def field(name: str, check: Callable[[Any], Found | None]) -> Found | None:
            return _checked(found, name, check, wrong)

        ending = cls(
            field("exit_code", lambda value: _whole(value, 0, _MOST_CODE)),
            field("signal", lambda value: _whole(value, 1, _MOST_SIGNAL)),
            field("oom", lambda value: value if isinstance(value, bool) else None),
            field("failed_stage", _text),
        )
        if wrong:
            tell(f"what an executor said of its task's end is ignored: {', '.join(wrong)}")
        return ending


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
    def decode(cls, data: bytes, tell: Tell = lambda _: None) -> Progress | None:
        """None when `data` is no progress message of a version that we know: it is best effort on both sides.

        Never raises: a message with anything wrong is ignored as a whole, the next one may be better.
        """
        found = _parsed(data, tell)
        if (found.get("version"), found.get("kind")) != (PROGRESS_VERSION, "progress"):
            return None
        wrong = [name for name in _NEEDED if found.get(name) is None]
        values: dict[str, Any] = {name: _checked(found, name, check, wrong) for name, check in _CHECKS.items()}
        if wrong:
            tell(f"progress that an executor told is ignored: {', '.join(wrong)}")
            return None
        return cls(**values)


def count(value: Any) -> int | None:
    """None for what is no number of steps, examples or messages."""
    return _whole(value, -MOST_COUNT - 1, MOST_COUNT)


def finite(value: Any) -> float | None:
    """None for what is no finite number."""
    real = _real(value)
    return None if real is None or not math.isfinite(real) else real


def _parsed(data: bytes, tell: Tell) -> Mapping[str, Any]:
    """The JSON object; empty when it is none."""
    if not data:
        return {}
    try:
        found = json.loads(data) if len(data) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    tell(f"{len(data)} bytes that an executor sent are ignored: they are no JSON object of ours")
    return {}


def _checked(
    found: Mapping[str, Any], name: str, check: Callable[[Any], Found | None], wrong: list[str]
) -> Found | None:
    """What the check makes of a field; if that is nothing though the field is there, it is wrong."""
    value = found.get(name)
    checked = None if value is None else check(value)
    if value is not None and checked is None:
        wrong.append(name)
    return checked


def _whole(value: Any, least: int, most: int) -> int | None:
    return value if type(value) is int and least <= value <= most else None


def _real(value: Any) -> float | None:
    if isinstance(value, float):
        return value
    whole = count(value)
    return None if whole is None else float(whole)


def _loss(value: Any) -> float | None:
    return float(value) if isinstance(value, str) and value in _NO_NUMBERS else _real(value)


def _text(value: Any) -> str | None:
    """Half a surrogate pair, which JSON can write, is no text that could be stored or shown."""
    is_text = isinstance(value, str) and 0 < len(value) <= _LONGEST_TEXT and value.isprintable()
    return value if is_text else None


_NEEDED = ("task_id", "sequence", "time")
_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "task_id": _text,
    "sequence": count,
    "time": finite,
    "step": count,
    "total": count,
    "loss": _loss,
    "examples": count,
    "steps_per_second": finite,
    "examples_per_second": finite,
    "begun": finite,
}


def _spoken(value: Any) -> Any:
    """JSON has no word for infinity and for what is no number; `float` understands Python's."""
    return (
        str(value) if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))) else value
    )
