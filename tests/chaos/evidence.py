"""Evidence of a training: the scheduler's recording and the chief's output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

_EPOCH = re.compile(r"epoch (\d+): ")
_RESUMED = re.compile(r"resumed after epoch (\d+)")
_ACCURACY = re.compile(r"test accuracy ([0-9.]+)")


@dataclass(frozen=True, slots=True)
class Said:
    """An output line of a chief: text, Unix time when seen, run of the program."""

    time: float
    run: str
    text: str

    @property
    def epoch(self) -> int | None:
        """Number of the epoch that a line reports as finished, or None."""
        return _number(_EPOCH, self.text)

    @property
    def resumed(self) -> int | None:
        """Number of the epoch after which a line reports a resumption, or None."""
        return _number(_RESUMED, self.text)


@dataclass(frozen=True, slots=True)
class Launched:
    time: float
    task: str
    id: str
    address: str
    agent: str


@dataclass(frozen=True, slots=True)
class Heard:
    """A status. `said`: creation time by the sender; `time`: when it was stored."""

    time: float
    said: float
    id: str
    state: str
    ended: bool
    healthy: bool


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision to replace a launch."""

    time: float
    id: str
    why: str


@dataclass(frozen=True, slots=True)
class Record:
    """The parsed recording."""

    launched: tuple[Launched, ...] = ()
    heard: tuple[Heard, ...] = ()
    decided: tuple[Decided, ...] = ()
    #: Of one epoch; None: nobody has told its progress.
    epoch_steps: int | None = None

    @property
    def tasks(self) -> frozenset[str]:
        return frozenset(launch.task for launch in self.launched)

    def of(self, task: str) -> list[Launched]:
        """The task's launches, oldest first."""
        return [launch for launch in self.launched if launch.task == task]

    def last(self, launch: Launched) -> Heard | None:
        return next((heard for heard in reversed(self.heard) if heard.id == launch.id), None)

    def answered(self, launch: Launched) -> float | None:
        """When the TensorFlow server of a launch first answered, or None."""
        return next((heard.said for heard in self.heard if heard.id == launch.id and heard.healthy), None)


def accuracy(said: Iterable[Said]) -> float | None:
    """The accuracy that was printed last."""
    found = [_ACCURACY.search(line.text) for line in said]
    values = [float(match[1]) for match in found if match is not None]
    return values[-1] if values else None


def read(lines: Iterable[Mapping[str, Any]]) -> Record:
    """Parse lines of a recording, see tf_scheduler.history.record."""
    kept = list(lines)
    # It is printed after some epochs, not after each.
    steps = gcd(*(line["step"] for line in kept if "progress" in line and line.get("step")))
    return Record(tuple(_launches(kept)), tuple(_statuses(kept)), tuple(_decisions(kept)), steps or None)


def _launches(lines: Iterable[Mapping[str, Any]]) -> Iterator[Launched]:
    """Adopted launches are recorded again."""
    known: set[str] = set()
    for line in lines:
        if "launched" in line and line["launched"] not in known:
            known.add(line["launched"])
            yield Launched(line["t"], line["task"], line["launched"], line["address"], line["agent"])


def _statuses(lines: Iterable[Mapping[str, Any]]) -> Iterator[Heard]:
    for line in lines:
        if "status" in line:
            said = line.get("said") or line["t"]
            ended, healthy = bool(line.get("ended")), bool(line.get("healthy"))
            yield Heard(line["t"], said, line["status"], line["state"], ended, healthy)


def _decisions(lines: Iterable[Mapping[str, Any]]) -> Iterator[Decided]:
    for line in lines:
        if "replaced" in line:
            yield Decided(line["t"], line["replaced"], line["why"])


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.match(text)
    return None if found is None else int(found[1])
