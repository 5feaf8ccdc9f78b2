"""Ports of tasks that another process uses, before and after the program starts."""

from __future__ import annotations

import base64
import getpass
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mesos_local.host import free_ports
from tf_executor.contract.reports import TaskEnd
from tf_executor.process.ports import is_free, is_served_by_others, stranger_at

#: For `start_executor`: the wait until an ended program's sockets close.
NO_WAIT = "process.ports.CLOSING_SECONDS=0"
LISTEN = "import socket; server = socket.create_server(('127.0.0.1', {}))"


def me() -> str:
    name = Path("/proc/self/comm").read_text().strip()
    return f"process {os.getpid()} ({name}) of user {getpass.getuser()}"


def listener(address: str = "127.0.0.1", port: int = 0) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family)


def ending(status: dict[str, Any]) -> TaskEnd:
    return TaskEnd.decode(base64.b64decode(status["data"]))


@pytest.mark.parametrize("address", ["127.0.0.1", "", "::1", "127.0.0.9"])
@pytest.mark.parametrize("is_first", [True, False])
def test_used_port_is_reported_before_the_start(start_executor: Callable[..., Any], address: str, is_first) -> None:
    """Also a further port, and whatever the program would have said."""
    executor = start_executor("one", NO_WAIT)
    with listener(address) as stranger:
        ports = [stranger.getsockname()[1], *free_ports(1)]
        port, other = ports if is_first else ports[::-1]
        executor.launch("touch started; exit 1", port=port, more_ports=[other], pre_command="true")

        status = executor.states("TASK_STARTING", "TASK_FAILED")

    assert f"port {ports[0]} of the task is in use by {me()}" == status["message"]
    assert ending(status).lacks_port
    assert not (executor.sandbox / "started").exists()


def test_own_sockets_and_closed_connections_do_not_count(executor: Any) -> None:
    """Neither a server of the pre command nor TIME_WAIT of an earlier launch."""
    with listener() as earlier, socket.create_connection(earlier.getsockname()) as client:
        port, (connection, _) = earlier.getsockname()[1], earlier.accept()
        earlier.close()
        connection.close()
        assert b"" == client.recv(1)
    assert is_free(port)
    (other,) = free_ports(1)
    serve = f"mkfifo up; python -c \"{LISTEN.format(other)}; open('up', 'w').close(); import time; time.sleep(60)\" &"
    executor.launch("exit 3", port=port, more_ports=[other], pre_command=f"{serve} cat up")

    status = executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")

    assert ("exit code 3", False) == (status["message"], ending(status).port_taken)


@pytest.mark.parametrize(
    ("stage", "program", "is_taken"),
    [("pre_command", "pass", True), ("command", "{{}}[{}]", False), ("command", LISTEN, True)],
)
def test_port_is_blamed_if_the_program_needs_it(start_executor, stage: str, program: str, is_taken: bool) -> None:
    """Another process listens only after the first check."""
    executor = start_executor("one", NO_WAIT)
    (port,) = free_ports(1)
    text = f"open('ready', 'w').close(); open('go').read(); {program.format(port)}"
    (executor.sandbox / "program.py").write_text(text)
    os.mkfifo(executor.sandbox / "go")
    executor.launch(**{"command": "true", stage: "python program.py"}, port=port, python=sys.executable)
    executor.await_file("ready")
    with listener("", port):
        (executor.sandbox / "go").write_text("go\n")

        while (status := executor.update())["state"] != "TASK_FAILED":
            pass

    assert is_taken is ending(status).lacks_port
    assert is_taken is (f"port {port} of the task is in use by {me()}" in status["message"])


def test_closing_socket_of_an_earlier_launch_is_awaited() -> None:
    with listener() as earlier:
        assert "" == stranger_at(earlier.getsockname()[1], lambda: earlier.close() or [])


def test_listeners_of_others_are_detected() -> None:
    with listener("::") as server, socket.create_connection(("::1", server.getsockname()[1])) as client:
        port, client_port = server.getsockname()[1], client.getsockname()[1]
        assert is_served_by_others(port, [1, os.getppid()])
        assert not is_served_by_others(port, [os.getpid()])
        assert not is_served_by_others(client_port, [])
    assert not is_served_by_others(port, [])
