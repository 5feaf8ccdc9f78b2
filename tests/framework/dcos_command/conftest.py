"""A deployed service, and both programs that ask it."""

import json
from pathlib import Path

import pytest

from builders import a_spec, declaring
from dcos_command.main import main as dcos_main
from live_api import LiveApi
from tf_scheduler.cli.main import main as own_main


@pytest.fixture
def api():
    """The service dev/digits: a ps, two workers, a chief; not registered yet."""
    with LiveApi(declaring(a_spec(name="dev/digits"), "EPOCHS", "NOTE")) as live:
        yield live


class Result:
    """Exit code, standard output and standard error."""

    def __init__(self, code, captured) -> None:
        self.code, self.out, self.err = code, captured.out, captured.err

    @property
    def json(self):
        assert 0 == self.code, self.err
        return json.loads(self.out)

    @property
    def lines(self):
        assert 0 == self.code, self.err
        return self.out.splitlines()


@pytest.fixture
def dcos(api, capsys: pytest.CaptureFixture[str]):
    """`dcos tensorflow --name=dev/digits ARGUMENTS`."""

    def run(*arguments, **environment):
        everything = {"DCOS_URL": api.url, "DCOS_DIR": "/nowhere", **environment}
        try:
            code = dcos_main(["tensorflow", "--name=dev/digits", *arguments], everything)
        except SystemExit as end:
            code = int(end.code or 0)
        return Result(code, capsys.readouterr())

    return run


@pytest.fixture
def own(api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """`dcos-tensorflow ARGUMENTS`, with the scheduler's URL in the environment."""
    monkeypatch.setenv("DCOS_TENSORFLOW_URL", api.url)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            own_main(arguments)
        return Result(end.value.code, capsys.readouterr())

    return run


@pytest.fixture(params=["dcos", "own"])
def ask(request):
    """Each of the programs: their requests and output are the same."""
    return request.getfixturevalue(request.param)
