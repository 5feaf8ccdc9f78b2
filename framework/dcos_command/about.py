"""What the dcos command asks a sub-command about itself."""

from __future__ import annotations

import json

#: The answer to --info.
INFO = "Distributed TensorFlow on DC/OS"
#: The answer to --config-schema: what `dcos config set tensorflow.<name>` may set.
CONFIG_SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/schema#",
        "additionalProperties": False,
        "properties": {"service_name": {"title": "Service name", "type": "string"}},
        "type": "object",
    }
)
