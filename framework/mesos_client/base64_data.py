"""`bytes` fields in Mesos' JSON are base64 text."""

from __future__ import annotations

import base64


def encode_data(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode_data(text: str) -> bytes:
    """Raise ValueError when `text` is no base64."""
    return base64.b64decode(text, validate=True)
