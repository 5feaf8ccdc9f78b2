"""Sees every decision of a scheduler and appends what is worth remembering to a file."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import Event

from .lines import encode, lines

log = logging.getLogger(__name__)

#: Bytes of one recording. Beyond half of it no progress is added, beyond all of it nothing.
MOST_BYTES = 8_000_000
#: Seconds between two points of one task.
INTERVAL = 0.5
#: Characters of one message.
_MOST_TEXT = 2_000


class Recorder:
    """An observer of the runner. A file that cannot be written is told once, and never stops the scheduler.

    Called in the runner's thread: one write of a few hundred bytes, and only when there is something to remember.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time, most_bytes: int = MOST_BYTES) -> None:
        self._path, self._clock, self._most = path, clock, most_bytes
        self._last: dict[str, float] = {}
        self._failed = False

    def __call__(self, event: Event, decision: Decision) -> None:
        text = "".join(encode(_short(line)) for line in lines(event, decision, self._clock()) if self._due(line))
        if not text or self._failed:
            return
        try:
            with self._path.open("a") as file:
                size = file.tell()
                if size + len(text) <= (self._most // 2 if '"progress"' in text else self._most):
                    file.write(text)
        except OSError as error:
            self._failed = True
            log.warning("the history of this run is not recorded: %s: %s", self._path, error.strerror)

    def _due(self, line: Mapping[str, Any]) -> bool:
        """Progress may come with every step; a curve needs less."""
        task = line.get("progress")
        if task is None:
            return True
        due = bool(line["t"] >= self._last.get(task, 0.0) + INTERVAL)
        if due:
            self._last[task] = line["t"]
        return due


def _short(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value[:_MOST_TEXT] if isinstance(value, str) else value for name, value in line.items()}
