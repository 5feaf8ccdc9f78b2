"""Names and encoding of the ZooKeeper nodes, as pure functions."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tf_scheduler.store.interface import (
    CHECKSUM,
    WITHOUT_BACKUP,
    Delete,
    Put,
    StoreCorruptError,
    StoreVersionError,
    Write,
    checksum,
)

#: Schema of `head` and encoding of writes. A newer one is rejected.
SCHEMA = 1
#: Maximum bytes of a node; ZooKeeper's limit (jute.maxbuffer) is 1 MB for a whole request or answer.
NODE_LIMIT = 512 * 1024

#: What to do about damaged nodes, which a later `load` of `state import --replace` could not read either.
REMEDY = (
    "delete the service's node `dcos-service-...` and import a backup with `dcos-tensorflow state import`; "
    + WITHOUT_BACKUP
)

HEAD, LOCK = "head", "lock"
_PUT, _DELETE = b"P", b"D"
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Head:
    """Content of `head`. Entries and snapshots share numbers from 1; 0: no snapshot."""

    incarnation: str
    last: int = 0
    snapshot: int = 0
    #: Token in the names of the snapshot's parts.
    token: str = ""
    parts: int = 0
    #: Unique id of the change that set this head, by which its writer recognizes it.
    change: str = ""
    #: Host and process id of the writer, for operators.
    writer: str = ""

    def names(self) -> tuple[list[str], list[str]]:
        """Return the node names of this state: snapshot parts and entries, in order."""
        parts = [part_name(self.snapshot, self.token, index) for index in range(self.parts)]
        return parts, [entry_name(number) for number in range(self.snapshot + 1, self.last + 1)]


def service_folder(service: str) -> str:
    """Return the unique node name of a service."""
    # The SDK's '__' for '/' is ambiguous for names that contain '_', which Marathon does not allow: escape those.
    return "dcos-service-" + service.replace("%", "%25").replace("_", "%5F").replace("/", "__")


def state_folder(incarnation: str) -> str:
    """Return the parent of entries and parts."""
    return f"state-{incarnation}"


def entry_name(number: int) -> str:
    """Return the node of one decision."""
    return f"entry-{number:010}"


def part_name(number: int, token: str, index: int) -> str:
    """Return the node of one piece of a snapshot."""
    return f"part-{number:010}-{token}-{index:04}"


def is_garbage(name: str, head: Head) -> bool:
    """Whether a node is needed neither for `head` nor for a later head."""
    kind, number, *rest = name.split("-")
    if kind not in ("entry", "part") or not number.isdecimal():
        return False
    return int(number) <= head.snapshot and not (kind == "part" and rest[0] == head.token)


def encode_head(head: Head) -> bytes:
    """Encode `head` as JSON."""
    fields = {"schema": SCHEMA, **asdict(head)}
    return json.dumps({**fields, CHECKSUM: checksum(HEAD, fields)}).encode()


def decode_head(data: bytes, node: str) -> Head:
    """Decode `encode_head`'s result. Raises StoreCorruptError or StoreVersionError."""
    try:
        fields: dict[str, Any] = json.loads(data)
        schema = fields.pop("schema")
        if schema < 1:
            raise ValueError(f"schema {schema!r}")
        if schema > SCHEMA:
            raise StoreVersionError(node, schema, SCHEMA)
        if fields.pop(CHECKSUM) != checksum(HEAD, {"schema": schema, **fields}):
            raise ValueError("its checksum is wrong")
        return Head(**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreCorruptError(f"{node} cannot be read: {error!r}; {REMEDY}") from error


def encode_writes(writes: Iterable[Write]) -> bytes:
    """Compress the writes, after one byte with the schema."""
    return bytes([SCHEMA]) + zlib.compress(b"".join(_encoded(writes)))


def decode_writes(data: bytes, node: str) -> list[Write]:
    """Decode `encode_writes`' result. Raises StoreCorruptError or StoreVersionError."""
    if data and data[0] > SCHEMA:
        raise StoreVersionError(node, data[0], SCHEMA)
    if not data or data[0] != SCHEMA:
        raise StoreCorruptError(f"{node} has data of another program; {REMEDY}")
    try:
        return _decode(data[1:])
    except (ValueError, struct.error, zlib.error) as error:
        raise StoreCorruptError(f"{node} is damaged: {error}; {REMEDY}") from error


def split(data: bytes) -> Sequence[bytes]:
    """Split the data into pieces of up to NODE_LIMIT bytes."""
    return [data[start : start + NODE_LIMIT] for start in range(0, len(data), NODE_LIMIT)]


def apply_writes(values: MutableMapping[str, bytes], writes: Iterable[Write]) -> None:
    """Apply the writes to `values`, in order."""
    for write in writes:
        if isinstance(write, Put):
            values[write.key] = write.value
        else:
            values.pop(write.key, None)


def _encoded(writes: Iterable[Write]) -> Iterator[bytes]:
    for write in writes:
        yield from (_PUT if isinstance(write, Put) else _DELETE, _sized(write.key.encode()))
        if isinstance(write, Put):
            yield _sized(write.value)


def _sized(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _decode(data: bytes) -> list[Write]:
    """Decode zlib of `P key value` or `D key`, each with a length prefix."""
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(data)
    if not unpacker.eof:
        raise ValueError("unexpected end of data")
    writes: list[Write] = []
    at = 0
    while at < len(content):
        kind, at = content[at : at + 1], at + 1
        key, at = _take(content, at)
        if kind == _DELETE:
            writes.append(Delete(key.decode()))
            continue
        if kind != _PUT:
            raise ValueError(f"unknown kind of write {kind!r}")
        value, at = _take(content, at)
        writes.append(Put(key.decode(), value))
    return writes


def _take(content: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(content, at)
    at += _LENGTH.size
    if at + length > len(content):
        raise ValueError("unexpected end of data")
    return content[at : at + length], at + length
