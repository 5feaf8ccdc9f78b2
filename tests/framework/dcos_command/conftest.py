"""A deployed service, and both programs that ask it."""

from functools import partial
from pathlib import Path

import pytest

from builders import a_spec, declaring
from dcos_command.main import main as dcos_main
from kit.invocation import invoke_main
from live_api import LiveApi
from tf_scheduler.cli.main import main as own_main


@pytest.fixture
def api():
    """The service dev/digits: a ps, two workers, a chief; not registered yet."""
    with LiveApi(declaring(a_spec(name="dev/digits"), "EPOCHS", "NOTE")) as live:
        yield live


@pytest.fixture
def dcos(api, capsys: pytest.CaptureFixture[str]):
    """`dcos tensorflow --name=dev/digits ARGUMENTS`."""

    def invoke_dcos(*arguments, **environment):
        main = partial(dcos_main, environment={"DCOS_URL": api.url, "DCOS_DIR": "/nowhere", **environment})
        return invoke_main(main, capsys, "tensorflow", "--name=dev/digits", *arguments)

    return invoke_dcos


@pytest.fixture
def own(api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """`dcos-tensorflow ARGUMENTS`, with the scheduler's URL in the environment."""
    monkeypatch.setenv("DCOS_TENSORFLOW_URL", api.url)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return partial(invoke_main, own_main, capsys)


@pytest.fixture(params=["dcos", "own"])
def ask(request):
    """Each of the programs: their requests and output are the same."""
    return request.getfixturevalue(request.param)
