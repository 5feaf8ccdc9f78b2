"""What a master detector is, and how masters announce themselves in ZooKeeper. Standard library only.

Sources: include/mesos/zookeeper, src/zookeeper/url.hpp and src/master/detector/zookeeper.cpp of Apache Mesos.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Callable, Iterable

from mesos_client.masters import base_url

#: Each master that wants to lead has a sequential node of this name; the lowest number leads.
_CANDIDATE = re.compile(r"json\.info_(\d+)")


@dataclass(frozen=True)
class Leader:
    """The leading master. `identity` tells one that was started again from the one before."""

    identity: str
    hostname: str
    ip: str
    port: int

    def url(self, scheme: str) -> str:
        """The address over http, and the name over https: that is what certificates are made for."""
        host = (self.hostname or self.ip) if scheme == "https" else (self.ip or self.hostname)
        return base_url(scheme, host, self.port)


#: Told of the leader, or of None with the reason why there is none.
OnLeader = Callable[["Leader | None", str], None]


class Detector:
    """Finds the leading master. `start` and `stop` are called once each, by a driver."""

    def start(self, on_leader: OnLeader) -> None:
        """Tell `on_leader` of each change, in a thread of its own; return at once."""
        raise NotImplementedError

    def stop(self) -> None:
        """End soon. May be called without `start`, and twice."""
        raise NotImplementedError


@dataclass(frozen=True)
class ZooKeeperUrl:
    """`zk://user:password@host1:port1,host2:port2/path`, as Mesos' own --zk and --master flags have it."""

    servers: str
    path: str
    #: `user:password` of ZooKeeper's scheme `digest`.
    credentials: str | None = field(default=None, repr=False)

    @staticmethod
    def is_one(text: str) -> bool:
        return text.strip().startswith(("zk://", "zoo://"))

    @classmethod
    def parse(cls, text: str) -> ZooKeeperUrl:
        """Raise ValueError, which does not quote the password."""
        rest = text.strip().partition("://")[2]
        authority, slash, path = rest.partition("/")
        credentials, at, servers = authority.rpartition("@")
        if not servers or not all(map(_is_server, servers.split(","))):
            raise ValueError(f"master zk://{servers}{slash}{path}: zk://host:port,host:port/path is expected")
        if at and ":" not in credentials:
            raise ValueError(f"master zk://...@{servers}{slash}{path}: before the @, user:password is expected")
        if not path.strip("/"):
            raise ValueError(f"master zk://{servers}/: the masters' path is missing, such as /mesos")
        return cls(servers, "/" + path.strip("/"), credentials if at else None)

    def __str__(self) -> str:
        return f"zk://{self.servers}{self.path}"


def _is_server(text: str) -> bool:
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+)(:(\d{1,5}))?", text)
    return match is not None and 0 < int(match.group(3) or 2181) < 65536


def first_candidate(children: Iterable[str]) -> str | None:
    """The node of the leading master among the children of the masters' path; None when nobody leads."""
    candidates = {int(match.group(1)): match.group(0) for match in map(_CANDIDATE.fullmatch, children) if match}
    return candidates[min(candidates)] if candidates else None


def read_leader(data: bytes) -> Leader:
    """MasterInfo in JSON. Raise ValueError when it is none."""
    try:
        info = json.loads(data)
        address = info.get("address", {})
        host, ip = address.get("hostname") or info.get("hostname", ""), str(address.get("ip", ""))
        leader = Leader(str(info.get("id", "")), str(host), ip, int(address.get("port") or info["port"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"the leader's node holds no MasterInfo: {error!r}") from error
    if not (leader.hostname or leader.ip):
        raise ValueError("the leader's node names neither address nor host")
    return leader
