"""A real object store with an S3 interface: OpenStack Swift."""

from __future__ import annotations

import getpass
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kit.commands import run_program
from kit.lanes import require_real
from kit.waiting import wait_until
from mesos_local.host import free_ports

#: Key and secret of the only account.
KEY, SECRET = "test:tester", "testing"
_SWIFT = """
[swift-hash]
swift_hash_path_prefix = a
swift_hash_path_suffix = b
[storage-policy:0]
name = gold
default = yes
"""
_SERVER = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
[pipeline:main]
pipeline = {pipeline}
[app:{name}-server]
use = egg:swift#{name}
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:bulk]
use = egg:swift#bulk
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""
_PIPELINE = "catch_errors gatekeeper listing_formats s3api tempauth bulk slo dlo proxy-server"
NAMES = ("account", "container", "object", "proxy")


class SwiftStore:
    """The four servers of a store with one disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "devices" / "disk").mkdir(parents=True)
        (folder / "swift.conf").write_text(_SWIFT)
        for name in NAMES:
            pipeline = _PIPELINE if name == "proxy" else f"{name}-server"
            values = {"folder": folder, "user": getpass.getuser(), "port": self._ports[name], "name": name}
            (folder / f"{name}-server.conf").write_text(_SERVER.format(**values, pipeline=pipeline))
        for name in NAMES[:-1]:
            self._make_ring(name)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._ports['proxy']}"

    def start(self, name: str) -> None:
        """Start a server, and wait until it accepts connections."""
        with (self._folder / f"{name}.log").open("ab") as log:
            command = [_program(f"swift-{name}-server"), str(self._folder / f"{name}-server.conf")]
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log)
        with wait_until(lambda: socket.create_connection(("127.0.0.1", self._ports[name]), 1), ignore=OSError):
            pass

    def kill(self, name: str) -> None:
        """Send SIGKILL to a server, which has no workers."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def end(self) -> None:
        for name in tuple(self._processes):
            self.kill(name)

    def _make_ring(self, name: str) -> None:
        builder = str(self._folder / f"{name}.builder")
        disk = f"r1z1-127.0.0.1:{self._ports[name]}/disk"
        for arguments in (["create", "4", "1", "0"], ["add", disk, "1"], ["rebalance"]):
            command = [sys.executable, _program("swift-ring-builder"), builder, *arguments]
            run_program(*command, check=True, cwd=self._folder)


def _program(name: str) -> str:
    return str(Path(sys.executable).parent / name)


@contextmanager
def run_swift(folder: Path) -> Iterator[SwiftStore]:
    """Start a store; `folder` must support extended attributes."""
    require_real()
    store = SwiftStore(folder)
    with ExitStack() as stack:
        stack.callback(store.end)
        for name in NAMES:
            store.start(name)
        yield store
