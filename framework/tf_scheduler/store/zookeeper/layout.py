"""Names and bytes of the nodes: pure."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tf_scheduler.store.interface import Delete, Put, StoreCorrupt, StoreVersionError, Write

#: Of `head`, and of how writes are written. A newer one than ours is refused.
SCHEMA = 1
#: Step n takes the fields of a `head` of schema n + 1 to those of schema n + 2. Never change a released step.
HEAD_UPGRADES: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = ()
#: Bytes of a node at most; ZooKeeper's limit (jute.maxbuffer) is 1 MB for a whole request or answer.
NODE_LIMIT = 512 * 1024

HEAD, LOCK = "head", "lock"
_PUT, _DELETE = b"P", b"D"
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Head:
    """What is current. Numbers count entries and snapshots together, from 1; `snapshot` is 0 while there is none."""

    incarnation: str
    last: int = 0
    snapshot: int = 0
    #: Of the snapshot's parts.
    token: str = ""
    parts: int = 0
    #: Unique, of the change that set this head: so its writer knows it again.
    change: str = ""
    #: For people: who made it.
    writer: str = ""

    def names(self) -> tuple[list[str], list[str]]:
        """The nodes of this state under its folder: parts of the snapshot, and entries, in their order."""
        parts = [part_name(self.snapshot, self.token, index) for index in range(self.parts)]
        return parts, [entry_name(number) for number in range(self.snapshot + 1, self.last + 1)]


def service_folder(service: str) -> str:
    """Name of the node of a service. Different services have different ones."""
    # The SDK's '__' for '/' is ambiguous for names with '_' of their own, which Marathon does not allow: escape those.
    return "dcos-service-" + service.replace("%", "%25").replace("_", "%5F").replace("/", "__")


def state_folder(incarnation: str) -> str:
    """Name of the folder of entries and parts."""
    return f"state-{incarnation}"


def leader_name(token: str) -> str:
    """Name of the node that exists as long as one leader leads."""
    return f"leader-{token}"


def entry_name(number: int) -> str:
    """Name of the node of one decision."""
    return f"entry-{number:010}"


def part_name(number: int, token: str, index: int) -> str:
    """Name of one piece of a snapshot."""
    return f"part-{number:010}-{token}-{index:04}"


def is_dead(name: str, head: Head) -> bool:
    """Whether a node in the state's folder can never be looked at again by anyone who sees `head`."""
    kind, number, *rest = name.split("-")
    if kind not in ("entry", "part") or not number.isdecimal():
        return False
    return int(number) <= head.snapshot and not (kind == "part" and rest[0] == head.token)


def encode_head(head: Head) -> bytes:
    """JSON, so that an operator can read it."""
    return json.dumps({"schema": SCHEMA, **asdict(head)}).encode()


def decode_head(data: bytes, place: str) -> tuple[Head, int]:
    """The head, and the schema that it was stored in. Raises StoreCorrupt, StoreVersionError naming the place."""
    try:
        fields: dict[str, Any] = json.loads(data)
        schema = fields.pop("schema")
        if schema < 1:
            raise ValueError(f"schema {schema!r}")
        if schema > SCHEMA:
            raise StoreVersionError(
                f"{place} was written by a newer version of this program (schema {schema}, known here: up to {SCHEMA}):"
                " run that version"
            )
        for upgrade in HEAD_UPGRADES[schema - 1 :]:
            fields = upgrade(fields)
        return Head(**fields), schema
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreCorrupt(f"{place} cannot be read: {error!r}; restore a backup with `state import`") from error


def encode_writes(writes: Iterable[Write]) -> bytes:
    """Compressed, behind one byte that says how."""
    return bytes([SCHEMA]) + zlib.compress(b"".join(_encoded(writes)))


def decode_writes(data: bytes, place: str) -> list[Write]:
    """What encode_writes wrote. Raises StoreCorrupt, StoreVersionError naming the place."""
    decoder = DECODERS.get(data[0]) if data else None
    if decoder is None:
        if data and data[0] > SCHEMA:
            raise StoreVersionError(f"{place} was written by a newer version of this program (schema {data[0]})")
        raise StoreCorrupt(f"{place} is not ours; restore a backup with `state import`")
    try:
        return decoder(data[1:])
    except (ValueError, struct.error, zlib.error) as error:
        raise StoreCorrupt(f"{place} is damaged: {error}; restore a backup with `state import`") from error


def split(data: bytes) -> Sequence[bytes]:
    """Pieces that fit a node each."""
    return [data[start : start + NODE_LIMIT] for start in range(0, len(data), NODE_LIMIT)]


def apply_writes(values: MutableMapping[str, bytes], writes: Iterable[Write]) -> None:
    """Change `values` as the writes say, in their order."""
    for write in writes:
        if isinstance(write, Put):
            values[write.key] = write.value
        else:
            values.pop(write.key, None)


def puts(values: Mapping[str, bytes]) -> Iterator[Write]:
    """The writes that make these values."""
    return (Put(key, value) for key, value in values.items())


def _encoded(writes: Iterable[Write]) -> Iterator[bytes]:
    for write in writes:
        yield from (_PUT if isinstance(write, Put) else _DELETE, _sized(write.key.encode()))
        if isinstance(write, Put):
            yield _sized(write.value)


def _sized(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _decode(data: bytes) -> list[Write]:
    """Schema 1: zlib of P key value or D key, each key and value behind its length."""
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(data)
    if not unpacker.eof:
        raise ValueError("it ends too early")
    found: list[Write] = []
    at = 0
    while at < len(content):
        kind, at = content[at : at + 1], at + 1
        key, at = _take(content, at)
        if kind == _DELETE:
            found.append(Delete(key.decode()))
            continue
        if kind != _PUT:
            raise ValueError(f"unknown kind of write {kind!r}")
        value, at = _take(content, at)
        found.append(Put(key.decode(), value))
    return found


def _take(content: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(content, at)
    at += _LENGTH.size
    if at + length > len(content):
        raise ValueError("it ends too early")
    return content[at : at + length], at + length


#: First byte of an entry or a snapshot -> how to read the rest.
DECODERS: dict[int, Callable[[bytes], list[Write]]] = {1: _decode}
