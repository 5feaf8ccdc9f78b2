"""Reads scalars from TensorBoard event files without TensorFlow: TFRecord framing and the few protobuf fields needed.

Sources: tensorflow/core/lib/io/record_writer.h (framing), tensorflow/core/util/event.proto, framework/summary.proto,
framework/tensor.proto. A file that grows is read on from where the last look ended.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator

#: Bytes of one look at a file, and its last bytes, in which the records are taken apart: only the newest ones count.
LOOK_BYTES, PARSED_BYTES = 4 << 20, 64 << 10
_HEADER, _FOOTER = 12, 4
_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")
_DT_FLOAT, _DT_DOUBLE = 1, 2


class BrokenFileError(ValueError):
    """It is no file of TFRecords."""


@dataclass(frozen=True)
class Scalar:
    """One value of a training at one step."""

    tag: str
    step: int
    value: float
    #: When it was written, seconds since the epoch; 0: nobody knows.
    time: float = field(default=0.0, compare=False)


class EventFile:
    """One file, looked at again and again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_scalars(self) -> list[Scalar]:
        """What was added, in order; of much only the newest part. Raise OSError or BrokenFileError."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(LOOK_BYTES)
        found: list[Scalar] = []
        end = 0
        for begin, end in _records(data):
            if begin >= len(data) - PARSED_BYTES:
                found += scalars(data[begin : end - _FOOTER])
        if not end and len(data) == LOOK_BYTES:
            end = _HEADER + _length(data, 0) + _FOOTER  # a picture larger than a look: step over it
        self._offset += end
        return found


def _records(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each whole record's content begins, and where the record ends."""
    position = 0
    while position + _HEADER <= len(data):
        begin = position + _HEADER
        position = begin + _length(data, position) + _FOOTER
        if position > len(data):
            return
        yield begin, position


def _length(data: bytes, position: int) -> int:
    """Of a record's content. The checksum of the length tells a record from anything else."""
    text = data[position : position + 8]
    if _masked_crc(text) != int.from_bytes(data[position + 8 : position + _HEADER], "little"):
        raise BrokenFileError(f"there is no TFRecord at offset {position}")
    return int.from_bytes(text, "little")


def _masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and shifted (tensorflow/core/lib/hash/crc32c.h, Mask)."""
    crc, table = 0xFFFFFFFF, _crc_table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@functools.lru_cache(maxsize=1)
def _crc_table() -> tuple[int, ...]:
    table = []  # the polynomial of Castagnoli
    for crc in range(256):
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


def scalars(event: bytes) -> list[Scalar]:
    """The scalars of one serialised Event; of an event with other content none."""
    time, step, summaries = 0.0, 0, []
    for number, value in _fields(event):
        if number == 1 and isinstance(value, bytes) and len(value) == _DOUBLE.size:
            time = float(_DOUBLE.unpack(value)[0])
        elif number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    values = [value for summary in summaries for number, value in _fields(summary) if number == 1]
    found = [_scalar(value, step, time) for value in values if isinstance(value, bytes)]
    return [scalar for scalar in found if scalar is not None]


def _scalar(summary_value: bytes, step: int, time: float) -> Scalar | None:
    tag, number_found = "", None
    for number, value in _fields(summary_value):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            tag = value.decode("utf-8", "replace")
        elif number == 2 and len(value) == _FLOAT.size:
            number_found = float(_FLOAT.unpack(value)[0])
        elif number == 8:
            number_found = _of_tensor(value)
    return None if number_found is None else Scalar(tag, step, number_found, time)


def _of_tensor(tensor: bytes) -> float | None:
    """The number of a TensorProto that holds exactly one, of type float or double."""
    kind, content = 0, b""
    for number, value in _fields(tensor):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in (4, 5, 6) and isinstance(value, bytes):
            content = value
    form = {_DT_FLOAT: _FLOAT, _DT_DOUBLE: _DOUBLE}.get(kind)
    return float(form.unpack(content)[0]) if form is not None and len(content) == form.size else None


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: varints as int, all else as its bytes. Ends where the message is broken."""
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
    """A number and where it ends; at the end of a broken message the end is far behind it."""
    result = shift = 0
    while position < len(message):
        byte = message[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
    return result, len(message) + 1
