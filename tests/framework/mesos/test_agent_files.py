"""Task files over TLS: untrusted masters and agents get no request."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from builders import a_spec, with_fields
from kit.certificates import Certificates
from kit.http_server import HttpServer, QuietHandler
from mesos_client.credentials import BasicCredentials, Tls
from tf_scheduler.errors import FileError
from tf_scheduler.mesos import agent_files
from tf_scheduler.mesos.agent_files import AgentFiles
from tf_scheduler.model.ids import AgentId, FrameworkId, TaskId, TaskName
from tf_scheduler.model.secrets import SecretAccess
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

#: File modes in the working directory.
MODES = {"stdout": "-rw-r--r--", "pipe": "prw-r--r--", "logs": "drwxr-xr-x", "null": "crw-rw-rw-"}
CONTENT = "what the program said"
RECORD = TaskRecord(
    TaskName("worker-0"), TaskId("worker-0__1"), JobKind.WORKER, 0, AgentId("a"), "host", "10.0.0.1:1", 1, (), 0.0
)
STATE = with_fields(SchedulerState(a_spec()), framework_id=FrameworkId("f"))


class Mesos:
    """Master and agent in one, with a certificate for 127.0.0.1 (None: without TLS)."""

    def __init__(self, certificates: Certificates | None) -> None:
        self.asked: list[tuple[str, str]] = []
        #: Whether agents require a login.
        self.login = False
        #: Refused path; whether reads get no answer (`silent`), an endless one (`slow`), or an endless head (`head`).
        self.refuses = self.hangs = ""
        #: Answers to paths that replace the correct ones.
        self.wrong: dict[str, object] = {}
        self.end = threading.Event()
        mesos = self

        class Handler(QuietHandler):
            def respond(self) -> None:
                parts = urlsplit(self.path)
                mesos.asked.append((parts.path, self.headers.get("Authorization", "")))
                body = json.dumps(mesos.answer(parts.path, parse_qs(parts.query))).encode()
                if parts.path == "/files/read" and mesos.hangs == "silent":
                    mesos.end.wait()
                while parts.path == "/files/read" and mesos.hangs == "head" and not mesos.end.wait(0.01):
                    self.wfile.write(b" ")
                forbidden = mesos.login and "Authorization" not in self.headers
                self.send_response(500 if parts.path == mesos.refuses else 401 if forbidden else 200)
                self.send_header("Content-Length", str(len(body) + (1 << 20 if mesos.hangs else 0)))
                self.end_headers()
                while parts.path == "/files/read" and mesos.hangs and not mesos.end.wait(0.01):
                    self.wfile.write(b" ")
                self.wfile.write(body)

        self._server = HttpServer(Handler)
        if certificates is not None:
            self._server.encrypt(certificates.server_context())
        self.address = self._server.address

    def answer(self, path: str, query: dict[str, list[str]]) -> object:
        if path in self.wrong:
            return self.wrong[path]
        if path == self.refuses:
            return "'/var/lib/mesos/slaves/S1/frameworks' is not below it"
        if path == "/slaves":
            return {"slaves": [{"id": "a", "pid": f"slave(1)@{self.address}"}]}
        if path == "/files/browse":
            folder = query["path"][0]
            return [{"path": f"{folder}/{name}", "mode": mode} for name, mode in MODES.items()]
        offset = int(query["offset"][0])
        return {"offset": len(CONTENT), "data": ""} if offset < 0 else {"offset": offset, "data": CONTENT[offset:]}

    def close(self) -> None:
        self.end.set()
        self._server.close()


@pytest.fixture
def mesos(certificates: Certificates) -> Iterator[Mesos]:
    made = Mesos(certificates)
    yield made
    made.close()


def test_file_is_read_over_tls(mesos, certificates) -> None:
    """With credentials for master and agent."""
    files = AgentFiles(lambda: f"https://{mesos.address}", BasicCredentials("me", "secret"), Tls(certificates.ca))
    assert CONTENT.encode() == files.read(STATE, RECORD, "stdout", None, 1000).data
    assert {"/slaves", "/files/browse", "/files/read"} == {path for path, _ in mesos.asked}
    assert {BasicCredentials("me", "secret").header()} == {header for _, header in mesos.asked}


@pytest.fixture
def plain() -> Iterator[Mesos]:
    """A Mesos without TLS, which records the headers."""
    made = Mesos(None)
    yield made
    made.close()


@pytest.mark.parametrize("over_http", [False, True])
def test_agent_without_tls_gets_no_credentials(plain, over_http: bool) -> None:
    """Any listener on the network would have them; an option allows it."""
    credentials = BasicCredentials("me", "secret")
    access = SecretAccess(agent_credentials_over_http=over_http)
    files = AgentFiles(lambda: f"http://{plain.address}", credentials, access=access)

    assert CONTENT.encode() == files.read(STATE, RECORD, "stdout", None, 1000).data
    assert {"/slaves", "/files/browse", "/files/read"} == {path for path, _ in plain.asked}
    sent = {header for path, header in plain.asked if path != "/slaves"}
    assert {credentials.header() if over_http else ""} == sent


def test_login_of_agent_without_tls_names_the_option(plain) -> None:
    plain.login = True
    files = AgentFiles(lambda: f"http://{plain.address}", BasicCredentials("me", "secret"))

    with pytest.raises(FileError, match=r"requires a login, but has no TLS; .*mesos\.agent_credentials_over_http"):
        files.read(STATE, RECORD, "stdout", None, 1000)
    assert [""] == [header for path, header in plain.asked if path != "/slaves"]


def test_untrusted_agent_is_not_asked(mesos, certificates) -> None:
    """The server gets no credentials; the user gets the reason."""
    files = AgentFiles(
        lambda: f"https://{mesos.address}", BasicCredentials("me", "secret"), Tls(certificates.path("stranger.pem"))
    )
    with pytest.raises(FileError, match=r"the Mesos master does not answer: .*certificate verify failed"):
        files.read(STATE, RECORD, "stdout", None, 1000)
    assert [] == mesos.asked


@pytest.mark.parametrize(("name", "code"), [("pipe", 400), ("logs", 400), ("null", 400), ("missing", 404)])
def test_non_regular_file_is_rejected(mesos, certificates, name, code) -> None:
    """An agent that opens a named pipe, which any task can create, blocks forever."""
    files = AgentFiles(lambda: f"https://{mesos.address}", tls=Tls(certificates.ca))

    with pytest.raises(FileError) as refused:
        files.read(STATE, RECORD, name, None, 1000)

    assert code == refused.value.http_status
    assert "/files/read" not in {path for path, _ in mesos.asked}


@pytest.mark.parametrize("endpoint", ["/files/browse", "/files/read"])
def test_agent_error_text_is_dropped(mesos, certificates, endpoint) -> None:
    """The error text of an agent contains paths of its machine."""
    files = AgentFiles(lambda: f"https://{mesos.address}", tls=Tls(certificates.ca))
    mesos.refuses = endpoint

    with pytest.raises(FileError, match="returned HTTP 500") as refused:
        files.read(STATE, RECORD, "etc/passwd" if endpoint == "/files/browse" else "stdout", None, 1000)

    assert (502, False) == (refused.value.http_status, "/var/lib" in str(refused.value))


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/slaves", []),
        ("/slaves", {"slaves": [{}]}),
        ("/slaves", {"slaves": [{"id": "a", "pid": "slave(1)@127.0.0.1:port"}]}),
        ("/files/browse", {"path": 1}),
        ("/files/browse", [{"path": "x"}]),
        ("/files/read", [[]]),
        ("/files/read", {"offset": None, "data": ""}),
        ("/files/read", {"offset": 5, "data": None}),
    ],
)
def test_invalid_answer_is_an_error(mesos, certificates, path, answer) -> None:
    """Of master and agent: the API would answer 500 otherwise."""
    files = AgentFiles(lambda: f"https://{mesos.address}", tls=Tls(certificates.ca))
    mesos.wrong = {path: answer}

    with pytest.raises(FileError, match="the master or the agent of worker-0 returned an invalid answer") as refused:
        files.read(STATE, RECORD, "stdout", None, 1000)

    assert 502 == refused.value.http_status


@pytest.mark.parametrize("how", ["silent", "slow", "head"])
def test_hanging_agent_times_out(mesos, certificates, how, monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent agent, and one that sends a byte of head or body now and then."""
    monkeypatch.setattr(agent_files, "_SOCKET_TIMEOUT" if how == "silent" else "_RESPONSE_TIMEOUT", 0.2)
    files = AgentFiles(lambda: f"https://{mesos.address}", tls=Tls(certificates.ca))
    mesos.hangs = how

    with pytest.raises(FileError, match="does not answer") as refused:
        files.read(STATE, RECORD, "stdout", None, 1000)

    assert (502, True) == (refused.value.http_status, refused.value.silent)
    mesos.hangs = ""
    monkeypatch.undo()
    files.read(STATE, RECORD, "stdout", None, 1000)
    assert 2 == [path for path, _ in mesos.asked].count("/slaves")  # its address may have changed
