"""Read progress from TensorBoard event files, without TensorFlow.

Sources: tensorflow/core/lib/io/record_writer.h (framing), tensorflow/core/util/event.proto, framework/summary.proto,
framework/tensor.proto. Each read of a growing file continues where the previous read ended.
"""

from __future__ import annotations

import functools
import os
import re
import socket
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Iterable, Iterator, Mapping, Sequence

from tf_executor.process.tree import open_files

#: Maximum bytes per read, and the last bytes of it that are parsed: only the newest values matter.
READ_BYTES, PARSED_BYTES = 4 << 20, 64 << 10
_HEADER, _FOOTER = 12, 4
_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")
_DT_FLOAT, _DT_DOUBLE = 1, 2


class EventFileError(ValueError):
    """The file is not a TFRecord file."""


@dataclass(frozen=True)
class Scalar:
    """A scalar at one step."""

    tag: str
    step: int
    value: float
    #: Unix time of the write; 0: unknown.
    time: float = field(default=0.0, compare=False)


class EventFile:
    """An event file that may grow."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_scalars(self) -> list[Scalar]:
        """Return the newest scalars since the last call. Raises OSError, EventFileError."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(READ_BYTES)
        result: list[Scalar] = []
        end = 0
        for begin, end in _records(data):
            if begin >= len(data) - PARSED_BYTES:
                result += scalars(data[begin : end - _FOOTER])
        if not end and len(data) == READ_BYTES:
            end = _HEADER + _length(data, 0) + _FOOTER  # a record larger than one read, such as a picture: skip it
        self._offset += end
        return result


def _records(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield for each complete record the start of its content and its end."""
    position = 0
    while position + _HEADER <= len(data):
        begin = position + _HEADER
        position = begin + _length(data, position) + _FOOTER
        if position > len(data):
            return
        yield begin, position


def _length(data: bytes, position: int) -> int:
    """Return a record's length. Raises EventFileError if the checksum is wrong."""
    text = data[position : position + 8]
    if _masked_crc(text) != int.from_bytes(data[position + 8 : position + _HEADER], "little"):
        raise EventFileError(f"invalid TFRecord at offset {position}")
    return int.from_bytes(text, "little")


def _masked_crc(data: bytes) -> int:
    """Return the masked CRC-32C (tensorflow/core/lib/hash/crc32c.h, Mask)."""
    crc, table = 0xFFFFFFFF, _crc_table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@functools.lru_cache(maxsize=1)
def _crc_table() -> tuple[int, ...]:
    table = []  # Castagnoli polynomial
    for crc in range(256):
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


def scalars(event: bytes) -> list[Scalar]:
    """Return the scalars of one serialised Event."""
    time, step, summaries = 0.0, 0, []
    for number, value in _fields(event):
        if number == 1 and isinstance(value, bytes) and len(value) == _DOUBLE.size:
            time = float(_DOUBLE.unpack(value)[0])
        elif number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    values = [value for summary in summaries for number, value in _fields(summary) if number == 1]
    parsed = [_scalar(value, step, time) for value in values if isinstance(value, bytes)]
    return [scalar for scalar in parsed if scalar is not None]


def _scalar(summary_value: bytes, step: int, time: float) -> Scalar | None:
    tag, result = "", None
    for number, value in _fields(summary_value):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            tag = value.decode("utf-8", "replace")
        elif number == 2 and len(value) == _FLOAT.size:
            result = float(_FLOAT.unpack(value)[0])
        elif number == 8:
            result = _tensor_value(value)
    return None if result is None else Scalar(tag, step, result, time)


def _tensor_value(tensor: bytes) -> float | None:
    """Return the value of a TensorProto with exactly one float or double."""
    kind, content = 0, b""
    for number, value in _fields(tensor):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in (4, 5, 6) and isinstance(value, bytes):
            content = value
    form = {_DT_FLOAT: _FLOAT, _DT_DOUBLE: _DOUBLE}.get(kind)
    return float(form.unpack(content)[0]) if form is not None and len(content) == form.size else None


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value (int or bytes) of protobuf fields; stop at invalid data."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        kind = key & 7
        if kind == 0:
            number, position = _varint(message, position)
            yield key >> 3, number
            continue
        if kind == 2:
            size, position = _varint(message, position)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            return
        if position + size > len(message):
            return
        yield key >> 3, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return a varint and its end; truncated data has an end beyond the message."""
    result = shift = 0
    while position < len(message):
        byte = message[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
    return result, len(message) + 1


# Progress detection.

#: Seconds between two scans.
SCAN_INTERVAL = 5.0
#: Maximum directory entries per scan, and maximum depth below each folder.
MAX_ENTRIES, MAX_DEPTH = 2000, 4
#: File names of EventsWriter (tensorflow/core/util/events_writer.cc): seconds, host name and, since TensorFlow 2,
#: process id.
_NAME = re.compile(r"events\.out\.tfevents\.(\d+)\.(.+)")
_OTHER_DATA = re.compile(r"val|eval|test", re.IGNORECASE)
#: Scalar name for the number of processed examples.
_EXAMPLES, _MAX_EXAMPLES = "examples", 1 << 62
#: Prefix of Keras' values per batch.
_BATCH = "batch_"
#: Prefix of Keras' values per epoch, whose step is the number of the epoch, from 0.
_OF_EPOCH = "epoch_"
_BEST_LOSSES = ("loss", "epoch_loss", "batch_loss")


class ProgressDetector:
    """Find a task's progress in event files; `processes`: returns the task's pids."""

    def __init__(
        self,
        folders: Iterable[Path],
        started: float,
        processes: Callable[[], Sequence[int]],
        own: Path,
        *,
        is_mirrored: bool = False,
    ) -> None:
        """`started`: Unix time; older files are ignored. `own`: this task's own folder.

        `is_mirrored`: ignore values of batches, which Keras 2 adds up over all replicas.
        """
        self._is_mirrored = is_mirrored
        self._folders = tuple(folders)
        self._started = started
        self._processes = processes
        self._own = own
        self._host = socket.gethostname()
        self._files: dict[Path, EventFile | None] = {}
        self._step = self._epoch = -1
        self._losses: dict[str, float] = {}
        self._examples: int | None = None
        self._begun: float | None = None

    def scan(self) -> Mapping[str, float]:
        """Return the known values; empty without a new step or epoch."""
        before = self._step, self._epoch
        open_files_now = _OpenFiles(self._processes)
        budget = [MAX_ENTRIES]
        for path in (path for folder in self._folders for path in _below(folder, MAX_DEPTH, budget)):
            if path not in self._files and (own := self._is_own(path, open_files_now)) is not None:
                self._files[path] = EventFile(path) if own else None
            file = self._files.get(path)
            if file is not None:
                try:
                    for scalar in file.new_scalars():
                        self._note(scalar)
                except (OSError, EventFileError):
                    self._files[path] = None
        if (self._step, self._epoch) == before:
            return {}
        loss = self._losses.get(min(self._losses, key=_rank)) if self._losses else None
        counts = {name: n for name, n in (("step", self._step), ("epoch", self._epoch)) if n >= 0}
        values = {**counts, "loss": loss, "examples": self._examples, "begun": self._begun}
        return {name: value for name, value in values.items() if value is not None}

    def _note(self, scalar: Scalar) -> None:
        if scalar.tag.rpartition("/")[2].startswith(_OF_EPOCH):
            self._epoch = max(self._epoch, scalar.step + 1)
        else:
            self._step = max(self._step, scalar.step)
        if scalar.step > 0 and scalar.time >= self._started:  # not NaN
            self._begun = scalar.time if self._begun is None else min(self._begun, scalar.time)
        if scalar.tag.rpartition("/")[2] == _EXAMPLES and scalar.value >= 0:  # not NaN
            self._examples = int(min(scalar.value, _MAX_EXAMPLES))
        elif self._is_mirrored and scalar.tag.rpartition("/")[2].startswith(_BATCH):
            return
        elif "loss" in scalar.tag.lower() and not _OTHER_DATA.search(scalar.tag):
            self._losses[scalar.tag] = scalar.value

    def _is_own(self, path: Path, open_files_now: _OpenFiles) -> bool | None:
        """Return whether this task writes the file; several tasks may share a folder.

        The file's name has the writer's host name and process id. TensorFlow 1 writes no process id. Then the task that
        has the file open is the writer, because writers keep files open. None: not known yet.
        """
        match = _NAME.fullmatch(path.name)
        if match is None or int(match[1]) < int(self._started) or not match[2].startswith(self._host):
            return False
        process = re.match(r"\.(\d+)\.\d+", match[2][len(self._host) :])
        if process is not None:
            return int(process[1]) in open_files_now.processes
        return True if self._own in path.parents or open_files_now.has(path) else None


class _OpenFiles:
    """Files that the task's processes have open during one scan; read on first use."""

    def __init__(self, processes: Callable[[], Sequence[int]]) -> None:
        self._find = processes

    @functools.cached_property
    def processes(self) -> Sequence[int]:
        return self._find()

    @functools.cached_property
    def _files(self) -> set[tuple[int, int]]:
        return {file for pid in self.processes for file in open_files(pid)}

    def has(self, path: Path) -> bool:
        try:
            status = path.stat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) in self._files


def _below(folder: Path, depth: int, budget: list[int]) -> Iterator[Path]:
    """Yield event files in `folder` and below; `budget[0]` limits the scanned entries."""
    try:
        entries = os.scandir(folder)
    except OSError:
        return
    with entries:
        for entry in entries:
            budget[0] -= 1
            if budget[0] < 0:
                return
            if _NAME.fullmatch(entry.name):
                yield Path(entry.path)
            elif depth > 1 and _is_searched(entry):
                yield from _below(Path(entry.path), depth - 1, budget)


def _is_searched(entry: os.DirEntry[str]) -> bool:
    """Return whether to search a folder; hidden and evaluation folders are skipped."""
    hidden = entry.name.startswith(".") or _OTHER_DATA.match(entry.name)
    return not hidden and entry.is_dir(follow_symlinks=False)


def _rank(tag: str) -> tuple[int, str]:
    """Return a sort key, lowest for the tag that is most likely the training's loss."""
    last = tag.rpartition("/")[2].lower()
    return (_BEST_LOSSES.index(last) if last in _BEST_LOSSES else len(_BEST_LOSSES), tag)
