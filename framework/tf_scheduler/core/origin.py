"""Where the questions of a launch come from: the address of its agent, or of its own container.

On the network of the agents' hosts the agent's address is enough: it is in the ClusterSpec. On a virtual network, where
that has a name of the task, a container has an address of its own, which other hosts see, or that of its agent, where
packets are rewritten on their way out. The first is known when the agent has told of the container: with the first
status that its executor sends (mesos.proto, ContainerStatus.network_infos).
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from tf_scheduler.model.task import TaskRecord, TaskStatus


def is_right(record: TaskRecord, status: TaskStatus | None, address: str, url: str) -> bool:
    """Whether a question from the address is one of the launch. `url`: where it was told to ask."""
    found = _ip(address)
    if found is None or found in map(_ip, _known(record, status)):
        return found is not None
    # Where the scheduler runs on the same host.
    return found.is_loopback and urlsplit(url).hostname in (record.hostname, _host(record))


def is_open(record: TaskRecord, status: TaskStatus | None) -> bool:
    """Whether Mesos has yet to tell an address that counts. A name is not looked up: others may say where it leads."""
    return _ip(_host(record)) is None and not _told(status)


def spoken(record: TaskRecord, status: TaskStatus | None) -> str:
    """`its agent's address 10.0.0.1`"""
    whose = "its agent's address" if _ip(_host(record)) else "the address of its agent, nor of its container:"
    return f"{whose} {', '.join(text for text in _known(record, status) if text)}"


def _known(record: TaskRecord, status: TaskStatus | None) -> tuple[str, ...]:
    host = _host(record)
    return (host,) if _ip(host) else (record.agent_address, *_told(status))


def _told(status: TaskStatus | None) -> tuple[str, ...]:
    return () if status is None else status.addresses


def _host(record: TaskRecord) -> str:
    return record.address.rpartition(":")[0].strip("[]")


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
