"""Files of the SDK's `/v1/state/files`: small texts that the tools of operators keep beside the service's state.

The scheduler never looks at them. They are stored as `files/NAME`, with a transaction of their own.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
from collections.abc import Mapping, Sequence

from .interfaces import FileError
from .store.interface import Put, StateStore, StoreError

log = logging.getLogger(__name__)

#: Bytes of a file (dcos-commons, StateResource); files.
LIMIT, MOST = 1024, 100
SCHEMA = 1
_PREFIX = "files/"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


class KeptFiles:
    """Safe for all threads. `values`: what `store` has, which several threads may use."""

    def __init__(self, store: StateStore, values: Mapping[str, bytes]) -> None:
        self._store, self._lock = store, threading.Lock()
        found = {key.removeprefix(_PREFIX): data for key, data in values.items() if key.startswith(_PREFIX)}
        self._files = {name: content for name, data in found.items() if (content := _content(name, data)) is not None}

    def names(self) -> Sequence[str]:
        """Sorted."""
        return sorted(self._files)

    def content(self, name: str) -> bytes | None:
        """None: there is no such file."""
        return self._files.get(name)

    def keep(self, name: str, content: bytes) -> None:
        """Store it, in place of one of that name; may block. Raise FileError."""
        if _NAME.fullmatch(name) is None:
            raise FileError(400, f"A file is called by 64 letters, digits, dots, - and _ at most, not {name[:80]!r}")
        if len(content) > LIMIT:
            raise FileError(400, f"File {name} has {len(content)} bytes, more than {LIMIT}")
        with self._lock:
            if name not in self._files and len(self._files) >= MOST:
                raise FileError(400, f"{MOST} files are kept already")
            text = base64.b64encode(content).decode("ascii")
            try:
                self._store.apply([Put(f"{_PREFIX}{name}", json.dumps({"schema": SCHEMA, "content": text}).encode())])
            except StoreError as error:
                raise FileError(503, f"File {name} cannot be stored now: {error}") from error
            self._files = {**self._files, name: content}


def _content(name: str, data: bytes) -> bytes | None:
    try:
        document = json.loads(data)
        if document["schema"] != SCHEMA:
            raise ValueError(f"it has schema version {document['schema']}")
        return base64.b64decode(document["content"], validate=True)
    except (ValueError, KeyError, TypeError) as error:
        log.warning("the kept file %s cannot be read: %s", name, error)
        return None
