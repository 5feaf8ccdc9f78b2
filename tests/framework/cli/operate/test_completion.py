"""Names are completed by what the service has."""

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
def api(monkeypatch):
    with LiveApi(a_spec()) as live:
        monkeypatch.setenv("DCOS_TENSORFLOW_URL", live.url)
        live.deploy()
        yield live


def test_names_of_all_kinds_are_completed(api):
    """Plans, phases of the plan, steps of the phase, pods, tasks, endpoints."""
    assert ["deploy", "decommission"] == completed("plan", "status", "de")
    assert ["ps", "worker", "chief"] == completed("plan", "pause", "deploy", "")
    assert ["worker-0", "worker-1"] == completed("plan", "restart", "deploy", "worker", "w")
    assert ["worker-1"] == completed("pod", "restart", "worker-1")
    assert ["chief-0"] == completed("logs", "c")
    assert ["ps"] == completed("endpoints", "p")


def test_names_of_options_and_of_the_update_are_completed(api):
    """The update is of the plan that rolls out: deploy, as long as there is no other."""
    assert ["chief-0"] == completed("events", "--task", "c")
    assert ["chief-0"] == completed("events", "-t", "c")
    assert ["worker-0", "worker-1"] == completed("pod", "pause", "worker-0", "--task", "w")
    for verb in ("pause", "resume", "force-restart", "force-complete"):
        assert ["ps", "worker", "chief"] == completed("update", verb, "")
    assert ["worker-0", "worker-1"] == completed("update", "force-restart", "worker", "w")


def test_the_service_may_be_named_before_the_command(api, monkeypatch):
    """By --url."""
    monkeypatch.delenv("DCOS_TENSORFLOW_URL")

    assert ["chief-0"] == completed("--url", api.url, "why", "c")


def test_verbs_are_completed_without_their_other_words():
    """Aliases are for those who know them."""
    assert ["list"] == completed("plan", "l")
    assert [] == completed("plan", "int")


def test_where_nobody_answers_nothing_is_completed(monkeypatch):
    """And nothing is complained of."""
    monkeypatch.setenv("DCOS_TENSORFLOW_URL", "http://127.0.0.1:9")

    assert [] == completed("plan", "status", "")
