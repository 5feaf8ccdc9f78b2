"""Access settings of the API, from options and environment, and past runs."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from builders import a_spec
from kit.waiting import wait_until
from runs import a_point, a_run
from tf_executor.contract.states import Verdict
from tf_scheduler.api.http.auth import Policy
from tf_scheduler.errors import JobError, OptionsError
from tf_scheduler.history.database import RunDatabase, SharedRuns
from tf_scheduler.history.model import Run
from tf_scheduler.model.effects import Decision, ResultDecided
from tf_scheduler.model.events import Tick
from tf_scheduler.model.state import Result, SchedulerState
from tf_scheduler.options.load import resolve
from tf_scheduler.service import api
from tf_scheduler.service.api import MAX_LISTED, RunArchive, api_settings, uninstall_api_settings


def options(folder, api, master="10.0.0.1:5050"):
    sections = {"service": {"command": "x"}, "mesos": {"master": master}}
    return resolve({**sections, "api": api, "secret_delivery": {"directory": str(folder)}})


def settings(environment, folder="/nowhere", master="10.0.0.1:5050", **api):
    return api_settings(options(folder, api, master), environment)


@pytest.mark.parametrize("environment", [{"HOST": "127.0.0.1"}, {"HOST": "localhost"}])
def test_api_is_open_on_loopback(environment) -> None:
    policy = settings(environment).policy

    assert (False, None) == (policy.is_restricted, policy.find_writers)


MARATHON = {"HOST": "10.0.0.5", "MARATHON_APP_ID": "/tensorflow"}


def test_behind_marathon_only_masters_write_by_default() -> None:
    """Admin Router on the masters has authenticated the clients."""
    policy = settings(MARATHON, master="10.0.0.1:5050,10.0.0.2:5050").policy

    assert not policy.is_restricted
    assert policy.find_writers is not None
    assert {"10.0.0.1", "10.0.0.2"} == policy.find_writers()
    assert settings(MARATHON, authentication="none").policy.find_writers is None


@pytest.mark.parametrize("environment", [{}, {"HOST": "10.0.0.5"}, {"HOST": "agent-1"}])
def test_api_on_network_needs_explicit_access(environment) -> None:
    """The error names the missing option."""
    with pytest.raises(OptionsError, match=r"api.write_token.*required.*api.authentication: none"):
        settings(environment)
    assert not settings(environment, authentication="none").policy.is_restricted


def test_tokens_from_environment_and_files(tmp_path: Path) -> None:
    """Without the line break at the end of a file."""
    (tmp_path / "token").write_text("w\n")

    policy = settings({"READING": "r"}, tmp_path, read_token="env:READING", write_token="file:token").policy

    assert ("r", "w", False) == (policy.read_token, policy.write_token, policy.loopback_only)


def test_users_have_tokens_of_their_own(tmp_path: Path) -> None:
    """An equal token would make one user the other, or an operator."""
    (tmp_path / "bob").write_text("b\n")
    environment = {"ANN": "a", "ALIKE": "b", "W": "w"}
    users = [{"name": "ann", "token": "env:ANN"}, {"name": "bob", "token": "file:bob"}]

    assert {"ann": "a", "bob": "b"} == settings(environment, tmp_path, users=users).policy.users
    for alike, write in (("env:ALIKE", ""), ("env:W", "env:W"), ("env:NONE", "env:W")):
        with pytest.raises(OptionsError, match=r"api\.users\.2\.token: (must differ|env:NONE: missing)"):
            settings(environment, tmp_path, write_token=write, users=[*users, {"name": "cem", "token": alike}])


@pytest.mark.parametrize(
    ("source", "message"),
    [("env:NONE", "missing variable"), ("file:none", "No such file"), ("env:EMPTY", "empty token")],
)
def test_missing_token_is_an_error(tmp_path: Path, source, message) -> None:
    """An empty token would refuse or admit all clients."""
    with pytest.raises(OptionsError, match=f"api.write_token.*{message}"):
        settings({"EMPTY": " \n"}, tmp_path, write_token=source)


def test_certificates_enable_https() -> None:
    access = settings({}, certificate_file="a.pem", key_file="a.key", client_ca_file="ca.pem", writers="alice, bob")

    assert ("a.pem", "a.key", "ca.pem") == (access.tls.certificate, access.tls.key, access.tls.client_ca)
    assert (True, {"alice", "bob"}) == (access.policy.client_certificates, access.policy.writers)


def last(environment, folder="/nowhere", *, closed=False, **api):
    return uninstall_api_settings(options(folder, api), environment, closed=closed)


def test_uninstall_with_missing_token_is_closed(tmp_path: Path) -> None:
    """Also where Marathon runs it. The uninstall itself continues."""
    behind = {"HOST": "10.0.0.5", "MARATHON_APP_ID": "/x", "R": "r"}
    settings, problems = last(behind, tmp_path, read_token="env:R", write_token="file:none")
    assert (["api.write_token"], "r") == ([problem.path for problem in problems], settings.policy.read_token)
    assert not settings.policy.authenticate({"authorization": "Bearer "}, None).can_read
    assert 43 == len(settings.policy.write_token)

    gone = {name: str(tmp_path / name) for name in ("certificate_file", "key_file", "client_ca_file")}
    settings, problems = last(behind, tmp_path, **gone)
    assert (["api.certificate_file"], None) == ([problem.path for problem in problems], settings.tls)
    assert (True, False) == (settings.policy.is_restricted, settings.policy.client_certificates)

    settings, problems = last(behind, tmp_path, users=[{"name": "ann", "token": "env:NONE"}])
    assert (["api.users.0.token"], True) == ([problem.path for problem in problems], settings.policy.is_restricted)
    assert {} == last(behind, tmp_path, users=[{"name": "ann", "token": "env:R"}], closed=True)[0].policy.users

    assert last(behind, closed=True)[0].policy.is_restricted
    assert last({"HOST": "10.0.0.5"})[0].policy.is_restricted
    assert (Policy(), []) == (last(behind)[0].policy, last(behind)[1])


# --- past runs

OWN = "mnist-20270116-080000-00000a"
RESULT = Result(Verdict.FAILED, "worker-0 failed", 2000.0)


class Ending:
    """A service whose run ends when the test says so."""

    def __init__(self, store: Path, history: Path | None = None) -> None:
        self.result: Result | None = None
        self.notes: list[str] = []
        self.run = a_run(id=OWN, state="running", reason="")
        self.archive = RunArchive(
            "mnist", lambda: self.run, lambda: self.result, self.notes.append, str(store), history
        )

    def end(self) -> None:
        self.result = RESULT
        state = SchedulerState(a_spec())
        state = replace(state, stored=replace(state.stored, result=RESULT))
        self.archive(Tick(), Decision(state, (ResultDecided(RESULT),)))


def test_record_is_written_when_the_run_ends(tmp_path: Path) -> None:
    """With the result of the state, which a recording in a new sandbox lacks."""
    service = Ending(tmp_path)
    with service.archive:
        service.end()
        wait_until(lambda: SharedRuns(tmp_path).find(OWN) is not None, "no record")

    record = SharedRuns(tmp_path).find(OWN)
    assert record is not None
    assert ("failed", "worker-0 failed") == (record.state, record.reason)
    assert [] == service.notes


def test_next_scheduler_writes_the_record_of_a_killed_one(tmp_path: Path) -> None:
    """The result is stored before the record; nothing is written before the end."""
    with Ending(tmp_path).archive:
        pass
    assert [] == list(tmp_path.iterdir())
    service = Ending(tmp_path)
    service.result = RESULT

    with service.archive:
        wait_until(lambda: SharedRuns(tmp_path).find(OWN) is not None, "no record")


def test_unusable_folder_is_noted_once_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, not only after days of training."""
    monkeypatch.setattr(api, "_ARCHIVE_INTERVAL", 0.01)
    folder = tmp_path / "runs"
    service = Ending(folder)
    with service.archive:
        wait_until(lambda: service.notes, "no note")
        assert f"history.store {folder}: cannot be written: No such file or directory" == service.notes[0]
        service.end()
        assert "No such file or directory" in service.archive.list()["problem"]
        folder.mkdir()
        wait_until(lambda: SharedRuns(folder).find(OWN) is not None, "no record")

    assert 1 == len(service.notes)
    assert "" == service.archive.list()["problem"]


def test_folder_that_does_not_answer_does_not_stop_the_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An NFS server that is away blocks forever."""
    monkeypatch.setattr(api, "_ARCHIVE_TIMEOUT", 0.05)
    hangs, reading = threading.Event(), threading.Event()

    def wait(*_arguments: object) -> tuple[list[Run], list[str]]:
        reading.set()
        hangs.wait()
        return [], []

    monkeypatch.setattr(SharedRuns, "check", wait)
    monkeypatch.setattr(SharedRuns, "runs", wait)
    service = Ending(tmp_path)
    reader = threading.Thread(target=service.archive.list)
    try:
        with service.archive:
            reading.wait()
        reading.clear()
        reader.start()
        reading.wait()
        with pytest.raises(JobError, match="does not answer"):
            service.archive.list()
    finally:
        hangs.set()
        reader.join()


def test_this_run_and_past_runs_are_listed_once(tmp_path: Path) -> None:
    """Those of this service: of the team, and of this user; the newest hundred."""
    shared, local = SharedRuns(tmp_path), RunDatabase(tmp_path / "history.db")
    service = Ending(tmp_path, tmp_path / "history.db")
    shared.save(a_run(id=OWN))
    shared.save(a_run(id="other-20270116-080000-00000a", service="other"))
    shared.save(a_run(id="mnist-20270101-080000-0000ff", submitted=1.0, note="by a colleague"))
    local.save(a_run(id="mnist-20270102-080000-0000ff", submitted=2.0))
    local.save(a_run(id="mnist-20270101-080000-0000ff", submitted=1.0, note="mine"))
    local.save(a_run(id="else-20270102-080000-0000ff", service="else"))
    (tmp_path / "mnist-20270103-080000-0000ff.json").write_text("{")

    listed = service.archive.list()

    expected = [OWN, "mnist-20270102-080000-0000ff", "mnist-20270101-080000-0000ff"]
    assert expected == [run["id"] for run in listed["runs"]]
    assert [True, False, False] == [run["current"] for run in listed["runs"]]
    assert ("running", "mine") == (listed["runs"][0]["state"], listed["runs"][2]["note"])
    assert (1, str(tmp_path)) == (listed["unreadable"], listed["store"])
    for number in range(MAX_LISTED + 5):
        shared.save(a_run(id=f"mnist-20260101-080000-{number:06x}", submitted=float(number)))
    assert MAX_LISTED + 1 == len(service.archive.list()["runs"])


def test_past_run_has_options_and_curve_of_its_leader(tmp_path: Path) -> None:
    """Numbers that JSON lacks are null; no file outside the folder is read."""
    service = Ending(tmp_path)
    points = tuple(a_point(at, at, loss=float("inf"), metrics={"accuracy": 0.5}) for at in range(100))
    service.run = a_run(id=OWN, curves={"worker-0": points})
    (tmp_path / "secret.json").write_text("{}")

    run = service.archive.get(OWN, 10)

    assert run is not None
    assert {"service.name": "mnist", "service.command": "python train.py", "worker.count": 2} == run["options"]
    assert (10, 0, 99) == (len(run["points"]), run["points"][0]["step"], run["points"][-1]["step"])
    assert (None, {"accuracy": 0.5}) == (run["points"][0]["loss"], run["points"][0]["metrics"])
    assert None is service.archive.get("secret", 10)
    assert None is service.archive.get("../secret", 10)
