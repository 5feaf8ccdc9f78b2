"""Sees every decision of a scheduler and appends what is worth remembering to a file."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tf_scheduler.model.effects import Change, Decision, RecoveryDecided, StatusStored, TaskLaunched
from tf_scheduler.model.events import Event, Tick
from tf_scheduler.model.state import SchedulerState

from .lines import decode, encode, lines

log = logging.getLogger(__name__)

#: Bytes of one recording. Beyond half of it no progress is added, beyond all of it nothing.
MOST_BYTES = 8_000_000
#: Seconds between two points of one task.
INTERVAL = 0.5
#: Characters of one message.
_MOST_TEXT = 2_000


class Recorder:
    """An observer of the runner. A file that cannot be written is told once, and never stops the scheduler: it is
    written again as soon as it can be.

    Called in the runner's thread: one write of a few hundred bytes, and only when there is something to remember.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time, most_bytes: int = MOST_BYTES) -> None:
        self._path, self._clock, self._most = path, clock, most_bytes
        self._last: dict[str, float] = {}
        self._failed = False
        #: Whether the file may end with a part of a line.
        self._torn = False

    def __call__(self, event: Event, decision: Decision) -> None:
        text = "".join(encode(_short(line)) for line in lines(event, decision, self._clock()) if self._due(line))
        if text:
            self._append(text)

    def resume(self, state: SchedulerState) -> None:
        """Add what the scheduler before us had stored when it died, before it was written here."""
        written = self._written()
        self._torn = bool(written) and not written.endswith("\n")
        known = {_key(line) for line in map(decode, written.splitlines()) if line is not None}
        found = lines(Tick(), Decision(state, tuple(_stored(state))), self._clock())
        if text := "".join(encode(_short(line)) for line in found if _key(line) not in known):
            self._append(text)

    def _written(self) -> str:
        try:
            return self._path.read_text(errors="replace")
        except OSError:
            return ""  # whether it can be written is told when it is

    def _append(self, text: str) -> None:
        try:
            with self._path.open("a") as file:
                size = file.tell()
                if size + len(text) <= (self._most // 2 if '"progress"' in text else self._most):
                    file.write(f"\n{text}" if self._torn else text)
            self._failed = self._torn = False
        except OSError as error:
            if not self._failed:
                log.warning("the history of this run is not recorded: %s: %s", self._path, error.strerror)
            self._failed = self._torn = True

    def _due(self, line: Mapping[str, Any]) -> bool:
        """Progress may come with every step; a curve needs less."""
        task = line.get("progress")
        if task is None:
            return True
        due = bool(line["t"] >= self._last.get(task, 0.0) + INTERVAL)
        if due:
            self._last[task] = line["t"]
        return due


def _stored(state: SchedulerState) -> Iterator[Change]:
    """What has made the state, as far as it can be told from it."""
    yield from map(TaskLaunched, state.tasks.values())
    yield from map(StatusStored, state.statuses.values())
    yield from map(RecoveryDecided, state.recoveries.values())


def _key(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in ("launched", "status", "state", "healthy", "replaced"))


def _short(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value[:_MOST_TEXT] if isinstance(value, str) else value for name, value in line.items()}
