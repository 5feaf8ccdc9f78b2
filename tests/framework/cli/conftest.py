"""Run commands as processes or in this process."""

import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from jobs import PATIENCE
from kit.commands import ENVIRONMENT, command_line, processes
from kit.invocation import invoke_main
from tf_scheduler.cli.main import main


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder for the runs and the history of the test, with shared downloads."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setitem(ENVIRONMENT, "XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "dcos-tensorflow"


@pytest.fixture
def without_dcos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No DC/OS is attached, and the session is not a remote one."""
    monkeypatch.setenv("DCOS_DIR", str(tmp_path / "no-dcos"))
    monkeypatch.delenv("SSH_CONNECTION", raising=False)


@pytest.fixture
def start_process():
    """Start a command as a process, which is killed at the end of the test."""
    with processes() as start_program:

        def launch(*arguments, **settings):
            settings = {"stderr": subprocess.PIPE, "start_new_session": True, **settings}
            return start_program(*command_line(*arguments), env={**os.environ, "NO_COLOR": "1"}, **settings)

        yield launch


@pytest.fixture
def closed():
    """A pipe without a reader."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        yield pipe


@pytest.fixture
def run_process(start_process):
    """Run a command as a process; return exit code, output and error output."""

    def finish(*arguments):
        process = start_process(*arguments)
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err

    return finish


@pytest.fixture
def succeed(run_process):
    """Run a command as a process, which must succeed; return its output."""

    def finish(*arguments):
        code, out, err = run_process(*arguments)
        assert 0 == code, err
        return out

    return finish


@pytest.fixture
def invoke(capsys: pytest.CaptureFixture[str]):
    """Run a command in this process; return exit code, output and error output."""
    return partial(invoke_main, main, capsys)
