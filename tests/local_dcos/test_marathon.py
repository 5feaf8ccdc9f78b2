"""Marathon with real processes."""

import json
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dcos.errors import MarathonError
from dcos.marathon import Marathon
from kit.commands import ENVIRONMENT
from kit.waiting import wait_until
from mesos_local.host.process import ProcessId

#: Connects when it is up, then runs until it is stopped.
SERVE = f"exec {sys.executable} -m http.server --bind 127.0.0.1 $PORT0"


@pytest.fixture
def folder(tmp_path: Path):
    return tmp_path / "marathon"


@pytest.fixture
def marathon(folder, tmp_path: Path):
    with Marathon(folder, tmp_path) as found:
        yield found


def an_app(command, **options):
    return {"id": "job", "cmd": command, "backoffSeconds": 0.01, "env": {"A": "b"}, **options}


def written(path):
    return path.read_text() if path.exists() else ""


def sandbox(marathon):
    return marathon.snapshot("job").task.place.sandbox


def test_task_has_its_sandbox_and_environment(marathon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It inherits only PATH and the mark of the local cluster."""
    monkeypatch.setenv("NOT_FOR_TASKS", "1")
    marathon.create(an_app("env > env.txt; echo out; echo err >&2; exec sleep 1000"))
    task = wait_until(lambda: marathon.snapshot("job").task)

    wait_until(lambda: written(task.place.sandbox / "stderr"))

    found = dict(line.split("=", 1) for line in written(task.place.sandbox / "env.txt").splitlines())
    assert ("b", str(task.place.sandbox), str(task.place.sandbox)) == (found["A"], found["MESOS_SANDBOX"], found["PWD"])
    assert {"PATH", "DCOS_TENSORFLOW_LOCAL"} <= found.keys()
    assert "NOT_FOR_TASKS" not in found
    assert ("out\n", "err\n") == tuple(written(task.place.sandbox / name) for name in ("stdout", "stderr"))


def test_exited_task_is_restarted_with_backoff(marathon, tmp_path: Path) -> None:
    marathon.create(an_app(f"echo $MESOS_TASK_ID >> {tmp_path}/ids; exit 3"))

    wait_until(lambda: len(written(tmp_path / "ids").splitlines()) >= 4)

    ids = written(tmp_path / "ids").splitlines()
    assert len(ids) == len(set(ids))
    assert 3 == wait_until(lambda: marathon.snapshot("job").last_exit)


def test_uris_are_fetched(marathon, tmp_path: Path) -> None:
    """By the fetcher of the local agents; renamed, and extracted unless disabled."""
    (tmp_path / "a job.zip").write_bytes(b"no zip")
    names = ("sub/job.pyz", "plain.pyz")
    fetch = [{"uri": (tmp_path / "a job.zip").as_uri(), "destPath": name, "extract": False} for name in names]

    marathon.create(an_app("cat sub/job.pyz plain.pyz; exec sleep 1000", fetch=fetch))

    wait_until(lambda: marathon.snapshot("job").task and written(sandbox(marathon) / "stdout") == "no zipno zip")


def test_fetch_failure_is_logged_in_the_sandbox(marathon) -> None:
    """The task counts as failed."""
    plain = {"uri": "file:///no/file", "destPath": "plain", "extract": False}
    marathon.create(an_app("true", fetch=[plain]))

    wait_until(lambda: marathon.snapshot("job").last_exit)

    errors = [written(path) for path in (marathon._folder / "tasks").glob("*/stderr")]
    assert any("/no/file" in text for text in errors)


def test_deployment_ends_with_a_healthy_task(marathon) -> None:
    check = {"protocol": "MESOS_HTTP", "path": "/", "delaySeconds": 0, "intervalSeconds": 0.05}

    _, deployment = marathon.create(an_app(SERVE, portDefinitions=[{"port": 0}], healthChecks=[check]))

    assert {"/job": deployment} == marathon.deployments()
    wait_until(lambda: marathon.snapshot("job").healthy)
    assert {} == marathon.deployments()


def test_unhealthy_task_is_replaced(marathon) -> None:
    check = {"path": "/nothing", "delaySeconds": 0, "intervalSeconds": 0.05, "gracePeriodSeconds": 0}

    marathon.create(an_app(SERVE, portDefinitions=[{"port": 0}], healthChecks=[{**check, "maxConsecutiveFailures": 2}]))
    first = wait_until(lambda: marathon.snapshot("job").task)

    wait_until(lambda: marathon.snapshot("job").task not in (None, first))


def test_new_version_replaces_the_task(marathon, tmp_path: Path) -> None:
    """The old task exits before the new one starts."""
    marathon.create(
        an_app(f"trap 'echo old >> {tmp_path}/log; exit' TERM; touch {tmp_path}/up; while :; do sleep 0.01; done")
    )
    wait_until((tmp_path / "up").exists)

    app, deployment = marathon.replace("job", an_app(f"echo new >> {tmp_path}/log; exec sleep 1000"))

    assert deployment
    assert "old\nnew\n" == wait_until(lambda: written(tmp_path / "log").endswith("new\n") and written(tmp_path / "log"))
    wait_until(lambda: marathon.snapshot("job").app.version == app.version)


def test_task_ignoring_sigterm_is_killed(marathon, tmp_path: Path) -> None:
    """With its descendants."""
    command = f"trap '' TERM; sleep 1000 & echo $! > {tmp_path}/child; wait; while :; do sleep 1; done"
    marathon.create(an_app(command, taskKillGracePeriodSeconds=0.05))
    child = int(wait_until(lambda: written(tmp_path / "child")))

    marathon.delete("job")

    wait_until(lambda: not running(child))
    with pytest.raises(MarathonError, match="App '/job' does not exist"):
        marathon.snapshot("job")


def running(pid):
    process = ProcessId.of(pid)
    return process is not None and process.alive()


def test_apps_survive_a_marathon_restart(folder, tmp_path: Path) -> None:
    with Marathon(folder, tmp_path) as first:
        first.create(an_app(f"echo run >> {tmp_path}/log; exec sleep 1000"))
        wait_until(lambda: written(tmp_path / "log"))
    with Marathon(folder, tmp_path) as second:
        wait_until(lambda: written(tmp_path / "log") == "run\nrun\n")
        assert ["/job"] == list(second.snapshots())


def test_orphans_are_stopped_before_a_restart(folder, tmp_path: Path) -> None:
    """Otherwise two schedulers of one service would run."""
    program = """
import sys, threading
from pathlib import Path
from dcos.marathon import Marathon
with Marathon(Path(sys.argv[1]), Path(sys.argv[2])) as marathon:
    marathon.create({"id": "job", "cmd": f"echo $$ >> {sys.argv[2]}/pids; exec sleep 1000"})
    threading.Event().wait()
"""
    other = subprocess.Popen([sys.executable, "-c", program, str(folder), str(tmp_path)], env=ENVIRONMENT)
    try:
        stray = int(wait_until(lambda: written(tmp_path / "pids")))
        wait_until(
            lambda: Path(f"/proc/{stray}/cmdline").read_bytes().startswith(b"sleep")
        )  # while it changes, it has no name
        wait_until((folder / "apps.json").exists)  # stored after the start of its task
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert running(stray)

    with Marathon(folder, tmp_path):
        assert not running(stray)
        wait_until(lambda: len(written(tmp_path / "pids").splitlines()) == 2)


@pytest.mark.parametrize(
    ("do", "status"),
    [
        (lambda marathon: marathon.create(an_app("true")), 409),
        (lambda marathon: marathon.create(an_app("true", id="other", instances=-1)), 422),
        (lambda marathon: marathon.replace("none", an_app("true")), 404),
        (lambda marathon: marathon.delete("none"), 404),
        (lambda marathon: marathon.restart("none"), 404),
    ],
)
def test_refusals_are_marathons(marathon, do, status) -> None:
    marathon.create(an_app("exec sleep 1000"))

    with pytest.raises(MarathonError) as caught:
        do(marathon)

    assert status == caught.value.http_status
    assert json.loads(json.dumps(caught.value.document()))["message"]
    assert (status == 422) is bool(caught.value.problems)


def test_concurrent_change_of_an_app_is_refused(marathon) -> None:
    first, _ = marathon.create(an_app("exec sleep 1000"))
    second, _ = marathon.replace("job", an_app("exec sleep 1001"), instead_of=first)

    with pytest.raises(MarathonError, match="changed meanwhile") as caught:
        marathon.replace("job", an_app("exec sleep 1002"), instead_of=first)

    assert 409 == caught.value.http_status
    assert second is marathon.snapshot("job").app


def test_concurrent_creation_succeeds_once(marathon) -> None:
    results: queue.SimpleQueue[object] = queue.SimpleQueue()

    def create() -> None:
        try:
            results.put(marathon.create(an_app("exec sleep 1000"))[0].id)
        except MarathonError as error:
            results.put(error.http_status)

    threads = [threading.Thread(target=create) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(["/job", *[409] * 9], key=str) == sorted((results.get() for _ in threads), key=str)
