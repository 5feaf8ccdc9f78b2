"""State store in memory, tested by the same contract suite as the real stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from tf_scheduler.store.interface import Put, StoreConflictError, StoreError, Write, service_key


@dataclass(frozen=True, slots=True)
class _Stored:
    """One service's state at one version."""

    version: int
    values: Mapping[str, bytes]


_NOTHING = _Stored(0, MappingProxyType({}))


@dataclass(slots=True)
class MemoryDisk:
    """State shared by several memory stores, like the file of several SQLite stores."""

    services: dict[str, _Stored] = field(default_factory=dict)


class MemoryStore:
    """StateStore on a MemoryDisk. Raises InvalidKeyError for an invalid service."""

    def __init__(self, service: str, disk: MemoryDisk | None = None) -> None:
        self._service = service_key(service)
        self._disk: MemoryDisk | None = disk if disk is not None else MemoryDisk()
        self._seen: int | None = None

    @property
    def place(self) -> str:
        return "memory"

    def load(self) -> Mapping[str, bytes]:
        stored = self._stored()
        self._seen = stored.version
        return stored.values

    def apply(self, writes: Sequence[Write]) -> None:
        values = dict(self._ours().values)
        for write in writes:
            if isinstance(write, Put):
                values[write.key] = write.value
            else:
                values.pop(write.key, None)
        if writes:
            self._replace(values)

    def erase(self) -> None:
        self._ours()
        self._replace({})

    def remove(self) -> None:
        self.erase()

    def close(self) -> None:
        self._disk = None

    def _open_disk(self) -> MemoryDisk:
        if self._disk is None:
            raise StoreError(f"the store of service {self._service} is closed")
        return self._disk

    def _stored(self) -> _Stored:
        return self._open_disk().services.get(self._service, _NOTHING)

    def _ours(self) -> _Stored:
        """Return the state. Raises StoreConflictError after another store's change."""
        stored = self._stored()
        if stored.version != self._seen:
            raise StoreConflictError(
                f"the state of service {self._service} was changed by another writer, or never loaded"
            )
        return stored

    def _replace(self, values: dict[str, bytes]) -> None:
        version = self._stored().version + 1
        self._open_disk().services[self._service] = _Stored(version, MappingProxyType(values))
        self._seen = version
