"""Collect the program's progress reports and send them to the scheduler."""

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

from tf_executor.contract import reports
from tf_executor.contract.reports import ProgressReport

#: Seconds between two messages to the scheduler, and averaging window of the speeds.
MESSAGE_INTERVAL, WINDOW = 2.0, 30.0
#: Seconds between two scans of event files.
SCAN_INTERVAL = 5.0
#: Minimum seconds between two samples, and between two reads of the pipe.
MIN_SAMPLE_INTERVAL, READ_INTERVAL = 0.25, 0.1
#: Limits of one read: older lines are dropped.
_MAX_LINES, _MAX_LINE_BYTES = 50, 1 << 16
_DETECTED = "detected"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sample:
    """Counts at a time of the monotonic clock."""

    time: float
    step: int | None
    examples: int | None


class Tracker:
    """Merge reports and compute speeds; uses neither clock nor I/O."""

    def __init__(self, task_id: str) -> None:
        self._task_id = task_id
        self._sequence = 0
        self._values: dict[str, Any] = {}
        self._samples: deque[Sample] = deque()
        #: True when the program itself reports: detection is not needed.
        self.has_own_reports = False
        #: Time of the last report; None: none yet.
        self.last: float | None = None

    def note(self, report: Mapping[str, Any], now: float) -> bool:
        """Merge a report; return whether it contained a valid value."""
        if report.get(_DETECTED) and self.has_own_reports:
            return False
        values = _valid_values(report)
        if not values:
            return False
        self.has_own_reports = self.has_own_reports or not report.get(_DETECTED)
        self.last = now
        self._values.update(values)
        self._sample(Sample(now, self._values.get("step"), self._values.get("examples")))
        return True

    def message(self, now: float) -> ProgressReport:
        """Return the next message; `now` is Unix time."""
        self._sequence += 1
        first, last = self._samples[0], self._samples[-1]
        return ProgressReport(
            self._task_id,
            self._sequence,
            now,
            **self._values,
            steps_per_second=_speed(first.time, last.time, first.step, last.step),
            examples_per_second=_speed(first.time, last.time, first.examples, last.examples),
        )

    def _sample(self, sample: Sample) -> None:
        """Add a sample; a count that decreases means a new training in the program."""
        if self._samples and _is_before(sample, self._samples[-1]):
            self._samples.clear()
        # Replace a recent sample: programs may report very often.
        if len(self._samples) > 1 and self._samples[-1].time - self._samples[-2].time < MIN_SAMPLE_INTERVAL:
            self._samples.pop()
        self._samples.append(sample)
        while sample.time - self._samples[0].time > WINDOW and len(self._samples) > 2:
            self._samples.popleft()


def _valid_values(report: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, kind, check in _FIELDS:
        try:
            value = None if report.get(name) is None else check(kind(report[name]))
        except (ValueError, TypeError, OverflowError):
            continue
        if value is not None:
            result[name] = value
    return result


#: Name, conversion and check of each value. A loss may be NaN or infinite.
_FIELDS: tuple[tuple[str, Callable[[Any], Any], Callable[[Any], Any]], ...] = (
    ("step", int, reports.count),
    ("total", int, reports.count),
    ("examples", int, reports.count),
    ("loss", float, float),
    ("begun", float, reports.finite),
)


def _is_before(sample: Sample, other: Sample) -> bool:
    pairs = ((sample.step, other.step), (sample.examples, other.examples))
    return any(new is not None and old is not None and new < old for new, old in pairs)


def _speed(begin: float, end: float, first: int | None, last: int | None) -> float | None:
    if first is None or last is None or end <= begin:
        return None
    return round((last - first) / (end - begin), 3)


class ProgressReader:
    """Read the progress pipe in a thread. `send` may block and returns its success."""

    def __init__(self, pipe: Path, task_id: str, send: Callable[[bytes], bool]) -> None:
        """Open the pipe. Raises OSError."""
        self._tracker = Tracker(task_id)
        self._send = send
        # Also open for writing: a pipe without writers is always readable and empty.
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
        """Send the last report and stop, within `timeout` seconds."""
        self._ending.set()
        if self._detection is not None:
            self._detection.join(timeout)  # scans a last time
        self._stopped.set()
        self._put(b"\n")
        self._thread.join(timeout)
        with self._lock:
            if not self._thread.is_alive():
                os.close(self._pipe)
                self._pipe = -1

    def silent_for(self, since: float) -> float:
        """Return the seconds since the last report, or since `since` (time.monotonic)."""
        last = self._tracker.last
        return time.monotonic() - (since if last is None else last)

    def detect(self, scan: Callable[[], Mapping[str, float]]) -> None:
        """Scan for progress until the program itself reports."""
        self._detection = threading.Thread(target=self._detect, args=(scan,), name="detection", daemon=True)
        self._detection.start()

    def _detect(self, scan: Callable[[], Mapping[str, float]]) -> None:
        """Scan periodically and once after the program has exited."""
        ended = False
        while not ended and not self._tracker.has_own_reports:
            ended = self._ending.wait(SCAN_INTERVAL)
            report = scan()
            if report:
                self._put(json.dumps({_DETECTED: True, **report}).encode() + b"\n")

    def _put(self, line: bytes) -> None:
        with self._lock:
            if self._pipe < 0:
                return
            try:
                os.write(self._pipe, line)
            except BlockingIOError:
                log.debug("progress pipe full")

    def _run(self) -> None:
        while not self._stopped.is_set():
            wait = max(0.0, self._next_message - time.monotonic()) if self._unsent else None
            select.select([self._pipe], [], [], wait)
            self._take()
            if self._unsent and time.monotonic() >= self._next_message:
                self._send_message()
            # Read ten times a second, however often the program reports.
            self._stopped.wait(READ_INTERVAL)
        self._take()
        if self._unsent:
            self._send_message()

    def _take(self) -> None:
        try:
            self._buffer += os.read(self._pipe, _MAX_LINE_BYTES)
        except BlockingIOError:
            return
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = rest if len(rest) < _MAX_LINE_BYTES else b""
        for line in lines[-_MAX_LINES:]:
            if line.strip():
                self._note(line)

    def _note(self, line: bytes) -> None:
        try:
            report = json.loads(line)
            if isinstance(report, dict) and self._tracker.note(report, time.monotonic()):
                self._unsent = True
        except (ValueError, RecursionError):
            return
        except Exception:  # a bug here must not stop progress reports
            log.exception("progress report ignored")

    def _send_message(self) -> None:
        self._next_message = time.monotonic() + MESSAGE_INTERVAL
        try:
            # While the agent is away, the newest values stay unsent.
            self._unsent = not self._send(self._tracker.message(time.time()).encode())
        except Exception:  # a bug here must not stop the thread
            self._unsent = False
            log.exception("cannot send progress")
