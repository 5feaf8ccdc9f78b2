"""Announce masters in ZooKeeper as Mesos does: sequential nodes with MasterInfo."""

from __future__ import annotations

import json
import uuid
from typing import Any

from kazoo.client import KazooClient
from kazoo.security import ACL, make_digest_acl

from wire.peer import PATIENCE

GROUP = "/mesos"


def master_info(address: str, hostname: str = "") -> dict[str, Any]:
    """Return MasterInfo of "IP:PORT" or "[IP]:PORT" as Mesos 1.11 writes it."""
    ip, _, port = address.rpartition(":")
    ip = ip.strip("[]")
    place = {"hostname": hostname or ip, "ip": ip, "port": int(port)}
    return {
        "address": place,
        "capabilities": [{"type": "AGENT_UPDATE"}],
        "hostname": place["hostname"],
        "id": str(uuid.uuid4()),
        "ip": 16777343,
        "pid": f"master@{address}",
        "port": int(port),
        "version": "1.11.0",
    }


class Candidates:
    """Context manager with a separate ZooKeeper client."""

    def __init__(self, servers: str, credentials: str | None = None) -> None:
        self.client = KazooClient(
            servers,
            auth_data=[("digest", credentials)] if credentials else None,
            connection_retry={"max_tries": -1, "max_delay": 0.1},
        )

    def __enter__(self) -> Candidates:
        self.client.start(timeout=PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.stop()
        self.client.close()

    def enter(self, info: dict[str, Any], *, acl: list[ACL] | None = None) -> str:
        """Add a candidate and return its node."""
        self.client.ensure_path(GROUP)
        data = json.dumps(info).encode()
        node: str = self.client.retry(
            self.client.create, f"{GROUP}/json.info_", data, acl=acl, ephemeral=True, sequence=True
        )
        return node

    def leave(self, node: str) -> None:
        """Remove a candidate."""
        self.client.retry(self.client.delete, node)

    def clear(self) -> None:
        if self.client.exists(GROUP):
            self.client.delete(GROUP, recursive=True)


def only(credentials: str) -> list[ACL]:
    """Access for one user only."""
    user, _, password = credentials.partition(":")
    return [make_digest_acl(user, password, all=True)]
