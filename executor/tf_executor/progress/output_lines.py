"""Read progress from the lines that a program prints.

`tests/executor/lines_of_programs.txt` lists lines as Keras, TensorFlow, PyTorch, tqdm, Hugging Face and other programs
print them, with what is read from each. An epoch is not a step: without steps, only the epoch is reported.
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
#: Names of numbers that are not metrics, and of source files, whose numbers are those of lines.
_COUNTS = re.compile(
    r"(?:global_?)?steps?|epochs?|iter(?:ation)?s?|batch(?:es)?|batch_?size|size|samples?|total|eta|(?:local_?)?rank"
    r"|world_?size|workers?|gpus?|port|pid|line|seed|v_num|num_updates|.*\.(?:py|cc|cpp|cu|h|ipynb)",
    re.IGNORECASE,
)

Values = Dict[str, float]
#: Returns the number of bytes printed until now, the last of them, and their time (time.monotonic).
Recent = Callable[[], Tuple[int, bytes, float]]

log = logging.getLogger(__name__)

_NUMBER = r"([-+]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][-+]?\d{1,3})?|nan|-?inf)(?![\w/%:]|\.\d)"
_COUNT = r"(?![A-Za-z-])[ \t]{0,9}[:=#]?[ \t]{0,9}\[?[ \t]{0,9}(\d{1,18})(?![\w%]|[.,]\d)"
_TOTAL = r"[ \t]{0,2}(?:/|of)[ \t]{0,9}(\d{1,18})"
_END = re.compile(rb"([\r\n\x08]+)")
_ESCAPE = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
#: Prefixes of launchers, such as `[1,0]<stdout>:` and `[rank0]:`, and of absl and glog; the place in a file of others.
_PREFIX = re.compile(
    r"(?:\[(?:\d{1,6},\d{1,6}\]<std(?:out|err)>|[a-z-]{0,9}\d{1,6}\]): ?)?"
    r"(?:[IWEF]\d{4,8} [\d:.]{8,18} {1,9}\d{1,9} [\w./-]{1,99}:\d{1,6}\] ?"
    r"|[\[(]?(?:\d{4}[/-]\d\d[/-]\d\d|\d\d:\d\d:\d\d|DEBUG|INFO|WARN|ERROR).{0,80}?"
    r"\b(?!(?:step|epoch|iter|iteration|batch):)[A-Za-z_][\w./-]{0,60}:\d{1,6}(?=[\])>}:]| [|-]))?"
)
#: The printed options of a program, such as `Namespace(rank=0)` and `config: lr=0.1`.
_OPTIONS = re.compile(
    r"\b(?:[A-Z]\w{0,60}|namespace)\(\w{1,60}=[^)]*\)?|(?i:\b(?:arg(?:ument)?s|config\w{0,20}|h(?:yper)?[_-]?param(?:eter)?s"
    r"|param(?:eter)?s|options|settings|flags)\b ?[:={].*)"
)
#: Values about other data than the training's, or about an earlier run.
_OTHER_DATA = re.compile(
    r"saving dict|\beval|\bval(?:id)?\b(?![/-])|\bdev\b|\bvalidat|\btest|loss for final step|\brestor(?:ed|ing)"
    r"|\bresum(?:ed|ing)|\bcontinu(?:ed|ing) (?:from|at)|\bload(?:ed|ing) .{0,20}checkpoint",
    re.IGNORECASE,
)
_BAR = re.compile(r" {0,9}(\d{1,18})/(?:(\d{1,18}) (?:\[|━|- \d)|Unknown[ -])")
_PAIR = re.compile(rf"(?<![\w./-])(?<![Tt]ime )([A-Za-z_][\w./-]{{0,63}})[ \t]{{0,2}}[:=][ \t]{{0,9}}{_NUMBER}")
_QUANTITY = r"[A-Za-z_-]{0,30}(?:loss|acc|accuracy|cost|perplexity|ppl)"
#: `loss 0.3`, `accuracy is 0.98`.
_BARE_PAIR = re.compile(rf"(?<![\w./-])({_QUANTITY})(?:[ \t]{{1,9}}| (?:is|of) ){_NUMBER}", re.IGNORECASE)
#: `Cost after iteration 100: 0.69`.
_VALUE_AT = re.compile(
    rf"(?<![\w./-])({_QUANTITY})(?: \([^)]{{0,40}}\))? (?:at|after) (?:step|epoch|iteration){_COUNT}: {{0,9}}{_NUMBER}",
    re.IGNORECASE,
)
#: Printed rates: `global_step/sec: 12.5`, `examples/sec: 400`, and `95.5 img/sec`.
_STEPS_RATE = re.compile(rf"\b(?:global_)?steps?/sec: {{0,9}}{_NUMBER}")
_EXAMPLES = r"\b(?:images|img|examples|samples)(?:/s(?:ec(?:ond)?)?|_per_sec(?:ond)?)\b"
_EXAMPLES_RATE = re.compile(
    rf"(?<![\w.,]){_NUMBER} {_EXAMPLES}|{_EXAMPLES}(?: (?:per|on) [\w ()]{{1,20}})?: {{0,9}}{_NUMBER}", re.IGNORECASE
)
_GLOBAL_STEP = re.compile(rf"\bglobal[_ ]step{_COUNT}", re.IGNORECASE)
#: A plural without a total is the number of all steps, or of those of an epoch.
_STEP = re.compile(
    rf"(?<![\w/-])(?:(?:step|iter|iteration){_COUNT}(?:{_TOTAL})?|(?:steps|iters|iterations){_COUNT}{_TOTAL})",
    re.IGNORECASE,
)
_EPOCH = re.compile(rf"(?<![\w.-])epoch{_COUNT}(?:{_TOTAL})?", re.IGNORECASE)
#: A line that only says which epoch begins.
_HEADING = re.compile(
    rf"\W{{0,9}}(?:start(?:ing)? (?:of )?)?epoch(?:[ \t]{_COUNT}|{_COUNT}{_TOTAL})\W{{0,90}}", re.IGNORECASE
)
#: After an epoch: `[100/500]`, `: 70/157`, `, Batch: 550 of 550`; not `[640/60000 (1%)]`, which counts examples.
_IN_EPOCH = re.compile(
    r"(?:^[]):,| -]{0,20}|\[[ \t]{0,9}|\b(?:batch|step|iter|iteration)(?:es|s)?[ \t]{0,2}[:=#]?[ \t]{0,9}\[?)"
    r"(\d{1,18})[ \t]{0,2}(?:/|of)[ \t]{0,9}(\d{1,18})(?![\w/.%]|[ \t]{0,2}\()",
    re.IGNORECASE,
)
#: `loss: 2.30  [   64/60000]`: examples in the epoch of the heading.
_IN_HEADED_EPOCH = re.compile(rf"loss: {_NUMBER} {{1,9}}\[ {{0,9}}\d{{1,18}}/ {{0,9}}\d{{1,18}}\]")

#: Bars of tqdm, and of rich, which Lightning may use.
_TQDM = re.compile(r"(?:\d{1,3}%\|[^|]{0,200}\| (\d{1,18})/(\d{1,18}) \[|[━╸╺]{3,200} (\d{1,18})/(\d{1,18}) )")
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
                    if "step" in values:
                        values.setdefault("first_step", values["step"])
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
        #: Epochs: 0 if their number is unknown, 1 without epochs.
        self._epoch, self._epochs = 1, 1
        #: Number of the first epoch: some programs count from 0.
        self._first_epoch = 1
        #: Steps of an epoch; 0: unknown.
        self._steps = 0
        #: Whether a bar belongs to the training, rather than to an evaluation after it.
        self._is_open = True
        #: Last epoch and step of a line; whether the program counts steps across epochs; None: certainly not.
        self._last = (1, 1 << 62)
        self._is_global: bool | None = False
        #: Whether lines have a total; steps of lines without one are then another count.
        self._has_total = False
        #: Totals of the newest bar without a description, and of the training's bar; 0: none yet.
        self._bare_total, self._trainer_total = 0, 0

    def parse(self, line: str, is_ended: bool) -> Values:
        """Return the values of a line; empty if the line is not about the training."""
        line = _PREFIX.sub("", line, 1)
        bar = _BAR.match(line)
        if bar is not None:
            return self._bar(line, bar, is_ended)
        if trainer := _TRAINER.match(line):
            self._trainer_total = self._trainer_total or self._bare_total
            return {**_metrics(line.replace("'", "")), "epoch": math.ceil(float(trainer[1]))}
        line = _OPTIONS.sub("", line.replace('"', "").replace("'", ""))
        if other := _OTHER_DATA.search(line):
            line = line[: other.start()]  # `Epoch 3, Loss: 0.2, Test Loss: 0.3`
            if not _metrics(line):
                return {}
        if tqdm := _TQDM.search(line):
            return self._tqdm(line, tqdm)
        rates: Values = {}
        for name, pattern in (("steps_per_second", _STEPS_RATE), ("examples_per_second", _EXAMPLES_RATE)):
            if rate := pattern.search(line):
                rates[name] = float(rate[rate.lastindex or 0])
                line = pattern.sub("", line)
        return {**self._counted(line, has_rate=bool(rates)), **rates}

    def _counted(self, line: str, *, has_rate: bool) -> Values:
        """Return the values of a line that has a step or an epoch."""
        if heading := _HEADING.fullmatch(line):
            return self._begin_epoch(int(heading[1] or heading[2]), int(heading[3] or 0))
        metrics = _metrics(line)
        if line.startswith("{") and not any("loss" in name.lower() for name in metrics):
            return {}  # printed options
        if self._epochs != 1 and _IN_HEADED_EPOCH.match(line):
            return {**metrics, "epoch": self._epoch}
        values: Values = {}
        step, begun = _GLOBAL_STEP.search(line) or _STEP.search(line), _EPOCH.search(line)
        if begun is not None:
            step = step or _IN_EPOCH.search(line[begun.end() :])
            if begun[2] or metrics or step or _PAIR.search(line, begun.end()):
                values = {**metrics, **self._begin_epoch(int(begun[1]), int(begun[2] or 0))}
        if step is not None:
            number, total = (int(each) for each in [*filter(None, step.groups()), "0"][:2])
            if total or metrics or has_rate or step.re is _GLOBAL_STEP:
                values = {**metrics, **values, **self._count(number, total)}
        return values

    def _tqdm(self, line: str, bar: re.Match[str]) -> Values:
        """Return the values of a bar of tqdm or rich.

        Without an epoch or a loss it may be the bar of a download, or of other work.
        """
        step, total = (int(each) for each in bar.groups() if each)
        metrics = _metrics(line[bar.end() :])
        epoch = _EPOCH.search(line, 0, bar.start())
        if not line[: bar.start()].strip():
            self._bare_total = total
        if epoch is not None:
            return {**metrics, **self._begin_epoch(int(epoch[1]), int(epoch[2] or 0)), **self._count(step, total)}
        is_of_training = any("loss" in name.lower() for name in metrics) or total == self._trainer_total
        return {**metrics, **self._count(step, total)} if is_of_training else {}

    def _begin_epoch(self, epoch: int, epochs: int) -> Values:
        self._is_open = self._is_open or bool(epochs)
        self._epoch, self._first_epoch = epoch, min(self._first_epoch, epoch)
        self._epochs = epochs or (self._epochs if self._epochs > 1 else 0)
        return {"epoch": epoch, **({"epochs": epochs} if epochs else {})}

    def _count(self, step: int, total: int) -> Values:
        """Add the steps of earlier epochs, unless the program counts across epochs."""
        if not total or step > total:
            return {} if self._has_total else {"step": step}
        self._has_total = True
        (epoch, before), self._last = self._last, (self._epoch, step)
        epochs = self._epochs
        if epochs and not (self._epoch - 1) * total <= step * epochs <= (self._epoch + 1) * total:
            self._is_global = None  # not a step of this epoch, which counts from 0 or 1
        elif self._is_global is False:
            self._is_global = self._epoch > epoch and step > before
        if epochs == 1 or self._is_global:
            return {"step": step, "total": total}
        return self._across_epochs(step, total)

    def _across_epochs(self, step: int, steps: int) -> Values:
        """Return the step of the training, and its total if the epochs are known."""
        total = {"total": self._epochs * steps} if self._epochs and steps else {}
        return {"step": (self._epoch - self._first_epoch) * steps + step, **total}

    def _bar(self, line: str, bar: re.Match[str], is_ended: bool) -> Values:
        step, steps = int(bar[1]), int(bar[2] or 0)
        metrics = _metrics(line)
        if not metrics or not (self._is_open or (self._epochs == 1 and steps == self._steps)):
            return {}
        is_last = is_ended and step == steps and "ETA:" not in line
        self._is_open, self._steps = not is_last, steps or self._steps
        self._has_total = self._has_total or bool(self._steps)
        values = self._across_epochs(step, self._steps)
        return {**values, **metrics} if is_last or not self._is_mirrored else values


def _metrics(line: str) -> Values:
    """Return `name: number` pairs; losses and accuracies need no colon."""
    pairs = [(name, number) for name, _, number in _VALUE_AT.findall(line)]
    pairs += [*_BARE_PAIR.findall(line), *_PAIR.findall(line)]
    named = (("loss" if name.lower() in ("loss", "cost") else name, float(number)) for name, number in pairs)
    return {name: number for name, number in named if not _COUNTS.fullmatch(name)}
