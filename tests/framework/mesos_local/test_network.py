"""Names of tasks on the network of containers, and the relay to it."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kit.commands import run_program
from mesos_local.network import _relay, task_names, without_extensions
from mesos_local.node import node_command


def task(name: str, state: str, *statuses: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "state": state,
        "statuses": [{"container_status": {"network_infos": infos}} for infos in statuses],
    }


def test_running_tasks_have_the_names_of_dcos() -> None:
    """The latest status with an address counts; a name has no slashes."""
    old, new = ([{"ip_addresses": [{"ip_address": f"10.88.1.{n}"}]}] for n in (2, 3))
    tasks = [
        task("worker-0", "TASK_RUNNING", old, new, [{"name": "dcos"}]),
        task("worker-1", "TASK_STARTING", old),
        task("worker-2", "TASK_RUNNING"),
    ]

    names = task_names({"frameworks": [{"name": "Dev/mnist", "tasks": tasks}]})

    assert {"worker-0.devmnist.containerip.dcos.thisdcos.directory": "10.88.1.3"} == names
    assert {} == task_names({})


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("a\n10.88.0.9 master", "10.88.1.2"),
        ("a b", "10.88.1.2"),
        ("#a", "10.88.1.2"),
        ("", "10.88.1.2"),
        ("a", "10.88.1.2\n10.88.0.9 b"),
        ("a", "fe80::1%0\n10.88.0.9 b"),
        ("a", "host"),
    ],
)
def test_task_adds_no_other_record(name: str, address: str) -> None:
    """Each user of the machine may register a framework, and report addresses."""
    tasks = [task(name, "TASK_RUNNING", [{"ip_addresses": [{"ip_address": address}]}])]
    assert {} == task_names({"frameworks": [{"name": "x", "tasks": tasks}]})


def test_loader_cache_ends_with_its_strings(tmp_path: Path) -> None:
    """Mesos 1.11 (ldcache.cpp) refuses a cache with more."""
    path = tmp_path / "ld.so.cache"
    subprocess.run(["/sbin/ldconfig", "-X", "-c", "compat", "-C", path], check=True)

    content = without_extensions(path.read_bytes())

    old = int.from_bytes(content[12:16], "little")
    new = content.index(b"glibc-ld.so.cache1.1")
    libraries, length, _, extensions = struct.unpack_from("<4I", content, new + 20)
    assert b"ld.so-1.7.0" == content[:11]
    assert new - 8 < 16 + 12 * old <= new
    assert len(content) == new + 48 + 24 * libraries + length
    assert 0 == extensions
    assert content.endswith(b"\0")


def test_answer_reaches_a_client_that_has_ended_its_request() -> None:
    """A garbage collection must not end the relay of a half-closed connection."""
    assert b"answer" == asyncio.run(_ask_through_a_relay())


async def _ask_through_a_relay() -> bytes:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await asyncio.get_running_loop().run_in_executor(None, gc.collect)
        writer.write(b"answer")
        writer.close()

    target = await asyncio.start_server(answer, "127.0.0.1", 0)
    own = socket.create_server(("127.0.0.1", 0))
    relay = asyncio.create_task(_relay([(own, target.sockets[0].getsockname())]))
    reader, writer = await asyncio.open_connection(*own.getsockname())
    writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()
        target.close()
        relay.cancel()


def test_used_port_is_named_in_one_sentence(tmp_path: Path) -> None:
    """Another program may take a port between its choice and the start of the relay."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = node_command("network", str(tmp_path), "1", f"master={port}")
        done = run_program(*command)

    assert (1, f"port 127.0.0.1:{port} cannot be used: Address already in use\n") == (done.returncode, done.stderr)
