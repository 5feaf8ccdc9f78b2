"""How far the program is: gathers what it reports, and tells the scheduler now and then. Best effort throughout."""

from __future__ import annotations

import json
import logging
import os
import select
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping

from tf_executor import reports
from tf_executor.reports import Progress

#: Seconds between two messages to the scheduler, and over which speeds are averaged.
MESSAGE_INTERVAL, WINDOW = 2.0, 30.0
#: Seconds between two looks at event files.
LOOK_INTERVAL = 5.0
#: Seconds between two samples of a speed, and between two looks at the pipe.
SHORTEST_SAMPLE, PAUSE = 0.25, 0.1
#: Of what comes at once; all else is older.
_MOST_LINES, _LONGEST_LINE = 50, 1 << 16
_DETECTED = "detected"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sample:
    """Counts at a time on a clock that never goes back."""

    time: float
    step: int | None
    examples: int | None


class Tracker:
    """Merges reports and computes speeds. Pure but for its own memory."""

    def __init__(self, task_id: str) -> None:
        self._task_id = task_id
        self._sequence = 0
        self._values: dict[str, Any] = {}
        self._samples: deque[Sample] = deque()
        #: Whether the program itself reports, so that nothing need be detected.
        self.is_told = False
        #: When the last report came; None: never.
        self.last: float | None = None

    def note(self, report: Mapping[str, Any], now: float) -> bool:
        """Take a report; return whether it said anything that we understand."""
        if report.get(_DETECTED) and self.is_told:
            return False
        found = _understood(report)
        if not found:
            return False
        self.is_told = self.is_told or not report.get(_DETECTED)
        self.last = now
        self._values.update(found)
        self._sample(Sample(now, self._values.get("step"), self._values.get("examples")))
        return True

    def message(self, now: float) -> Progress:
        """The next message; `now` in seconds since the epoch."""
        self._sequence += 1
        first, last = self._samples[0], self._samples[-1]
        return Progress(
            self._task_id,
            self._sequence,
            now,
            **self._values,
            steps_per_second=_speed(first.time, last.time, first.step, last.step),
            examples_per_second=_speed(first.time, last.time, first.examples, last.examples),
        )

    def _sample(self, sample: Sample) -> None:
        """A count that goes back belongs to another training in the same program."""
        if self._samples and _is_before(sample, self._samples[-1]):
            self._samples.clear()
        # A shell script may report as often as it likes.
        if len(self._samples) > 1 and self._samples[-1].time - self._samples[-2].time < SHORTEST_SAMPLE:
            self._samples.pop()
        self._samples.append(sample)
        while sample.time - self._samples[0].time > WINDOW and len(self._samples) > 2:
            self._samples.popleft()


def _understood(report: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, kind, check in _FIELDS:
        try:
            value = None if report.get(name) is None else check(kind(report[name]))
        except (ValueError, TypeError, OverflowError):
            continue
        if value is not None:
            found[name] = value
    return found


#: Name in a report, what it is made to be, and what of that the scheduler takes. A loss may be no number.
_FIELDS: tuple[tuple[str, Callable[[Any], Any], Callable[[Any], Any]], ...] = (
    ("step", int, reports.count),
    ("total", int, reports.count),
    ("examples", int, reports.count),
    ("loss", float, float),
    ("begun", float, reports.finite),
)


def _is_before(sample: Sample, other: Sample) -> bool:
    pairs = ((sample.step, other.step), (sample.examples, other.examples))
    return any(mine is not None and theirs is not None and mine < theirs for mine, theirs in pairs)


def _speed(begin: float, end: float, first: int | None, last: int | None) -> float | None:
    if first is None or last is None or end <= begin:
        return None
    return round((last - first) / (end - begin), 3)


class ProgressReader:
    """Reads the named pipe in a thread of its own.

    `send` gets the encoded messages, may take its time, and returns whether the message has left.
    """

    def __init__(self, pipe: Path, task_id: str, send: Callable[[bytes], bool]) -> None:
        """Raise OSError when the pipe cannot be opened."""
        self._tracker = Tracker(task_id)
        self._send = send
        # To write, too: a pipe without writers would be ready to read, with nothing in it, for ever.
        self._pipe = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._buffer = b""
        self._unsent = False
        self._next_message = 0.0
        self._ending, self._stopped = threading.Event(), threading.Event()
        self._detection: threading.Thread | None = None
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Send what was not sent and end, within `timeout` seconds."""
        self._ending.set()
        if self._detection is not None:
            self._detection.join(timeout)  # its last look
        self._stopped.set()
        self._put(b"\n")
        self._thread.join(timeout)
        with self._lock:
            if not self._thread.is_alive():
                os.close(self._pipe)
                self._pipe = -1

    def silent_for(self, since: float) -> float:
        """Seconds since the last report, or since `since` where none has come (time.monotonic)."""
        last = self._tracker.last
        return time.monotonic() - (since if last is None else last)

    def detect(self, look: Callable[[], Mapping[str, float]]) -> None:
        """Look for progress from time to time until the program tells it itself."""
        self._detection = threading.Thread(target=self._detect, args=(look,), name="detection", daemon=True)
        self._detection.start()

    def _detect(self, look: Callable[[], Mapping[str, float]]) -> None:
        """The last look is when the program has ended."""
        ended = False
        while not ended and not self._tracker.is_told:
            ended = self._ending.wait(LOOK_INTERVAL)
            found = look()
            if found:
                self._put(json.dumps({_DETECTED: True, **found}).encode() + b"\n")

    def _put(self, line: bytes) -> None:
        with self._lock:
            if self._pipe < 0:
                return
            try:
                os.write(self._pipe, line)
            except BlockingIOError:
                log.debug("the pipe for progress is full")

    def _run(self) -> None:
        while not self._stopped.is_set():
            wait = max(0.0, self._next_message - time.monotonic()) if self._unsent else None
            select.select([self._pipe], [], [], wait)
            self._take()
            if self._unsent and time.monotonic() >= self._next_message:
                self._tell()
            # However often the program reports, we look ten times a second.
            self._stopped.wait(PAUSE)
        self._take()
        if self._unsent:
            self._tell()

    def _take(self) -> None:
        try:
            self._buffer += os.read(self._pipe, _LONGEST_LINE)
        except BlockingIOError:
            return
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = rest if len(rest) < _LONGEST_LINE else b""
        for line in lines[-_MOST_LINES:]:
            if line.strip():
                self._note(line)

    def _note(self, line: bytes) -> None:
        try:
            report = json.loads(line)
            if isinstance(report, dict) and self._tracker.note(report, time.monotonic()):
                self._unsent = True
        except (ValueError, RecursionError):
            return
        except Exception:  # never the task's business, and the thread goes on
            log.exception("a report of progress is ignored")

    def _tell(self) -> None:
        self._next_message = time.monotonic() + MESSAGE_INTERVAL
        try:
            # The agent may be away: the newest values go out when it is back.
            self._unsent = not self._send(self._tracker.message(time.time()).encode())
        except Exception:  # never the task's business
            self._unsent = False
            log.exception("progress could not be sent")
