"""Run commands as processes or in this process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import PATIENCE
from kit.commands import ENVIRONMENT
from tf_scheduler.cli.main import main


@pytest.fixture(autouse=True)
def _own_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the runs of services that a test uninstalls out of the history of its user."""
    monkeypatch.setitem(ENVIRONMENT, "XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def home(tmp_path: Path):
    """Environment with a state folder per test; downloads and bundles are shared."""
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "1"}


@pytest.fixture
def start(home):
    """Start a command as a process, which is killed at the end of the test."""
    processes = []

    def launch(*arguments):
        command = [sys.executable, "-m", "tf_scheduler", *map(str, arguments)]
        process = subprocess.Popen(
            command, env=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        processes.append(process)
        return process

    yield launch
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def closed():
    """A pipe without a reader."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        yield pipe


@pytest.fixture
def run(start):
    """Run a command as a process; return exit code, output and error output."""

    def finish(*arguments):
        process = start(*arguments)
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err

    return finish


@pytest.fixture
def succeed(run):
    """Run a command as a process, which must succeed; return its output."""

    def finish(*arguments):
        code, out, err = run(*arguments)
        assert 0 == code, err
        return out

    return finish


@pytest.fixture
def invoke(capsys: pytest.CaptureFixture[str]):
    """Run a command in this process; return exit code, output and error output."""

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments)])
        return int(ended.value.code or 0), *capsys.readouterr()

    return call
