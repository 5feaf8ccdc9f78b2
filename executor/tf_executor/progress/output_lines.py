"""Read progress from the lines that a program prints.

Known forms are progress bars of Keras 2 and 3, lines of TensorFlow 1's Estimators, bars of tqdm with a loss, and the
dictionaries that Hugging Face's Trainer prints. Lines such as `step 120/500 loss 0.3` or
`Epoch [2/10], Step [100/600], Loss: 0.2` are known, too.
"""

from __future__ import annotations

import logging
import math
import re
import time
from contextlib import suppress
from typing import Callable, Dict, Iterator, Pattern, Sequence, Tuple

from tf_executor.contract.reports import note_nan

#: Seconds between two scans.
SCAN_INTERVAL = 1.0
#: Longer lines are cut: all patterns run in linear time, with a bounded number of repetitions.
MAX_LINE = 4096
#: Limits of a pattern of the options, whose time may grow with the square of a line's length: characters of a line, and
#: seconds for the lines of one scan.
_PATTERN_LINE, _PATTERN_TIME = 1024, 0.5
#: Numbers that are not metrics.
_COUNTS = ("step", "steps", "global_step", "epoch", "epochs", "iter", "iteration", "total", "eta")

Values = Dict[str, float]
#: Returns the number of bytes printed until now, the last of them, and their time (time.monotonic).
Recent = Callable[[], Tuple[int, bytes, float]]

log = logging.getLogger(__name__)

_NUMBER = r"([-+]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][-+]?\d{1,3})?|nan|-?inf)(?![\w/%:]|\.\d)"
_COUNT = r"(?![A-Za-z-])[ \t]{0,2}[:=#]?[ \t]{0,2}\[?(\d{1,18})(?![\w%]|\.\d)"
_TOTAL = r"[ \t]{0,2}(?:/|of)[ \t]{0,2}(\d{1,18})"
_END = re.compile(rb"([\r\n\x08]+)")
_ESCAPE = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
#: Lines about other data than the training's, or about an earlier run.
_OTHER_DATA = re.compile(
    r"saving dict|\beval|\bvalidation|\btest|loss for final step|\brestor(?:ed|ing)|\bresum(?:ed|ing)"
    r"|\bcontinu(?:ed|ing) (?:from|at)|\bload(?:ed|ing) .{0,20}checkpoint",
    re.IGNORECASE,
)
_BAR = re.compile(r" {0,9}(\d{1,18})/(?:(\d{1,18}) (?:\[|━|- \d)|Unknown[ -])")
_PAIR = re.compile(rf"(?<![\w./-])([A-Za-z_][\w./-]{{0,63}})[ \t]{{0,2}}[:=][ \t]{{0,2}}{_NUMBER}")
_BARE_PAIR = re.compile(rf"(?<![\w./-])([A-Za-z_-]{{0,30}}(?:loss|acc|accuracy))[ \t]{{1,2}}{_NUMBER}", re.IGNORECASE)
_SPEED = re.compile(rf"\bglobal_step/sec: {{0,2}}{_NUMBER}")
_GLOBAL_STEP = re.compile(rf"\bglobal[_ ]step{_COUNT}", re.IGNORECASE)
_STEP = re.compile(rf"(?<![\w/-])(?:step|iter|iteration)s?{_COUNT}(?:{_TOTAL})?", re.IGNORECASE)
_EPOCH = re.compile(rf"\bepoch{_COUNT}(?:{_TOTAL})?", re.IGNORECASE)
#: `[100/500]` or `[Batch 100/500]` after an epoch.
_IN_EPOCH = re.compile(r"\[(?:[A-Za-z]{1,9}[ :]{1,2})?(\d{1,18})/(\d{1,18})\]")

_TQDM = re.compile(r"\d{1,3}%\|[^|]{0,200}\| (\d{1,18})/(\d{1,18}) \[")
_TRAINER = re.compile(r" {0,9}\{'loss': .{0,2000}'epoch': '?(\d{1,9}(?:\.\d{0,20})?)'?\}")


class OutputLines:
    """The new lines of one output stream, each with whether it ended with a newline."""

    def __init__(self, recent: Recent) -> None:
        self._recent = recent
        self._seen = 0
        self._rest = b""
        #: Time of the newest output (time.monotonic).
        self.time = 0.0

    def read(self) -> Iterator[tuple[str, bool]]:
        """Yield new lines; yield an unfinished line once no more output follows."""
        total, tail, self.time = self._recent()
        new, self._seen = total - self._seen, total
        if not new:
            line, self._rest = self._rest, b""
            if line:
                yield _text(line), False
            return
        is_lost = new > len(tail)
        parts = _END.split(tail[-new:] if is_lost else self._rest + tail[-new:])
        self._rest = parts.pop()[:MAX_LINE]
        for line, end in list(zip(parts[::2], parts[1::2]))[is_lost:]:
            yield _text(line), b"\n" in end


def _text(line: bytes) -> str:
    return _ESCAPE.sub("", line[:MAX_LINE].decode("utf-8", "replace"))


class OutputProgress:
    """Progress in a task's output; `pattern` replaces the known forms.

    `is_mirrored`: use only the values of an epoch's last bar, because Keras 2 adds up other values over all replicas.
    """

    def __init__(self, streams: Sequence[Recent], pattern: str = "", *, is_mirrored: bool = False) -> None:
        self._streams = [OutputLines(stream) for stream in streams]
        self._pattern: Pattern[str] | None = re.compile(pattern) if pattern else None
        self._parse = self._match if pattern else _KnownLines(is_mirrored=is_mirrored).parse
        self._pattern_time = 0.0

    def scan(self) -> Values:
        """Return the newest values in lines since the last call, and their time."""
        values: Values = {}
        self._pattern_time = 0.0
        for stream in self._streams:
            for line, is_ended in stream.read():
                if reported := self._parse(line, is_ended):
                    values.update(reported, _time=stream.time)
                    note_nan(values, values.get("step"))
        return values

    def _match(self, line: str, _is_ended: bool) -> Values:
        if self._pattern is None:
            return {}
        started = time.monotonic()
        match = self._pattern.search(line[:_PATTERN_LINE])
        self._pattern_time += time.monotonic() - started
        if self._pattern_time > _PATTERN_TIME:
            log.warning("progress.pattern is not used any more: it is too slow")
            self._pattern = None
        values = {}
        for name, text in (match.groupdict() if match else {}).items():
            with suppress(ValueError):
                values[name] = float((text or "").replace(",", ""))
        return values


class _KnownLines:
    """Parser of known lines; remembers the epoch, because bars count from 1 in each."""

    def __init__(self, *, is_mirrored: bool) -> None:
        self._is_mirrored = is_mirrored
        self._epoch, self._epochs = 1, 1
        #: Steps of an epoch, and the last step in it; 0: unknown.
        self._steps, self._step = 0, 0
        #: Whether a bar belongs to the training, rather than to an evaluation after it.
        self._is_open = True
        #: Last epoch and step of a line; whether the program counts steps across epochs; None: certainly not.
        self._last = (1, 1 << 62)
        self._is_global: bool | None = False
        #: Whether lines have a total; steps of lines without one are then another count.
        self._has_total = False

    def parse(self, line: str, is_ended: bool) -> Values:
        """Return the values of a line; empty if the line is not about the training."""
        bar = _BAR.match(line)
        if bar is not None:
            return self._bar(line, bar, is_ended)
        if trainer := _TRAINER.match(line):
            return {**_metrics(line.replace("'", "")), "epoch": math.ceil(float(trainer[1]))}
        if other := _OTHER_DATA.search(line):
            line = line[: other.start()]  # `Epoch 3, Loss: 0.2, Test Loss: 0.3`
            if not (_EPOCH.match(line) and "loss" in _metrics(line)):
                return {}
        if tqdm := _TQDM.search(line):
            return self._tqdm(line, tqdm)
        speed = _SPEED.search(line)
        if speed is not None:
            return {"steps_per_second": float(speed[1])}
        metrics = _metrics(line)
        values: Values = {}
        epoch, step = _EPOCH.search(line), _GLOBAL_STEP.search(line) or _STEP.search(line)
        if epoch is not None and (epoch[2] or metrics):
            values.update(self._begin_epoch(int(epoch[1]), int(epoch[2] or 0)))
        if step is None and epoch is not None and epoch[2]:
            step = _IN_EPOCH.search(line, epoch.end())
        total = int(step[2]) if step is not None and step.re is not _GLOBAL_STEP and step[2] else 0
        if step is not None and (total or metrics or step.re is _GLOBAL_STEP):
            return {**metrics, **values, **self._count(int(step[1]), total)}
        return {**metrics, **values} if values else {}

    def _tqdm(self, line: str, bar: re.Match[str]) -> Values:
        """Return the values of a tqdm bar; empty without a loss, such as for downloads.

        Steps are left out if the line has an epoch but not the number of epochs: they may begin again in each epoch.
        """
        metrics = _metrics(line[bar.end() :])
        if not any("loss" in name.lower() for name in metrics):
            return {}
        epoch = _EPOCH.search(line, 0, bar.start())
        if epoch is not None:
            metrics.update(self._begin_epoch(int(epoch[1]), int(epoch[2] or 0)))
        is_counted = epoch is None or bool(epoch[2])
        return {**metrics, **(self._count(int(bar[1]), int(bar[2])) if is_counted else {})}

    def _begin_epoch(self, epoch: int, epochs: int) -> Values:
        self._is_open = self._is_open or bool(epochs)
        self._epoch, self._epochs = epoch, epochs or self._epochs
        return {"epoch": epoch, **({"epochs": epochs} if epochs else {})}

    def _count(self, step: int, total: int) -> Values:
        """Add the steps of earlier epochs, unless the program counts across epochs."""
        if not total or step > total:
            return {} if self._has_total else {"step": step}
        self._has_total = True
        (epoch, before), self._last = self._last, (self._epoch, step)
        if not (self._epoch - 1) * total <= step * self._epochs <= (self._epoch + 1) * total:
            self._is_global = None  # not a step of this epoch, which counts from 0 or 1
        elif self._is_global is False:
            self._is_global = self._epoch > epoch and step > before
        if self._epochs <= 1 or self._is_global:
            return {"step": step, "total": total}
        return {"step": (max(1, self._epoch) - 1) * total + step, "total": self._epochs * total}

    def _bar(self, line: str, bar: re.Match[str], is_ended: bool) -> Values:
        step, steps = int(bar[1]), int(bar[2] or 0)
        metrics = _metrics(line)
        if not metrics or not (self._is_open or (self._epochs == 1 and steps == self._steps)):
            return {}
        is_last = is_ended and step == steps and "ETA:" not in line
        self._is_open, self._steps = not is_last, steps or self._steps
        values: Values = {"step": (self._epoch - 1) * self._steps + step}
        if self._steps:
            self._has_total, values["total"] = True, self._epochs * self._steps
        return {**values, **metrics} if is_last or not self._is_mirrored else values


def _metrics(line: str) -> Values:
    """Return `name: number` pairs; losses and accuracies need no colon."""
    pairs = [*_BARE_PAIR.findall(line), *_PAIR.findall(line)]
    named = (("loss" if name.lower() == "loss" else name, float(number)) for name, number in pairs)
    return {name: number for name, number in named if name.lower() not in _COUNTS}
