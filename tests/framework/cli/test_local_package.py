"""The package as it is on this machine: what of the options holds, and what is the machine's own."""

import getpass
import sys
from types import SimpleNamespace

import pytest

from tf_scheduler.cli.document import load_document
from tf_scheduler.cli.folders import RunFolder
from tf_scheduler.cli.local_package import render_run, sources_of_secrets
from tf_scheduler.options.environment import to_document


@pytest.fixture
def render(tmp_path):
    """The app of a run with these options, and the options that its scheduler reads from its environment."""
    cluster = SimpleNamespace(directory=tmp_path, master=SimpleNamespace(address="127.0.0.1:5050"))

    def rendered(**document):
        app = render_run(document, cluster, RunFolder(tmp_path / "run"))
        return app, to_document(app["env"])

    return rendered


def test_a_run_has_its_own_master_state_and_interpreter(render, tmp_path, capsys):
    """An options file that was written for a cluster runs on a laptop as it is; what is not used is told."""
    app, options = render(
        service={"name": "mnist", "command": "true", "user": "nobody", "service_account_secret": "mnist/account"},
        mesos={"master": "zk://10.0.0.1:2181/mesos"},
        scheduler={"state": "zk://10.0.0.1:2181", "python": "python3.12"},
        api={"write_token": "env:TOKEN"},
    )

    assert "127.0.0.1:5050" == options["mesos"]["master"]
    assert (tmp_path / "run" / "state.db").as_uri() == options["scheduler"]["state"]
    assert f"exec {sys.executable} tensorflow-scheduler.pyz run" == app["cmd"]
    assert set() == {"secrets", "container"} & app.keys()
    assert "api" not in options
    told = capsys.readouterr().err
    for path in ("mesos.master", "scheduler.state", "scheduler.python", "api.write_token"):
        assert f"notice: {path} is not used: a local run has its own" in told


def test_tasks_run_as_the_options_say_and_the_scheduler_as_we_do(render):
    """Its folder is ours."""
    app, options = render(service={"name": "mnist", "command": "true", "user": "nobody"})

    assert (getpass.getuser(), "nobody") == (app["user"], app["env"]["FRAMEWORK_USER"])
    assert "nobody" == options["service"].get("user", "nobody")


def test_an_environment_may_be_an_object(tmp_path, render):
    """Cosmos takes lists only."""
    path = tmp_path / "options.json"
    path.write_text('{"service": {"name": "a", "command": "true"}, "worker": {"environment": {"A": "1", "B": "2"}}}')

    _, options = render(**load_document(path))

    assert [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}] == options["worker"]["environment"]


def test_only_variables_that_the_options_name_reach_the_scheduler(monkeypatch):
    """As sources of secrets; none of them is in the app, which is kept on the disk."""
    monkeypatch.setenv("KEY", "geheim")
    monkeypatch.setenv("OTHER", "x")
    document = {"secrets": [{"source": "env:KEY", "env": "KEY"}, {"source": "env:MISSING", "env": "M"}]}

    assert {"KEY": "geheim"} == {
        name: text for name, text in sources_of_secrets(document).items() if name != "VAULT_TOKEN"
    }
