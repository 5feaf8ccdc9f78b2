"""Discovery of the service that a command means."""

import contextlib
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dcos_command.client import ServiceOptions
from dcos_command.errors import UnreachableError, UsageError
from dcos_command.main import run_command
from mesos_local.host import ProcessId
from tf_scheduler.cli.common.folders import RunFolder
from tf_scheduler.cli.common.past_runs import run_database
from tf_scheduler.cli.local_run.advertisements import advertise
from tf_scheduler.cli.local_run.discovery import last_result, resolve_service
from tf_scheduler.cli.local_run.installed import InstalledService, LocalInstallation
from tf_scheduler.cli.main import cli
from tf_scheduler.history.model import Run

NOWHERE = {"DCOS_DIR": "/nowhere"}


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def running():
    """Advertise a service."""
    with contextlib.ExitStack() as stack:

        def add(name, url) -> None:
            stack.enter_context(advertise(name))(url)

        yield add


@pytest.mark.parametrize(
    ("wanted", "url", "name", "direct"),
    [
        (ServiceOptions(url="http://10.0.0.1:8080/"), "http://10.0.0.1:8080", "", True),
        (ServiceOptions(url="https://dcos/service/dev/mnist/"), "https://dcos/service/dev/mnist", "dev/mnist", False),
        (ServiceOptions(url="https://dcos", name="/mnist"), "https://dcos/service/mnist", "mnist", False),
        (ServiceOptions(url="https://proxy/x/service/mnist"), "https://proxy/x/service/mnist", "mnist", False),
    ],
)
def test_url_is_of_a_scheduler_or_of_dcos(wanted, url: str, name: str, direct: bool) -> None:
    """DC/OS has its services below /service."""
    service = resolve_service(wanted, NOWHERE)

    assert (url, name, direct) == (service.url, service.name, direct)


def test_options_override_environment() -> None:
    environment = {**NOWHERE, "DCOS_TENSORFLOW_URL": "http://env:1", "DCOS_TENSORFLOW_TOKEN": "env"}

    assert ("http://env:1", "env") == (
        resolve_service(ServiceOptions(), environment).url,
        resolve_service(ServiceOptions(), environment).token,
    )
    service = resolve_service(ServiceOptions(url="http://option:1", token="option"), environment)
    assert ("http://option:1", "option") == (service.url, service.token)


def test_only_local_service_needs_no_option(running) -> None:
    running("digits", "http://127.0.0.1:31000")

    service = resolve_service(ServiceOptions(), NOWHERE)

    assert ("digits", "http://127.0.0.1:31000", True) == (service.name, service.url, service.direct)


def test_several_local_services_need_a_name(running) -> None:
    running("digits", "http://127.0.0.1:1")
    running("mnist", "http://127.0.0.1:2")

    assert "http://127.0.0.1:2" == resolve_service(ServiceOptions(name="mnist"), NOWHERE).url
    assert (
        "http://127.0.0.1:1"
        == resolve_service(ServiceOptions(), {**NOWHERE, "DCOS_TENSORFLOW_SERVICE_NAME": "digits"}).url
    )
    with pytest.raises(UsageError, match="several services run on this machine; nothing was done") as several:
        resolve_service(ServiceOptions(), NOWHERE)
    assert ["  --url http://127.0.0.1:1  digits", "  --url http://127.0.0.1:2  mnist"] == sorted(
        str(several.value).splitlines()[1:]
    )
    with pytest.raises(UnreachableError, match="no service other runs on this machine; running: "):
        resolve_service(ServiceOptions(name="other"), NOWHERE)


def test_services_of_one_name_are_selected_by_url(running) -> None:
    """With a name alone, `cancel` could stop the wrong one; `--url` selects one."""
    running("digits", "http://127.0.0.1:1")
    running("digits", "http://127.0.0.1:2")

    with pytest.raises(UsageError, match=r"--url http://127\.0\.0\.1:2  digits"):
        resolve_service(ServiceOptions(name="digits"), NOWHERE)
    chosen = resolve_service(ServiceOptions(name="digits", url="http://127.0.0.1:2"), NOWHERE)
    assert ("digits", "http://127.0.0.1:2", True) == (chosen.name, chosen.url, chosen.direct)


def test_installed_service_is_found_with_its_installation(tmp_path: Path) -> None:
    """By its name, which need not be its id on the cluster."""
    folder = tmp_path / "services" / "mnist-2"
    with advertise("dev/mnist", str(folder)) as publish:
        publish("http://127.0.0.1:1")
        service = resolve_service(ServiceOptions(name="/dev/mnist"), NOWHERE)
        by_url = resolve_service(ServiceOptions(url="http://127.0.0.1:1"), NOWHERE)

    assert ("dev/mnist", "http://127.0.0.1:1", True) == (service.name, service.url, service.direct)
    assert LocalInstallation(InstalledService(tmp_path, "mnist-2")) == service.installation == by_url.installation


def test_list_and_status_name_the_failure_of_a_local_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise only its log would have the reason."""
    monkeypatch.setenv("DCOS_DIR", NOWHERE["DCOS_DIR"])
    folder = tmp_path / "services" / "mnist"
    folder.mkdir(parents=True)
    (folder / "options.json").write_text('{"service": {"name": "mnist"}}')
    (folder / "failure").write_text("exit code 1\nMesos has removed the framework")
    with advertise("mnist", str(folder)) as publish:
        publish("http://127.0.0.1:1")
        run_command(cli, ["list"])
        assert UnreachableError.exit_code == run_command(cli, ["status"])

    for text in capsys.readouterr():
        assert "exit code 1" in text
        assert "Mesos has removed the framework" in text


def test_attached_cluster_is_used_without_local_service(running, tmp_path: Path) -> None:
    """DCOS_URL overrides local services."""
    (tmp_path / "dcos.toml").write_text('[core]\ndcos_url = "https://attached"\ndcos_acs_token = "t"\n')
    environment = {"DCOS_DIR": str(tmp_path)}

    attached = resolve_service(ServiceOptions(), environment)
    assert ("https://attached/service/tensorflow", "t") == (attached.url, attached.cluster.token)
    running("digits", "http://127.0.0.1:1")
    assert "http://127.0.0.1:1" == resolve_service(ServiceOptions(), environment).url
    assert "https://attached/service/mnist" == resolve_service(ServiceOptions(name="mnist"), environment).url
    assert (
        "https://env/service/tensorflow"
        == resolve_service(ServiceOptions(), {**environment, "DCOS_URL": "https://env"}).url
    )


def test_missing_service_is_reported_with_hints() -> None:
    """Start one, give the URL, attach a cluster."""
    with pytest.raises(UnreachableError, match=r"(?s)local run.*local install.*--url.*dcos cluster setup"):
        resolve_service(ServiceOptions(), NOWHERE)


def test_ended_run_is_named_if_no_service_runs(tmp_path: Path) -> None:
    """Its output is stored; `logs` alone cannot find it."""
    folder = tmp_path / "dcos-tensorflow" / "runs" / "mnist-1"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text('{"service": "mnist", "state": "failed", "reason": "x"}')

    with pytest.raises(UnreachableError, match="logs --run last"):
        resolve_service(ServiceOptions(), NOWHERE)
    with pytest.raises(UnreachableError) as caught:
        resolve_service(ServiceOptions(name="other"), NOWHERE)
    assert "logs --run last" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "reason"),
    [("10.0.0.1:8080", "must begin with http"), ("http://", "missing host"), ("https:///", "missing host")],
)
def test_incomplete_url_is_wrong_usage(url: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        resolve_service(ServiceOptions(url=url), NOWHERE)


@pytest.mark.parametrize("port", ["99999", "0", "-1", "x"])
def test_url_with_invalid_port_is_wrong_usage(port) -> None:
    """Also from the variable; nothing is sent."""
    for options, variables in (
        (ServiceOptions(url=f"http://127.0.0.1:{port}"), {}),
        (ServiceOptions(), {"DCOS_TENSORFLOW_URL": f"http://127.0.0.1:{port}"}),
    ):
        with pytest.raises(UsageError, match="port"):
            resolve_service(options, {**NOWHERE, **variables})


@pytest.mark.parametrize(("process", "expected"), [("1:0", "failed"), (None, None)])
def test_newest_run_decides_about_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process: str | None, expected: str | None
) -> None:
    """The success of an earlier run says nothing about one that was killed, or starts."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    earlier, newest = RunFolder.create("mnist", "a" * 6), RunFolder.create("mnist", "b" * 6)
    earlier.result.write_text(json.dumps({"service": "mnist", "state": "succeeded", "reason": "done"}))
    os.utime(earlier.path, (1.0, 1.0))
    own = ProcessId.current()
    run = Run(newest.path.name, "mnist", "running", "", time.time(), 0.0, folder=str(newest.path))
    run_database().save(replace(run, process=process or f"{own.pid}:{own.start_time}"))

    results = [last_result(name) for name in ("", "mnist")]
    assert [expected] * 2 == [result and result["verdict"] for result in results]
    assert last_result("other") is None
