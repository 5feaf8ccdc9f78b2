"""Real ZooKeeper servers on loopback that tests kill, freeze and restart."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mesos_local import node
from mesos_local.cluster import end_nodes
from mesos_local.guard import start_guard
from mesos_local.host import MesosLocalError, ProcessId, free_ports, uninterrupted
from mesos_local.node import ZOOKEEPER_ENVIRONMENT, ZooKeeperNode, zookeeper_command
from mesos_local.record import make_directory, release_directory

from .freezing import is_frozen

_POLL_INTERVAL = 0.05  # seconds; a server does not report that it starts to serve or to lead
_LEADING = ("leader", "standalone")
_GRACE = 3.0  # seconds
# In ticks of 500 ms: to join a leader, and to lag behind it.
_QUORUM = ("initLimit=20", "syncLimit=4")
_TLS = (
    "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
    "secureClientPortAddress=127.0.0.1",
    "ssl.clientAuth=need",
)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM files: the server's certificate with key, and the clients' authority."""

    key_store: Path
    trust_store: Path


class ZooKeeperEnsemble:
    """Context manager of `servers` servers that leaves nothing, even after SIGKILL.

    Each of `servers` is a Node: kill(), stop(), restart(), freeze(), thaw(), and start(), which needs a majority that
    runs; without one, launch(). `tls`: listen for TLS too, at `secure_addresses`, and ask clients for certificates.
    `settings`: further lines of zoo.cfg. What goes wrong raises MesosLocalError.
    """

    def __init__(self, servers: int = 1, *, tls: ServerTls | None = None, settings: Sequence[str] = ()) -> None:
        self._count, self._tls, self._settings = servers, tls, tuple(settings)
        self._directory: Path | None = None
        self._guard: ProcessId | None = None
        self._secure: dict[str, str] = {}
        self.servers: tuple[ZooKeeperNode, ...] = ()

    @property
    def addresses(self) -> str:
        """All servers as an address: "IP:PORT,IP:PORT"."""
        return ",".join(server.address for server in self.servers)

    @property
    def secure_addresses(self) -> str:
        """The TLS ports as an address."""
        return ",".join(self._secure[server.name] for server in self.servers)

    def __enter__(self) -> ZooKeeperEnsemble:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all servers and wait until they serve; leave nothing after a failure."""
        self._directory = make_directory(None)
        try:
            (self._directory / "logs").mkdir()
            self.servers = self._make_servers(self._directory)
            self._guard = start_guard(self._directory)
            for server in self.servers:
                server.launch()
            self.wait_serving()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all servers. Raises MesosLocalError if anything of them is left."""
        with uninterrupted():
            if self._directory is not None:
                end_nodes(self._directory, self.servers, 0, _GRACE, self._guard)
                release_directory(self._directory, temporary=True)
            # Last: if this process dies earlier, the guard cleans up.
            if self._guard is not None:
                self._guard.end(0)
            self._directory, self._guard, self.servers = None, None, ()

    def leader(self) -> ZooKeeperNode:
        """The leading or only server. Raises MesosLocalError without one."""
        for server in self._running():
            if server.mode() in _LEADING:
                return server
        raise MesosLocalError("No ZooKeeper server leads.")

    def followers(self) -> tuple[ZooKeeperNode, ...]:
        """The servers that follow the leader."""
        return tuple(server for server in self._running() if server.mode() == "follower")

    def wait_serving(self, timeout: float = 60.0) -> None:
        """Wait until one leads and all other running, unfrozen servers follow it."""
        deadline = time.monotonic() + timeout
        while (behind := self._not_serving()) is not None:
            behind.check_alive()
            if time.monotonic() > deadline:
                raise behind.failed(f"does not serve after {timeout:.0f} s")
            time.sleep(_POLL_INTERVAL)

    def _not_serving(self) -> ZooKeeperNode | None:
        """Return a server that does not serve (any without a majority), or None."""
        modes = {server: server.mode() for server in self._running()}
        # A leader without followers continues for a while (syncLimit).
        if sum(mode in _LEADING for mode in modes.values()) != 1 or 2 * len(modes) <= self._count:
            return next(iter(modes), None)
        return next((server for server, mode in modes.items() if mode is None), None)

    def _running(self) -> list[ZooKeeperNode]:
        return [server for server in self.servers if server.process is not None and not is_frozen(server)]

    def _make_servers(self, directory: Path) -> tuple[ZooKeeperNode, ...]:
        names = [f"zookeeper-{number}" for number in range(1, self._count + 1)]
        ports = iter(free_ports(4 * self._count))
        # Only the leader listens on its quorum port. On an IP address that other processes use, one could take the port
        # of a follower, which could then never lead.
        host = f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}.{random.randrange(1, 255)}"
        peers = [f"server.{n}={host}:{next(ports)}:{next(ports)}" for n in range(1, self._count + 1)]
        self._secure = {name: f"127.0.0.1:{next(ports)}" for name in names}
        quorum = (*_QUORUM, *peers) if self._count > 1 else ()
        return tuple(self._make_server(directory, name, f"{host}:{next(ports)}", quorum) for name in names)

    def _make_server(self, directory: Path, name: str, address: str, quorum: Sequence[str]) -> ZooKeeperNode:
        settings = (*quorum, *self._tls_settings(name), *self._settings)
        data = directory / name / "data"
        data.mkdir(parents=True)
        if quorum:
            (data / "myid").write_text(name.rpartition("-")[2])

        log, environment = directory / "logs" / f"{name}.log", node.environment(directory) | ZOOKEEPER_ENVIRONMENT
        command = partial(zookeeper_command, directory / name, address, settings=settings)
        return ZooKeeperNode(name, address, log, command, environment, changed=lambda: None)

    def _tls_settings(self, name: str) -> tuple[str, ...]:
        if self._tls is None:
            return ()
        port = self._secure[name].rpartition(":")[2]
        stores = (f"ssl.keyStore.location={self._tls.key_store}", f"ssl.trustStore.location={self._tls.trust_store}")
        return (f"secureClientPort={port}", *_TLS, *stores)
