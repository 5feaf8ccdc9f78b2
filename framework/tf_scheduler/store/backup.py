"""Encode a service's state as one JSON document, for state export and import.

    {"format": "dcos-tensorflow state", "version": 1, "service": "tensorflow",
     "exported": "2026-11-21T03:04:05Z", "program": "0.1.0",
     "values": {"framework": {"id": "...", "schema": 1}, "tasks/worker-0": {...}},
     "binary": {}}

`values` contains the values that are canonical JSON, `binary` all others in base64. Both are restored byte for byte.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from .interface import InvalidKeyError, StoreError, check_key, service_key

FORMAT, VERSION = "dcos-tensorflow state", 1


class BackupError(StoreError, ValueError):
    """The document is not a valid backup for this version of the program."""


@dataclass(frozen=True, slots=True)
class Backup:
    """Service name and stored values of a backup."""

    service: str
    values: Mapping[str, bytes]


def encode(backup: Backup, now: datetime, program: str) -> str:
    """Return the backup document; `program` is the version that wrote it."""
    readable = {key: content for key, value in sorted(backup.values.items()) if (content := _content(value))}
    binary = {key: value for key, value in sorted(backup.values.items()) if key not in readable}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "service": backup.service,
        "exported": now.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "program": program,
        "values": readable,
        "binary": {key: base64.b64encode(value).decode() for key, value in binary.items()},
    }
    return json.dumps(document, indent=2) + "\n"


def decode(text: str) -> Backup:
    """Read a document. Raises BackupError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BackupError(f"invalid JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BackupError(f'missing "format": "{FORMAT}"')
    if document.get("version") != VERSION:
        raise BackupError(f"unknown version {document.get('version')!r}; this program reads version {VERSION}")
    readable = {key: _canonical(value) for key, value in _section(document, "values").items()}
    binary = {key: _bytes(key, value) for key, value in _section(document, "binary").items()}
    if both := readable.keys() & binary.keys():
        raise BackupError(f"{sorted(both)[0]!r} is in both `values` and `binary`")
    return Backup(_service(document), {**readable, **binary})


def readable(value: bytes) -> dict[str, Any]:
    """Return the fields of a stored JSON object, {} for any other value."""
    try:
        content = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _content(value: bytes) -> dict[str, Any] | None:
    """Return the JSON object that encodes to exactly `value`; None if no object does."""
    content = readable(value)
    return content if content and _canonical(content) == value else None


def _canonical(content: Any) -> bytes:
    """Encode a value in the same form as `store.records`."""
    return json.dumps(content, sort_keys=True).encode()


def _section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = document.get(name)
    if not isinstance(section, dict):
        raise BackupError(f"{name!r} must be an object")
    for key in section:
        try:
            check_key(key)
        except InvalidKeyError as error:
            raise BackupError(f"{name}: {error}") from error
    return section


def _bytes(key: str, value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (ValueError, TypeError) as error:
        raise BackupError(f"binary: {key!r}: invalid base64: {error}") from error


def _service(document: Mapping[str, Any]) -> str:
    name = document.get("service")
    if not isinstance(name, str):
        raise BackupError("'service' must be the name of a service")
    try:
        return service_key(name)
    except InvalidKeyError as error:
        raise BackupError(f"service: {error}") from error
