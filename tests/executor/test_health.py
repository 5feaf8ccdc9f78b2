"""Readiness and liveness, with real servers, sockets and commands."""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pytest

from tf_executor import checks, readiness
from tf_executor.checks import Checks, http_problem
from tf_executor.events import Ready, Unhealthy
from tf_executor.payload import Liveness
from tf_executor.ports import held_by_others

SETTINGS = bytes([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100])
CHANGED = "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """An address where each connection gets `answer`, once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join()


def test_an_http_2_server_is_ready() -> None:
    """It gets the preface and our SETTINGS, then the acknowledgement of its own and a farewell."""
    received: list[bytes] = []

    def greet(connection: socket.socket) -> None:
        received.append(connection.recv(100))
        for byte in SETTINGS:
            connection.sendall(bytes([byte]))
        received.append(connection.makefile("rb").read())

    with server(greet) as address:
        assert readiness.answers(address, 5.0)
    assert b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]) == received[0]
    assert bytes([0, 0, 0, 4, 1]) == received[1][:5]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"220 mail.example ESMTP\r\n",
        SETTINGS[:5],
        bytes([0, 0, 0, 4, 1, 0, 0, 0, 0]),
        bytes([0, 0, 0, 4, 0, 0, 0, 0, 1]),
    ],
    ids=["closes", "http-1", "mail", "half", "only-acknowledges", "on-a-stream"],
)
def test_another_server_on_the_port_is_not_ready(answer: bytes) -> None:
    """Whatever it says first."""

    def speak(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(answer)

    with server(speak) as address:
        assert not readiness.answers(address, 5.0)


def test_a_silent_server_is_not_ready() -> None:
    """After the time-out."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert not readiness.answers(f"127.0.0.1:{listener.getsockname()[1]}", 0.05)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1", "no.such.host.invalid:1", "127.0.0.1:http"])
def test_no_server_is_not_ready(address: str) -> None:
    """Nor is what is no address."""
    assert not readiness.answers(address, 1.0)


GRPC = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(100)
            connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            connection.recv(100)
"""


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def test_readiness_is_told_once_the_server_answers(executor: Any) -> None:
    """As a further TASK_RUNNING that says healthy; the program starts its server when it likes."""
    port = free_port()
    (executor.sandbox / "server.py").write_text(GRPC)
    os.mkfifo(executor.sandbox / "go")
    executor.launch(f"cat go; exec python server.py {port}", readiness=f"127.0.0.1:{port}")
    running = executor.states("TASK_STARTING", "TASK_RUNNING")
    assert "healthy" not in running
    (executor.sandbox / "go").write_text("go\n")
    status = executor.states("TASK_RUNNING")
    assert (True, CHANGED) == (status["healthy"], status["reason"])
    assert status["message"].startswith(f"its TensorFlow server answers at 127.0.0.1:{port} after ")
    executor.kill(grace=0.0)
    executor.states("TASK_KILLING", "TASK_KILLED")


def test_the_server_of_another_is_not_the_tasks(executor: Any) -> None:
    """It had the port first: the task is not called healthy."""
    port = free_port()
    (executor.sandbox / "server.py").write_text(GRPC)
    with subprocess.Popen([sys.executable, str(executor.sandbox / "server.py"), str(port)]) as other:
        try:
            executor.launch("sleep 3600", readiness=f"127.0.0.1:{port}")
            executor.states("TASK_STARTING", "TASK_RUNNING")
            log = executor.output("stderr")
            while f"port {port} is held by a process that is not the task's" not in log:
                log = executor.output("stderr")
            executor.kill(grace=0.0)
            executor.states("TASK_KILLING", "TASK_KILLED")
        finally:
            other.kill()


def test_who_holds_a_port() -> None:
    """A process that listens, not one that is only connected; nobody is no other."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        port, client_port = listener.getsockname()[1], client.getsockname()[1]
        assert [False, True] == [held_by_others(port, [os.getpid()]), held_by_others(port, [1, os.getppid()])]
        assert not held_by_others(client_port, [])
    assert not held_by_others(port, [])
    with socket.create_server(("::", 0), family=socket.AF_INET6) as listener:
        assert held_by_others(listener.getsockname()[1], [])


@pytest.mark.tensorflow
def test_a_real_tensorflow_server_is_ready(executor: Any) -> None:
    """The program is TensorFlow's own server."""
    port = free_port()
    cluster = {"cluster": {"worker": [f"127.0.0.1:{port}"]}, "task": {"type": "worker", "index": 0}}
    program = "from tf_executor.job import run; import os; run(dict(os.environ))"
    executor.launch(
        f'exec python -c "{program}"',
        tf_config=cluster,
        readiness=f"127.0.0.1:{port}",
        strategy="parameter_server",
        python=sys.executable,
        environment={"TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    executor.states("TASK_STARTING", "TASK_RUNNING")
    assert executor.update()["healthy"]
    executor.kill(grace=0.0)
    executor.states("TASK_KILLING", "TASK_KILLED")


def quick(kind: str, target: str = "", **fields: Any) -> Liveness:
    return Liveness(kind, target, **{"interval": 0.01, "timeout": 20.0, "grace": 0.0, "failures": 2, **fields})


def test_a_program_that_is_not_alive_fails(executor: Any) -> None:
    """The command runs as the program does; after the failures SIGTERM, grace, TASK_FAILED, unhealthy."""
    command = 'test "$TASK_NAME" = worker-0 && echo look >> looks && test ! -e dead'
    program = "trap 'echo saved; exit 143' TERM; echo ready > ready; touch dead; sleep 3600 & wait"
    executor.launch(program, liveness=quick("command", command), kill_grace=60.0)
    executor.states("TASK_STARTING", "TASK_RUNNING")
    executor.await_file("ready")
    killing, status = executor.update(), executor.states("TASK_FAILED")
    assert ("TASK_KILLING", False, False) == (killing["state"], killing["healthy"], status["healthy"])
    said = "not alive: the liveness command failed: exit code 1 (2 times in a row); exit code 143"
    assert status["message"].startswith(said), status
    assert "saved\n" == executor.output()
    assert [] == executor.processes()


def test_a_liveness_command_that_hangs_is_a_failure(executor: Any) -> None:
    """It is killed, and does not keep the task."""
    executor.launch("sleep 3600", liveness=quick("command", "sleep 3600", timeout=0.05))
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_KILLING")
    message = executor.states("TASK_FAILED")["message"]
    assert message.startswith("not alive: the liveness command took longer than 0.05 s (2 times in a row)")
    assert [] == executor.processes()


def test_a_program_without_progress_is_not_alive(executor: Any) -> None:
    """It reported once, then no more."""
    program = "echo '{\"step\": 1}' > $TF_EXECUTOR_PROGRESS; sleep 3600"
    executor.launch(program, liveness=quick("progress", timeout=0.2))
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_KILLING")
    assert executor.states("TASK_FAILED")["message"].startswith("not alive: no progress for 0 s")


def test_a_program_without_progress_and_output_has_stalled(executor: Any) -> None:
    """It fails; one that says something now and then goes on."""
    talks = "for word in a b c; do echo $word; sleep 0.1; done; sleep 3600"
    executor.launch(talks, stalled_after=2.0)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_KILLING")
    assert executor.states("TASK_FAILED")["message"].startswith("stalled: no progress and no output for 2 s")
    assert "a\nb\nc\n" == executor.output()


def test_the_last_words_of_a_program_that_has_not_joined_are_told(executor: Any) -> None:
    """Its server never answered when it was told to end: what it said last is why."""
    executor.launch("echo waiting for data; echo yes > ready; sleep 3600", readiness=f"127.0.0.1:{free_port()}")
    executor.states("TASK_STARTING", "TASK_RUNNING")
    executor.await_file("ready")
    executor.kill(grace=0.0)
    assert "waiting for data" in executor.states("TASK_KILLING", "TASK_KILLED")["message"]


def test_a_program_that_ends_is_not_called_dead(executor: Any) -> None:
    """Its checks end with it."""
    executor.launch("exit 3", liveness=quick("command", "true"))
    assert "exit code 3" == executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")["message"]


def outcome(looks: list[str], liveness: Liveness) -> tuple[Unhealthy, int]:
    """What is reported, and how many looks it took."""
    events: SimpleQueue[Ready | Unhealthy] = SimpleQueue()
    count = iter(range(1000))
    pending = iter(looks)
    done: list[int] = []

    def look() -> str:
        done.append(next(count))
        return next(pending)

    Checks(events.put).watch(liveness, look)
    event = events.get(timeout=30)
    assert isinstance(event, Unhealthy)
    return event, len(done)


def test_only_failures_in_a_row_count() -> None:
    """A good look in between starts again."""
    event, looks = outcome(["bad", "", "bad", "bad"], quick("command"))
    assert ("not alive: bad (2 times in a row)", 4) == (event.reason, looks)


def test_one_failure_that_is_enough_is_not_counted() -> None:
    """Nor is it told as a row."""
    event, _ = outcome(["bad"], replace(quick("command"), failures=1))
    assert "not alive: bad" == event.reason


def test_failures_while_the_program_starts_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock."""
    times = iter([0.0, 99.0, 100.0, 101.0])
    monkeypatch.setattr(checks.time, "monotonic", lambda: next(times))
    _, looks = outcome(["bad"] * 3, quick("command", grace=100.0))
    assert 3 == looks


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(int(self.path[1:]))
        self.send_header("Location", "/200")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "expected"), [("/200", ""), ("/302", ""), ("/404", "status 404"), ("/500", "status 500")]
)
def test_liveness_by_http(web: str, path: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 to 399 are alive; no proxy is asked."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    problem = http_problem(web + path, 5.0)
    assert (bool(expected), True) == (bool(problem), problem.endswith(expected))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "nonsense", "http://"])
def test_liveness_without_a_server(url: str) -> None:
    """Nobody listens, or it is no URL."""
    assert http_problem(url, 1.0).startswith(url)


def test_a_web_server_that_breaks_fails_the_task(executor: Any, web: str) -> None:
    """`{port}` is the task's."""
    target = web.rpartition(":")[0] + ":{port}/500"
    executor.launch("sleep 3600", liveness=quick("http", target), port=int(web.rpartition(":")[2]))
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_KILLING")
    message = executor.states("TASK_FAILED")["message"]
    assert message.startswith(f"not alive: {web}/500 answers with status 500 (2 times in a row)"), json.dumps(message)
