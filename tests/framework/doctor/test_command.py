"""The command `doctor` without a cluster: this machine, files, and bad servers."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from kit.commands import ENVIRONMENT, run_command, run_program
from kit.http_server import HttpServer, QuietHandler, dripping_server
from kit.invocation import invoke_main
from kit.namespaces import mount_namespace
from mesos_local.agents import AgentSpec
from mesos_local.host import spawn
from mesos_local.record import ClusterRecord, ClusterSettings, NodeRecord
from tf_scheduler.cli.main import main
from tf_scheduler.doctor.files import gather_artefacts, gather_laptop
from tf_scheduler.doctor.gather import runs_as_root
from tf_scheduler.options.load import resolve

Lines = dict[str, dict[str, str]]


@pytest.fixture
def doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, Lines]]:
    """Run `doctor --json` in this process, without the services of this machine."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DCOS_DIR", str(tmp_path / "dcos"))

    def examine(*arguments: object) -> tuple[int, Lines]:
        done = invoke_main(main, capsys, "doctor", "--json", *arguments)
        return done.code, {line["check"]: line for line in json.loads(done.out)["checks"]}

    return examine


def an_options_file(folder: Path, **service: str) -> Path:
    file = folder / "options.json"
    state = {"state": (folder / "state.db").as_uri()}
    document = {"service": {"name": "mnist", "command": "true", **service}, "scheduler": state}
    file.write_text(json.dumps(document))
    return file


def test_this_machine_is_checked_without_arguments(doctor) -> None:
    """Servers are not checked, and the reason says what to pass."""
    code, lines = doctor()

    assert 0 == code
    assert ("green", "green") == (lines["python"]["status"], lines["libraries"]["status"])
    assert "not checked" == lines["executor_login"]["status"]
    assert "--master or --options" in lines["executor_login"]["message"]
    assert "--options" in lines["tls"]["message"]


def test_machine_without_cluster_has_one_line_for_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """The last one; the lines of this machine come first."""
    done = invoke_main(main, capsys, "doctor")

    *_, disk, python, libraries, training, gpus, unchecked, summary = done.lines

    assert [True] * 3 == ["disk space" in disk, "Python" in python, "libraries" in libraries]
    assert "this Python: TensorFlow 2." in training
    assert "GPUs" in gpus
    assert "12 checks: " in unchecked
    assert "--master" in unchecked
    assert "12 not checked" in summary


def test_security_omits_the_other_checks(doctor) -> None:
    _, lines = doctor("--security")

    assert ["executor_login", "shared_user", "isolation", "zookeeper_acl", "open_api", "tls"] == list(lines)


@pytest.mark.parametrize("arguments", [("--master", "127.0.0.1:1"), ("--url", "http://127.0.0.1:1")])
def test_servers_that_do_not_answer_exit_with_3(doctor, arguments: tuple[str, str]) -> None:
    """Nothing that was asked for could be reached."""
    assert 3 == doctor(*arguments)[0]


@pytest.mark.parametrize(
    ("status", "body", "headers", "words"),
    [
        (401, b'{"error": {"code": "unauthorized", "message": "x"}}', {}, "rejected the token"),
        (200, b"<html>", {}, "does not answer as a scheduler"),
        (200, b"[]", {}, "does not answer as a scheduler"),
        (302, b"", {"Location": "http://127.0.0.1:1/"}, "redirects to"),
    ],
)
@pytest.mark.parametrize("is_master_reached", [False, True])
def test_answer_of_another_server_is_none(doctor, status: int, body: bytes, headers, words, is_master_reached) -> None:
    """Nothing of the service could be checked, whatever the master answers."""

    class Handler(QuietHandler):
        def respond(self) -> None:
            self.answer(status, body, **headers)

    with HttpServer(Handler) as server, FakeCluster().server as master:
        others = ("--master", master.address) if is_master_reached else ()
        code, lines = doctor("--url", server.url, "--token", "wrong", *others)

    assert 3 == code
    assert words in lines["refused_calls"]["message"]


@pytest.mark.parametrize(
    "address",
    ["", " ", ":::", "a:b", "10.0.0.1:5050\n", "10.0.\n0.1:5050", "a b:5050", "h\u00f6st", "ftp://x", "zk://"],
)
def test_invalid_master_is_wrong_usage(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = invoke_main(main, capsys, "doctor", "--master", address)

    assert 2 == done.code
    assert "invalid address; expected host:port, several with commas, or zk://" in done.err


def test_password_of_invalid_master_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    done = invoke_main(main, capsys, "doctor", "--master", "http://user:password@host:5050")

    assert "`host:5050`" in done.err
    assert "password" not in done.err


def test_red_line_wins_over_missing_answer(doctor, tmp_path: Path) -> None:
    options = an_options_file(tmp_path, python="/no/such/python")

    code, lines = doctor("--options", options, "--master", "127.0.0.1:1")

    assert (1, "red") == (code, lines["python"]["status"])
    assert "/no/such/python" in lines["python"]["message"]


def test_agents_have_their_own_interpreters(doctor, tmp_path: Path) -> None:
    """An interpreter of a remote agent need not exist on this machine."""
    options = an_options_file(tmp_path, python="/no/such/python")

    assert "green" == doctor("--options", options)[1]["python"]["status"]


def test_invalid_options_are_reported_as_usual(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "options.json").write_text('{"service": {"comand": "x"}}')

    done = invoke_main(main, capsys, "doctor", "--options", tmp_path / "options.json")

    assert 1 == done.code
    assert "service.comand: unknown option" in done.err


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b"", "requires a login"),
        (500, b"oops", "HTTP 500"),
        (307, b"", "HTTP 307"),
        (200, b"<html>", "did not return JSON"),
        (200, b"[]", "returned an invalid answer"),
        (200, b'{"frameworks": [{}], "slaves": 5}', "returned an invalid answer"),
        (200, b'{"frameworks": [], "slaves": [{"id": 1}]}', "returned an invalid answer"),
        (200, b"[" * 100_000, "did not return JSON"),
        (200, b'{"frameworks": 5, "slaves": []}', "returned an invalid answer"),
    ],
)
def test_invalid_answers_are_findings(doctor, status: int, body: bytes, words: str) -> None:
    """No traceback: the lines of the server say what is wrong with its answer."""

    class Handler(QuietHandler):
        def respond(self) -> None:
            self.answer(status, body)

    with HttpServer(Handler) as server:
        code, lines = doctor("--master", server.address)

    assert words in lines["executor_login"]["message"]
    assert 3 == code


@pytest.mark.timeout(60)
@pytest.mark.parametrize("option", ["--master", "--url"])
@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\n\r\n[", b"HTTP/1.1 200 OK\r\nx: "])
def test_answer_that_drips_is_cut_off(doctor, option: str, start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte restarts the timeout of the socket."""
    monkeypatch.setattr("tf_scheduler.doctor.requests._ANSWER_TIMEOUT", 1.0)
    monkeypatch.setattr("tf_scheduler.cli.commands.doctor.TIMEOUT", 0.5)
    with dripping_server(start, b" ") as url:
        code, lines = doctor(option, url)

    assert 3 == code
    line = lines["executor_login" if option == "--master" else "refused_calls"]
    assert "response not complete within 1 s" in line["message"]


def test_failures_of_servers_are_only_in_findings(tmp_path: Path) -> None:
    """Libraries log nothing to standard error."""
    file = tmp_path / "options.json"
    file.write_text(json.dumps({"service": {"command": "true"}, "scheduler": {"state": "zk://127.0.0.1:1"}}))
    environment = ENVIRONMENT | {"XDG_STATE_HOME": str(tmp_path / "state"), "DCOS_DIR": str(tmp_path / "dcos")}

    done = run_command("doctor", "--options", file, "--master", "zk://127.0.0.1:1/mesos", "--json", env=environment)

    lines = {line["check"]: line for line in json.loads(done.stdout)["checks"]}
    assert (3, "") == (done.returncode, done.stderr)
    assert lines["zookeeper_acl"]["message"].startswith("ZooKeeper at zk://127.0.0.1:1 does not answer")
    assert "does not name a master" in lines["same_name"]["message"]


def test_text_output_has_remedies(doctor, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each check, and a summary."""
    options = an_options_file(tmp_path, python="/no/such/python")

    with pytest.raises(SystemExit):
        main(["doctor", "--options", str(options), "--master", "127.0.0.1:1"])

    *_, python, libraries, _training, _gpus, summary = capsys.readouterr().out.splitlines()
    assert python.startswith("red ")
    assert "runtime create" in python
    assert libraries.startswith(("green", "yellow"))
    assert summary.startswith("1 red, ")


@pytest.mark.parametrize("place", ["localhost:5051", "[::1]:5051", "10.0.0.1:5051", "127.0.0.1:1"])
def test_user_of_other_agents_is_unknown(place: str) -> None:
    """Only a listener at an IPv4 loopback address is found."""
    assert runs_as_root(f"http://{place}") is None


def test_user_of_local_agent_is_known() -> None:
    with HttpServer(QuietHandler) as server:
        assert (os.geteuid() == 0) == runs_as_root(server.url)


# --- Files of the options

DATA = b"a data set\n" * 1000


class FileHandler(QuietHandler):
    """Serves one file."""

    def respond(self) -> None:
        self.answer(*((200, DATA) if self.path == "/data.bin" else (404, b"")))


def artefacts(**service: str) -> dict[str, tuple[str, bool]]:
    options: dict[str, Any] = resolve({"service": {"command": "true", **service}})
    facts = gather_artefacts(options, is_local=False)
    return {item.url: (item.problem, item.is_checked) for item in facts}


def test_each_file_is_requested() -> None:
    with HttpServer(FileHandler) as server:
        good, missing = f"{server.url}/data.bin", f"{server.url}/missing.zip"
        found = artefacts(job_url="s3://bucket/job.zip", data=f"{good},{missing}")

    assert {"s3://bucket/job.zip": ("", False), good: ("", True), missing: ("HTTP 404", True)} == found
    gone = artefacts(data=good)
    assert "Connection refused" in gone[good][0]


def test_digest_of_file_is_compared() -> None:
    """Every byte counts."""
    options: dict[str, Any] = resolve({"service": {"command": "true"}})
    with HttpServer(FileHandler) as server:
        for content, problem in ((DATA, ""), (DATA[:-1], "has the digest")):
            digest = hashlib.sha256(content).hexdigest()
            service = {**options["service"], "job_url": f"{server.url}/data.bin", "job_sha256": digest}
            (found,) = gather_artefacts({**options, "service": service}, is_local=False)
            assert found.problem.startswith(problem) if problem else "" == found.problem


def test_local_file_counts_on_a_local_cluster(tmp_path: Path) -> None:
    (tmp_path / "job.py").touch()
    options: dict[str, Any] = resolve({"service": {"command": "true", "job_url": f"file://{tmp_path}/job.py"}})

    assert [("", True)] == [(item.problem, item.is_checked) for item in gather_artefacts(options, is_local=True)]
    (tmp_path / "job.py").unlink()
    (missing,) = gather_artefacts(options, is_local=True)
    assert "No such file" in missing.problem


# --- This machine


def statuses(command: list[str], **variables: str) -> Lines:
    done = run_program(*command, env=ENVIRONMENT | variables)
    assert done.stdout, done.stderr
    return {line["check"]: line for line in json.loads(done.stdout)["checks"]}


def test_full_disk_is_red(tmp_path: Path) -> None:
    """Of temporary files, on a tmpfs of 16 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = 'mount -t tmpfs -o size=16m tmpfs "$TMPDIR" && exec "$@"'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "tf_scheduler", "doctor", "--json"]

    lines = statuses([*mount_namespace(disk), *command], TMPDIR=str(disk), XDG_STATE_HOME=str(tmp_path / "state"))

    assert "red" == lines["disk"]["status"]
    assert str(disk) in lines["disk"]["message"]
    assert "TMPDIR" in lines["disk"]["remedy"]


def test_missing_library_is_red(tmp_path: Path) -> None:
    """In an environment like this one, but without pypi-simple."""
    for entry in Path(str(metadata.distribution("pypi-simple").locate_file(""))).iterdir():
        if not entry.name.startswith("pypi_simple"):
            (tmp_path / entry.name).symlink_to(entry)
    paths = [path for path in sys.path if path and "site-packages" not in path]
    script = "import sys; from tf_scheduler.cli.start import main; sys.argv[0] = 'dcos-tensorflow'; main()"
    command = [sys.executable, "-S", "-c", script, "doctor", "--json"]

    lines = statuses(command, PYTHONPATH=os.pathsep.join([*paths, str(tmp_path)]), XDG_STATE_HOME=str(tmp_path / "s"))

    assert "red" == lines["libraries"]["status"], lines["libraries"]
    assert "pypi-simple" in lines["libraries"]["message"]


def test_missing_folder_has_the_space_of_its_parent(tmp_path: Path) -> None:
    """A folder that a later run creates."""
    facts = gather_laptop(None, [tmp_path / "not" / "yet"], "another machine", {})

    assert (facts.memory or 0) > 1 << 20
    assert facts.free[str(tmp_path / "not" / "yet")] > 0
    assert "another machine" == facts.no_local_mesos


# --- Ways to the master


class FakeCluster:
    """Admin Router, a master and an agent in one server, which records the requests."""

    def __init__(self, redirect: str = "") -> None:
        self.requests: list[tuple[str, str]] = []
        cluster = self

        class Handler(QuietHandler):
            def respond(self) -> None:
                cluster.requests.append((self.path, self.headers.get("Authorization", "")))
                if redirect:
                    self.answer(307, b"", Location=redirect)
                else:
                    self.answer(*cluster.answer(self.path))

        self.server = HttpServer(Handler)

    def answer(self, path: str) -> tuple[int, bytes]:
        framework = {"id": "id-1", "name": "mnist", "user": "x", "webui_url": self.server.url, "tasks": []}
        agent = {"id": "S0", "hostname": "agent-1", "pid": f"slave(1)@{self.server.address}"}
        flags = {"flags": {"authenticate_http_executors": "true"}}
        answers = {
            "/state": {"frameworks": [framework], "slaves": [agent]},
            "/flags": flags,
            "/agent/S0/flags": flags,
            "/service/mnist/v1/state/frameworkId": ["id-1"],
            "/service/mnist/v1/events?limit=1000": {"events": [], "first": 0, "last": 0, "next": 0, "journal": ""},
            "/service/mnist/v1/debug/mesos": {
                "connected": True,
                "refused_calls": None,
                "clock_drift": 0.0,
                "may_still_run": [],
                "failing_agents": [],
            },
        }
        answer = answers.get(path.removeprefix("/mesos"))
        return (401, b"") if answer is None else (200, json.dumps(answer).encode())


def test_dcos_is_asked_through_admin_router(doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the user's login; the API itself is asked without it."""
    monkeypatch.setenv("DCOS_ACS_TOKEN", "login")
    options = an_options_file(tmp_path)
    with (cluster := FakeCluster()).server as server:
        _, lines = doctor("--options", options, "--url", f"{server.url}/service/mnist", "--token", "login")

    for name in ("executor_login", "open_api", "same_name", "refused_calls", "leftovers", "failing_agents"):
        assert "green" == lines[name]["status"], lines[name]
    tokens = dict(cluster.requests)
    assert {"token=login"} == {tokens["/mesos/state"], tokens["/agent/S0/flags"]}
    (write,) = (path for path in tokens if path.startswith("/v1/plans/doctor-"))
    assert "" == tokens[write]


def test_local_cluster_is_found(doctor, tmp_path: Path) -> None:
    """Without arguments, while its master runs."""
    folder = tmp_path / "state" / "dcos-tensorflow" / "local"
    folder.mkdir(parents=True)
    process = spawn([sys.executable, "-c", "import signal; signal.pause()"], {}, tmp_path / "log")
    try:
        with FakeCluster().server as server:
            settings = ClusterSettings("/lib.so", (AgentSpec("a", "cpus:1"),), {}, {}, zookeeper=False, temporary=False)
            nodes = {"master": NodeRecord(server.address, process), "a": NodeRecord("127.0.0.1:1", None)}
            ClusterRecord(settings, nodes, process, "id").write(folder)

            assert "green" == doctor()[1]["executor_login"]["status"]
            process.end(0)
            assert "the master is unknown" in doctor()[1]["executor_login"]["message"]
    finally:
        process.end(0)


def test_leading_master_is_found(doctor) -> None:
    """Of several masters one is away, and one redirects to the leader."""
    with (leader := FakeCluster()).server, FakeCluster(f"//{leader.server.address}/state").server as follower:
        _, lines = doctor("--master", f"127.0.0.1:1,{follower.address}")

    assert "green" == lines["executor_login"]["status"], lines["executor_login"]


def test_inactive_agents_are_not_green(doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disconnected agent is asked, and named if it does not answer."""
    answer = FakeCluster.answer

    def with_inactive_agent(self: FakeCluster, path: str) -> tuple[int, bytes]:
        status, body = answer(self, path)
        if path != "/state":
            return status, body
        state = json.loads(body)
        gone = {"id": "S1", "hostname": "agent-2", "pid": "slave(1)@127.0.0.1:1", "active": False}
        return status, json.dumps({**state, "slaves": [*state["slaves"], gone]}).encode()

    monkeypatch.setattr(FakeCluster, "answer", with_inactive_agent)
    with FakeCluster().server as server:
        _, lines = doctor("--master", server.address)

    assert "yellow" == lines["executor_login"]["status"]
    assert "no flags from agent-2: http://127.0.0.1:1 does not answer" in lines["executor_login"]["message"]


@pytest.mark.parametrize(
    ("pid", "flags", "words"),
    [
        ("x@h\u0151st:1", {}, "invalid address"),
        ("x@a b:1", {}, "invalid address"),
        ("", 5, "agent agent-1 did not return the flags"),
        ("", {"isolation": 5}, ""),
    ],
)
def test_strange_agents_are_findings(
    doctor, pid: str, flags: object, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finding names the server, not an error of Python."""

    def answer(self: FakeCluster, path: str) -> tuple[int, bytes]:
        agent = {"id": "S0", "hostname": "agent-1", "pid": pid or f"slave(1)@{self.server.address}"}
        state = {"frameworks": [], "slaves": [agent]}
        return 200, json.dumps(state if path == "/state" else {"flags": flags}).encode()

    monkeypatch.setattr(FakeCluster, "answer", answer)
    with FakeCluster().server as server:
        code, lines = doctor("--master", server.address)

    assert 0 == code
    message = lines["executor_login"]["message"]
    assert words in message
    assert not re.search("Error|ordinal|object", message)


def test_login_is_not_sent_to_other_hosts(doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Admin Router never redirects to another host."""
    monkeypatch.setenv("DCOS_ACS_TOKEN", "login")
    with (other := FakeCluster()).server, FakeCluster(f"{other.server.url}/state").server as router:
        _, lines = doctor("--url", f"{router.url}/service/mnist", "--token", "login")

    assert [] == other.requests
    assert "HTTP 307" in lines["executor_login"]["message"]
