"""Launch payloads for tests of the executor."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tf_executor.contract.payload import Payload
from tf_executor.contract.settings import RunSettings

#: Program that answers like a gRPC server on the port in its argument.
GRPC_SERVER = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as listener:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(100)
            connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            connection.recv(100)
"""
_SETTINGS = frozenset(item.name for item in fields(RunSettings))


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """Return values of a Payload or JobSpec with those of its settings nested."""
    settings = {name: value for name, value in values.items() if name in _SETTINGS}
    others = {name: value for name, value in values.items() if name not in _SETTINGS}
    return {**others, "settings": RunSettings(**settings)} if settings else others


def a_payload(command: str = "true", task: str = "worker-0", **values: Any) -> Payload:
    """Return a payload without a cluster; `values` are fields of it or its settings."""
    job, _, index = task.rpartition("-")
    return Payload(task, job, int(index), command, **nested({"tf_config": {"cluster": {}}, **values}))
