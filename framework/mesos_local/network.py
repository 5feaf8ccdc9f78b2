"""Network and mount namespaces of a local cluster with containers.

One process, the holder, creates the namespaces. They end with the last process in them, even after SIGKILL. The
machine's own network, mounts and /run do not change. Addresses:

    10.88.0.1       bridge: master, ZooKeeper, schedulers, DNS server
    10.88.0.N + 1   agent N, in a network namespace of its own
    10.88.N.0/24    containers of agent N, attached by CNI (Mesos: docs/cni.md)

The process relays connections from 127.0.0.1 of the machine to the same port of a node, and answers the names that
DC/OS gives to tasks.
"""

from __future__ import annotations

import asyncio
import ctypes
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from tf_executor.contract.http import HttpClient

from .agents import count_gpus
from .host import MesosLocalError, explain_os_errors

GATEWAY = "10.88.0.1"
#: Agents have the last numbers 2 to 251.
MAX_AGENTS = 250
#: Folder of Debian's package containernetworking-plugins.
PLUGINS = Path("/usr/lib/cni")
#: Name of the network, as in DC/OS.
NAME = "dcos"
ZONE = "containerip.dcos.thisdcos.directory"
_NEW_NETWORK, _NEW_MOUNTS = 0x40000000, 0x00020000  # CLONE_NEWNET, CLONE_NEWNS of unshare(2)
_CHUNK = 1 << 16
_KILL_TIMEOUT = 10.0  # seconds
_RETRY = 0.2  # seconds between attempts to reach the master
_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")  # of the reader's network namespace
_NSENTER = "/usr/bin/nsenter"

_AT_THE_GATEWAY = ("master", "zookeeper")

Address = tuple[str, int]


def agent_address(number: int) -> str:
    """Return the IP address of agent `number`, from 1."""
    return f"10.88.0.{number + 1}"


def inside(holder: int, agent: str = "") -> list[str]:
    """Return a command's prefix that enters the namespaces of `holder` or its `agent`."""
    enter = [_NSENTER, f"--target={holder}", "--mount", "--net", "--"]
    return [*enter, *([_NSENTER, f"--net=/run/netns/{agent}", "--"] if agent else [])]


def beside(holder: int) -> list[str]:
    """Return a command's prefix that enters the network of `holder`, and uses its DNS.

    The command keeps this process' mounts, because the mounts of `holder` lack newer ones.
    """
    names = f"f=$(mktemp) && echo nameserver {GATEWAY} >$f && mount --bind $f /etc/resolv.conf && rm $f"
    enter = [_NSENTER, f"--target={holder}", "--net", "--", "/usr/bin/unshare", "--mount"]
    return [*enter, "/bin/sh", "-c", f'PATH="$PATH:{SYSTEM_PATH}"; {names} && exec "$@"', "sh"]


def write_network_configuration(folder: Path, number: int) -> None:
    """Write the CNI configuration of agent `number` to `folder`/cni."""
    (folder / "cni").mkdir(parents=True)
    network = {
        "cniVersion": "0.2.0",  # Mesos 1.11 reads addresses in results of this version
        "name": NAME,
        "type": "bridge",
        "bridge": "containers",
        "isDefaultGateway": True,
        "ipam": {"type": "host-local", "subnet": f"10.88.{number}.0/24", "dataDir": str(folder / "addresses")},
        "dns": {"nameservers": [GATEWAY]},
    }
    (folder / "cni" / f"{NAME}.json").write_text(json.dumps(network))


def missing_requirements() -> list[str]:
    """Return what this machine lacks for containers; empty if it can run them."""
    missing = [] if os.geteuid() == 0 else ["root"]
    groups = ("cpu", "cpuacct", "memory", "freezer")
    if not all(Path("/sys/fs/cgroup", name, "cgroup.procs").exists() for name in groups):
        missing.append(f"cgroups version 1 ({', '.join(groups)} in /sys/fs/cgroup)")
    if "\toverlay\n" not in Path("/proc/filesystems").read_text():
        missing.append("overlayfs")
    programs = {"dnsmasq": "dnsmasq-base", "ip": "iproute2", "nsenter": "util-linux"}
    absent = {name: package for name, package in programs.items() if shutil.which(name, path=SYSTEM_PATH) is None}
    absent |= {} if (PLUGINS / "bridge").exists() else {str(PLUGINS / "bridge"): "containernetworking-plugins"}
    return missing + [f"{name} (Debian package {package})" for name, package in absent.items()]


SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


# --- namespaces


def run_network(directory: Path, ready: int, ports: Mapping[str, int]) -> None:
    """Make the namespaces, relay connections and answer names until a signal.

    `ready`: a port of 127.0.0.1 that accepts connections when the namespaces are complete. `ports`: node name -> port;
    agents are in the order of their numbers.
    """
    sockets = {name: _bound(port) for name, port in ports.items()}
    complete = _bound(ready)
    _check(_libc.unshare(_NEW_NETWORK | _NEW_MOUNTS), "unshare")
    own = _open_namespace("/proc/self/ns/net")
    agents = [name for name in ports if name not in _AT_THE_GATEWAY]
    for line in _commands(agents):
        _run(line)
    if count_gpus():
        # A loader cache that the isolator gpu/nvidia of Mesos 1.11 can read.
        cache = Path("/run/ld.so.cache")
        _run(f"ldconfig -X -c compat -C {cache}")
        cache.write_bytes(without_extensions(cache.read_bytes()))
        _run(f"mount --bind {cache} /etc/ld.so.cache")
    _FORWARD.write_text("1")
    for name in agents:
        _enter(_open_namespace(f"/run/netns/{name}"))
        _FORWARD.write_text("1")
    _enter(own)
    names = NameServer(directory / "network", f"{GATEWAY}:{ports['master']}")
    threading.Thread(target=names.follow, daemon=True).start()
    hosts = {name: agent_address(number) for number, name in enumerate(agents, 1)}
    asyncio.run(_relay([(sockets[name], (hosts.get(name, GATEWAY), ports[name])) for name in ports], complete))


def run_relay(holder: int, port: int) -> None:
    """Relay a port of 127.0.0.1 to the same port of the gateway, until a signal.

    `holder`: process id of the cluster's network process.
    """
    own = _bound(port)
    _enter(_open_namespace(f"/proc/{holder}/ns/net"))
    asyncio.run(_relay([(own, (GATEWAY, port))]))


def _commands(agents: Sequence[str]) -> Iterator[str]:
    # Mesos and `ip netns` write to /run.
    yield "mount --make-rprivate /"
    yield "mount -t tmpfs -o mode=755 tmpfs /run"
    yield "ip link set lo up"
    yield "ip link add mesos type bridge"
    yield f"ip address add {GATEWAY}/24 dev mesos"
    yield "ip link set mesos up"
    for number, name in enumerate(agents, 1):
        address = agent_address(number)
        yield f"ip netns add {name}"
        yield f"ip link add agent{number} type veth peer name eth0 netns {name}"
        yield f"ip link set agent{number} master mesos up"
        yield f"ip -n {name} link set lo up"
        yield f"ip -n {name} address add {address}/24 dev eth0"
        yield f"ip -n {name} link set eth0 up"
        yield f"ip -n {name} route add default via {GATEWAY}"
        yield f"ip route add 10.88.{number}.0/24 via {address}"


def _run(line: str) -> None:
    environment = {**os.environ, "PATH": SYSTEM_PATH}
    done = subprocess.run(line.split(), capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise MesosLocalError(f"{line}: {done.stderr.strip()}")


def without_extensions(content: bytes) -> bytes:
    """Remove the extensions of newer ldconfig from a loader cache of format `compat`."""
    cache = bytearray(content)
    (old,) = struct.unpack_from("<I", cache, 12)  # glibc: cache_file and cache_file_new in dl-cache.h
    start = (16 + 12 * old + 7) // 8 * 8
    libraries, length = struct.unpack_from("<II", cache, start + 20)
    struct.pack_into("<I", cache, start + 32, 0)  # extension_offset
    return bytes(cache[: start + 48 + 24 * libraries + length])


_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        raise MesosLocalError(f"{what}: {os.strerror(ctypes.get_errno())}")


def _open_namespace(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _enter(namespace: int) -> None:
    _check(_libc.setns(namespace, _NEW_NETWORK), "setns")
    os.close(namespace)


# --- relay


def _bound(port: int) -> socket.socket:
    """Return a socket bound to a port of 127.0.0.1 in the present network namespace."""
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with explain_os_errors("port", Path(f"127.0.0.1:{port}")):
        own.bind(("127.0.0.1", port))
    return own


async def _relay(targets: Iterable[tuple[socket.socket, Address]], complete: socket.socket | None = None) -> None:
    """Relay connections until cancelled. When all ports are open, `complete` accepts."""
    servers = [await asyncio.start_server(partial(_join, target), sock=own) for own, target in targets]
    if complete is not None:
        servers.append(await asyncio.start_server(lambda _, writer: writer.close(), sock=complete))
    await asyncio.gather(*(server.serve_forever() for server in servers))


#: The loop has only weak references to tasks (Python: asyncio-task.html), also if a client sends no more.
_joined: set[asyncio.Task[None]] = set()


async def _join(target: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    task = asyncio.current_task()
    assert task is not None, "start_server makes one"
    _joined.add(task)
    task.add_done_callback(_joined.discard)
    try:
        other_reader, other_writer = await asyncio.open_connection(*target)
    except OSError:
        writer.transport.abort()  # as if nothing listened
        return
    with closing(writer), closing(other_writer):
        await asyncio.gather(_copy(reader, other_writer), _copy(other_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


# --- names


class NameServer:
    """DNS server for tasks under their DC/OS names, `TASK.SERVICE.containerip...`."""

    def __init__(self, folder: Path, master: str) -> None:
        folder.mkdir()
        self._hosts, self._master = folder / "hosts", master
        self._hosts.write_text("")
        command = [
            "dnsmasq",
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
            "--pid-file=",
        ]
        command += [f"--listen-address={GATEWAY}", "--bind-interfaces", f"--addn-hosts={self._hosts}", "--user=root"]
        self._server = subprocess.Popen([*command, "--local=/#/"], env={**os.environ, "PATH": SYSTEM_PATH})

    def follow(self) -> None:
        """Update the names after each event of the master, forever."""
        pause = threading.Event()
        while True:
            with suppress(OSError, http.client.HTTPException, ValueError):
                for _ in self._events():
                    state: Mapping[str, Any] = json.loads(HttpClient(20, 10).fetch(f"http://{self._master}/state").body)
                    self._update(state)
            pause.wait(_RETRY)

    def _events(self) -> Iterator[bytes]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        with closing(http.client.HTTPConnection(self._master)) as connection:
            connection.request("POST", "/api/v1", json.dumps({"type": "SUBSCRIBE"}), headers)
            response = connection.getresponse()
            while data := response.read1(_CHUNK):
                yield data

    def _update(self, state: Mapping[str, Any]) -> None:
        text = "".join(f"{address} {name}\n" for name, address in sorted(task_names(state).items()))
        if text != self._hosts.read_text():
            self._hosts.write_text(text)
            self._server.send_signal(signal.SIGHUP)


def task_names(state: Mapping[str, Any]) -> dict[str, str]:
    """Return DNS name -> IP address of the running tasks in the master's state."""
    names = {}
    for framework in state.get("frameworks", ()):
        service = re.sub(r"[^a-z0-9-]", "", framework["name"].lower())
        for task in framework["tasks"]:
            name, address = f"{task['name'].lower()}.{service}.{ZONE}", _task_address(task)
            with suppress(ValueError):  # any user can register names and addresses, also with a line end
                if task["state"] == "TASK_RUNNING" and _DNS_NAME.fullmatch(name):
                    names[name] = str(IPv4Address(address))
    return names


_DNS_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")


def _task_address(task: Mapping[str, Any]) -> str:
    infos = (
        info
        for status in reversed(task.get("statuses", ()))
        for info in status.get("container_status", {}).get("network_infos", ())
    )
    return next((str(one["ip_address"]) for info in infos for one in info.get("ip_addresses", ())), "")


# --- control groups


def cgroups_root(directory: Path) -> str:
    """Return the name of the cluster's control groups, computed from its folder."""
    return f"dcos-tensorflow-{zlib.crc32(os.fsencode(directory.resolve())):08x}"


def remove_cgroups(directory: Path) -> None:
    """Kill the processes left in the cluster's control groups; remove the groups."""
    for root in Path("/sys/fs/cgroup").glob(f"*/{cgroups_root(directory)}"):
        groups = sorted((path.parent for path in root.rglob("cgroup.procs")), reverse=True)
        for group in groups:
            _end_processes(group)
            group.rmdir()


def _end_processes(group: Path) -> None:
    if (group / "freezer.state").exists():
        (group / "freezer.state").write_text("THAWED")  # frozen processes do not end
    while pids := (group / "cgroup.procs").read_text().split():
        for pid in map(int, pids):
            with suppress(ProcessLookupError):
                descriptor = os.pidfd_open(pid)
                try:
                    os.kill(pid, signal.SIGKILL)
                    select.select([descriptor], [], [], _KILL_TIMEOUT)
                finally:
                    os.close(descriptor)
