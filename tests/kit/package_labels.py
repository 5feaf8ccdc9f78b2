"""Labels by which Cosmos recognizes the package and the options of an app."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any


def decode_options(label: str) -> dict[str, Any]:
    """Return the options in the label DCOS_PACKAGE_OPTIONS."""
    options: dict[str, Any] = json.loads(base64.b64decode(label))
    return options


def decode_definition(label: str) -> dict[str, Any]:
    """Return the package definition in the label DCOS_PACKAGE_DEFINITION."""
    envelope = json.loads(base64.b64decode(label))
    package: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(envelope["data"])))
    return package
