"""Readiness and liveness, with real servers, sockets and commands."""

from __future__ import annotations

import base64
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pytest

from kit.http_server import HttpServer, QuietHandler
from kit.payloads import GRPC_SERVER
from kit.waiting import wait_until
from mesos_local.host import free_ports
from tf_executor.contract.reports import TaskEnd
from tf_executor.contract.settings import Liveness
from tf_executor.lifecycle.events import Ready, Unhealthy
from tf_executor.process import health
from tf_executor.process.health import HealthChecks, http_problem

SETTINGS = bytes([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100])
CHANGED = "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve `answer` on each connection; yield the address."""
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


def test_http2_server_is_ready() -> None:
    """A gRPC server is an HTTP/2 server."""
    received: list[bytes] = []

    def greet(connection: socket.socket) -> None:
        received.append(connection.recv(100))
        for byte in SETTINGS:
            connection.sendall(bytes([byte]))
        received.append(connection.makefile("rb").read())

    with server(greet) as address:
        assert health.grpc_server_answers(address, 5.0)
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
def test_other_server_is_not_ready(answer: bytes) -> None:
    def speak(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(answer)

    with server(speak) as address:
        assert not health.grpc_server_answers(address, 5.0)


def test_silent_server_is_not_ready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert not health.grpc_server_answers(f"127.0.0.1:{listener.getsockname()[1]}", 0.05)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1", "no.such.host.invalid:1", "127.0.0.1:http"])
def test_missing_server_is_not_ready(address: str) -> None:
    assert not health.grpc_server_answers(address, 1.0)


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def test_readiness_is_reported_once(executor: Any) -> None:
    port = free_port()
    (executor.sandbox / "server.py").write_text(GRPC_SERVER)
    os.mkfifo(executor.sandbox / "go")
    executor.launch(f"cat go; exec python server.py {port}", readiness=f"127.0.0.1:{port}")
    running = executor.states("TASK_STARTING", "TASK_RUNNING")
    assert "healthy" not in running
    (executor.sandbox / "go").write_text("go\n")
    status = executor.states("TASK_RUNNING")
    assert (True, CHANGED) == (status["healthy"], status["reason"])
    assert status["message"].startswith(f"TensorFlow server ready at 127.0.0.1:{port} after ")
    executor.kill(grace=0.0)
    executor.states("TASK_KILLING", "TASK_KILLED")


def test_server_of_other_process_is_not_ready(executor: Any) -> None:
    """Another process may have taken the port first."""
    port = free_port()
    (executor.sandbox / "server.py").write_text(GRPC_SERVER)
    with subprocess.Popen([sys.executable, str(executor.sandbox / "server.py"), str(port)]) as other:
        try:
            executor.launch_running("sleep 3600", readiness=f"127.0.0.1:{port}")
            log = executor.output("stderr")
            while f"another process listens on port {port}" not in log:
                log = executor.output("stderr")
            executor.kill(grace=0.0)
            executor.states("TASK_KILLING", "TASK_KILLED")
        finally:
            other.kill()


@pytest.mark.usefixtures("real_tensorflow")
def test_real_tensorflow_server_is_ready(executor: Any) -> None:
    port = free_port()
    cluster = {"cluster": {"worker": [f"127.0.0.1:{port}"]}, "task": {"type": "worker", "index": 0}}
    program = "from tf_executor.user.job import run; import os; run(dict(os.environ))"
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


def test_failed_liveness_command_fails_task(executor: Any) -> None:
    command = 'test "$TASK_NAME" = worker-0 && echo look >> looks && test ! -e dead'
    program = "trap 'echo saved; exit 143' TERM; echo ready > ready; touch dead; sleep 3600 & wait"
    executor.launch_ready(program, liveness=quick("command", command), kill_grace=60.0)
    killing, status = executor.update(), executor.states("TASK_FAILED")
    assert ("TASK_KILLING", False, False) == (killing["state"], killing["healthy"], status["healthy"])
    said = "not alive: the liveness command failed: exit code 1 (2 consecutive failures); exit code 143"
    assert status["message"].startswith(said), status
    assert "saved\n" == executor.output()
    assert [] == executor.processes()


def test_hanging_liveness_command_is_a_failure(executor: Any) -> None:
    """It is killed and does not delay the task."""
    executor.launch("sleep 3600", liveness=quick("command", "sleep 3600", timeout=0.05))
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_KILLING")
    message = executor.states("TASK_FAILED")["message"]
    assert message.startswith("not alive: the liveness command took longer than 0.05 s (2 consecutive failures)")
    assert [] == executor.processes()


def test_missing_progress_fails_liveness(executor: Any) -> None:
    program = "echo '{\"step\": 1}' > $TF_EXECUTOR_PROGRESS; sleep 3600"
    executor.launch(program, liveness=quick("progress", timeout=0.2))
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_KILLING")
    assert executor.states("TASK_FAILED")["message"].startswith("not alive: no progress for 0 s")


def test_silent_program_is_stalled(executor: Any) -> None:
    talks = "for word in a b c; do echo $word; sleep 0.1; done; sleep 3600"
    executor.launch(talks, stalled_after=2.0, stall_grace=0.0)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_KILLING")
    assert executor.states("TASK_FAILED")["message"].startswith("stalled: no progress and no output for 2 s")
    assert "a\nb\nc\n" == executor.output()


def test_slow_import_is_not_stalled_in_grace_period(executor: Any) -> None:
    """TensorFlow prints messages while it is imported, and then nothing for a minute."""
    executor.launch("echo oneDNN; sleep 2; echo trains", stalled_after=0.2, stall_grace=60.0)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")


def test_silence_counts_from_first_progress(executor: Any) -> None:
    """Then the import is over, so the grace period is, too."""
    program = "echo '{\"step\": 1}' > $TF_EXECUTOR_PROGRESS; sleep 3600"
    executor.launch(program, stalled_after=1.0, stall_grace=3600.0)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_KILLING")
    assert executor.states("TASK_FAILED")["message"].startswith("stalled: no progress and no output for 1 s")


def test_unready_program_reports_last_output(executor: Any) -> None:
    executor.launch_ready("echo waiting for data; echo yes > ready; sleep 3600", readiness=f"127.0.0.1:{free_port()}")
    executor.kill(grace=0.0)
    assert "waiting for data" in executor.states("TASK_KILLING", "TASK_KILLED")["message"]


def test_exited_program_is_not_unhealthy(executor: Any) -> None:
    executor.launch("exit 3", liveness=quick("command", "true"))
    assert "exit code 3" == executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")["message"]


def outcome(looks: list[str], liveness: Liveness) -> tuple[Unhealthy, int]:
    """Return the reported event and the number of probes."""
    events: SimpleQueue[Ready | Unhealthy] = SimpleQueue()
    count = iter(range(1000))
    pending = iter(looks)
    done: list[int] = []

    def look() -> str:
        done.append(next(count))
        return next(pending)

    HealthChecks(events.put).watch(liveness, look)
    event = events.get(timeout=30)
    assert isinstance(event, Unhealthy)
    return event, len(done)


def test_only_consecutive_failures_count() -> None:
    event, looks = outcome(["bad", "", "bad", "bad"], quick("command"))
    assert ("not alive: bad (2 consecutive failures)", 4) == (event.reason, looks)


def test_single_sufficient_failure_is_not_counted() -> None:
    event, _ = outcome(["bad"], replace(quick("command"), failures=1))
    assert "not alive: bad" == event.reason


def test_failures_in_grace_period_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs may start slowly."""
    times = iter([0.0, 99.0, 100.0, 101.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    _, looks = outcome(["bad"] * 3, quick("command", grace=100.0))
    assert 3 == looks


class Handler(QuietHandler):
    def respond(self) -> None:
        self.answer(int(self.path[1:]), b"", Location="/200")


@pytest.fixture
def web() -> Iterator[str]:
    with HttpServer(Handler) as server:
        yield server.url


@pytest.mark.parametrize(
    ("path", "expected"), [("/200", ""), ("/302", ""), ("/404", "status 404"), ("/500", "status 500")]
)
def test_http_liveness_checks_status(web: str, path: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    problem = http_problem(web + path, 5.0)
    assert (bool(expected), True) == (bool(problem), problem.endswith(expected))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "nonsense", "http://"])
def test_http_liveness_without_server_fails(url: str) -> None:
    assert http_problem(url, 1.0).startswith(url)


def test_broken_web_server_fails_task(executor: Any, web: str) -> None:
    executor.launch("sleep 3600", liveness=quick("http", web + "/{task_index}"), task="worker-500")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_KILLING")
    message = executor.states("TASK_FAILED")["message"]
    assert message.startswith(f"not alive: {web}/500 returned status 500 (2 consecutive failures)"), json.dumps(message)


#: Maps a file like a library that is imported, and trains for a while; `link` is a statement that may find peers.
TRAINS = """
import mmap, os, signal, socket, tf_executor, time
os.mkdir("{library}")
with open("{library}/lib.so", "wb+") as file:
    file.truncate(4096)
    mapped = mmap.mmap(file.fileno(), 0)
own = socket.create_server(("127.0.0.1", {port}))
{link}
time.sleep(4.0)
{end}
"""
SELF = "link = socket.create_connection(own.getsockname()); other = own.accept()"
DIALS = "link = socket.create_connection(('127.0.0.1', {peer}))"
SERVES = "link = own.accept()"
REPORTS = "tf_executor.report(step=1)"
MIRRORED, DDP = "multi_worker_mirrored", "pytorch_ddp"


@pytest.mark.parametrize(
    ("library", "link", "strategy", "rank", "end", "expected"),
    [
        ("torch", "", DDP, "0", "", True),
        ("torch", SELF, DDP, "0", "", True),
        ("torch", DIALS, DDP, "1", "", False),
        ("torch", SERVES, DDP, "0", "", False),
        ("tensorflow", "", MIRRORED, "1", "", True),
        ("tensorflow", SELF, MIRRORED, "0", "", True),
        ("tensorflow", "", "parameter_server", "", "", True),
        ("tensorflow", DIALS, "parameter_server", "", "", False),
        ("tensorflow", REPORTS, MIRRORED, "0", "os.kill(os.getpid(), signal.SIGTERM)", True),
        ("tensorflow", REPORTS, MIRRORED, "0", "raise SystemExit(1)", True),
        ("tensorflow", "", MIRRORED, "0", "raise SystemExit(1)", False),
        ("lib", "", DDP, "0", "", False),
        ("slow", "", DDP, "0", "", True),
        ("tensorflow", "", "independent", "0", "", False),
        ("horovod", "", "horovod", "0", "", False),
    ],
)
def test_task_that_never_meets_a_peer_is_alone(
    start_executor: Any, library: str, link: str, strategy: str, rank: str, end: str, expected: bool
) -> None:
    """However it ends; but without training, it may have waited for its peers."""
    times = ["process.health.MEETING_SEARCHES=3", *(["process.health.LIBRARY_AFTER=1.0"] if library == "slow" else [])]
    executor, (port, peer) = start_executor("one", *times), free_ports(2)
    with socket.create_server(("127.0.0.1", peer)):
        program = TRAINS.format(library=library, port=port, link=link.format(peer=peer), end=end)
        hosts = [f"127.0.0.1:{each}" for each in (port, peer)]
        executor.launch(
            f"exec python -c {shlex.quote(program)}",
            strategy=strategy,
            port=port,
            tf_config={"cluster": {"worker": hosts}, "task": {"type": "worker", "index": 0}},
            task="worker-0" if rank else "chief-0",
            environment={"SHARD_INDEX": rank, "NUM_SHARDS": "2"} if rank else {},
        )
        client = (
            wait_until(lambda: socket.create_connection(("127.0.0.1", port)), ignore=OSError)
            if link == SERVES
            else None
        )
        status = executor.end("TASK_STARTING", "TASK_RUNNING")
        assert expected is TaskEnd.decode(base64.b64decode(status["data"])).alone
        if client is not None:
            client.close()
