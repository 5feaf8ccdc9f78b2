"""Schema of Mesos' messages from libmesos: every field with its type.

A field that Mesos does not know is ignored by it in silence, so tests ask the schema.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto

#: Numbers of the fields of a FileDescriptorProto (descriptor.proto), and the wire type of text and messages.
_FIELDS, _BYTES = frozenset(range(1, 13)), 2


class MesosSchema:
    """`library`: path of libmesos."""

    def __init__(self, library: Path) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            self._add("mesos/v1/scheduler/scheduler.proto", content, set())

    def read(self, name: str, sent: dict[str, Any]) -> dict[str, Any]:
        """Parse JSON as a message of that name. Raises ParseError for an unknown field."""
        message = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))()
        json_format.ParseDict(sent, message, descriptor_pool=self._pool)
        assert message.IsInitialized(), message.FindInitializationErrors()
        found: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
        return found

    def _add(self, name: str, content: mmap.mmap, known: set[str]) -> None:
        if name in known:
            return
        known.add(name)
        file = FileDescriptorProto.FromString(_file(name, content))
        for needed in file.dependency:
            self._add(needed, content, known)
        self._pool.Add(file)


def _file(name: str, content: mmap.mmap) -> bytes:
    """Return a schema file as protobuf's compiler stores it, beginning with its name."""
    mark = b"\x0a" + bytes([len(name)]) + name.encode()
    start = content.find(mark)
    assert start >= 0, f"libmesos has no {name}"
    return content[start : max(_ends(content, start + len(mark)))]


def _ends(content: mmap.mmap, at: int) -> Iterator[int]:
    """Yield the end of each further field."""
    while True:
        tag, after = _varint(content, at)
        if tag >> 3 not in _FIELDS or tag & 7 not in (0, _BYTES) or tag >> 3 == 1:
            return
        value, at = _varint(content, after)
        at += value if tag & 7 == _BYTES else 0
        yield at


def _varint(content: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
