"""The scheduler process of a local run: options, environment and restarts."""

import getpass
import hashlib
import itertools
import json
import os
import signal
import sys
import time
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tf_scheduler.cli.common.folders import RunFolder
from tf_scheduler.cli.common.options_file import load_document
from tf_scheduler.cli.local_run import process
from tf_scheduler.cli.local_run.follow import RunScheduler, prepare_launch
from tf_scheduler.cli.local_run.process import SchedulerLaunch, SupervisedScheduler


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return the launch of a run, the options of its scheduler, and the notices."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster = SimpleNamespace(
        directory=tmp_path, scheduler_master="127.0.0.1:5050", has_containers=False, network_process=0
    )

    def prepared(document):
        notices: list[Any] = []
        folder = RunFolder.create("mnist", uuid.uuid4().hex)
        launch = prepare_launch(document, cluster, folder, notify=notices.append)
        assert 0o600 == launch.options.stat().st_mode & 0o777
        return launch, json.loads(launch.options.read_text()), notices

    return prepared


def test_run_replaces_cluster_options(prepared) -> None:
    """A cluster's options file runs on a laptop; each unused option is reported."""
    launch, options, notices = prepared(
        {
            "service": {
                "name": "mnist",
                "command": "true",
                "user": "nobody",
                "service_account_secret": "mnist/account",
            },
            "mesos": {"master": "zk://10.0.0.1:2181/mesos"},
            "scheduler": {"state": "zk://10.0.0.1:2181", "python": "python3.12"},
            "api": {"write_token": "env:TOKEN"},
        }
    )

    assert "127.0.0.1:5050" == options["mesos"]["master"]
    assert "--force-registration" == launch.command[-1]
    assert (launch.folder.parent / "state.db").as_uri() == options["scheduler"]["state"]
    assert ("nobody", sys.executable) == (options["service"]["user"], options["service"]["python"])
    paths = ("mesos.master", "scheduler.state", "scheduler.python", "service.service_account_secret")
    missing = "api.write_token: env:TOKEN: missing variable in the scheduler's environment"
    expected = {f"notice: {path} is ignored: a local run sets its own value" for path in paths}
    assert {*expected, f"notice: {missing}; this run has a token of its own"} == set(notices)
    assert "env:RUN_API_TOKEN" == options["api"]["write_token"]


def test_run_has_a_token_of_its_own(prepared) -> None:
    """In a file of this user and in the scheduler's environment, not in the options."""
    document = {"service": {"command": "true"}}
    launch, options, notices = prepared(document)
    other, _, _ = prepared(document)

    token = Path(launch.token_file)
    assert (launch.token, 0o600, []) == (token.read_text(), token.stat().st_mode & 0o777, notices)
    assert launch.token == launch.environment(80, {})[options["api"]["write_token"].removeprefix("env:")]
    assert launch.token not in json.dumps(options) + " ".join(launch.command)
    assert launch.token != other.token


def test_run_without_tokens_of_its_users_has_its_own(prepared) -> None:
    """They are on another machine."""
    users = {"users": [{"name": "ann", "token": "env:ANN"}]}
    _, options, notices = prepared({"service": {"command": "true"}, "api": users})

    assert ([], "env:RUN_API_TOKEN") == (options["api"]["users"], options["api"]["write_token"])
    assert 1 == len([notice for notice in notices if "api.users.0.token: env:ANN" in notice])


def test_run_uses_the_token_of_its_options(prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "of the user")
    launch, options, notices = prepared({"service": {"command": "true"}, "api": {"write_token": "env:TOKEN"}})
    opened, _, _ = prepared({"service": {"command": "true"}, "api": {"authentication": "none"}})

    assert ("env:TOKEN", "of the user", []) == (options["api"]["write_token"], launch.token, notices)
    assert "of the user" == Path(launch.token_file).read_text() == launch.environment(80, {})["TOKEN"]
    assert ("", "") == (opened.token, opened.token_file)


def test_run_fills_in_user_and_checkpoints(prepared) -> None:
    """What the options leave open is known on this machine."""
    launch, options, notices = prepared({"service": {"command": "true"}})

    assert (getpass.getuser(), []) == (options["service"]["user"], notices)
    assert str(launch.folder.parent / "checkpoints") == options["service"]["checkpoint_dir"]
    environment = launch.environment(80, {})
    bundle = Path(environment["EXECUTOR_URI"].removeprefix("file://"))
    assert hashlib.sha256(bundle.read_bytes()).hexdigest() == environment["EXECUTOR_URI_SHA256"]


def test_run_accepts_environment_object(tmp_path: Path, prepared) -> None:
    """Cosmos takes lists only; both forms reach the scheduler as a list."""
    path = tmp_path / "options.json"
    path.write_text('{"service": {"name": "a", "command": "true"}, "worker": {"environment": {"A": "1", "B": "2"}}}')

    _, options, _ = prepared(load_document(path))

    assert [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}] == options["worker"]["environment"]


def test_scheduler_gets_only_named_variables(prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables with secrets are passed in the environment and written to no file."""
    monkeypatch.setenv("KEY", "geheim")
    monkeypatch.setenv("OTHER", "x")
    secrets = [{"source": "env:KEY", "env": "KEY"}, {"source": "env:MISSING", "env": "M"}]

    launch, options, _ = prepared({"service": {"command": "true"}, "secrets": secrets})

    environment = launch.environment(80, {"SDK_UNINSTALL": "true"})
    assert ("geheim", "80", "true") == tuple(environment[name] for name in ("KEY", "PORT_API", "SDK_UNINSTALL"))
    assert {"OTHER", "MISSING"}.isdisjoint(environment)
    assert "geheim" not in json.dumps(options)


@pytest.fixture
def supervise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Supervises a shell command in place of a scheduler; it is stopped at the end."""
    started = []

    def supervise(script, **delays):
        for name, value in delays.items():
            monkeypatch.setattr(process, name, value)
        monkeypatch.setattr(SchedulerLaunch, "command", property(lambda _: ["/bin/sh", "-c", script]))
        launch = SchedulerLaunch(tmp_path / "o", tmp_path, tmp_path / "log", tmp_path / "r")
        started.append(SupervisedScheduler(launch, jitter=lambda _least, most: most))
        return started[-1]

    yield supervise
    for each in started:
        each.stop()


def poll_until(supervised, condition):
    """Poll until the condition holds; return the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + 30
        supervised.poll()
        time.sleep(0.01)
    return time.monotonic() - began


def test_killed_process_is_restarted_at_its_port(supervise) -> None:
    """Other commands keep its address."""
    supervised = supervise("exec sleep 100", FIRST_DELAY=0.01)
    first, address = supervised.process, supervised.address

    os.kill(first.pid, signal.SIGKILL)
    poll_until(supervised, lambda: supervised.process not in (None, first))

    assert (-signal.SIGKILL, address) == (supervised.last_exit, supervised.address)


def test_restart_delay_doubles_up_to_its_maximum(supervise, tmp_path: Path) -> None:
    """A scheduler that cannot start must not keep the machine busy."""
    supervised = supervise("date +%s%N", FIRST_DELAY=0.1, LONGEST_DELAY=0.4)

    poll_until(supervised, lambda: len((tmp_path / "log").read_text().splitlines()) == 6)

    times = [int(line) / 1e9 for line in (tmp_path / "log").read_text().split()]
    delays = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(delay >= least for delay, least in zip(delays, (0.1, 0.2, 0.4, 0.4, 0.4), strict=True))
    assert 0 == supervised.last_exit


def test_large_log_begins_again(supervise, tmp_path: Path) -> None:
    """The process goes on to write to the same file."""
    supervised = supervise("echo first; while :; do echo $$; sleep 0.01; done", LARGEST_LOG=100)
    log, old = tmp_path / "log", tmp_path / "log.1"

    poll_until(supervised, old.exists)
    poll_until(supervised, lambda: log.read_text().startswith(f"{supervised.process.pid}\n"))

    assert "first" not in log.read_text()
    assert not log.read_bytes().startswith(b"\0")


def test_stubborn_process_is_killed_after_its_grace(supervise) -> None:
    """`stop` returns when the process has exited."""
    supervised = supervise("trap '' TERM; echo ready; while :; do sleep 0.1; done", GRACE=0.2)
    child = supervised.process

    supervised.stop()

    assert (False, None) == (child.alive(), supervised.process)


def test_restart_adds_variables_immediately(supervise, tmp_path: Path) -> None:
    """The removal of a service waits for no back-off."""
    supervised = supervise("echo $SDK_UNINSTALL; exec sleep 100", FIRST_DELAY=1000)

    supervised.restart(SDK_UNINSTALL="true")

    poll_until(supervised, lambda: "true" in (tmp_path / "log").read_text())


def test_refusal_after_lines_of_other_loggers_is_the_trouble(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler that was stopped cleanly ends its log with lines of the web server."""
    stopped = "2026-11-23 15:33:08,797 INFO uvicorn.error: Finished server process"
    script = f"echo '{stopped}'; echo '    [31358]'; echo 'this is version 1'; exit 1"
    monkeypatch.setattr(SchedulerLaunch, "command", property(lambda _: ["/bin/sh", "-c", script]))
    launch = SchedulerLaunch(tmp_path / "o", tmp_path, tmp_path / "log", tmp_path / "r")
    scheduler = RunScheduler(launch, "127.0.0.1:5050", console=False, publish=lambda _: None)
    request.addfinalizer(scheduler.stop)

    poll_until(scheduler, lambda: scheduler.last_exit is not None)

    assert "the scheduler exited with code 1: this is version 1" == scheduler.trouble


def test_trouble_is_found_in_a_truncated_log(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by logrotate with `copytruncate`."""
    script = "[ -e ../again ] && { echo broken; exit 1; }; : > ../again; printf '%0999d\\n' 0; exit 2"
    monkeypatch.setattr(
        SchedulerLaunch, "command", property(lambda _: ["/bin/sh", "-c", f"cd {tmp_path}/in; {script}"])
    )
    (tmp_path / "in").mkdir()
    launch = SchedulerLaunch(tmp_path / "o", tmp_path, tmp_path / "log", tmp_path / "r")
    scheduler = RunScheduler(launch, "127.0.0.1:5050", console=False, publish=lambda _: None)
    request.addfinalizer(scheduler.stop)
    poll_until(scheduler, lambda: scheduler.last_exit == 2)
    assert scheduler.trouble.endswith("0")

    (tmp_path / "log").write_text("")
    poll_until(scheduler, lambda: scheduler.last_exit == 1)

    assert "the scheduler exited with code 1: broken" == scheduler.trouble
