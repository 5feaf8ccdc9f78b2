"""Shell completion of names that the service has."""

import pytest
from click.shell_completion import ShellComplete

from builders import a_spec
from live_api import LiveApi
from tf_scheduler.cli.main import cli


def completed(*words):
    *before, incomplete = words
    complete = ShellComplete(cli, {}, "dcos-tensorflow", "_DCOS_TENSORFLOW_COMPLETE")
    return [item.value for item in complete.get_completions(before, incomplete)]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch):
    with LiveApi(a_spec()) as live:
        monkeypatch.setenv("DCOS_TENSORFLOW_URL", live.url)
        live.deploy()
        yield live


def test_arguments_are_completed(api) -> None:
    """Plans, phases, steps, pods, tasks, endpoints."""
    assert ["deploy", "decommission"] == completed("plan", "status", "de")
    assert ["ps", "worker", "chief"] == completed("plan", "pause", "deploy", "")
    assert ["worker-0", "worker-1"] == completed("plan", "restart", "deploy", "worker", "w")
    assert ["worker-1"] == completed("pod", "restart", "worker-1")
    assert ["chief-0"] == completed("logs", "c")
    assert ["ps"] == completed("endpoints", "p")


def test_option_values_and_update_arguments_are_completed(api) -> None:
    """The update is the plan that rolls out: deploy, until there is another one."""
    assert ["chief-0"] == completed("events", "--task", "c")
    assert ["chief-0"] == completed("events", "-t", "c")
    assert ["worker-0", "worker-1"] == completed("pod", "pause", "worker-0", "--task", "w")
    for verb in ("pause", "resume", "force-restart", "force-complete"):
        assert ["ps", "worker", "chief"] == completed("update", verb, "")
    assert ["worker-0", "worker-1"] == completed("update", "force-restart", "worker", "w")


def test_completion_uses_url_before_the_command(api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DCOS_TENSORFLOW_URL")

    assert ["chief-0"] == completed("--url", api.url, "why", "c")


def test_aliases_are_not_completed() -> None:
    assert ["list"] == completed("plan", "l")
    assert [] == completed("plan", "int")


def test_completion_without_answer_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DCOS_TENSORFLOW_URL", "http://127.0.0.1:9")

    assert [] == completed("plan", "status", "")
