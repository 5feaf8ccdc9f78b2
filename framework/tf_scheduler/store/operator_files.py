"""Small files that operators store through the SDK endpoint `/v1/state/files`.

Each file is stored as `files/NAME`, in its own transaction. The scheduler does not use the content.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from tf_scheduler.errors import FileError
from tf_scheduler.model.ids import OPERATOR_FILE

from .interface import Put, StateStore, StoreError, read_extra

#: Maximum bytes of a file (dcos-commons, StateResource), and number of files.
MAX_BYTES, MAX_FILES = 1024, 100
SCHEMA = 1
_PREFIX = "files/"


class OperatorFiles:
    """Files in `store`, a thread-safe store with these `values`. Thread-safe."""

    def __init__(self, store: StateStore, values: Mapping[str, bytes]) -> None:
        self._store, self._lock = store, threading.Lock()
        stored = {key.removeprefix(_PREFIX): data for key, data in values.items() if key.startswith(_PREFIX)}
        self._files = {name: content for name, data in stored.items() if (content := _content(name, data)) is not None}

    def names(self) -> Sequence[str]:
        """Return the sorted names of all files."""
        return sorted(self._files)

    def content(self, name: str) -> bytes | None:
        """Return the content; None if the file does not exist."""
        return self._files.get(name)

    def keep(self, name: str, content: bytes) -> None:
        """Create or replace a file; may block. Raises FileError."""
        if re.fullmatch(OPERATOR_FILE, name) is None:
            allowed = "up to 64 letters, digits, dots, - and _"
            raise FileError(400, f"invalid file name {name[:80]!r}: {allowed} are allowed")
        if len(content) > MAX_BYTES:
            raise FileError(400, f"file {name} has {len(content)} bytes: at most {MAX_BYTES} are allowed")
        with self._lock:
            if name not in self._files and len(self._files) >= MAX_FILES:
                raise FileError(409, f"too many files: {MAX_FILES} are stored already")
            text = base64.b64encode(content).decode("ascii")
            try:
                self._store.apply([Put(f"{_PREFIX}{name}", json.dumps({"schema": SCHEMA, "content": text}).encode())])
            except StoreError as error:
                raise FileError(503, f"file {name} cannot be stored: {error}") from error
            self._files = {**self._files, name: content}


def _content(name: str, data: bytes) -> bytes | None:
    def read(stored: dict[str, Any]) -> bytes | None:
        return base64.b64decode(stored["content"], validate=True)

    return read_extra(f"stored file {name}", data, SCHEMA, read, None)
