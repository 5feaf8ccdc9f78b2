"""Finds out how far a program is that does not report: from the TensorBoard event files that it writes."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Callable, Iterable, Iterator, Mapping, Sequence

from tf_executor.event_files import BrokenFileError, EventFile, Scalar
from tf_executor.processes import open_files

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
    """Looks at the files of one task. `processes` tells the ids of those that it has now."""

    def __init__(
        self, folders: Iterable[Path], started: float, processes: Callable[[], Sequence[int]], own: Path
    ) -> None:
        """`started`: seconds since the epoch; older files are of an earlier run. `own`: nobody else writes there."""
        self._folders = tuple(folders)
        self._started = started
        self._processes = processes
        self._own = own
        self._host = socket.gethostname()
        self._files: dict[Path, EventFile | None] = {}
        self._step = -1
        self._losses: dict[str, float] = {}
        self._examples: int | None = None
        self._begun: float | None = None

    def look(self) -> Mapping[str, float]:
        """`step`, `loss`, `examples` and `begun` as far as new files tell, empty when there is nothing new."""
        before = self._step
        open_now = _Open(self._processes)
        for path in self._event_files():
            if path not in self._files and (mine := self._is_mine(path, open_now)) is not None:
                self._files[path] = EventFile(path) if mine else None
            file = self._files.get(path)
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

    def _is_mine(self, path: Path, open_now: _Open) -> bool | None:
        """Several tasks may write to one folder: host name and process id tell them apart.

        Where the name has no process, as of TensorFlow 1, who has the file open has written it: writers keep theirs
        open to their end. None: nobody of ours has, so far.
        """
        match = _NAME.fullmatch(path.name)
        if match is None or int(match[1]) < int(self._started) or not match[2].startswith(self._host):
            return False
        process = re.match(r"\.(\d+)\.\d+", match[2][len(self._host) :])
        if process is not None:
            return int(process[1]) in open_now.processes
        return True if self._own in path.parents or open_now.has(path) else None

    def _event_files(self) -> Iterator[Path]:
        left = [MOST_ENTRIES]
        for folder in self._folders:
            yield from _below(folder, DEEPEST, left)


class _Open:
    """What processes have open at the time of one look; found out when somebody asks."""

    def __init__(self, processes: Callable[[], Sequence[int]]) -> None:
        self._find = processes
        self._processes: Sequence[int] | None = None
        self._files: set[tuple[int, int]] | None = None

    @property
    def processes(self) -> Sequence[int]:
        if self._processes is None:
            self._processes = self._find()
        return self._processes

    def has(self, path: Path) -> bool:
        if self._files is None:
            self._files = {file for pid in self.processes for file in open_files(pid)}
        try:
            found = path.stat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) in self._files


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
