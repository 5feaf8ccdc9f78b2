"""Finds out how far a program is that does not report: from the TensorBoard event files that it writes."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Callable, Iterable, Iterator, Mapping

from tf_executor.event_files import BrokenFileError, EventFile, Scalar

#: Of one look: entries of all folders together, and how deep below each.
MOST_ENTRIES, DEEPEST = 2000, 4
#: Names as EventsWriter makes them (tensorflow/core/util/events_writer.cc), here with seconds, host name and, since
#: TensorFlow 2, process id.
_NAME = re.compile(r"events\.out\.tfevents\.(\d+)\.(.+)")
_OTHER_DATA = re.compile(r"val|eval|test", re.IGNORECASE)
#: The name under which a program may write how many examples it has seen.
_EXAMPLES, _MOST = "examples", 1 << 62
_BEST_LOSSES = ("loss", "epoch_loss", "batch_loss")


class Detector:
    """Looks at the files of one task. `is_ours` tells whether a process id belongs to it."""

    def __init__(self, folders: Iterable[Path], started: float, is_ours: Callable[[int], bool]) -> None:
        """`started`: seconds since the epoch; older files are of an earlier run."""
        self._folders = tuple(folders)
        self._started = started
        self._is_ours = is_ours
        self._host = socket.gethostname()
        self._files: dict[Path, EventFile | None] = {}
        self._step = -1
        self._losses: dict[str, float] = {}
        self._examples: int | None = None
        self._begun: float | None = None

    def look(self) -> Mapping[str, float]:
        """`step`, `loss`, `examples` and `begun` as far as new files tell, empty when there is nothing new."""
        before = self._step
        for path in self._event_files():
            if path not in self._files:
                self._files[path] = EventFile(path) if self._is_mine(path.name) else None
            file = self._files[path]
            if file is not None:
                self._read(path, file)
        if self._step == before:
            return {}
        loss = self._losses.get(min(self._losses, key=_rank)) if self._losses else None
        known = {"step": self._step, "loss": loss, "examples": self._examples, "begun": self._begun}
        return {name: value for name, value in known.items() if value is not None}

    def _read(self, path: Path, file: EventFile) -> None:
        try:
            for scalar in file.new_scalars():
                self._note(scalar)
        except (OSError, BrokenFileError):
            self._files[path] = None

    def _note(self, scalar: Scalar) -> None:
        self._step = max(self._step, scalar.step)
        if scalar.step > 0 and scalar.time >= self._started:  # not NaN
            self._begun = scalar.time if self._begun is None else min(self._begun, scalar.time)
        if scalar.tag.rpartition("/")[2] == _EXAMPLES and scalar.value >= 0:  # not NaN
            self._examples = int(min(scalar.value, _MOST))
        elif "loss" in scalar.tag.lower() and not _OTHER_DATA.search(scalar.tag):
            self._losses[scalar.tag] = scalar.value

    def _is_mine(self, name: str) -> bool:
        """Several tasks may write to one folder: host name and, where it is there, process id tell them apart."""
        match = _NAME.fullmatch(name)
        if match is None or int(match[1]) < int(self._started) or not match[2].startswith(self._host):
            return False
        process = re.match(r"\.(\d+)\.\d+", match[2][len(self._host) :])
        return process is None or self._is_ours(int(process[1]))

    def _event_files(self) -> Iterator[Path]:
        left = [MOST_ENTRIES]
        for folder in self._folders:
            yield from _below(folder, DEEPEST, left)


def _below(folder: Path, depth: int, left: list[int]) -> Iterator[Path]:
    """Event files in `folder` and below; `left[0]` entries are looked at at most."""
    try:
        entries = os.scandir(folder)
    except OSError:
        return
    with entries:
        for entry in entries:
            left[0] -= 1
            if left[0] < 0:
                return
            if _NAME.fullmatch(entry.name):
                yield Path(entry.path)
            elif depth > 1 and _may_hold(entry):
                yield from _below(Path(entry.path), depth - 1, left)


def _may_hold(entry: os.DirEntry[str]) -> bool:
    """Hidden folders are not for users, folders of evaluations tell nothing of the training."""
    hidden = entry.name.startswith(".") or _OTHER_DATA.match(entry.name)
    return not hidden and entry.is_dir(follow_symlinks=False)


def _rank(tag: str) -> tuple[int, str]:
    """The smaller, the more likely it is the loss that a person looks at."""
    last = tag.rpartition("/")[2].lower()
    return (_BEST_LOSSES.index(last) if last in _BEST_LOSSES else len(_BEST_LOSSES), tag)
