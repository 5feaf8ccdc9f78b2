"""Merge progress reports, notice new checkpoints, and send both to the scheduler."""

from __future__ import annotations

import json
import logging
import os
import re
import select
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Tuple

from tf_executor.contract import reports
from tf_executor.contract.reports import EVENT_FILES, OUTPUT, REPORT, Progress
from tf_executor.launch.fencing import FOLDER
from tf_executor.user import reporting
from tf_executor.user.keep import FOLDER as KEPT

#: Averaging window of the speeds in seconds.
WINDOW = 30.0
#: Seconds of training before the remaining time is estimated: the first steps are slower.
ESTIMATE_AFTER = 10.0
#: Minimum seconds between two samples, and between two reads of the pipe.
MIN_SAMPLE_INTERVAL, READ_INTERVAL = 0.25, 0.1
#: Limits of one read: older lines are dropped.
_MAX_LINES, _MAX_LINE_BYTES = 50, 1 << 16
#: Seconds between two searches for a new checkpoint, and maximum entries of each.
SAVE_INTERVAL, MAX_ENTRIES = 3.0, 500
#: Maximum of older samples, one for each SAVE_INTERVAL: 20 minutes.
_OLDER = 400
#: Seconds by which Linux may write a change too early: one tick of its clock.
_TICK = 0.01
#: Other files in CHECKPOINT_DIR: those of TensorBoard, and logs, which change all the time.
_NO_CHECKPOINT = re.compile(r"events\.out\.tfevents.*|.*\.(log|csv|txt|jsonl|pid)")
#: Data of a TensorFlow checkpoint.
_DATA = re.compile(r".*\.data-.{5}-of-.{5}", re.DOTALL)

#: Files by path: when they were written (Unix time), and their bytes.
Files = Dict[str, Tuple[float, int]]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sample:
    """Counts at a time of the monotonic clock; `step`: else the epoch."""

    time: float
    step: int | None
    examples: int | None
    source: str = REPORT


class Tracker:
    """Merge reports and compute speeds; uses neither clock nor I/O."""

    def __init__(self) -> None:
        self._sequence = 0
        self._values: dict[str, Any] = {}
        self._metrics: dict[str, float] = {}
        self._samples: deque[Sample] = deque()
        #: Fewer samples of a longer time: a carried checkpoint is reported when it is stored.
        self._older: deque[Sample] = deque(maxlen=_OLDER)
        #: First sample of the training, for the remaining time.
        self._first: Sample | None = None
        #: First epoch with a step, and the steps before that epoch; steps of all epochs.
        self._first_epoch: tuple[int, int] | None = None
        self._estimated_total: int | None = None
        #: Step at the last checkpoint; None: unknown.
        self._saved_step: int | None = None
        #: First step of this launch, and number of its checkpoints.
        self._first_step: int | None = None
        self._saves = 0
        #: Answer of the chief to the last list of workers.
        self._members: dict[str, Any] = {}
        #: Last problem of the carrier; empty: solved, None: none yet.
        self._storage_error: str | None = None
        #: Printed rate -> its time.
        self._rated: dict[str, float] = {}
        #: Origin of the values; None: no values yet.
        self.source: str | None = None
        #: Time of the last report; None: none yet.
        self.last: float | None = None

    def note(self, report: Mapping[str, Any], now: float) -> bool:
        """Merge a report; return whether it contained a valid value."""
        if _SAVED in report:
            return self._note_checkpoint(reports.finite(report[_SAVED]))
        if _MEMBERS in report:
            return self._note_members(report)
        if _PROBLEM in report:
            return self._note_storage(report[_PROBLEM])
        source = report["source"] if report.get("source") in (EVENT_FILES, OUTPUT) else REPORT
        values, metrics = _valid_values(report), _metrics(report)
        if not self._is_preferred(source, values.get("step")):
            if self.source != EVENT_FILES or not (metrics or values.keys() & {*_RATES}):
                return False
            # Event files have the step; printed metrics, rates and epochs must not stop at their first values.
            values = {name: values[name] for name in ("epoch", "epochs", *_RATES) if name in values}
            source = EVENT_FILES
        if not (values or metrics):
            return False
        if source == REPORT != self.source:  # in other units, perhaps
            self._forget_samples()
            self._values, self._metrics, self._estimated_total, self._first_step = {}, {}, None, None
        self.source, self.last = source, now
        self._estimate_total(values)
        if "step" in values and "step" not in self._values:
            self._forget_samples()  # of epochs
            # The first report of event files has the newest of several steps.
            self._first_step = values.get("first_step", None if source == EVENT_FILES else values["step"])
        since = values.pop("nan_since", None)
        self._values.update(values)
        reports.note_nan(self._values, self._values.get("step") if since is None else since)
        kept = [*self._metrics, *(name for name in metrics if name not in self._metrics)][: reports.MAX_METRICS]
        self._metrics = {name: {**self._metrics, **metrics}[name] for name in kept}
        time, (count, _) = self._time_of(report, now), self._position
        self._rated.update(dict.fromkeys(values.keys() & {*_RATES}, time))
        if values.keys() & {"examples", "step" if "step" in self._values else "epoch"}:
            self._sample(Sample(time, count, self._values.get("examples"), source))
        # A printed heading of an epoch must not delay the first step by an interval.
        return source != OUTPUT or len(self._samples) > 1 or bool(metrics or values.keys() - {"epoch", "epochs"})

    def _time_of(self, report: Mapping[str, Any], now: float) -> float:
        """Return when the program made a report; the last report may arrive late."""
        time = reports.finite(report.get("_time"))
        earliest = self._samples[-1].time if self._samples else now - WINDOW
        return now if time is None or not earliest <= time <= now else time

    def _is_preferred(self, source: str, step: int | None) -> bool:
        """Return whether to use `source`: reports win, then the source that is ahead."""
        # Event files are written late, so at the same step they win over the output.
        if source in (self.source, REPORT) or self.source is None:
            return True
        latest = self._values.get("step")
        is_ahead = step is not None and (latest is None or step + (source == EVENT_FILES) > latest)
        return is_ahead and self.source != REPORT

    def _estimate_total(self, values: Mapping[str, Any]) -> None:
        """When an epoch begins, use earlier epochs to estimate the total of steps."""
        step, before = self._values.get("step"), self._values.get("epoch")
        epoch, epochs = values.get("epoch", before), values.get("epochs", self._values.get("epochs"))
        if step is None or epoch is None or epochs is None:
            return
        if self._first_epoch is None:
            self._first_epoch = (before or epoch, 0 if (before or epoch) <= 1 else step)
        first, steps_before = self._first_epoch
        if epoch != before and epoch > first:
            self._estimated_total = step + round((step - steps_before) / (epoch - first) * (epochs - epoch + 1))

    @property
    def _position(self) -> tuple[int | None, int | None]:
        """Step and total; epoch and epochs of a program that reports no steps."""
        values = self._values
        if "step" not in values:
            return values.get("epoch"), values.get("epochs")
        step, total = values.get("step"), values.get("total", self._estimated_total)
        return step, None if step is not None and total is not None and step > total else total

    def message(self, now: float) -> Progress:
        """Return the next message; `now` is Unix time."""
        self._sequence += 1
        none = Sample(now, None, None)  # the answer of a chief that has reported no step
        last = self._samples[-1] if self._samples else none
        # Sources count a step at different times: files are written late.
        first = next((sample for sample in self._samples if sample.source == last.source), none)
        step, total = self._position
        has_steps = "step" in self._values
        seconds = last.time - first.time
        speed = _speed(seconds, first.step, last.step) if has_steps else None
        examples = _speed(seconds, first.examples, last.examples)
        values: dict[str, Any] = {
            **self._values,
            **({"step": step, "total": total} if has_steps else {}),
            "steps_per_second": self._rate("steps_per_second", first, speed),
            "examples_per_second": self._rate("examples_per_second", first, examples),
            "seconds_left": self._seconds_left(last, total),
            "first_step": self._first_step,
            "saved_step": self._saved_step if has_steps else None,
            "saves": self._saves or None,
            **self._members,
            "storage_error": self._storage_error,
        }
        return Progress(self._sequence, now, **values, source=self.source, metrics=dict(self._metrics))

    def _rate(self, name: str, first: Sample, speed: float | None) -> float | None:
        """Return the rate printed since the `first` sample, else `speed`."""
        printed = self._values.get(name)
        return speed if printed is None or (speed is not None and self._rated[name] < first.time) else printed

    def _seconds_left(self, last: Sample, total: int | None) -> float | None:
        """Return the remaining time at the mean speed, which includes validation."""
        first = self._first
        if first is None or first.step is None or last.step is None or total is None or last.step > total:
            return None
        time, steps = last.time - first.time, last.step - first.step
        return round((total - last.step) / steps * time, 1) if time >= ESTIMATE_AFTER and steps > 0 else None

    def _note_checkpoint(self, time: float | None) -> bool:
        """Count a checkpoint, and note the step at the `time` when it was written."""
        samples = (*self._older, *self._samples)
        earlier = [item.step for item in samples if time is not None and item.time <= time + _TICK]
        self._saved_step = earlier[-1] if earlier else None
        self._saves += 1
        return True

    def _note_members(self, report: Mapping[str, Any]) -> bool:
        """Keep the chief's answer, to repeat it: messages may get lost."""
        error = report.get("members_error")
        text = error[: reports.MAX_ERROR] if isinstance(error, str) else None
        self._members = {"members": reports.count(report[_MEMBERS]), "members_error": text or None}
        return True

    def _note_storage(self, error: Any) -> bool:
        """Keep the last storage problem, to repeat it: messages may get lost."""
        text = "".join(filter(str.isprintable, str(error)))[: reports.MAX_ERROR]
        if not text and self._storage_error is None:
            return False
        self._storage_error = text
        return True

    def _forget_samples(self) -> None:
        """Drop the samples, because another training or another unit of steps begins."""
        self._samples.clear()
        self._older.clear()
        self._saved_step = None

    def _sample(self, sample: Sample) -> None:
        """Add a sample; a count that decreases means a new training in the program."""
        if self._samples and _is_before(sample, self._samples[-1]):
            self._forget_samples()
        if not self._samples or self._first is None or self._first.step is None:
            self._first = sample
        # Replace a recent sample: programs may report very often.
        if len(self._samples) > 1 and self._samples[-1].time - self._samples[-2].time < MIN_SAMPLE_INTERVAL:
            self._samples.pop()
        self._samples.append(sample)
        if not self._older or sample.time - self._older[-1].time >= SAVE_INTERVAL:
            self._older.append(sample)
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


#: Rates that a program may print.
_RATES = ("steps_per_second", "examples_per_second")
#: Name, conversion and check of each value. A loss may be NaN or infinite.
_FIELDS: tuple[tuple[str, Callable[[Any], Any], Callable[[Any], Any]], ...] = (
    ("step", int, reports.count),
    ("first_step", int, reports.count),
    ("total", int, reports.count),
    ("examples", int, reports.count),
    ("nan_since", int, reports.count),
    ("loss", float, float),
    ("begun", float, reports.finite),
    ("epoch", int, reports.count),
    ("epochs", int, reports.count),
    ("steps_per_second", float, reports.finite),
    ("examples_per_second", float, reports.finite),
    ("of", str, lambda value: value if value in reports.EXAMPLES_OF else None),
)
_FIELD_NAMES = frozenset(name for name, _, _ in _FIELDS) | {"source", "_time"}
#: Key of the carrier's lines, or the executor's own: when the last checkpoint was written.
_SAVED = reporting.SAVED_KEY
#: Key of the carrier's lines: why checkpoints are not stored.
_PROBLEM = reporting.STORAGE_KEY
#: Key of a chief's answer to a list of workers, from `user.members`.
_MEMBERS = reporting.MEMBERS_KEY


def _metrics(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a report that are not fields."""
    result = {}
    for name, value in report.items():
        if name not in _FIELD_NAMES and reports.is_metric_name(name) and type(value) in (int, float):
            with suppress(OverflowError):
                result[name] = float(value)
    return result


def _is_before(sample: Sample, other: Sample) -> bool:
    pairs = ((sample.step, other.step), (sample.examples, other.examples))
    return any(new is not None and old is not None and new < old for new, old in pairs)


def _speed(seconds: float, first: int | None, last: int | None) -> float | None:
    if first is None or last is None or last == first or seconds <= 0:
        return None
    return float(f"{(last - first) / seconds:.4g}")  # a slow step takes hours


def checkpoint_files(folder: Path) -> Files:
    """Return the files of a checkpoint folder; empty if it has too many entries."""
    files: Files = {}
    budget, folders = MAX_ENTRIES, [str(folder)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:  # files come and go
            for entry in entries:
                budget -= 1
                if budget < 0:
                    return {}
                if entry.is_dir(follow_symlinks=False):
                    folders += [entry.path] if entry.name not in (FOLDER, KEPT) else []
                elif entry.is_file(follow_symlinks=False) and not _NO_CHECKPOINT.fullmatch(entry.name):
                    status = entry.stat(follow_symlinks=False)
                    files[entry.path] = status.st_mtime, status.st_size
    return files


def last_change(files: Files) -> float:
    """Return when the newest file was written (Unix time); 0 without files."""
    return max((time for time, _ in files.values()), default=0.0)


def is_written(files: Files, before: Files, earlier: Files, noted: float) -> bool:
    """Return whether the program has finished a checkpoint since `noted` (Unix time).

    `files`, `before`, `earlier`: the folder's files at the last three looks, the newest first. A checkpoint is finished
    if nothing has changed since the previous look. Some programs save all the time. Then a checkpoint is finished if
    there is a new index of TensorFlow, which is written last. It is also finished if the program rewrote a file
    before each of the last two looks, and the size of the file has not changed.
    """
    return files == before or any(
        (path.endswith(".index") and time > noted)
        or (
            size == before.get(path, (0.0, -1))[1] == earlier.get(path, (0.0, -1))[1]
            and time != before[path][0] != earlier[path][0]
        )
        for path, (time, size) in files.items()
    )


def lacks_index(files: Files) -> bool:
    """Return whether TensorFlow is still writing a checkpoint; the index comes last."""
    data = (Path(path) for path in files if _DATA.fullmatch(path))
    return any(str(path.with_suffix(".index")) not in files for path in data)


class ProgressReader:
    """Read the progress pipe in a thread.

    `send`: may block; returns whether it sent. `interval`: seconds between two messages to the scheduler.
    """

    def __init__(self, pipe: Path, task_id: str, send: Callable[[bytes], bool], interval: float) -> None:
        """Open the pipe. Raises OSError."""
        self._tracker = Tracker()
        self._task_id, self._send, self._interval = task_id, send, interval
        # Also open for writing: a pipe without writers is always readable and empty.
        self._pipe = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._buffer = b""
        self._unsent = False
        self._next_message = 0.0
        self._ending, self._stopped = threading.Event(), threading.Event()
        self._detections: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Send the last report and stop, within `timeout` seconds."""
        self._ending.set()
        for detection in self._detections:
            detection.join(timeout)  # scans a last time
        self._stopped.set()
        self._put(b"\n")
        self._thread.join(timeout)
        with self._lock:
            if not self._thread.is_alive():
                os.close(self._pipe)
                self._pipe = -1

    def note_storage(self, error: str) -> None:
        """Report why carried checkpoints are not stored."""
        self._put(json.dumps({_PROBLEM: error}).encode() + b"\n")

    def silent_for(self, since: float) -> float:
        """Return the seconds since the last report.

        Before the first report: the seconds since the time `since` (time.monotonic).
        """
        last = self._tracker.last
        return time.monotonic() - (since if last is None else last)

    @property
    def has_reports(self) -> bool:
        """Whether the program has reported or printed progress."""
        return self._tracker.last is not None

    def detect(self, source: str, scan: Callable[[], Mapping[str, float]], interval: float) -> None:
        """Scan for progress every `interval` seconds until the program itself reports."""
        thread = threading.Thread(target=self._detect, args=(source, scan, interval), name=source, daemon=True)
        self._detections.append(thread)
        thread.start()

    def _detect(self, source: str, scan: Callable[[], Mapping[str, float]], interval: float) -> None:
        """Scan periodically and once after the program has exited."""
        ended = False
        while not ended and self._tracker.source != REPORT:
            ended = self._ending.wait(interval)
            report = scan()
            if report:
                self._put(json.dumps({**report, "source": source}).encode() + b"\n")

    def watch_checkpoints(self, folder: Path) -> None:
        """Note the step at each new checkpoint in `folder` that is complete."""
        thread = threading.Thread(target=self._watch_checkpoints, args=(folder,), name="checkpoints", daemon=True)
        self._detections.append(thread)
        thread.start()

    def _watch_checkpoints(self, folder: Path) -> None:
        earlier = before = checkpoint_files(folder)
        newest = last_change(before)
        looked, at, ended = time.monotonic(), 0.0, False
        while not ended:
            ended = self._ending.wait(SAVE_INTERVAL)
            files, now = checkpoint_files(folder), time.monotonic()
            changed = last_change(files)
            if changed != last_change(before):
                # The clock of a shared file system may differ.
                at = min(max(looked, changed - time.time() + now), now)
            looked = now
            # The program may still write a file that has just changed.
            if changed > newest and (ended or is_written(files, before, earlier, newest)) and not lacks_index(files):
                self._put(json.dumps({_SAVED: at}).encode() + b"\n")
                newest = changed
            earlier, before = before, files

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
        self._next_message = time.monotonic() + self._interval
        try:
            # While the agent is away, the newest values stay unsent.
            self._unsent = not self._send(self._tracker.message(time.time()).encode(self._task_id))
        except Exception:  # a bug here must not stop the thread
            self._unsent = False
            log.exception("cannot send progress")
