"""Files of tasks over TLS: master and agent show certificates of the operator's authority, or are asked nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from builders import a_spec
from mesos_client import Basic, Tls
from tf_scheduler.interfaces import FileError
from tf_scheduler.mesos.agent_files import AgentFiles
from tf_scheduler.model.ids import AgentId, FrameworkId, TaskId, TaskName
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord
from wire.certificates import Certificates

#: What `stat` says of the files in the working directory.
MODES = {"stdout": "-rw-r--r--", "pipe": "prw-r--r--", "logs": "drwxr-xr-x", "null": "crw-rw-rw-"}
CONTENT = "what the program said"
RECORD = TaskRecord(
    TaskName("worker-0"), TaskId("worker-0__1"), JobKind.WORKER, 0, AgentId("a"), "host", "10.0.0.1:1", 1, (), 0.0
)
STATE = replace(SchedulerState(a_spec()), framework_id=FrameworkId("f"))


class Mesos:
    """Master and agent in one, with a certificate for 127.0.0.1."""

    def __init__(self, certificates: Certificates) -> None:
        self.asked: list[tuple[str, str]] = []
        mesos = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                mesos.asked.append((parts.path, self.headers.get("Authorization", "")))
                body = json.dumps(mesos.answer(parts.path, parse_qs(parts.query))).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = certificates.server_context().wrap_socket(self._server.socket, server_side=True)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def answer(self, path: str, query: dict[str, list[str]]) -> object:
        if path == "/slaves":
            return {"slaves": [{"id": "a", "pid": f"slave(1)@{self.address}"}]}
        if path == "/files/browse":
            folder = query["path"][0]
            return [{"path": f"{folder}/{name}", "mode": mode} for name, mode in MODES.items()]
        offset = int(query["offset"][0])
        return {"offset": len(CONTENT), "data": ""} if offset < 0 else {"offset": offset, "data": CONTENT[offset:]}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates.make(tmp_path)


@pytest.fixture
def mesos(certificates: Certificates) -> Iterator[Mesos]:
    made = Mesos(certificates)
    yield made
    made.close()


def test_a_file_comes_over_tls(mesos, certificates):
    """From the agent too where the master has it, with our credentials for both."""
    files = AgentFiles(lambda: f"https://{mesos.address}", Basic("me", "secret"), Tls(certificates.ca))
    assert CONTENT.encode() == files.read(STATE, RECORD, "stdout", None, 1000).data
    assert {"/slaves", "/files/browse", "/files/read"} == {path for path, _ in mesos.asked}
    assert {Basic("me", "secret").header()} == {header for _, header in mesos.asked}


def test_who_is_not_to_be_trusted_gets_no_question(mesos, certificates):
    """Nor credentials; the user hears why."""
    files = AgentFiles(
        lambda: f"https://{mesos.address}", Basic("me", "secret"), Tls(certificates.path("stranger.pem"))
    )
    with pytest.raises(FileError, match=r"the Mesos master does not answer: .*certificate verify failed"):
        files.read(STATE, RECORD, "stdout", None, 1000)
    assert [] == mesos.asked


@pytest.mark.parametrize(("name", "code"), [("pipe", 400), ("logs", 400), ("null", 400), ("missing", 404)])
def test_an_agent_is_asked_for_files_only(mesos, certificates, name, code):
    """One that opens a named pipe, which any task can make, waits for ever and answers nobody any more."""
    files = AgentFiles(lambda: f"https://{mesos.address}", tls=Tls(certificates.ca))

    with pytest.raises(FileError) as refused:
        files.read(STATE, RECORD, name, None, 1000)

    assert code == refused.value.code
    assert "/files/read" not in {path for path, _ in mesos.asked}
